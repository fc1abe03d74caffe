//! Reflectors of one server: what one finds out, the others hear.

use super::*;

/// A plan for a reflector of a server that was at version 5.
fn of(server: &Server) -> Plan {
    Plan::paged().lists([page("a@1", "5")]).configured(|config| config.server = server.clone())
}

fn lost(after: f64) -> Answer {
    opens([wait(after), Act::Fail(refused())])
}

/// Fails `count` times as a server that is away does.
fn away(count: usize) -> impl Iterator<Item = Latest> {
    (0..count).map(|_| Err(refused()))
}

// R43 R49
#[tokio::test(start_paused = true)]
async fn what_one_reflector_finds_makes_the_others_ask_at_once() {
    let server = Server::default();
    let behind = || of(&server).lists([page("b@2", "3")]).latest([Ok(Some("3".into()))]);
    let watching_on = behind().start();
    let sleeping = behind().watches([lost(29.0)]).configured(|config| {
        config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(3_600));
    });
    let sleeping = sleeping.start();
    let finder = behind().watches([opens([wait(30.0), Act::Close])]).start();
    finder.pass(31).await;
    for rig in [finder, watching_on, sleeping] {
        assert_eq!(rig.calls()[2..], ["latest", "list limit=500", "watch rv=3"]);
        assert_eq!(rig.times()[2..], [30.0, 30.0, 30.0]);
        assert_eq!(*rig.told().last().unwrap(), "replace@3 new epoch [n/b@2]");
    }
}

// R43 R49
#[tokio::test(start_paused = true)]
async fn what_a_list_or_a_writer_finds_the_others_hear_too() {
    let server = Server::default();
    let finder = of(&server).lists([page("b@2", "3")]).watches([opens([wait(9.0), Act::Fail(gone())])]);
    let finder = finder.start();
    let other = of(&server).latest([Ok(Some("5".into())), Ok(Some("5".into()))]).start();
    finder.pass(10).await;
    assert_eq!(*finder.told().last().unwrap(), "replace@3 new epoch [n/b@2]");
    assert_eq!(other.calls(), ["list limit=500", "watch rv=5", "latest", "watch rv=5"]);
    server.report_history_loss();
    other.pass(1).await;
    assert_eq!(other.calls()[4..], ["latest", "watch rv=5"]);
}

// R49
#[tokio::test(start_paused = true)]
async fn a_kind_whose_versions_regress_again_and_again_relists_nobody_else() {
    let server = Server::default();
    let regressing = of(&server)
        .lists((0..20).map(|_| page("b@2", "5")))
        .watches((0..20).map(|_| opens([wait(150.0), Act::Close])))
        .latest((0..20).map(|_| Ok(Some("1".into()))))
        .start();
    let other = of(&server).latest((0..20).map(|_| Ok(Some("900".into())))).start();
    regressing.pass(1_600).await;
    assert!(regressing.told().iter().filter(|told| told.contains("new epoch")).count() >= 9);
    let calls = other.calls();
    assert_eq!(calls[..2], ["list limit=500", "watch rv=5"]);
    assert!(calls.len() > 20, "{calls:?}");
    assert!(calls[2..].chunks(2).all(|asked| asked == ["latest", "watch rv=5"]), "{calls:?}");
    assert_eq!(other.open_now(), 1);
}

// R49
#[tokio::test(start_paused = true)]
async fn two_reflectors_that_find_one_loss_tell_of_it_once() {
    let server = Server::default();
    let finder = || {
        let plan = of(&server).lists([page("b@2", "3")]).latest([Ok(Some("3".into()))]);
        plan.watches([opens([wait(30.0), Act::Close])]).start()
    };
    let finders = [finder(), finder()];
    finders[0].pass(40).await;
    for finder in finders {
        assert_eq!(finder.calls()[2..], ["latest", "list limit=500", "watch rv=3"]);
        assert_eq!(finder.standing(), ["Current { losses: 1 }"]);
    }
}

// R49
#[tokio::test(start_paused = true)]
async fn a_list_that_was_under_way_is_read_again_after_lost_history() {
    let server = Server::default();
    let paged = of(&server).lists([page_before("b@2", "9", "more")]).watches([Answer::Refuses(gone())]);
    let paged = paged.start();
    let streaming = Plan::streaming().configured(|config| config.server = server.clone());
    let streaming = streaming.watches([opens([events("+a@1")]), opens([events("+b@1 !3")])]).start();
    paged.pass(5).await;
    server.report_history_loss();
    paged.pass(1).await;
    assert_eq!(streaming.told(), ["replace@3 [n/b@1]"]);
    assert_eq!(streaming.standing(), ["Current { losses: 1 }"]);
}

// R49
#[tokio::test(start_paused = true)]
async fn an_outage_ends_for_all_at_once() {
    let server = Server::default();
    let slow = |config: &mut ReflectorConfig| {
        config.backoff =
            BackoffSchedule::custom(|failures| Duration::from_secs(if failures == 0 { 2 } else { 3_600 }));
    };
    for ending in [
        ListWatchError::CutShort,
        refused(),
        answer(500, "InternalError"),
        answer(502, ""),
        answer(503, ""),
        answer(504, ""),
    ] {
        let first = of(&server).watches([lost(10.0)]).latest(away(3)).start();
        let last = of(&server).configured(slow).watches([opens([wait(10.0), Act::Fail(ending)])]);
        let last = last.latest(away(1)).start();
        first.pass(3_000).await;
        let reached = *first.times().last().unwrap();
        assert!((15.0..60.0).contains(&reached), "{reached}");
        assert_eq!(last.calls()[2..], ["latest", "latest", "watch rv=5"]);
        assert!(last.times()[3] - reached < 1e-3, "{:?} {reached}", last.times());
    }
}

// R49
#[tokio::test(start_paused = true)]
async fn a_kind_that_a_starting_server_serves_last_is_read_soon_after_the_others() {
    let starting = || {
        let status = Status::failure("not all paths are installed", "ServiceUnavailable").with_code(503);
        Err(ListWatchError::Status { status: Box::new(status), retry_after: Some(Duration::from_secs(60)) })
    };
    let server = Server::default();
    let first = of(&server).lists([page("b@2", "3")]).watches([lost(10.0)]);
    let first = first.latest(away(3).chain([Ok(Some("3".into()))])).start();
    let last = of(&server).lists([page("b@2", "3")]).watches([lost(10.0)]);
    let last = last.latest([starting(), starting(), Ok(Some("3".into()))]).start();
    first.pass(120).await;
    let (found, back) = (first.times()[5], *last.times().last().unwrap());
    assert_eq!(first.calls()[5], "latest");
    assert!(back - found < 1.7, "the first found out at {found} s, the last is back at {back} s");
}

// R49 R9
#[tokio::test(start_paused = true)]
async fn who_waits_for_another_reason_waits_on_when_an_outage_ends() {
    let server = Server::default();
    let busy = || ListWatchError::Status {
        status: Box::new(Status::failure("busy", "TooManyRequests").with_code(429)),
        retry_after: Some(Duration::from_secs(200)),
    };
    let busy = of(&server).watches([opens([wait(10.0), Act::Fail(busy())])]).start();
    let forbidden = Plan::paged().lists((0..50).map(|_| Err(answer(403, "Forbidden"))));
    let forbidden = forbidden.configured(|config| {
        config.server = server.clone();
        config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(200));
    });
    let forbidden = forbidden.start();
    let ended = of(&server).watches([lost(10.0)]).latest(away(2)).start();
    ended.pass(150).await;
    assert_eq!(*ended.calls().last().unwrap(), "watch rv=5");
    assert_eq!(busy.calls().len(), 2);
    assert_eq!(forbidden.calls().len(), 1);
}

// R49 R54
#[tokio::test(start_paused = true)]
async fn a_kind_that_stays_broken_is_not_hammered_while_others_come_and_go() {
    let server = Server::default();
    let flapping =
        of(&server).watches((0..5_000).map(|_| opens([events("~5"), wait(0.1), Act::Fail(refused())])));
    let _flapping = flapping.latest((0..5_000).map(|_| Ok(Some("5".into())))).start();
    let broken = of(&server).watches([lost(1.0)]).latest((0..1_000).map(|_| Err(answer(503, "")))).start();
    broken.pass(3_600).await;
    let times = broken.times();
    let gaps: Vec<_> = times[2..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap >= 0.8), "{gaps:?}");
    let from = |seconds: f64| times[2..].iter().position(|at| *at >= seconds).unwrap();
    assert!(gaps[..from(55.0)].iter().all(|gap| *gap < 2.5), "it may be chance at first: {gaps:?}");
    assert!(gaps[from(150.0)..].iter().all(|gap| *gap >= 30.0), "then nobody else hurries it: {gaps:?}");
    assert!(times.len() < 150, "{} requests in an hour", times.len());
}

// R40
#[tokio::test(start_paused = true)]
async fn a_forbidden_or_broken_kind_of_the_same_server_delays_no_other() {
    let server = Server::default();
    let of_server = |config: &mut ReflectorConfig| config.server = server.clone();
    let forbidden = Plan::paged().configured(of_server).lists((0..50).map(|_| Err(answer(403, "Forbidden"))));
    let broken = Plan::paged().configured(of_server).lists((0..50).map(|_| Err(answer(503, ""))));
    let (forbidden, broken) = (forbidden.start(), broken.start());
    forbidden.pass(300).await;
    let healthy =
        of(&server).watches([opens([wait(90.0), Act::Fail(refused())])]).latest([Ok(Some("5".into()))]);
    let healthy = healthy.start();
    healthy.pass(100).await;
    let times = healthy.times();
    assert_eq!(times[..2], [0.0, 0.0]);
    assert!(
        (90.8..91.6).contains(&times[2]),
        "its own first delay, however often the others failed: {times:?}"
    );
    assert!(forbidden.told().len() > 5 && broken.told().len() > 5);
    let gap = |rig: &Rig| rig.times().windows(2).last().map(|pair| pair[1] - pair[0]).unwrap();
    assert!(gap(&forbidden) >= 30.0, "nor does it hurry one whose failure is of another sort");
}

// C35
#[tokio::test(start_paused = true)]
async fn the_store_hears_of_a_lost_watch_once_and_of_its_return() {
    let server = Server::default();
    let rig = of(&server).watches([lost(10.0), lost(10.0)]).latest(away(3)).start();
    rig.pass(9).await;
    assert!(rig.standing().is_empty());
    rig.pass(2).await;
    assert_eq!(rig.standing(), ["WatchLost"]);
    rig.pass(9).await;
    assert_eq!(rig.standing(), ["WatchLost", "WatchBack"]);
    rig.pass(71).await;
    assert_eq!(rig.standing(), ["WatchLost", "WatchBack", "WatchLost", "WatchBack"]);
}

// C35
#[tokio::test(start_paused = true)]
async fn only_the_connection_takes_a_watch_from_its_keys() {
    for error in [answer(429, ""), answer(403, "Forbidden"), gone(), ListWatchError::Unreadable("x".into())] {
        let rig = of(&Server::default()).watches([opens([wait(5.0), Act::Fail(error)])]).start();
        rig.pass(20).await;
        assert!(rig.standing().is_empty(), "{:?}", rig.standing());
    }
    let rig = of(&Server::default()).watches((0..2).map(|_| opens([Act::Close]))).start();
    rig.pass(20).await;
    assert!(rig.standing().is_empty(), "one that ends at once, cleanly");
}

// C35
#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_asked_answers_at_once() {
    let server = Server::default();
    let unasked = of(&server).start();
    let denied = of(&server).latest([Err(answer(403, "Forbidden"))]).start();
    let forbidden = of(&server).lists((0..9).map(|_| Err(answer(403, "Forbidden"))));
    let forbidden = forbidden.watches([opens([wait(5.0), Act::Fail(answer(403, "Forbidden"))])]).start();
    let unreachable = of(&server).latest(away(900)).watches([lost(5.0)]).start();
    unasked.pass(60).await;
    server.report_history_loss();
    unasked.pass(1).await;
    for rig in [unasked, denied, forbidden] {
        assert_eq!(rig.standing(), ["Current { losses: 1 }"]);
    }
    assert_eq!(unreachable.standing(), ["WatchLost"], "what can't be reached does not answer");
}

// R50
#[tokio::test(start_paused = true)]
async fn a_store_that_doubts_what_it_shows_gets_a_consistent_list() {
    let server = Server::default();
    let watching = of(&server).lists([page("b@9", "9")]).start();
    let sleeping = of(&server).lists([page("b@9", "9")]).watches([lost(1.0)]).latest(away(1)).start();
    watching.pass(2).await;
    for rig in [&watching, &sleeping] {
        rig.store.wants_list.notify_one();
    }
    watching.pass(20).await;
    assert_eq!(watching.calls()[2..], ["list limit=500", "watch rv=9"]);
    assert_eq!(watching.times()[2], 2.0);
    assert_eq!(sleeping.calls()[2..], ["list limit=500", "watch rv=9"]);
    assert_eq!(*watching.told().last().unwrap(), "replace@9 [n/b@9]");
}

//! Servers that are out of reach, or come back with another past.

use super::*;
use crate::clock::WallClock;

fn watching() -> Plan {
    Plan::paged().lists([page("a@1", "5")])
}

// R43
#[tokio::test(start_paused = true)]
async fn a_server_restored_to_an_older_state_is_noticed_at_the_next_connection() {
    let endings = || {
        [
            opens([wait(30.0), Act::Fail(refused())]),
            opens([wait(30.0), Act::Fail(answer(502, ""))]),
            opens([wait(30.0), Act::Fail(answer(503, ""))]),
            opens([wait(30.0), Act::Close]),
            // Bookmarks come each minute: what a watch brought says nothing of what comes after it.
            opens([wait(30.0), events("~6"), Act::Close]),
            opens([events("~6"), wait(30.0), Act::Fail(ListWatchError::Idle(Duration::from_secs(120)))]),
            opens([events("~6"), wait(30.0), Act::Fail(ListWatchError::Suspended(Duration::from_secs(600)))]),
            // Through any wait the server may go and come back.
            opens([wait(30.0), events("~6"), Act::Fail(answer(500, ""))]),
            opens([wait(30.0), events("~6"), Act::Fail(ListWatchError::CutShort)]),
            Answer::Refuses(answer(429, "")),
            Answer::Refuses(refused()),
        ]
    };
    for ending in endings() {
        let rig = watching().lists([page("b@2", "3")]).watches([ending]).latest([Ok(Some("3".into()))]);
        let rig = rig.run_for(60).await;
        assert_eq!(rig.calls()[2..], ["latest", "list limit=500", "watch rv=3"]);
        assert_eq!(*rig.told().last().unwrap(), "replace@3 new epoch [n/b@2]");
    }
}

// R43
#[tokio::test(start_paused = true)]
async fn a_consistent_list_that_is_behind_is_a_new_epoch() {
    let rig = watching().lists([page("b@2", "3")]).watches([Answer::Refuses(gone())]).run_for(5).await;
    assert_eq!(*rig.told().last().unwrap(), "replace@3 new epoch [n/b@2]");
}

// R43
#[tokio::test(start_paused = true)]
async fn a_server_that_only_lags_is_not_mistaken() {
    for latest in ["5", "900", "x7", ""] {
        let rig = watching()
            .watches([Answer::Refuses(refused())])
            .latest([Ok(Some(latest.to_owned()))])
            .run_for(60)
            .await;
        assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "latest", "watch rv=5"]);
    }
}

// R43
#[tokio::test(start_paused = true)]
async fn a_server_behind_the_version_asked_for_has_not_lost_its_history() {
    let too_large = || {
        let status = Status::failure("Timeout: Too large resource version: 9, current: 5", "Timeout");
        ListWatchError::from_status(status.with_code(504))
    };
    for answered in [Answer::Refuses(too_large()), opens([Act::Fail(too_large())])] {
        let rig = watching().lists([page("a@1", "9")]).watches([answered]).run_for(5).await;
        let told = rig.told();
        assert!(told.iter().any(|told| told == "replace@9 [n/a@1]"), "{told:?}");
    }
}

// R43
#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_answered_is_left_out() {
    for code in [403, 404, 405] {
        let rig = watching()
            .watches([Answer::Refuses(refused())])
            .latest([Err(answer(code, ""))])
            .run_for(30)
            .await;
        assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "latest", "watch rv=5"]);
    }
    let rig = watching().watches([Answer::Refuses(refused())]).latest([Err(refused())]).run_for(30).await;
    assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "latest", "latest", "watch rv=5"]);
}

// R44
#[tokio::test(start_paused = true)]
async fn a_rolling_restart_of_less_than_a_minute_causes_no_relist() {
    let rig = watching()
        .watches([
            opens([wait(5.0), Act::Fail(refused())]),
            Answer::Refuses(answer(503, "")),
            Answer::Refuses(answer(502, "")),
            opens([events("+b@6")]),
        ])
        .latest([Err(refused()), Err(answer(503, "")), Ok(Some("5".into())), Ok(Some("6".into()))])
        .run_for(120)
        .await;
    assert_eq!(rig.calls().iter().filter(|call| call.starts_with("list")).count(), 1);
    assert_eq!(*rig.told().last().unwrap(), "+n/b@6");
}

/// Lists that follow outages of this many seconds each, with a quiet minute after each.
async fn lists_after_outages(outages: impl IntoIterator<Item = usize>) -> usize {
    let (mut watches, mut latest) = (Vec::new(), Vec::new());
    for seconds in outages {
        watches.push(opens([events("~6"), wait(60.0), Act::Fail(refused())]));
        latest.extend((0..seconds - 1).map(|_| Err(refused())));
        latest.push(Ok(Some("6".into())));
    }
    let rig = watching()
        .configured(|config| config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(1)))
        .watches(watches)
        .latest(latest)
        .run_for(400)
        .await;
    rig.calls().iter().filter(|call| call.starts_with("list")).count() - 1
}

// R44
#[tokio::test(start_paused = true)]
async fn an_outage_is_long_after_a_minute_without_an_opening_whatever_came_before() {
    assert_eq!(lists_after_outages([60]).await, 0, "59 s passed since the first attempt failed");
    assert_eq!(lists_after_outages([62]).await, 1);
    assert_eq!(lists_after_outages([40, 40, 40]).await, 0, "each ended with an opening");
}

// R44
#[tokio::test(start_paused = true)]
async fn after_a_long_outage_lists_follow_spread_over_half_a_minute() {
    let mut waits = Vec::new();
    for seed in 0..8 {
        let rig = watching()
            .configured(|config| {
                config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(10));
                config.seed = Some(seed);
            })
            .watches([opens([wait(5.0), Act::Fail(refused())])])
            .latest((0..8).map(|_| Err(refused())))
            .run_for(200)
            .await;
        let (calls, times) = (rig.calls(), rig.times());
        let list = calls.iter().rposition(|call| call == "list rv=5").expect("a relist");
        assert_eq!(calls[list - 1], "latest");
        waits.push(times[list] - times[list - 1]);
    }
    waits.sort_by(f64::total_cmp);
    assert!(waits[0] >= 0.0 && waits[7] <= 30.0, "{waits:?}");
    assert!(waits[7] - waits[0] > 10.0, "not everybody lists at once: {waits:?}");
}

// R51
#[tokio::test(start_paused = true)]
async fn lists_do_not_hide_that_the_watch_is_forbidden_and_become_rare() {
    let rig = Plan::paged()
        .lists((0..100).map(|_| page("a@1", "5")))
        .watches((0..100).map(|_| Answer::Refuses(answer(403, "Forbidden"))))
        .latest((0..100).map(|_| Ok(Some("5".into()))))
        .run_for(1_800)
        .await;
    let (calls, told) = (rig.calls(), rig.told());
    let lists = calls.iter().filter(|call| call.starts_with("list")).count();
    assert!((5..=8).contains(&lists), "{lists} lists in half an hour");
    let failures: Vec<_> = told.iter().filter(|told| told.starts_with("failed")).collect();
    assert!(failures.len() > 30);
    for (at, failure) in failures.iter().enumerate() {
        assert_eq!(**failure, format!("failed #{}: the server answered 403: no", at + 1));
    }
    assert!(!rig.is_healthy());
}

// R51
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_allowed_again_goes_on_and_ends_the_failure() {
    let rig = Plan::paged()
        .lists((0..100).map(|_| page("a@1", "5")))
        .watches((0..5).map(|_| Answer::Refuses(answer(403, "Forbidden"))))
        .watches([opens([events("+b@6"), Act::Fail(answer(403, "Forbidden"))])])
        .run_for(120)
        .await;
    let told = rig.told();
    let delivered = told.iter().position(|told| told == "+n/b@6").expect("the watch was opened");
    assert!(told[delivered - 1].starts_with("failed #5"));
    assert!(told[delivered + 1].starts_with("failed #1"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_late_is_found_within_five_seconds() {
    for plan in [Plan::paged(), Plan::streaming().watches((0..300).map(|_| Answer::Refuses(answer(404, ""))))]
    {
        let rig = plan.lists((0..300).map(|_| Err(answer(404, "")))).run_for(600).await;
        let (calls, times) = (rig.calls(), rig.times());
        let lists: Vec<_> = times
            .iter()
            .zip(&calls)
            .filter(|(_, call)| call.starts_with("list"))
            .map(|(at, _)| *at)
            .collect();
        assert!(lists.windows(2).all(|pair| pair[1] - pair[0] < 5.0), "{lists:?}");
        assert!(lists.len() < 260, "{} lists in ten minutes", lists.len());
        assert_eq!(rig.told().len(), lists.len(), "a round fails once");
    }
}

// R30
#[tokio::test(start_paused = true)]
async fn a_quiet_watch_counts_as_healthy_once_it_has_lived() {
    let rig = watching().watches([Answer::Refuses(answer(429, "")), silent()]).start();
    rig.pass(5).await;
    assert_eq!(rig.told()[1..], ["failed #1: the server answered 429: no"]);
    assert!(!rig.is_healthy());
    rig.pass(10).await;
    assert!(rig.is_healthy());
}

// R2
#[tokio::test(start_paused = true)]
async fn a_source_that_is_always_ready_leaves_room_for_others() {
    let busy = opens((0..100_000).map(|version| events(&format!("=a@{}", version + 6))));
    let rig = watching().watches([busy]).start();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    rig.cancel.cancel();
    rig.task.await.unwrap();
    assert!(rig.store.told.lock().unwrap().len() < 50_000);
}

/// A wall clock that follows tokio's, and can be moved ahead of it, as a suspended machine moves it.
#[derive(Clone)]
struct Machine(Arc<Mutex<Duration>>, Instant);

impl Machine {
    fn new() -> Self {
        Self(Arc::default(), Instant::now())
    }

    fn clock(&self) -> WallClock {
        let machine = self.clone();
        let date = WallClock::system().now();
        WallClock::custom(move || date + machine.1.elapsed() + *machine.0.lock().unwrap())
    }

    fn sleeps(&self, seconds: u64) {
        *self.0.lock().unwrap() += Duration::from_secs(seconds);
    }
}

// R39
#[tokio::test(start_paused = true)]
async fn after_a_suspension_every_watch_is_opened_again_without_delay_or_list() {
    let machine = Machine::new();
    let rig = watching()
        .configured(|config| config.clock = machine.clock())
        .watches([opens([events("+b@6")]), opens([wait(50.0), events("+c@7")])])
        .start();
    rig.pass(60).await;
    machine.sleeps(29);
    rig.pass(60).await;
    assert_eq!(rig.calls(), ["list limit=500", "watch rv=5"], "clocks may differ a little");
    machine.sleeps(3_600);
    rig.pass(60).await;
    // The server may have been restored meanwhile.
    assert_eq!(rig.calls()[2..], ["latest", "watch rv=6"]);
    let noticed = rig.times()[2];
    assert!((120.0..=151.0).contains(&noticed), "{noticed}");
    rig.pass(60).await;
    assert_eq!(*rig.told().last().unwrap(), "+n/c@7");
    assert_eq!(rig.open_now(), 1);
    rig.pass(1_000).await;
    assert_eq!(rig.calls().len(), 4, "one suspension is noticed once");
}

// R39
#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_a_suspension_interrupts_starts_again_at_once() {
    let machine = Machine::new();
    let rig = Plan::streaming()
        .configured(|config| config.clock = machine.clock())
        .watches([opens([events("+a@1")]), opens([events("+a@1 !5")])])
        .start();
    rig.pass(5).await;
    machine.sleeps(100);
    rig.pass(10).await;
    assert_eq!(rig.calls(), ["stream match=NotOlderThan", "stream match=NotOlderThan"]);
    assert_eq!(rig.times()[1], 10.0);
    assert_eq!(*rig.told().last().unwrap(), "replace@5 [n/a@1]");
}

//! Watches: what they bring, how they end, how they are stopped.

use super::*;

fn watching() -> Plan {
    Plan::paged().lists([page("a@1", "5")])
}

// R1, R36
#[tokio::test(start_paused = true)]
async fn gone_relists_at_once_and_never_asks_for_that_version_again() {
    let in_stream = opens([events("+b@6"), Act::Tell(vec![error_event(410, "Expired")]), events("+c@7")]);
    for ending in [in_stream, Answer::Refuses(gone())] {
        let rig = watching().lists([page("", "9")]).watches([ending]).run_for(5).await;
        assert_eq!(rig.calls()[2..], ["list limit=500", "watch rv=9"]);
        assert_eq!(rig.times()[2], 0.0);
        assert!(!rig.told().iter().any(|told| told.contains("n/c")));
        assert!(rig.told().iter().any(|told| told == "failed #1: the server answered 410: no"));
    }
}

// R1
#[tokio::test(start_paused = true)]
async fn an_error_event_is_followed_by_what_its_status_says() {
    for (code, reason, next) in [
        (410, "Expired", "list limit=500"),
        (429, "TooManyRequests", "latest"),
        (500, "InternalError", "latest"),
        (503, "ServiceUnavailable", "latest"),
        (403, "Forbidden", "list rv=5"),
        (400, "BadRequest", "list rv=5"),
    ] {
        let rig = watching()
            .watches([opens([events("~5"), Act::Tell(vec![error_event(code, reason)])])])
            .run_for(5)
            .await;
        assert_eq!(rig.calls()[2], next, "after {code}");
    }
}

// R2, R4
#[tokio::test(start_paused = true)]
async fn cancellation_ends_an_open_watch_exactly_once() {
    let rig = watching().run_for(5).await;
    assert_eq!((rig.open_now(), rig.stopped()), (1, 0));
    rig.cancel.cancel();
    (&mut { rig.task }).await.unwrap();
    assert_eq!(rig.script.opened.load(Ordering::SeqCst), 1);
    assert_eq!(rig.script.stopped.load(Ordering::SeqCst), 1);
}

// R2
#[tokio::test(start_paused = true)]
async fn cancellation_ends_a_back_off_at_once() {
    let rig = Plan::paged()
        .configured(|config| config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(3_600)))
        .lists([Err(refused())])
        .run_for(5)
        .await;
    rig.cancel.cancel();
    rig.task.await.unwrap();
    assert_eq!(rig.started.elapsed(), Duration::from_secs(5));
}

// R3
#[tokio::test(start_paused = true)]
async fn cancelled_before_the_watch_none_is_opened() {
    let rig = watching().start();
    rig.cancel.cancel();
    rig.task.await.unwrap();
    assert_eq!(rig.script.opened.load(Ordering::SeqCst), 0);
}

// R3
#[tokio::test(start_paused = true)]
async fn cancelled_while_a_watch_opens_it_is_stopped() {
    let rig = watching().watches([Answer::OpensLate(Duration::from_secs(10))]).run_for(5).await;
    rig.cancel.cancel();
    rig.task.await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.script.opened.load(Ordering::SeqCst), rig.script.stopped.load(Ordering::SeqCst));
}

// R4
#[tokio::test(start_paused = true)]
async fn every_watch_is_stopped_once() {
    let rig = watching().watches((0..5).map(|_| opens([wait(2.0), Act::Close]))).run_for(60).await;
    assert_eq!((rig.stopped(), rig.open_now()), (5, 1));
}

// R5
#[tokio::test(start_paused = true)]
async fn changes_are_applied_and_what_is_no_event_is_reported_and_skipped() {
    let odd = Act::Tell(vec![
        WatchEvent::Unexpected("an event with an object of another kind: Secret of v1".into()),
        WatchEvent::Modified(item("b", "7")),
    ]);
    let rig = watching().watches([opens([events("+b@6"), wait(1.0), odd, wait(1.0), events("-a@8")])]);
    let rig = rig.run_for(5).await;
    assert_eq!(
        rig.told(),
        [
            "replace@5 [n/a@1]",
            "+n/b@6",
            "skipped an event with an object of another kind: Secret of v1",
            "+n/b@7",
            "-n/a@8",
        ]
    );
    assert_eq!(rig.open_now(), 1);
}

// R18
#[tokio::test(start_paused = true)]
async fn watch_timeouts_lie_between_five_and_ten_minutes() {
    let rig = watching().watches((0..200).map(|_| opens([wait(2.0), Act::Close]))).run_for(1_000).await;
    let timeouts: Vec<_> = rig.options().iter().filter_map(|options| options.timeout).collect();
    assert!(timeouts.len() > 100);
    assert!(timeouts.iter().all(|timeout| (300..=600).contains(&timeout.as_secs())));
    assert!(timeouts.windows(2).any(|pair| pair[0] != pair[1]));
}

// R19
#[tokio::test(start_paused = true)]
async fn every_event_advances_the_version() {
    for (told, version) in [("+b@6", "6"), ("=a@7", "7"), ("-a@8", "8"), ("~9", "9"), ("+b@6 ~10", "10")] {
        let rig = watching().watches([opens([events(told), wait(2.0), Act::Close])]).run_for(5).await;
        assert_eq!(rig.calls()[3], format!("watch rv={version}"));
    }
}

// R14 R19
#[tokio::test(start_paused = true)]
async fn an_older_event_does_not_take_the_version_back() {
    let rig = watching()
        .watches([opens([events("+b@9"), wait(1.0), events("=a@7"), wait(1.0), Act::Close])])
        .run_for(5)
        .await;
    assert_eq!(rig.calls()[3], "watch rv=9");
}

// R35
#[tokio::test(start_paused = true)]
async fn a_stream_cut_in_the_middle_of_a_frame_goes_on_from_the_last_event() {
    let cut = opens([events("+b@6 =b@7"), Act::Fail(ListWatchError::CutShort)]);
    let rig = watching().watches([cut]).run_for(5).await;
    assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "latest", "watch rv=7"]);
    assert_eq!(rig.told()[1..], ["+n/b@6 +n/b@7", "failed #1: the answer ended in the middle"]);
}

// R32
#[tokio::test(start_paused = true)]
async fn very_short_watches_back_off_and_relist_after_three_in_a_row() {
    let short = || opens([Act::Close]);
    let rig = watching().watches([short(), short(), short()]).run_for(20).await;
    let calls = ["list limit=500", "watch rv=5", "latest", "watch rv=5", "latest", "watch rv=5", "list rv=5"];
    assert_eq!(rig.calls(), calls);
    let told = rig.told();
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[3], "failed #3: the server closes watches as soon as they are open");
    let times = rig.times();
    assert!(times[3] - times[1] >= 0.8 && times[5] - times[3] >= 0.8 && times[6] - times[0] >= 0.8);
}

// R38
#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_closing_cleanly_is_not_hammered() {
    for bookmark in ["", "~5"] {
        let rig = Plan::paged()
            .lists((0..1_000).map(|_| page("a@1", "5")))
            .watches((0..1_000).map(|_| opens([events(bookmark), Act::Close])))
            .run_for(600)
            .await;
        let calls = rig.calls().len();
        assert!(calls < 250, "{calls} requests in ten minutes");
    }
}

// R9
#[tokio::test(start_paused = true)]
async fn too_many_requests_delay_and_never_relist() {
    let busy = |seconds| ListWatchError::Status {
        status: Box::new(Status::failure("busy", "TooManyRequests").with_code(429)),
        retry_after: Some(Duration::from_secs(seconds)),
    };
    let rig = watching()
        .watches([Answer::Refuses(busy(20)), opens([Act::Fail(busy(30))]), silent()])
        .run_for(100)
        .await;
    let calls: Vec<_> = rig.calls().into_iter().filter(|call| call != "latest").collect();
    assert_eq!(calls, ["list limit=500", "watch rv=5", "watch rv=5", "watch rv=5"]);
    assert_eq!(rig.times()[2], 20.0);
    assert_eq!(*rig.times().last().unwrap(), 50.0);
}

// R9
#[tokio::test(start_paused = true)]
async fn a_wait_that_a_server_asks_for_has_an_end() {
    let busy = ListWatchError::Status {
        status: Box::new(Status::failure("busy", "TooManyRequests").with_code(429)),
        retry_after: Some(Duration::from_secs(86_400)),
    };
    let rig = watching().watches([Answer::Refuses(busy), silent()]).run_for(1_000).await;
    assert_eq!(rig.times()[2], 300.0, "{:?}", rig.calls());
}

// R9
#[tokio::test(start_paused = true)]
async fn a_refusal_that_asks_for_time_gets_it() {
    for code in [403, 404, 405, 422] {
        let refusal = ListWatchError::Status {
            status: Box::new(Status::failure("no", "").with_code(code)),
            retry_after: Some(Duration::from_secs(100)),
        };
        let rig = watching().watches([Answer::Refuses(refusal)]).run_for(150).await;
        assert_eq!(rig.times()[2], 100.0, "after {code}: {:?}", rig.calls());
    }
}

// R51 R59
#[tokio::test(start_paused = true)]
async fn refusals_are_counted_anew_after_a_watch_that_was_good() {
    let refused = || Answer::Refuses(answer(403, "Forbidden"));
    for good in [events("~5"), wait(10.0)] {
        let rig = Plan::paged()
            .lists((0..9).map(|_| page("a@1", "5")))
            .watches((0..3).map(|_| refused()))
            .watches([opens([good, Act::Fail(answer(403, "Forbidden"))]), refused(), refused()])
            .run_for(200)
            .await;
        let calls: Vec<_> = rig.calls().into_iter().filter(|call| call != "latest").collect();
        let lists: Vec<_> = (0..calls.len()).filter(|at| calls[*at].starts_with("list")).collect();
        // One at the start, after the first and the second refusal; one for the error in the good stream; and again.
        assert_eq!(lists[..6], [0, 2, 4, 7, 9, 11], "{calls:?}");
    }
}

// R59
#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_watched_is_listed_at_least_every_quarter_of_an_hour() {
    let rig = Plan::paged()
        .lists((0..10_000).map(|_| page("a@1", "5")))
        .watches((0..100_000).map(|_| Answer::Refuses(answer(405, "MethodNotAllowed"))))
        .latest((0..100_000).map(|_| Ok(Some("5".into()))))
        .run_for(86_400)
        .await;
    let (calls, times) = (rig.calls(), rig.times());
    let lists: Vec<_> =
        (0..calls.len()).filter(|at| calls[*at].starts_with("list")).map(|at| times[at]).collect();
    assert!((90..150).contains(&lists.len()), "{} lists in a day", lists.len());
    assert!(lists.windows(2).all(|pair| pair[1] - pair[0] <= 960.0), "{lists:?}");
}

// R59
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_polled_is_listed_so_often_and_never_watched() {
    for plan in [Plan::paged(), Plan::streaming()] {
        let rig = plan
            .configured(|config| config.poll = Some(Duration::from_secs(60)))
            .lists([
                page("a@1", "5"),
                page("a@6", "6"),
                Err(answer(503, "")),
                page("b@9", "9"),
                page("", "10"),
            ])
            .start();
        rig.pass(130).await;
        let calls = ["list limit=500", "list rv=5", "list rv=6", "list rv=6"];
        assert_eq!(rig.calls(), calls);
        assert_eq!(rig.times()[..3], [0.0, 60.0, 120.0]);
        assert_eq!(rig.told().last().unwrap(), "replace@9 [n/b@9]");
        assert!(rig.is_healthy());
        rig.store.wants_list.notify_one();
        rig.pass(1).await;
        assert_eq!(*rig.calls().last().unwrap(), "list limit=500", "one that is in doubt is listed at once");
    }
}

/// A number of watches that die without a sign.
fn dead(count: usize) -> impl Iterator<Item = Answer> {
    let dead = || opens([wait(120.0), Act::Fail(ListWatchError::Idle(Duration::from_secs(120)))]);
    (0..count).map(move |_| dead())
}

// R56
#[tokio::test(start_paused = true)]
async fn watches_that_hold_changes_back_are_told_and_lists_stand_in_for_them() {
    let rig = Plan::paged()
        .lists([page("a@1", "5"), page("a@7", "8"), page("", "20"), page("", "30")])
        .watches(dead(6).chain([opens([events("+c@31")])]))
        .latest(["6", "8", "8", "19", "20", "25", "30"].map(|latest| Ok(Some(latest.into()))))
        .start();
    rig.pass(250).await;
    let calls =
        ["list limit=500", "watch rv=5", "latest", "watch rv=5", "latest", "list limit=500", "watch rv=8"];
    assert_eq!(rig.calls(), calls);
    assert_eq!(rig.times()[5], 240.0);
    let told = "open watches bring nothing, although lists show changes";
    assert_eq!(rig.told()[1..], ["replace@8 [n/a@7]".to_owned(), format!("failed #1: {told}")]);
    rig.pass(20).await;
    assert!(!rig.is_healthy(), "a watch that is open proves nothing");
    rig.pass(240).await;
    let told = |attempt| format!("failed #{attempt}: {told}");
    assert_eq!(rig.told()[3..], ["replace@20 []".to_owned(), told(2)], "an object that went tells as well");
    rig.pass(300).await;
    assert_eq!(rig.told()[5..], ["replace@30 []", "+n/c@31"], "the list showed that no event was missed");
    assert!(rig.is_healthy());
}

// R56
#[tokio::test(start_paused = true)]
async fn a_quiet_kind_of_a_server_without_bookmarks_is_not_blamed_and_seldom_listed() {
    let rig = Plan::paged()
        .lists((0..100).map(|_| page("a@1", "5")))
        .watches(dead(720))
        .latest((0..720).map(|_| Ok(Some("6".into()))))
        .run_for(86_000)
        .await;
    assert!(!rig.told().iter().any(|told| told.starts_with("failed")), "{:?}", rig.told());
    let lists = rig.told().len();
    assert!((40..60).contains(&lists), "{lists} lists in a day");
}

// R56
#[tokio::test(start_paused = true)]
async fn silence_is_no_reason_to_list_while_the_server_stands_still_or_bookmarks_come() {
    let still =
        watching().watches(dead(20)).latest((0..20).map(|_| Ok(Some("5".into())))).run_for(2_000).await;
    let marked = (0..20).map(|n| {
        let idle = Act::Fail(ListWatchError::Idle(Duration::from_secs(120)));
        opens([events(&format!("~{}", 6 + n)), wait(120.0), idle])
    });
    let marked = watching().watches(marked).run_for(2_000).await;
    for rig in [still, marked] {
        assert_eq!(rig.calls().iter().filter(|call| call.starts_with("list")).count(), 1);
    }
}

// R10
#[tokio::test(start_paused = true)]
async fn internal_errors_are_retried_for_a_minute_then_relist() {
    let rig =
        watching().watches((0..100).map(|_| Answer::Refuses(answer(500, "InternalError")))).run_for(300);
    let rig = rig.await;
    let calls = rig.calls();
    let relist = calls.iter().position(|call| call == "list rv=5").expect("a relist");
    assert!(calls[1..relist].iter().all(|call| call == "watch rv=5" || call == "latest"));
    assert!(rig.times()[relist] > 60.0 && relist > 4);
}

// R10
#[tokio::test(start_paused = true)]
async fn internal_errors_of_streams_that_can_be_opened_count_as_well() {
    // Each opens, so that nothing is out of reach, and fails before it has delivered or lived.
    let failing = |seconds: u64| {
        let failing = || opens([wait(1.0), Act::Tell(vec![error_event(500, "InternalError")])]);
        watching()
            .configured(|config| config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(4)))
            .lists([page("a@1", "5")])
            .watches((0..40).map(move |_| failing()))
            .run_for(seconds)
    };
    let relist = |rig: &Rig| rig.calls().iter().skip(1).position(|call| call.starts_with("list"));
    let early = failing(60).await;
    assert_eq!(relist(&early), None, "{:?}", early.calls());
    let late = failing(75).await;
    let at = relist(&late).expect("a relist after a minute") + 1;
    assert!((60.0..72.0).contains(&late.times()[at]), "{:?}", late.times());
}

// R10
#[tokio::test(start_paused = true)]
async fn a_stream_that_delivered_ends_the_minute_of_internal_errors() {
    let failing = || opens([wait(1.0), Act::Tell(vec![error_event(500, "InternalError")])]);
    let good = || opens([events("~5"), Act::Tell(vec![error_event(500, "InternalError")])]);
    let rig = watching()
        .configured(|config| config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(4)))
        .watches((0..10).map(|_| failing()).chain([good()]).chain((0..10).map(|_| failing())))
        .run_for(90)
        .await;
    assert!(!rig.calls()[1..].iter().any(|call| call.starts_with("list")), "{:?}", rig.calls());
}

// R29
#[tokio::test(start_paused = true)]
async fn the_reopening_delay_starts_anew_after_a_stream_that_delivered_or_lived() {
    let broken = || Answer::Refuses(answer(429, ""));
    for good in
        [opens([events("~6"), Act::Fail(answer(429, ""))]), opens([wait(10.0), Act::Fail(answer(429, ""))])]
    {
        let rig = watching().watches([broken(), broken(), broken(), broken(), good]).run_for(60).await;
        let (times, calls) = (rig.times(), rig.calls());
        let good = calls.iter().enumerate().filter(|(_, call)| call.starts_with("watch")).nth(4).unwrap().0;
        let next = times[good + 1] - times[good];
        assert!((0.8..11.61).contains(&next) && !(1.61..10.8).contains(&next), "{next}");
    }
}

// R29 R62
#[tokio::test(start_paused = true)]
async fn the_relisting_delay_starts_anew_only_after_a_healthy_stretch() {
    let garbage = || Act::Fail(ListWatchError::Unreadable("garbage".into()));
    let gaps = |lives: f64| async move {
        let rig = Plan::paged()
            .lists((0..100).map(|_| page("", "5")))
            .watches((0..100).map(|_| opens([wait(lives), garbage()])))
            .run_for(3_000)
            .await;
        let (calls, times) = (rig.calls(), rig.times());
        let lists: Vec<_> = (0..calls.len()).filter(|at| calls[*at].starts_with("list")).collect();
        lists.windows(2).map(|pair| times[pair[1]] - times[pair[0]]).collect::<Vec<_>>()
    };
    assert!(gaps(0.0).await[8..].iter().all(|gap| (30.0..60.1).contains(gap)));
    assert!(gaps(25.0).await[8..].iter().all(|gap| (30.0..60.1).contains(gap)), "from one list to the next");
    assert!(gaps(60.0).await.iter().all(|gap| (60.0..60.1).contains(gap)), "the watch has lived for longer");
    // Forgotten after two minutes: what breaks at once then is listed again soon.
    let rig = Plan::paged()
        .lists((0..100).map(|_| page("", "5")))
        .watches(
            (0..9).map(|_| opens([garbage()])).chain([opens([wait(120.0), garbage()]), opens([garbage()])]),
        )
        .run_for(900)
        .await;
    let (calls, times) = (rig.calls(), rig.times());
    let lists: Vec<_> = (0..calls.len()).filter(|at| calls[*at].starts_with("list")).collect();
    let last = times[lists[lists.len() - 1]] - times[lists[lists.len() - 2]];
    assert!(last < 3.3, "{times:?}");
}

// R39
#[tokio::test(start_paused = true)]
async fn a_watch_found_dead_is_opened_again_at_once_without_a_list() {
    let dead = Act::Fail(ListWatchError::Idle(Duration::from_secs(120)));
    let rig = watching().watches([opens([events("~6"), wait(120.0), dead])]).run_for(130).await;
    assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "latest", "watch rv=6"]);
    assert_eq!(rig.times()[3], 120.0);
    assert!(!rig.told().iter().any(|told| told.starts_with("failed")));
}

// R20
#[tokio::test(start_paused = true)]
async fn the_version_advances_past_what_could_not_be_read_once_the_store_has_it() {
    let told = Act::Tell(vec![
        WatchEvent::Added(item("b", "6")),
        WatchEvent::Modified(unreadable("a", "7")),
        WatchEvent::Error(Box::new(Status::failure("", "").with_code(503))),
    ]);
    let rig = Plan::paged().lists([page("a@1", "5")]).watches([opens([told])]).run_for(30).await;
    assert_eq!(rig.told()[1], "+n/b@6 +n/a@7");
    assert!(rig.told()[2].starts_with("failed"), "the store has all that came before the failure");
    assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "latest", "watch rv=7"]);
}

// R48
#[tokio::test(start_paused = true)]
async fn an_event_of_an_object_without_a_name_asks_for_a_list() {
    for event in [WatchEvent::Modified, WatchEvent::Deleted] {
        let told = Act::Tell(vec![
            WatchEvent::Added(item("b", "6")),
            event(without_key()),
            WatchEvent::Added(item("c", "8")),
        ]);
        let rig = Plan::paged()
            .lists([page("a@1", "5"), page("a@1 b@6 c@8", "8")])
            .watches([opens([told])])
            .run_for(30)
            .await;
        assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "list rv=6", "watch rv=8"]);
        assert!(rig.told().iter().any(|told| told.contains("whose name can't be read")), "{:?}", rig.told());
    }
}

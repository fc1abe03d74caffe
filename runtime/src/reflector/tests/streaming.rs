//! Streaming lists: their end, their folding, and what replaces them where they don't work.

use super::*;

const STREAM: &str = "stream match=NotOlderThan";

// R22, R24
#[tokio::test(start_paused = true)]
async fn synced_by_the_right_bookmark_and_the_same_stream_goes_on() {
    let stream = opens([events("+a@1 +b@2"), wait(5.0), events("!5 =a@6"), wait(1.0), events("~7")]);
    let rig = Plan::streaming().watches([stream]).start();
    rig.pass(4).await;
    assert!(rig.told().is_empty());
    rig.pass(10).await;
    assert_eq!(rig.told(), ["replace@5 [n/a@1 n/b@2]", "+n/a@6", "~7"]);
    assert_eq!(rig.calls(), [STREAM]);
}

// R22
#[tokio::test(start_paused = true)]
async fn an_ordinary_bookmark_ends_no_list() {
    let rig = Plan::streaming().watches([opens([events("+a@1 ~5"), wait(2.0), events("!6")])]).start();
    rig.pass(1).await;
    assert!(rig.told().is_empty());
    rig.pass(2).await;
    assert_eq!(rig.told(), ["replace@6 [n/a@1]"]);
}

// R23
#[tokio::test(start_paused = true)]
async fn changes_before_the_bookmark_fold_into_the_snapshot() {
    let mut acts = vec![events("+a@1 +b@2 +c@3 =b@4 -a@5 +d@6 -d@7 +d@8 !9")];
    acts.insert(0, Act::Tell(vec![WatchEvent::Added(without_key())]));
    let rig = Plan::streaming().watches([opens(acts)]).run_for(1).await;
    assert_eq!(rig.told(), ["replace@9 [n/b@4 n/c@3 n/d@8 ?@]"]);
}

// R25
#[tokio::test(start_paused = true)]
async fn a_stream_that_stops_before_sync_is_followed_by_pages() {
    let rig = Plan::streaming()
        .lists([page("b@2", "5")])
        .watches([opens([events("+a@1"), Act::Close])])
        .run_for(5)
        .await;
    assert_eq!(rig.calls()[..3], [STREAM, "list limit=500", "watch rv=5"]);
    assert_eq!(rig.told(), ["failed #1: the answer ended in the middle", "replace@5 [n/b@2]"]);
    assert!(rig.times()[1] >= 0.8, "hammered");
}

// R25
#[tokio::test(start_paused = true)]
async fn a_stream_that_stops_after_sync_is_followed_by_a_plain_watch() {
    let rig = Plan::streaming()
        .watches([opens([events("+a@1 !5"), wait(3.0), events("+b@6"), Act::Close])])
        .run_for(5)
        .await;
    assert_eq!(rig.calls(), [STREAM, "latest", "watch rv=6"]);
}

// R26
#[tokio::test(start_paused = true)]
async fn a_rejected_stream_falls_back_to_pages_for_good() {
    for code in [400, 405, 422] {
        let rig = Plan::streaming()
            .lists([page("a@1", "5")])
            .watches([Answer::Refuses(answer(code, "")), Answer::Refuses(answer(404, ""))])
            .run_for(5)
            .await;
        assert_eq!(rig.calls(), [STREAM, "list limit=500", "watch rv=5", "list rv=5"]);
        assert_eq!(rig.times()[1], 0.0);
    }
}

// R26
#[tokio::test(start_paused = true)]
async fn any_other_error_falls_back_for_this_cycle() {
    for error in [answer(500, ""), answer(403, ""), refused()] {
        let rig = Plan::streaming()
            .lists([page("a@1", "5")])
            .watches([Answer::Refuses(error), Answer::Refuses(answer(404, ""))])
            .run_for(9)
            .await;
        let calls = [STREAM, "list limit=500", "watch rv=5", "stream rv=5 match=NotOlderThan"];
        assert_eq!(rig.calls(), calls);
    }
}

// R26
#[tokio::test(start_paused = true)]
async fn a_cut_falls_back_for_this_cycle_alone() {
    let cut = || opens([events("+a@1"), Act::Fail(ListWatchError::CutShort)]);
    let rig = Plan::streaming()
        .lists([page("a@1", "5"), page("a@1", "6")])
        .watches([cut(), Answer::Refuses(answer(404, "")), cut(), Answer::Refuses(answer(404, ""))])
        .run_for(20)
        .await;
    let again = "stream rv=5 match=NotOlderThan";
    assert_eq!(rig.calls()[..6], [STREAM, "list limit=500", "watch rv=5", again, "list rv=5", "watch rv=6"]);
}

// R26 R31
#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_for_both_forms_of_a_list_is_one_failure() {
    let rig = Plan::streaming()
        .lists([Err(answer(403, "Forbidden"))])
        .watches([Answer::Refuses(answer(403, "Forbidden"))])
        .run_for(0)
        .await;
    tokio::task::yield_now().await;
    assert_eq!(rig.calls(), [STREAM, "list limit=500"]);
    assert_eq!(rig.told(), ["failed #1: the server answered 403: no"]);
}

// R27
#[tokio::test(start_paused = true)]
async fn a_bookmark_that_does_not_come_falls_back_for_good() {
    let stuck = opens([events("+a@1"), wait(5.0), events("+b@2"), wait(1_000.0), events("!9")]);
    let rig = Plan::streaming()
        .lists([page("a@1 b@2", "5")])
        .watches([stuck, Answer::Refuses(answer(404, ""))])
        .run_for(25)
        .await;
    assert_eq!(rig.calls(), [STREAM, "list limit=500", "watch rv=5", "list rv=5"]);
    assert_eq!(rig.times()[1], 15.0);
    assert_eq!(rig.told()[1], "replace@5 [n/a@1 n/b@2]");
}

// R27
#[tokio::test(start_paused = true)]
async fn a_busy_kind_does_not_put_the_deadline_off() {
    let mut acts = vec![events("+a@1")];
    for version in 2..100 {
        acts.extend([wait(7.0), events(&format!("=a@{version}"))]);
    }
    let rig = Plan::streaming().lists([page("a@9", "9")]).watches([opens(acts)]).run_for(100).await;
    assert_eq!(rig.calls()[..2], [STREAM, "list limit=500"]);
    assert_eq!(rig.times()[1], 10.0);
}

// R27
#[tokio::test(start_paused = true)]
async fn a_long_list_that_keeps_growing_is_waited_for() {
    let mut acts: Vec<_> = (1..10).flat_map(|n| [wait(9.0), events(&format!("+a{n}@{n}"))]).collect();
    acts.push(events("!10"));
    let rig = Plan::streaming().watches([opens(acts)]).run_for(500).await;
    assert_eq!(rig.calls(), [STREAM]);
    assert_eq!(rig.told().len(), 1);
}

// R28
#[tokio::test(start_paused = true)]
async fn gone_while_streaming_is_retried_without_a_version_then_in_pages_with_delay() {
    let rig = Plan::streaming()
        .lists([page("a@9", "9")])
        .watches([
            opens([events("!5"), Act::Tell(vec![error_event(410, "Expired")])]),
            Answer::Refuses(gone()),
        ])
        .run_for(60)
        .await;
    assert_eq!(rig.calls()[..3], [STREAM, STREAM, "list limit=500"]);
    assert_eq!(rig.times()[1], 0.0);
    assert!(rig.times()[2] >= 0.8);
}

// R26 R28
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_refused_without_a_version_as_well_is_followed_by_pages() {
    let too_large = || {
        let status = Status::failure("Timeout: Too large resource version: 9, current: 5", "Timeout");
        Answer::Refuses(ListWatchError::from_status(status.with_code(504)))
    };
    let rig =
        Plan::streaming().lists([page("a@9", "9")]).watches([too_large(), too_large()]).run_for(60).await;
    assert_eq!(rig.calls()[..3], [STREAM, STREAM, "list limit=500"]);
    assert_eq!(*rig.told().last().unwrap(), "replace@9 [n/a@9]");
}

// R15
#[tokio::test(start_paused = true)]
async fn a_version_too_large_for_a_stream_is_left_out_once() {
    let too_large = || {
        let status = Status::failure("Timeout: Too large resource version: 9, current: 5", "Timeout");
        WatchEvent::Error(Box::new(status.with_code(504)))
    };
    let rig = Plan::streaming()
        .watches([
            opens([events("!9"), wait(2.0), Act::Fail(ListWatchError::Unreadable("garbage".into()))]),
            opens([Act::Tell(vec![too_large()])]),
            opens([events("!10"), Act::Fail(ListWatchError::Unreadable("garbage".into()))]),
        ])
        .run_for(9)
        .await;
    let calls = [STREAM, "stream rv=9 match=NotOlderThan", STREAM, "stream rv=10 match=NotOlderThan"];
    assert_eq!(rig.calls(), calls);
    assert_eq!(rig.times()[1], rig.times()[2]);
}

// R14
#[tokio::test(start_paused = true)]
async fn a_stream_that_shows_the_past_is_not_taken() {
    let rig = Plan::streaming()
        .watches([
            opens([events("+a@8 !9"), Act::Fail(ListWatchError::Unreadable("garbage".into()))]),
            opens([events("+a@3 !4")]),
            opens([events("+a@8 !9")]),
        ])
        .run_for(30)
        .await;
    assert_eq!(rig.calls(), [STREAM, "stream rv=9 match=NotOlderThan", STREAM]);
    assert!(!rig.told().iter().any(|told| told.starts_with("replace@4")));
}

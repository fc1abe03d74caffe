//! Lists: options, pages, versions, failures.

use super::*;

/// Ends a watch in a way that asks for a list, and nothing else.
fn asks_for_a_list() -> Answer {
    opens([Act::Fail(ListWatchError::Unreadable("garbage".into()))])
}

// R45
#[tokio::test(start_paused = true)]
async fn the_first_list_is_a_consistent_read() {
    let rig = Plan::paged().lists([page("a@1", "5")]).run_for(1).await;
    assert_eq!(rig.calls(), ["list limit=500", "watch rv=5"]);
    assert_eq!(rig.told(), ["replace@5 [n/a@1]"]);
    let rig = Plan::streaming().run_for(1).await;
    assert_eq!(rig.calls(), ["stream match=NotOlderThan"]);
}

// R6, R18
#[tokio::test(start_paused = true)]
async fn each_mode_sends_exactly_its_options() {
    let plain = ListOptions::default();
    let rig = Plan::paged().lists([page("", "5")]).run_for(1).await;
    let sent = rig.options();
    assert_eq!(sent[0], ListOptions { limit: Some(500), ..plain.clone() });
    let watch = ListOptions {
        resource_version: Some("5".into()),
        bookmarks: true,
        timeout: sent[1].timeout,
        ..plain.clone()
    };
    assert_eq!(sent[1], watch);

    let rig = Plan::streaming().run_for(1).await;
    let sent = rig.options();
    let stream = ListOptions {
        version_match: Some(VersionMatch::NotOlderThan),
        bookmarks: true,
        initial_events: true,
        timeout: sent[0].timeout,
        ..plain.clone()
    };
    assert_eq!(sent, [stream]);

    let any = Plan::paged().configured(|config| config.first_list = FirstList::AnyVersion);
    let rig = any.lists([page("", "5")]).run_for(1).await;
    assert_eq!(
        rig.options()[0],
        ListOptions { resource_version: Some("0".into()), limit: Some(500), ..plain }
    );
}

// R11
#[tokio::test(start_paused = true)]
async fn an_explicit_page_size_follows_continue_tokens() {
    let rig = Plan::paged()
        .configured(|config| config.page_size = Some(2))
        .lists([page_before("a@1 b@2", "5", "c1"), page_before("c@3 d@4", "5", "c2"), page("e@5", "5")])
        .watches([asks_for_a_list()])
        .run_for(5)
        .await;
    assert_eq!(
        rig.calls(),
        [
            "list limit=2",
            "list limit=2 continue=c1",
            "list limit=2 continue=c2",
            "watch rv=5",
            "list rv=5 match=NotOlderThan limit=2",
        ]
    );
    assert_eq!(rig.told()[0], "replace@5 [n/a@1 n/b@2 n/c@3 n/d@4 n/e@5]");
}

// R12
#[tokio::test(start_paused = true)]
async fn a_list_at_a_real_version_is_not_paged() {
    let rig = Plan::paged().lists([page("a@1", "5")]).watches([asks_for_a_list()]).run_for(5).await;
    assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "list rv=5"]);
}

// R13
#[tokio::test(start_paused = true)]
async fn a_paged_answer_to_any_version_keeps_paging() {
    let rig = Plan::paged()
        .configured(|config| config.first_list = FirstList::AnyVersion)
        .lists([page_before("a@1", "5", "c1"), page("b@2", "5"), page("a@1 b@2", "7")])
        .watches([asks_for_a_list(), asks_for_a_list()])
        .run_for(10)
        .await;
    assert_eq!(
        rig.calls(),
        [
            "list rv=0 limit=500",
            "list limit=500 continue=c1",
            "watch rv=5",
            "list rv=5 match=NotOlderThan limit=500",
            "watch rv=7",
            "list rv=7 match=NotOlderThan limit=500",
        ]
    );
}

// R14
#[tokio::test(start_paused = true)]
async fn a_relist_never_goes_back_in_time() {
    let rig = Plan::paged()
        .lists([page("a@4", "5"), page("a@2", "3"), page("a@6", "6")])
        .watches([asks_for_a_list()])
        .run_for(60)
        .await;
    assert_eq!(rig.calls(), ["list limit=500", "watch rv=5", "list rv=5", "list limit=500", "watch rv=6"]);
    let replaced: Vec<_> = rig.told().into_iter().filter(|told| told.starts_with("replace")).collect();
    assert_eq!(replaced, ["replace@5 [n/a@4]", "replace@6 [n/a@6]"]);
}

// R15, R17
#[tokio::test(start_paused = true)]
async fn a_refused_version_is_followed_at_once_by_a_list_without_one() {
    for refusal in [(410, "Expired"), (410, "Gone"), (504, "Timeout")] {
        let refusal = match refusal {
            (504, _) => ListWatchError::from_status(
                Status::failure("Timeout: Too large resource version: 9, current: 5", "Timeout")
                    .with_code(504),
            ),
            (code, reason) => answer(code, reason),
        };
        let rig = Plan::paged()
            .lists([page("", "5"), Err(refusal), page("", "8"), page("", "9")])
            .watches([asks_for_a_list(), asks_for_a_list()])
            .run_for(10)
            .await;
        let calls =
            ["list limit=500", "watch rv=5", "list rv=5", "list limit=500", "watch rv=8", "list rv=8"];
        assert_eq!(rig.calls()[..6], calls);
        assert_eq!(rig.times()[2], rig.times()[3]);
    }
}

// R16
#[tokio::test(start_paused = true)]
async fn gone_in_the_middle_of_a_chain_falls_back_to_one_whole_list() {
    let rig = Plan::paged()
        .lists([page_before("a@1", "5", "c1"), Err(gone()), page("a@1 b@2", "6")])
        .watches([asks_for_a_list()])
        .run_for(10)
        .await;
    let calls = ["list limit=500", "list limit=500 continue=c1", "list", "watch rv=6", "list rv=6"];
    assert_eq!(rig.calls(), calls);
    assert_eq!(rig.told()[1], "replace@6 [n/a@1 n/b@2]");
    assert_eq!(rig.times()[2], 0.0);
}

// R16
#[tokio::test(start_paused = true)]
async fn after_the_whole_list_pages_are_asked_for_again() {
    let broken = || [page_before("a@1", "5", "c1"), Err(gone())];
    // The next list, at the present, comes after a whole one that was taken, or that failed.
    let taken = Plan::paged()
        .lists(broken().into_iter().chain([page("a@1 b@2", "6"), page("a@1", "7")]))
        .watches([Answer::Refuses(gone())])
        .run_for(10)
        .await;
    assert_eq!(taken.calls()[2..], ["list", "watch rv=6", "list limit=500", "watch rv=7"]);
    let failed = Plan::paged()
        .lists(broken().into_iter().chain([Err(answer(500, "")), page("a@1", "7")]))
        .run_for(10)
        .await;
    assert_eq!(failed.calls()[2..], ["list", "list limit=500", "watch rv=7"]);
}

// R41, R8
#[tokio::test(start_paused = true)]
async fn list_failures_grow_the_back_off_to_a_jittered_plateau() {
    let rig = Plan::paged().lists((0..9).map(|_| Err(refused()))).run_for(600).await;
    let times = rig.times();
    for (gap, base) in times.windows(2).zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]) {
        let gap = gap[1] - gap[0];
        assert!((base..2.0 * base + 0.01).contains(&gap), "{gap} is not in [{base}, {})", 2.0 * base);
    }
    assert_eq!(rig.told().last().unwrap(), "failed #9: the connection failed");
}

// R8
#[tokio::test(start_paused = true)]
async fn a_custom_schedule_is_honoured() {
    let rig = Plan::paged()
        .configured(|config| config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(7)))
        .lists((0..3).map(|_| Err(refused())))
        .run_for(60)
        .await;
    assert_eq!(rig.times(), [0.0, 7.0, 14.0, 21.0]);
}

// R7
#[tokio::test(start_paused = true)]
async fn an_error_surfaces_and_the_next_list_repairs_the_store() {
    let rig = Plan::paged()
        .lists([page("a@1 b@2", "5"), page("b@2 c@6", "7")])
        .watches([asks_for_a_list()])
        .run_for(5)
        .await;
    assert_eq!(
        rig.told(),
        [
            "replace@5 [n/a@1 n/b@2]",
            "failed #1: the answer can't be read: garbage",
            "replace@7 [n/b@2 n/c@6]",
        ]
    );
}

// R33
#[tokio::test(start_paused = true)]
async fn items_without_a_key_still_reach_the_store() {
    let mut broken = page("a@1", "5").unwrap();
    broken.items.push(without_key());
    let rig = Plan::paged().lists([Ok(broken)]).run_for(1).await;
    assert_eq!(rig.told(), ["replace@5 [n/a@1 ?@]"]);
}

// R9
#[tokio::test(start_paused = true)]
async fn a_list_that_is_told_to_wait_waits() {
    let busy = ListWatchError::Status {
        status: Box::new(Status::failure("busy", "").with_code(429)),
        retry_after: Some(Duration::from_secs(100)),
    };
    let rig = Plan::paged().lists([Err(busy), page("", "5")]).run_for(150).await;
    assert_eq!(rig.times()[..2], [0.0, 100.0]);
}

#[tokio::test(start_paused = true)]
async fn resync_goes_on_through_relists() {
    let rig = Plan::paged()
        .configured(|config| config.resync = Some(Duration::from_secs(10)))
        .lists((0..100).map(|version| page("", &version.to_string())))
        .watches((0..100).map(|_| asks_for_a_list()))
        .run_for(35)
        .await;
    assert_eq!(rig.told().iter().filter(|told| *told == "resync").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_pages_that_leads_in_a_circle_ends_and_the_next_list_is_whole() {
    let rig = Plan::paged()
        .lists([
            page_before("a@1", "5", "one"),
            page_before("b@2", "5", "two"),
            page_before("c@3", "5", "one"),
            page("a@1 b@2", "5"),
        ])
        .run_for(60)
        .await;
    assert_eq!(
        rig.calls(),
        [
            "list limit=500",
            "list limit=500 continue=one",
            "list limit=500 continue=two",
            "list",
            "watch rv=5"
        ]
    );
    assert_eq!(
        rig.told(),
        ["failed #1: the list did not end within 3 pages", "replace@5 [n/a@1 n/b@2]"],
        "nothing of the broken chain reached the store"
    );
}

#[tokio::test(start_paused = true)]
async fn a_chain_that_goes_on_with_ever_new_tokens_ends_too() {
    let pages = (0..100_000).map(|page| page_before("", "5", &page.to_string()));
    let rig = Plan::paged().lists(pages.chain([page("a@1", "5")])).run_for(60).await;
    assert_eq!(rig.told(), ["failed #1: the list did not end within 100000 pages", "replace@5 [n/a@1]"]);
}

// R55
#[tokio::test(start_paused = true)]
async fn a_page_that_failed_is_asked_for_again_from_its_continue_token() {
    let failures = [refused(), answer(500, ""), answer(429, ""), answer(401, ""), ListWatchError::CutShort];
    for failure in failures {
        let rig = Plan::paged()
            .lists([
                page_before("a@1", "5", "c1"),
                page_before("b@2", "5", "c2"),
                Err(failure),
                page("c@3", "5"),
            ])
            .run_for(60)
            .await;
        let calls = ["list limit=500", "list limit=500 continue=c1"];
        let again = "list limit=500 continue=c2";
        assert_eq!(rig.calls(), [calls[0], calls[1], again, again, "watch rv=5"]);
        assert_eq!(*rig.told().last().unwrap(), "replace@5 [n/a@1 n/b@2 n/c@3]");
    }
}

// R55
#[tokio::test(start_paused = true)]
async fn a_page_that_fails_again_and_again_begins_the_list_anew() {
    let rig = Plan::paged()
        .lists([page_before("a@1", "5", "c1")])
        .lists((0..10).map(|_| Err(answer(500, ""))))
        .lists([page("b@7", "7")])
        .run_for(900)
        .await;
    let calls = rig.calls();
    assert!(calls[1..11].iter().all(|call| call == "list limit=500 continue=c1"), "{calls:?}");
    assert_eq!(calls[11], "list limit=500");
    assert_eq!(*rig.told().last().unwrap(), "replace@7 [n/b@7]");
}

// R50 R55
#[tokio::test(start_paused = true)]
async fn a_list_that_begins_again_while_a_page_waits_forgets_the_pages_before() {
    let rig = Plan::paged()
        .configured(|config| config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(10)))
        .lists([page("a@1", "4"), page_before("a@5", "5", "c1"), Err(refused()), page("b@7", "7")])
        .watches([Answer::Refuses(gone())])
        .start();
    rig.pass(5).await;
    rig.store.wants_list.notify_one();
    rig.pass(30).await;
    assert_eq!(
        rig.calls()[2..],
        ["list limit=500", "list limit=500 continue=c1", "list limit=500", "watch rv=7"]
    );
    assert_eq!(*rig.told().last().unwrap(), "replace@7 [n/b@7]");
    // The same before anything was listed.
    let rig = Plan::paged()
        .configured(|config| config.backoff = BackoffSchedule::custom(|_| Duration::from_secs(10)))
        .lists([page_before("a@5", "5", "c1"), Err(refused()), page("b@7", "7")])
        .start();
    rig.pass(5).await;
    rig.store.wants_list.notify_one();
    rig.pass(30).await;
    assert_eq!(rig.calls()[1..3], ["list limit=500 continue=c1", "list limit=500"]);
    assert_eq!(*rig.told().last().unwrap(), "replace@7 [n/b@7]");
}

// R57
#[tokio::test(start_paused = true)]
async fn a_list_whose_pages_show_different_versions_counts_as_of_the_lowest() {
    for (versions, lowest) in [(["5", "7", "9"], "5"), (["9", "7", "8"], "7"), (["x", "y", "z"], "x")] {
        let [first, second, third] = versions;
        let rig = Plan::paged()
            .lists([page_before("a@1", first, "c1"), page_before("b@2", second, "c2"), page("c@3", third)])
            .run_for(5)
            .await;
        assert_eq!(*rig.calls().last().unwrap(), format!("watch rv={lowest}"));
        assert_eq!(rig.told(), [format!("replace@{lowest} [n/a@1 n/b@2 n/c@3]")]);
    }
}

// R58
#[tokio::test(start_paused = true)]
async fn a_version_that_is_rejected_is_followed_by_a_list_without_one() {
    for code in [400, 422] {
        let refuses = || Answer::Refuses(answer(code, ""));
        let rig = Plan::paged()
            .lists([page("", "5"), Err(answer(code, "")), page("", "8")])
            .watches([refuses()])
            .run_for(60)
            .await;
        assert_eq!(
            rig.calls(),
            ["list limit=500", "watch rv=5", "list rv=5", "list limit=500", "watch rv=8"]
        );
        let streamed = Plan::streaming()
            .watches([opens([events("!5"), Act::Fail(gone())]), opens([events("!6"), Act::Close])])
            .watches([refuses(), refuses(), opens([events("!9")])])
            .run_for(60)
            .await;
        let calls = streamed.calls();
        assert_eq!(calls[4..], ["stream rv=6 match=NotOlderThan", "stream match=NotOlderThan"], "{calls:?}");
    }
}

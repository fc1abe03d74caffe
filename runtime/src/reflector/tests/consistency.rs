//! The check of what the store shows against a list at the same version.

use super::*;

fn checked(every: u64) -> Plan {
    Plan::paged().configured(|config| config.consistency_check = Some(Duration::from_secs(every)))
}

fn difference() -> Difference {
    Difference { key: ObjectKey::new("n", "a"), listed: Some("2".to_owned()), shown: None }
}

impl Rig {
    /// What the store answers when it is asked for differences; `None`: not settled.
    fn answers(&self, answers: impl IntoIterator<Item = Option<Vec<Difference>>>) {
        self.store.differences.lock().unwrap().extend(answers);
    }
}

// R52
#[tokio::test(start_paused = true)]
async fn nothing_is_checked_unless_somebody_wants_it() {
    for every in [None, Some(Duration::ZERO)] {
        let plan = Plan::paged().lists([page("a@1", "5")]).watches([silent()]);
        let rig = plan.configured(|config| config.consistency_check = every).run_for(3_600).await;
        assert_eq!(rig.calls(), ["list limit=500", "watch rv=5"]);
    }
}

// R52
#[tokio::test(start_paused = true)]
async fn a_check_lists_at_the_version_that_the_watch_has_reached() {
    let lists = [page("a@1", "5"), page_before("a@1", "5", "next"), page("b@3", "5"), page("a@7 b@3", "9")];
    let plan = checked(60).lists(lists).watches([opens([wait(90.0), events("=a@7 ~9")])]);
    let rig = plan.run_for(130).await;
    let exact = |version| format!("list rv={version} match=Exact limit=500");
    assert_eq!(
        rig.calls(),
        ["list limit=500", "watch rv=5", &exact(5), "list limit=500 continue=next", &exact(9)]
    );
    assert_eq!(rig.times()[2..], [60.0, 60.0, 120.0]);
    assert_eq!(rig.told(), ["replace@5 [n/a@1]", "+n/a@7 ~9"], "a check hands nothing over");
    assert_eq!(rig.script.opened.load(Ordering::SeqCst), 1, "the watch goes on");
}

// R52
#[tokio::test(start_paused = true)]
async fn a_difference_is_a_failure_that_is_told_and_heals_by_a_list() {
    let lists = [page("", "5"), page("a@2", "5"), page("a@2", "6"), page("a@2", "6")];
    let rig = checked(60).lists(lists).watches([silent(), silent()]).start();
    rig.answers([Some(vec![difference(); 7])]);
    rig.pass(100).await;
    assert_eq!(
        rig.calls(),
        ["list limit=500", "watch rv=5", "list rv=5 match=Exact limit=500", "list limit=500", "watch rv=6"]
    );
    let named = ["n/a (shown: nothing, listed: 2)"; 5].join(", ");
    let told = format!(
        "failed #1: the cache differs from a list at the same version, which is a defect: 7 objects, among them {named}"
    );
    assert_eq!(rig.told(), ["replace@5 []", &told, "replace@6 [n/a@2]"]);
    rig.pass(30).await;
    assert!(rig.calls().last().unwrap().contains("rv=6 match=Exact"), "it is checked again");
    assert!(rig.is_healthy());
}

// R52
#[tokio::test(start_paused = true)]
async fn a_store_that_has_not_handled_all_is_asked_again_and_given_up_in_the_end() {
    let lists = [page("", "5"), page("a@2", "5"), page("a@2", "6")];
    let rig = checked(60).lists(lists).watches([opens([wait(60.5), events("~6")])]).start();
    rig.answers([None, None, Some(Vec::new())]);
    rig.pass(61).await;
    assert_eq!(rig.told(), ["replace@5 []", "~6"], "the watch is read again after two pauses");
    rig.answers((0..50).map(|_| None));
    rig.pass(120).await;
    assert_eq!(rig.told().len(), 2, "an unknown state is not a difference");
    assert!(rig.store.differences.lock().unwrap().is_empty(), "it was asked");
}

// R52
#[tokio::test(start_paused = true)]
async fn a_version_that_can_not_be_listed_any_more_is_no_difference() {
    let lists = [page("", "5"), Err(gone()), page("a@2", "8"), Err(refused())];
    let rig = checked(60).lists(lists).watches([silent()]).start();
    rig.answers([Some(vec![difference()])]);
    rig.pass(400).await;
    assert_eq!(rig.told(), ["replace@5 []"]);
    // The fourth hangs, and so is given up; the watch is open through all of it.
    assert_eq!(rig.times()[2..], [60.0, 120.0, 180.0, 240.0, 330.0]);
    assert_eq!(rig.open_now(), 1);
}

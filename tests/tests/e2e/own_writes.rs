//! Own writes wake nobody, strangers' always do.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_tests::{Counter, Gate, Keeper, Record, Website, backend::Stage, website};

use crate::harness::tests;

tests! {
    Shared: an_operator_with_children_and_status_comes_to_rest,
        a_status_that_changes_with_every_run_does_not_wake_its_writer,
        a_strangers_edit_just_before_the_own_write_wakes_its_writer,
        a_strangers_edit_just_after_the_own_write_wakes_its_writer,
        a_strangers_status_in_the_middle_of_a_run_is_not_overwritten_unseen;
}

/// How long nothing may happen until it counts as rest.
const REST: Duration = Duration::from_secs(4);

async fn rests_at(record: &Record, runs: usize) {
    tokio::time::sleep(REST).await;
    assert_eq!(record.len(), runs, "{:?}", record.starts());
}

fn status_is(site: Option<&Website>, replicas: i32) -> bool {
    site.and_then(|site| site.status.as_ref()).is_some_and(|status| status.replicas == replicas)
}

fn counter(before: &Arc<Gate>, after: &Arc<Gate>) -> (Counter, Record) {
    let counter = Counter::new(before.clone(), after.clone());
    let record = counter.record.clone();
    (counter, record)
}

// C24
async fn an_operator_with_children_and_status_comes_to_rest(stage: Stage) {
    let kit = stage.kit();
    let keeper = Keeper::default();
    let _running = stage.run(Controller::new(keeper.clone()).owns::<Deployment>());
    kit.create(&website("a")).await;
    kit.eventually::<Deployment>("a", |d| d.is_some()).await;
    rests_at(&keeper.record, 1).await;
    kit.patch_status::<Deployment>("a", json!({ "replicas": 2, "readyReplicas": 2 })).await;
    kit.eventually::<Website>("a", |site| status_is(site, 2)).await;
    rests_at(&keeper.record, 2).await;
}

// C24
async fn a_status_that_changes_with_every_run_does_not_wake_its_writer(stage: Stage) {
    let kit = stage.kit();
    let (reconciler, record) = counter(&Gate::open(), &Gate::open());
    let _running = stage.run(Controller::new(reconciler));
    kit.create(&website("a")).await;
    kit.eventually::<Website>("a", |site| status_is(site, 1)).await;
    rests_at(&record, 1).await;
    kit.patch_merge::<Website>("a", json!({ "spec": { "replicas": 5 } })).await;
    kit.eventually::<Website>("a", |site| status_is(site, 2)).await;
    rests_at(&record, 2).await;
}

// C27
async fn a_strangers_edit_just_before_the_own_write_wakes_its_writer(stage: Stage) {
    let kit = stage.kit();
    let before = Gate::shut();
    let (reconciler, record) = counter(&before, &Gate::open());
    let _running = stage.run(Controller::new(reconciler));
    kit.create(&website("a")).await;
    before.reached(1).await;
    kit.patch_merge::<Website>("a", json!({ "spec": { "domain": "b.example" } })).await;
    before.let_pass(10);
    record.reaches(2).await;
    rests_at(&record, 2).await;
    assert_eq!(kit.get::<Website>("a").await.unwrap().spec.domain, "b.example");
}

// C27
async fn a_strangers_edit_just_after_the_own_write_wakes_its_writer(stage: Stage) {
    let kit = stage.kit();
    let after = Gate::shut();
    let (reconciler, record) = counter(&Gate::open(), &after);
    let _running = stage.run(Controller::new(reconciler));
    kit.create(&website("a")).await;
    after.reached(1).await;
    kit.patch_merge::<Website>("a", json!({ "spec": { "domain": "b.example" } })).await;
    after.let_pass(10);
    record.reaches(2).await;
    rests_at(&record, 2).await;
}

// C27
async fn a_strangers_status_in_the_middle_of_a_run_is_not_overwritten_unseen(stage: Stage) {
    let kit = stage.kit();
    let before = Gate::shut();
    let (reconciler, record) = counter(&before, &Gate::open());
    let _running = stage.run(Controller::new(reconciler));
    kit.create(&website("a")).await;
    before.reached(1).await;
    kit.patch_status::<Website>("a", json!({ "replicas": 40 })).await;
    before.let_pass(10);
    kit.eventually::<Website>("a", |site| status_is(site, 41)).await;
    rests_at(&record, record.len()).await;
}

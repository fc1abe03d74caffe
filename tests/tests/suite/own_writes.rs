//! Own writes wake nobody, strangers' always do.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Counter, Gate, Keeper, Record, Website, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn counter(before_write: Arc<Gate>, after_write: Arc<Gate>) -> (Counter, Record) {
    let counter = Counter::new(before_write, after_write);
    let record = counter.record.clone();
    (counter, record)
}

async fn quiet(record: &Record, runs: usize) {
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(record.len(), runs, "{:?}", record.starts());
}

// C24
#[tokio::test(start_paused = true)]
async fn a_status_that_changes_with_every_run_does_not_wake_its_writer() {
    let server = shop().await;
    let (reconciler, record) = counter(Gate::open(), Gate::open());
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    server.eventually::<Website>("shop/a", |site| status_is(site, 1)).await;
    quiet(&record, 1).await;
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 5 } })).await;
    server.eventually::<Website>("shop/a", |site| status_is(site, 2)).await;
    quiet(&record, 2).await;
}

fn status_is(site: Option<&Website>, replicas: i32) -> bool {
    site.and_then(|site| site.status.as_ref()).is_some_and(|status| status.replicas == replicas)
}

// C24
#[tokio::test(start_paused = true)]
async fn an_own_event_that_comes_while_the_run_goes_on_does_not_wake_it() {
    let server = shop().await;
    let after_write = Gate::shut();
    let (reconciler, record) = counter(Gate::open(), after_write.clone());
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    after_write.reached(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    after_write.let_pass(10);
    quiet(&record, 1).await;
}

// C27
#[tokio::test(start_paused = true)]
async fn a_strangers_edit_just_before_the_own_write_wakes_its_writer() {
    let server = shop().await;
    let before_write = Gate::shut();
    let (reconciler, record) = counter(before_write.clone(), Gate::open());
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    before_write.reached(1).await;
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "domain": "b.example" } })).await;
    before_write.let_pass(10);
    record.reaches(2).await;
    quiet(&record, 2).await;
    let site = server.get::<Website>("shop/a").await.unwrap();
    assert_eq!(site.spec.domain, "b.example");
}

// C27
#[tokio::test(start_paused = true)]
async fn a_strangers_edit_just_after_the_own_write_wakes_its_writer() {
    let server = shop().await;
    let after_write = Gate::shut();
    let (reconciler, record) = counter(Gate::open(), after_write.clone());
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    after_write.reached(1).await;
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "domain": "b.example" } })).await;
    after_write.let_pass(10);
    record.reaches(2).await;
    quiet(&record, 2).await;
}

// C27
#[tokio::test(start_paused = true)]
async fn a_strangers_status_edit_in_the_middle_of_a_run_is_not_overwritten_unseen() {
    let server = shop().await;
    let before_write = Gate::shut();
    let (reconciler, record) = counter(before_write.clone(), Gate::open());
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    before_write.reached(1).await;
    server.patch_status::<Website>("shop/a", json!({ "replicas": 40 })).await;
    before_write.let_pass(10);
    server.eventually::<Website>("shop/a", |site| status_is(site, 41)).await;
    quiet(&record, record.len()).await;
}

// C24
#[tokio::test(start_paused = true)]
async fn an_operator_with_children_and_status_comes_to_rest() {
    let server = shop().await;
    let keeper = Keeper::default();
    let controller = Controller::new(keeper.clone()).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    server.eventually::<Deployment>("shop/a", |deployment| deployment.is_some()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let runs = keeper.record.len();
    assert_eq!(runs, 1, "creating the child and writing the status are the operator's own");
    server.patch_status::<Deployment>("shop/a", json!({ "replicas": 2, "readyReplicas": 2 })).await;
    server.eventually::<Website>("shop/a", |site| status_is(site, 2)).await;
    quiet(&keeper.record, 2).await;
}

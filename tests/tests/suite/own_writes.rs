//! Own writes wake nobody, strangers' always do.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use watchkeeper::prelude::*;
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Keeper, Record, Website, WebsiteStatus, website};

/// Counts its runs in the status, stopping before and after the write when told to.
struct Counter {
    record: Record,
    before_write: Arc<Gate>,
    after_write: Arc<Gate>,
}

/// A place in the reconciler where a test may hold it.
struct Gate {
    open: Semaphore,
    reached: watch::Sender<usize>,
}

impl Gate {
    fn open() -> Arc<Self> {
        Arc::new(Self { open: Semaphore::new(Semaphore::MAX_PERMITS), reached: watch::Sender::new(0) })
    }

    fn shut() -> Arc<Self> {
        Arc::new(Self { open: Semaphore::new(0), reached: watch::Sender::new(0) })
    }

    async fn pass(&self) {
        self.reached.send_modify(|reached| *reached += 1);
        self.open.acquire().await.expect("gates are never closed").forget();
    }

    async fn reached(&self, times: usize) {
        let reached = self.reached.subscribe().wait_for(|reached| *reached >= times).await.map(|_| ());
        reached.expect("the gate outlives the wait");
    }
}

impl Reconciler<Website> for Counter {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        self.before_write.pass().await;
        let replicas = site.status.clone().unwrap_or_default().replicas + 1;
        cx.patch_status(&site, WebsiteStatus { replicas, ready_replicas: 0 }).await?;
        self.after_write.pass().await;
        Ok(Action::await_change())
    }
}

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn counter(before_write: Arc<Gate>, after_write: Arc<Gate>) -> (Counter, Record) {
    let record = Record::default();
    (Counter { record: record.clone(), before_write, after_write }, record)
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
    after_write.open.add_permits(10);
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
    before_write.open.add_permits(10);
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
    after_write.open.add_permits(10);
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
    before_write.open.add_permits(10);
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

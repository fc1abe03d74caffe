//! Functions that were written for kube-rs, run by a controller of this crate.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{Running, controller::Why, prelude::*};
use watchkeeper_apiserver::{ApiServer, InMemory};

#[derive(Debug, thiserror::Error)]
#[error("out of paper")]
struct OutOfPaper;

/// What the functions share: what the policy says, and when they ran.
struct Ctx {
    policy: Action,
    runs: Mutex<Vec<(Instant, bool)>>,
}

/// Fails for maps without data. Notes whether the map is being deleted.
async fn reconcile(map: Arc<ConfigMap>, ctx: Arc<Ctx>) -> Result<Action, OutOfPaper> {
    ctx.runs.lock().unwrap().push((Instant::now(), map.metadata.deletion_timestamp.is_some()));
    if map.data.is_none() { Err(OutOfPaper) } else { Ok(Action::requeue(Duration::from_secs(300))) }
}

fn error_policy(_: Arc<ConfigMap>, _: &OutOfPaper, ctx: Arc<Ctx>) -> Action {
    ctx.policy
}

/// The seconds between the runs.
fn waits(ctx: &Ctx) -> Vec<u64> {
    let runs = ctx.runs.lock().unwrap();
    runs.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs()).collect()
}

fn map(data: Option<&str>) -> ConfigMap {
    let finalizers = ["example.dev/theirs"];
    let data = data.map(|text| json!({"text": text}));
    serde_json::from_value(json!({"metadata": {"name": "a", "finalizers": finalizers}, "data": data}))
        .unwrap()
}

/// Lets the functions run, with a back-off that is always the same.
async fn run(policy: Action, backoff: u64) -> (ApiServer<InMemory>, Arc<Ctx>, Running) {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let ctx = Arc::new(Ctx { policy, runs: Mutex::default() });
    let backoff = Duration::from_secs(backoff);
    let controller = Controller::from_kube_rs(reconcile, error_policy, ctx.clone())
        .namespace("shop")
        .backoff(ItemExponentialFailure::new(backoff, backoff));
    let running = Manager::new(server.client()).controller(controller).spawn();
    (server, ctx, running)
}

#[tokio::test(start_paused = true)]
async fn the_delay_of_an_error_policy_is_kept_and_the_back_off_too() {
    for (policy, backoff, wait) in [(60, 1, 60), (1, 60, 60), (0, 5, 5)] {
        let (server, ctx, _running) = run(Action::requeue(Duration::from_secs(policy)), backoff).await;
        server.create(&map(None)).await;
        sleep(Duration::from_secs(4 * wait + 2)).await;
        assert_eq!(waits(&ctx), vec![wait; 4], "policy {policy} s, back-off {backoff} s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_policy_that_awaits_a_change_is_not_asked_again_before_one() {
    let (server, ctx, running) = run(Action::await_change(), 1).await;
    server.create(&map(None)).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(ctx.runs.lock().unwrap().len(), 1);
    let report = running.why::<ConfigMap>(&ObjectKey::new("shop", "a")).remove(0);
    assert_eq!(report.why, Why::AwaitsChangeAfterFailure { failures: 1 });
    assert!(report.to_string().contains("out of paper"), "{report}");

    server.patch_merge::<ConfigMap>("shop/a", json!({"data": {"text": "hello"}})).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ctx.runs.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_requeue_runs_again_after_its_time() {
    let (server, ctx, _running) = run(Action::await_change(), 1).await;
    server.create(&map(Some("hello"))).await;
    sleep(Duration::from_secs(601)).await;
    assert_eq!(waits(&ctx), [300, 300]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_being_deleted_is_reconciled_as_well() {
    let (server, ctx, _running) = run(Action::await_change(), 1).await;
    server.create(&map(Some("hello"))).await;
    sleep(Duration::from_secs(1)).await;
    server.delete::<ConfigMap>("shop/a").await;
    sleep(Duration::from_secs(1)).await;
    let runs: Vec<bool> = ctx.runs.lock().unwrap().iter().map(|(_, deleted)| *deleted).collect();
    assert_eq!(runs, [false, true]);
}

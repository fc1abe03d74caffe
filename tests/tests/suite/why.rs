//! Why an object is not reconciled: one answer for every state a key can be in.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::{sync::Semaphore, time::Instant};
use watchkeeper::{
    controller::{KeyReport, Why},
    prelude::*,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::Record;

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

async fn shop() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map("a")).await;
    server
}

fn report(running: &watchkeeper::Running, name: &str) -> KeyReport {
    let mut reports = running.why::<ConfigMap>(&ObjectKey::new("shop", name));
    assert_eq!(reports.len(), 1);
    reports.remove(0)
}

fn about(until: Instant, wanted: Duration) {
    let left = until - Instant::now();
    let slack = Duration::from_millis(1_100);
    assert!(left <= wanted && left + slack >= wanted, "{left:?} is not about {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn every_state_of_a_key_has_its_answer() {
    let server = shop().await;
    let (record, runs) = (Record::default(), Arc::new(AtomicUsize::new(0)));
    let (gate, started) = (Arc::new(Semaphore::new(0)), record.clone());
    let passes = gate.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        let (run, gate) = (runs.fetch_add(1, Ordering::SeqCst), passes.clone());
        async move {
            gate.acquire().await.expect("never closed").forget();
            match run {
                0 => Ok(Action::await_change()),
                1 => Ok(Action::requeue_after(Duration::from_secs(60))),
                2 => Ok(Action::backoff_at_least(Duration::from_secs(40))),
                3 => anyhow::bail!("fails"),
                _ => Err(Terminal::new("no use").into()),
            }
        }
    });
    let running = Manager::new(server.client()).controller(controller.namespace("shop")).spawn();
    let change = async |value: &str| {
        server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": value } })).await;
    };
    let pass = async |run: usize| {
        record.reaches(run).await;
        let Why::InFlight { attempt, .. } = report(&running, "a").why else { panic!("not in flight") };
        gate.add_permits(1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        attempt
    };
    assert_eq!(pass(1).await, 1);
    assert_eq!(report(&running, "a").why, Why::AwaitsChange);
    assert_eq!(report(&running, "b").why, Why::NotKnown);
    change("1").await;
    record.reaches(2).await;
    server.create(&config_map("b")).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let waiting = report(&running, "b");
    assert_eq!((waiting.why, waiting.reason.unwrap().to_string()), (Why::Queued, "changed".to_owned()));
    server.delete::<ConfigMap>("shop/b").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(pass(2).await, 1);
    let Why::WaitsUntil(until) = report(&running, "a").why else { panic!() };
    about(until.instant(), Duration::from_secs(60));
    assert_eq!(pass(3).await, 1);
    let Why::BackingOff { until, failures: 1 } = report(&running, "a").why else { panic!() };
    about(until.instant(), Duration::from_secs(40));
    assert_eq!(report(&running, "a").last_error, None, "nothing failed");
    assert_eq!(pass(4).await, 2);
    let failed = report(&running, "a").last_error.unwrap();
    assert_eq!((failed.error.as_str(), failed.attempt), ("fails", 2));
    assert_eq!(pass(5).await, 3);
    let failed = report(&running, "a");
    assert_eq!(failed.why, Why::AwaitsChangeAfterFailure { failures: 3 });
    assert_eq!(failed.last_error.unwrap().error, "no use");
    assert!(failed.why.to_string().contains("3 in a row"));
    // Read by people: a sentence with times of day, and what was said.
    tokio::time::sleep(Duration::from_secs(125)).await;
    let shown = running.why::<ConfigMap>(&ObjectKey::new("shop", "a")).to_string();
    let (said, at) = shown.split_once(", at ").unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(
        said,
        "configmaps is not reconciling shop/a: failed for good after 3 in a row: nothing more until it changes; \
         attempt 3 failed 2m 5s ago"
    );
    let (at, error) = at.split_once(": ").unwrap();
    assert!(at.ends_with('Z') && at.len() == "2026-11-22T05:40:01Z".len(), "{at}");
    assert_eq!(error, "no use");
    let nobody = running.why::<Secret>(&ObjectKey::new("shop", "a")).to_string();
    assert_eq!(nobody, "no controller of this manager reconciles the kind");
    let inspector = running.inspector();
    running.stop().await.unwrap();
    assert_eq!(inspector.why::<ConfigMap>(&ObjectKey::new("shop", "a"))[0].why, Why::Stopped);
    assert!(inspector.why::<Secret>(&ObjectKey::new("shop", "a")).is_empty(), "nobody reconciles those");
}

#[tokio::test(start_paused = true)]
async fn a_success_forgets_the_error_and_a_key_that_waits_for_its_own_writes_says_so() {
    let server = shop().await;
    let record = Record::default();
    let started = record.clone();
    let controller = Controller::from_fn(move |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        async move {
            if map.data.is_none() {
                anyhow::bail!("no data");
            }
            let metadata = ObjectMeta { name: Some("child".into()), ..ObjectMeta::default() };
            cx.apply(Secret { metadata, ..Secret::default() }).await?;
            Ok(Action::await_change())
        }
    });
    let controller = controller.namespace("shop").owns::<Secret>();
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(report(&running, "a").last_error.unwrap().error, "no data");
    let silent = server.faults().on(Verb::Watch, "secrets").always().then(Fault::Silence);
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
    server.eventually::<Secret>("shop/child", |child| child.is_some()).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let parked = report(&running, "a");
    assert!(matches!(parked.why, Why::AwaitsOwnWrites { .. }), "{parked:?}");
    assert_eq!(parked.last_error, None);
    silent.disarm();
    running.stop().await.unwrap();
}

//! The rate limit holds, whatever the reconcilers return.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::time::Instant;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Record, assert_rate_holds};

/// What bites users elsewhere: every object, every time, asks to be looked at again soon.
struct Impatient {
    record: Record,
}

impl Reconciler<ConfigMap> for Impatient {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        Ok(Action::requeue_after(Duration::from_secs(5)))
    }
}

fn config_map(at: usize) -> ConfigMap {
    let name = Some(format!("map-{at}"));
    ConfigMap { metadata: ObjectMeta { name, ..ObjectMeta::default() }, ..ConfigMap::default() }
}

// C11 C9
#[tokio::test(start_paused = true)]
async fn a_thousand_objects_that_all_requeue_after_five_seconds_stay_within_ten_a_second_and_none_starves() {
    const OBJECTS: usize = 1_000;
    let server = ApiServer::in_memory().namespace("shop").start().await;
    for at in 0..OBJECTS {
        server.create(&config_map(at)).await;
    }
    let record = Record::default();
    let controller = Controller::new(Impatient { record: record.clone() })
        .namespace("shop")
        .workers(16)
        .rate_limit(RateLimit::per_second(10).burst(10));
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(3 * OBJECTS + 500).await;
    let starts = record.starts();
    assert_rate_holds(&starts, 10.0, 10.0);
    let took = starts[starts.len() - 1].at.duration_since(starts[0].at).as_secs_f64();
    assert!(took < 350.5, "the limit was not used up: {took} s");
    let mut served = HashMap::new();
    for start in &starts {
        *served.entry(start.key.clone()).or_insert(0_u32) += 1;
    }
    assert_eq!(served.len(), OBJECTS, "somebody starved");
    assert!(served.values().all(|runs| (3..=4).contains(runs)), "not served in turn: {served:?}");
    running.stop().await.unwrap();
}

// C9
#[tokio::test(start_paused = true)]
async fn a_requeue_is_never_early_and_comes_when_promised() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map(0)).await;
    let record = Record::default();
    let controller = Controller::new(Impatient { record: record.clone() }).namespace("shop");
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(4).await;
    for pair in record.starts().windows(2) {
        let gap = pair[1].at.duration_since(pair[0].at);
        assert!((Duration::from_secs(5)..Duration::from_millis(5_050)).contains(&gap), "{gap:?}");
        assert_eq!(pair[1].attempt, 1, "a success clears failures");
    }
}

/// Takes three seconds, then asks for another run after five.
struct Slow {
    record: Record,
}

impl Reconciler<ConfigMap> for Slow {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(Action::requeue_after(Duration::from_secs(5)))
    }
}

// C9
#[tokio::test(start_paused = true)]
async fn a_delay_is_counted_from_the_end_of_the_run_that_asked_for_it() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map(0)).await;
    let record = Record::default();
    let controller = Controller::new(Slow { record: record.clone() }).namespace("shop").named("maps");
    let manager = Manager::new(server.client()).controller(controller);
    let metrics = manager.metrics();
    let running = manager.spawn();
    record.reaches(3).await;
    for pair in record.starts().windows(2) {
        let gap = pair[1].at.duration_since(pair[0].at);
        assert!((Duration::from_secs(8)..Duration::from_millis(8_050)).contains(&gap), "{gap:?}");
    }
    let page = metrics.encode();
    for family in ["controller_runtime_reconcile_time_seconds", "workqueue_work_duration_seconds"] {
        let of_two_runs =
            |line: &&str| line.starts_with(&format!("{family}_sum")) && line.contains("\"maps\"");
        let line = page.lines().find(of_two_runs).unwrap();
        let seconds: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((6.0..6.05).contains(&seconds), "{line}");
    }
    running.stop().await.unwrap();
}

// Q13
#[tokio::test(start_paused = true)]
async fn a_controllers_queue_reports_under_the_controllers_name() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map(0)).await;
    let record = Record::default();
    let controller = Controller::new(Impatient { record: record.clone() }).namespace("shop").named("maps");
    let manager = Manager::new(server.client()).controller(controller);
    let metrics = manager.metrics();
    let running = manager.spawn();
    record.reaches(3).await;
    let page = metrics.encode();
    for line in [
        r#"workqueue_adds_total{name="maps",controller="maps"} 3"#,
        r#"workqueue_queue_duration_seconds_count{name="maps",controller="maps"} 3"#,
        r#"workqueue_retries_total{name="maps",controller="maps"} 0"#,
        r#"workqueue_depth{name="maps",controller="maps",priority="normal"} 0"#,
    ] {
        assert!(page.lines().any(|known| known == line), "no {line} in {page}");
    }
    running.stop().await.unwrap();
}

/// Is not ready before somebody mends its object, and looks again every half a minute.
struct Stuck {
    record: Record,
}

impl Reconciler<ConfigMap> for Stuck {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, map: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        // as a run that asks somebody else would
        tokio::time::sleep(Duration::from_millis(30)).await;
        let mended = map.data.as_ref().is_some_and(|data| data.contains_key("mended"));
        Ok(if mended { Action::await_change() } else { Action::backoff_at_least(Duration::from_secs(30)) })
    }
}

// k8s#132805: elsewhere each event counted as a failure, or ran the key at once.
// Q14 Q15 C10
#[tokio::test(start_paused = true)]
async fn a_storm_of_events_neither_counts_as_failures_nor_outruns_the_floor_and_hides_no_fix() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map(0)).await;
    let record = Record::default();
    let controller = Controller::new(Stuck { record: record.clone() }).namespace("shop");
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(3).await;
    let quiet = record.starts();
    for pair in quiet.windows(2) {
        let gap = pair[1].at.duration_since(pair[0].at);
        assert!(gap >= Duration::from_secs(30), "left alone, it is left alone: {gap:?}");
    }
    for event in 0..600 {
        let patch = json!({ "data": { "event": event.to_string() } });
        server.patch_merge::<ConfigMap>("shop/map-0", patch).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let stormy = record.starts();
    let attempts: Vec<_> = stormy.iter().map(|start| start.attempt as usize).collect();
    assert_eq!(attempts, (1..=stormy.len()).collect::<Vec<_>>(), "attempts grow with runs alone");
    let floor = Duration::from_secs(1);
    for pair in stormy.windows(2) {
        let gap = pair[1].at.duration_since(pair[0].at);
        assert!(gap >= floor, "no more often than the floor: {gap:?}");
    }
    let ran = stormy.len() - quiet.len();
    assert!((50..=60).contains(&ran), "the floor is used up: {ran} runs in a minute");
    let mended = Instant::now();
    server.patch_merge::<ConfigMap>("shop/map-0", json!({ "data": { "mended": "yes" } })).await;
    record.reaches(stormy.len() + 1).await;
    let took = record.starts()[stormy.len()].at.duration_since(mended);
    assert!(took <= floor, "the fix is picked up at once: {took:?}");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(record.len(), stormy.len() + 1, "it is mended");
    running.stop().await.unwrap();
}

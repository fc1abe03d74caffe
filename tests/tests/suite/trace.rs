//! The same seed, the same trace.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::json;
use tokio::time::Instant;
use watchkeeper::{prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Keeper, Record, Website, website};

fn limits(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Looks at a map now and then, by chance, and fails now and then.
fn patrol(record: &Record) -> Controller<ConfigMap, impl Reconciler<ConfigMap> + use<>> {
    let record = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        record.start(&cx);
        async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            match cx.id() % 5 {
                0 => anyhow::bail!("every fifth"),
                _ => Ok(Action::requeue_after_with_jitter(Duration::from_secs(2), Duration::from_secs(9))),
            }
        }
    });
    controller.namespace("shop").workers(3).rate_limit(RateLimit::per_second(7).burst(3))
}

/// Lets an operator live through ten minutes of edits, cuts and refusals, and writes down what it did.
async fn life(seed: u64) -> Vec<String> {
    let server = ApiServer::in_memory().seed(7).crd::<Website>().namespace("shop").start().await;
    let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
    let (keeper, patrolled, began) = (Keeper::default(), Record::default(), Instant::now());
    let running = Manager::with_config(server.client(), config)
        .controller(Controller::new(keeper.clone()).owns::<Deployment>().workers(4))
        .controller(patrol(&patrolled))
        .spawn();
    let mut rng = SmallRng::seed_from_u64(11);
    for step in 0..120 {
        let name = format!("site-{}", rng.random_range(0..8));
        let key = format!("shop/{name}");
        let there = server.get::<Website>(&key).await.is_some();
        match rng.random_range(0..10) {
            0..6 if !there => drop(server.create(&website(&name)).await),
            0..6 => {
                server.patch_merge::<Website>(&key, json!({ "spec": { "replicas": step } })).await;
            }
            6 if there => drop(server.delete::<Website>(&key).await),
            7 => drop(server.faults().on_any_write().once().then(Fault::Status(500))),
            8 => drop(server.faults().on(Verb::Watch, "deployments").once().then(Fault::Cut)),
            _ => drop(server.create(&limits(&format!("map-{step}"))).await),
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..10_000))).await;
    }
    running.stop().await.unwrap();
    let line = |of: &str, start: &watchkeeper_tests::Start| {
        let reason = start.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let at = start.at.duration_since(began).as_nanos();
        format!("{of} {at} {} {} {reason}", start.key, start.attempt)
    };
    let kept = keeper.record.starts();
    let sites = kept.iter().map(|start| line("site", start));
    let patrolled = patrolled.starts();
    sites.chain(patrolled.iter().map(|start| line("map", start))).collect()
}

#[tokio::test(start_paused = true)]
async fn two_runs_of_an_operator_with_one_seed_reconcile_the_same_keys_at_the_same_times() {
    let (first, second) = (life(3).await, life(3).await);
    assert!(first.len() > 500, "hardly anything ran: {}", first.len());
    let differs = first.iter().zip(&second).position(|(one, other)| one != other);
    let at = differs.map(|at| (&first[at], &second[at]));
    assert!(
        first == second,
        "{} and {} runs, which differ at {differs:?}: {at:?}",
        first.len(),
        second.len()
    );
    assert!(life(4).await != first, "the seed decides nothing");
}

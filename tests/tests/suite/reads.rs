//! What a run read decides when it runs again: nothing is missed, and nothing runs without a cause.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tokio::time::sleep;
use watchkeeper::{
    prelude::*,
    reflector::ReflectorConfig,
    store::{Indexer, Selector},
};
use watchkeeper_apiserver::{ApiServer, Restart};

/// What is read.
#[derive(CustomResource, Informer, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "reads.example.dev", version = "v1", kind = "Route", namespaced)]
pub(crate) struct RouteSpec {
    #[informer(index)]
    site: String,
    port: i32,
    weight: i32,
}

/// What reads: its spec says what, in which order.
#[derive(CustomResource, Informer, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "reads.example.dev", version = "v1", kind = "Reading", namespaced, status = "ReadingStatus")]
pub(crate) struct ReadingSpec {
    seed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReadingStatus {
    digest: u64,
}

const NAMESPACES: [&str; 2] = ["default", "shop"];
const SITES: [&str; 3] = ["a", "b", "c"];

fn key(random: &mut StdRng) -> ObjectKey {
    ObjectKey::new(NAMESPACES[random.random_range(0..2)], format!("route-{}", random.random_range(0..6)))
}

/// Reads what a seed says, and makes a number of it. What is read later depends on what was read before.
fn digest(routes: &RouteLister, seed: u64) -> u64 {
    let (mut random, mut hasher) = (StdRng::seed_from_u64(seed), DefaultHasher::new());
    let show = |route: &Route| {
        (route.metadata.namespace.clone(), route.metadata.name.clone(), route.spec.port, route.spec.weight)
    };
    let mut next = 0_usize;
    for _ in 0..random.random_range(1..4) {
        let (key, site) = (key(&mut random), SITES[(random.random_range(0..3) + next) % 3]);
        let namespace = NAMESPACES[random.random_range(0..2)];
        let selector: Selector = ["tier=gold", "tier!=gold", "tier"][random.random_range(0..3)].parse().unwrap();
        let list = |objects: Vec<Arc<Route>>| {
            let mut shown: Vec<_> = objects.iter().map(|route| show(route)).collect();
            shown.sort();
            shown
        };
        match random.random_range(0..12) {
            0 => {
                let found = routes.get(&key);
                next = found.as_ref().map_or(0, |route| route.spec.port as usize);
                found.map(|route| show(&route)).hash(&mut hasher);
            }
            1 => list(routes.by_site(site).to_vec()).hash(&mut hasher),
            2 => list(routes.list_matching(&selector).to_vec()).hash(&mut hasher),
            3 => list(routes.namespace(namespace).list().to_vec()).hash(&mut hasher),
            4 => routes.pick(&key, |route| route.spec.port).hash(&mut hasher),
            5 => routes.contains(&key).hash(&mut hasher),
            6 => routes.count_by_index("by_site", &site.into()).hash(&mut hasher),
            7 => routes.len().hash(&mut hasher),
            8 => list(routes.namespace(namespace).list_matching(&selector).to_vec()).hash(&mut hasher),
            9 => list(routes.namespace(namespace).by_site(site).to_vec()).hash(&mut hasher),
            10 => list(routes.list().to_vec()).hash(&mut hasher),
            _ => matches!(routes.lookup(&key), watchkeeper::store::Lookup::Found(_)).hash(&mut hasher),
        }
    }
    hasher.finish()
}

#[derive(Clone, Default)]
struct Digests {
    digests: Arc<Mutex<BTreeMap<String, u64>>>,
    runs: Arc<AtomicU64>,
    fails: Arc<AtomicBool>,
    /// Runs that came to the same end as the one before.
    idle: Arc<AtomicU64>,
}

impl Reconciler<Reading> for Digests {
    type Error = anyhow::Error;

    async fn reconcile(&self, reading: Arc<Reading>, cx: &Context<Reading>) -> Result<Action, anyhow::Error> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let digest = digest(&cx.lister::<Route>(), reading.spec.seed);
        if std::env::var("READS_FIRST").is_ok() { eprintln!("run {} {} {digest} {}", cx.key(), cx.reason(), reading.metadata.resource_version.clone().unwrap()); }
        anyhow::ensure!(!self.fails.load(Ordering::Relaxed) || run % 3 != 0, "by chance");
        let before = self.digests.lock().unwrap().insert(cx.key().to_string(), digest);
        if before == Some(digest) {
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
        cx.patch_status(&reading, ReadingStatus { digest }).await?;
        Ok(Action::await_change())
    }
}

fn route(key: &ObjectKey, random: &mut StdRng) -> Route {
    let spec = RouteSpec {
        site: SITES[random.random_range(0..3)].to_owned(),
        port: random.random_range(0..3),
        weight: random.random_range(0..3),
    };
    let mut route = Route::new(key.name(), spec);
    route.metadata.namespace = key.namespace().map(str::to_owned);
    let tier = ["gold", "silver", ""][random.random_range(0..3)];
    if !tier.is_empty() {
        route.metadata.labels = Some(BTreeMap::from([("tier".to_owned(), tier.to_owned())]));
    }
    route
}

/// Changes something, as somebody else would.
async fn change(client: &kube::Client, random: &mut StdRng) {
    let key = key(random);
    let routes = Api::<Route>::namespaced(client.clone(), key.namespace().unwrap());
    match random.random_range(0..6) {
        0 => drop(routes.delete(key.name(), &DeleteParams::default()).await),
        1 => {
            let weight = json!({"spec": {"weight": random.random_range(0..3)}});
            drop(routes.patch(key.name(), &PatchParams::default(), &Patch::Merge(weight)).await);
        }
        2 => {
            let other = json!({"metadata": {"annotations": {"seen": random.random_range(0..9).to_string()}}});
            drop(routes.patch(key.name(), &PatchParams::default(), &Patch::Merge(other)).await);
        }
        _ => {
            let wanted = route(&key, random);
            if let Err(kube::Error::Api(_)) = routes.create(&PostParams::default(), &wanted).await {
                let change = json!({"spec": wanted.spec, "metadata": {"labels": {"tier": wanted.metadata.labels.and_then(|labels| labels.get("tier").cloned())}}});
                drop(routes.patch(key.name(), &PatchParams::default(), &Patch::Merge(change)).await);
            }
        }
    }
}

/// Returns how many runs there were, and how many of them found what was known.
async fn complete(seed: u64) -> (u64, u64) {
    if std::env::var("READS_LOG").is_ok() { drop(tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::DEBUG).with_ansi(false).try_init()); }
    let _ = std::env::var("READS_LOG").map(|_| tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::DEBUG).with_ansi(false).try_init());
    let mut random = StdRng::seed_from_u64(seed);
    let server =
        ApiServer::in_memory().crd::<Route>().crd::<Reading>().namespace("shop").namespace("default").start().await;
    let client = server.client();
    let readings = Api::<Reading>::namespaced(client.clone(), "default");
    for number in 0..3 {
        let reading = Reading::new(&format!("reading-{number}"), ReadingSpec { seed: random.random() });
        readings.create(&PostParams::default(), &reading).await.unwrap();
    }
    for _ in 0..6 {
        change(&client, &mut random).await;
    }
    let digests = Digests::default();
    let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
    let manager = Manager::with_config(client.clone(), config);
    let controller = Controller::new(digests.clone()).reads::<Route>().workers(2);
    let cached = manager.lister::<Route>();
    let running = manager.controller(controller).spawn();
    sleep(Duration::from_secs(5)).await;
    let mut backup = server.resource_version();
    for _ in 0..random.random_range(5..25) {
        digests.fails.store(random.random_range(0..3) == 0, Ordering::Relaxed);
        match random.random_range(0..30) {
            0 => server.restart(Restart::Keep),
            what @ (1 | 2) => {
                match what {
                    1 => server.compact(),
                    _ => server.restart(Restart::ForgetHistory),
                }
                backup = server.resource_version();
            }
            3 if random.random_range(0..4) == 0 => {
                server.restart(Restart::At(backup));
                // A cache can't tell a restored server that has reached its version again by writes.
                sleep(Duration::from_secs(60)).await;
            }
            _ => change(&client, &mut random).await,
        }
        if std::env::var("READS_FIRST").is_ok() { eprintln!("at {}", server.resource_version()); }
        match random.random_range(0..3) {
            0 => {}
            1 => tokio::task::yield_now().await,
            _ => sleep(Duration::from_millis(random.random_range(0..3_000))).await,
        }
    }
    digests.fails.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(std::env::var("READS_REST").ok().and_then(|s| s.parse().ok()).unwrap_or(600))).await;

    // The same reads of what the server has.
    let indexer = Indexer::<Route>::with_indexes(<Route as Watched>::indexes()).unwrap();
    let all = Api::<Route>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    indexer.replace(all.into_iter().map(Arc::new));
    let truth = RouteLister::from(indexer.lister());
    for reading in readings.list(&ListParams::default()).await.unwrap() {
        let wanted = digest(&truth, reading.spec.seed);
        if std::env::var("READS_FIRST").is_ok() { eprintln!("cached {} wanted {wanted} {:?}", digest(&cached, reading.spec.seed), running.why::<Reading>(&ObjectKey::new("default", reading.metadata.name.clone().unwrap())).to_string()); }
        let name = reading.metadata.name.clone().unwrap();
        assert_eq!(reading.status.unwrap_or_default().digest, wanted, "seed {seed}: {name} is out of date");
    }
    running.stop().await.unwrap();
    (digests.runs.load(Ordering::Relaxed), digests.idle.load(Ordering::Relaxed))
}

// RW1
#[tokio::test(start_paused = true)]
async fn what_was_read_is_never_out_of_date_at_rest() {
    let (mut runs, mut idle) = (0, 0);
    let first = std::env::var("READS_FIRST").ok().and_then(|first| first.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds() {
        let (more, same) = complete(seed).await;
        (runs, idle) = (runs + more, idle + same);
    }
    assert!(runs > 0);
    // A failed or repeated run, a restart, a change that the digest does not show.
    eprintln!("{runs} runs, {idle} without news");
}

fn seeds() -> u64 {
    std::env::var("READS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300)
}

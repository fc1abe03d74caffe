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
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tokio::time::sleep;
use watchkeeper::{
    controller::Watch,
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
        let selector: Selector =
            ["tier=gold", "tier!=gold", "tier"][random.random_range(0..3)].parse().unwrap();
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
        anyhow::ensure!(!self.fails.load(Ordering::Relaxed) || !run.is_multiple_of(3), "by chance");
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

/// How many rounds one server and one manager see.
const ROUNDS: u64 = 20;

/// How many objects read in a round, each what its own seed says.
const READINGS: usize = 10;

/// Counts runs, and those that came to the same end as the ones before.
#[derive(Default)]
struct Counted {
    runs: u64,
    idle: u64,
}

/// Plays rounds on one server: what is read changes, objects change, watches end, the server forgets or is restored, runs
/// fail. At the end of each, all that was read is as the server has it.
async fn complete(seed: u64, rounds: u64) -> Counted {
    let mut random = StdRng::seed_from_u64(seed);
    let server = ApiServer::in_memory()
        .crd::<Route>()
        .crd::<Reading>()
        .namespace("shop")
        .namespace("default")
        .start()
        .await;
    let client = server.client();
    let readings = Api::<Reading>::namespaced(client.clone(), "default");
    for number in 0..READINGS {
        let reading = Reading::new(&format!("reading-{number}"), ReadingSpec { seed: random.random() });
        readings.create(&PostParams::default(), &reading).await.unwrap();
    }
    let digests = Digests::default();
    let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
    let controller = Controller::new(digests.clone()).reads::<Route>().workers(2);
    let running = Manager::with_config(client.clone(), config).controller(controller).spawn();
    for round in 0..rounds {
        for number in 0..READINGS {
            let change = json!({"spec": ReadingSpec { seed: random.random() }});
            let name = format!("reading-{number}");
            readings.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        }
        disturb(&server, &digests, &mut random).await;
        sleep(Duration::from_secs(120)).await;
        // The same reads of what the server has.
        let indexer = Indexer::<Route>::with_indexes(<Route as Watched>::indexes()).unwrap();
        let all = Api::<Route>::all(client.clone()).list(&ListParams::default()).await.unwrap();
        indexer.replace(all.into_iter().map(Arc::new));
        let truth = RouteLister::from(indexer.lister());
        for reading in readings.list(&ListParams::default()).await.unwrap() {
            let (name, wanted) = (reading.name_any(), digest(&truth, reading.spec.seed));
            let digest = reading.status.unwrap_or_default().digest;
            assert_eq!(digest, wanted, "seed {seed}, round {round}: {name} is out of date");
        }
    }
    running.stop().await.unwrap();
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Counted { runs: count(&digests.runs), idle: count(&digests.idle) }
}

/// Changes objects at random times, and makes trouble.
async fn disturb(server: &ApiServer, digests: &Digests, random: &mut StdRng) {
    let (client, mut backup) = (server.client(), server.resource_version());
    for _ in 0..random.random_range(5..25) {
        digests.fails.store(random.random_range(0..3) == 0, Ordering::Relaxed);
        match random.random_range(0..30) {
            0 => server.restart(Restart::Keep),
            1 => {
                server.compact();
                backup = server.resource_version();
            }
            2 => {
                server.restart(Restart::ForgetHistory);
                backup = server.resource_version();
            }
            3 if random.random_range(0..4) == 0 => {
                server.restart(Restart::At(backup));
                // A cache can't tell a restored server that has reached its version again by writes.
                sleep(Duration::from_secs(60)).await;
            }
            _ => change(&client, random).await,
        }
        match random.random_range(0..3) {
            0 => {}
            1 => tokio::task::yield_now().await,
            _ => sleep(Duration::from_millis(random.random_range(0..3_000))).await,
        }
    }
    digests.fails.store(false, Ordering::Relaxed);
}

// C53
#[tokio::test(start_paused = true)]
async fn what_was_read_is_never_out_of_date_at_rest() {
    let rounds = std::env::var("READS_ROUNDS").map_or(200, |rounds| rounds.parse().unwrap());
    let mut all = Counted::default();
    for seed in 0..rounds / ROUNDS {
        let Counted { runs, idle } = complete(seed, ROUNDS).await;
        all = Counted { runs: all.runs + runs, idle: all.idle + idle };
    }
    // Without news are retries, runs after a restart, and runs for a change that the digest does not show.
    tracing::info!("{rounds} rounds, {} runs, {} of them without news", all.runs, all.idle);
    assert!(all.runs > 15 * rounds && all.idle * 5 < all.runs);
}

/// A server with a reading, and with routes.
async fn shop(routes: &[&str]) -> ApiServer {
    let server = ApiServer::in_memory().crd::<Route>().crd::<Reading>().namespace("shop").start().await;
    server.create(&Reading::new("reading", ReadingSpec { seed: 0 })).await;
    for name in routes {
        let spec = RouteSpec { site: "a".to_owned(), port: 1, weight: 1 };
        server.create(&Route::new(name, spec)).await;
    }
    server
}

/// Runs of a reconciler that is a function, and why they were.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<String>>>);

impl Runs {
    /// Returns why there was a run each time since it was last asked, after a while.
    async fn since(&self) -> Vec<String> {
        sleep(Duration::from_secs(30)).await;
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Makes a controller that calls a function in each run.
fn calling(
    runs: &Runs,
    read: impl Fn(&Context<Reading>) + Send + Sync + 'static,
) -> Controller<Reading, impl Reconciler<Reading>> {
    let runs = runs.clone();
    let read = Arc::new(read);
    Controller::from_fn(move |_: Arc<Reading>, cx: Context<Reading>| {
        let (runs, read) = (runs.clone(), read.clone());
        async move {
            runs.0.lock().unwrap().push(cx.reason().to_string());
            read(&cx);
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    })
}

async fn port(server: &ApiServer, name: &str, port: i32) {
    server.patch_merge::<Route>(&format!("shop/{name}"), json!({"spec": {"port": port}})).await;
}

// C53
#[tokio::test(start_paused = true)]
async fn work_that_outlives_its_run_may_be_the_first_to_read() {
    let server = shop(&["a"]).await;
    let runs = Runs::default();
    let controller = calling(&runs, |cx| {
        let cx = cx.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(1)).await;
            cx.lister::<Route>().get(&ObjectKey::new("shop", "a"));
        });
    });
    let running = Manager::new(server.client()).controller(controller.reads::<Route>()).spawn();
    assert_eq!(runs.since().await, ["initial_list"]);
    for run in 1..4 {
        port(&server, "a", 1 + run).await;
        assert_eq!(runs.since().await, [format!("read:routes.reads.example.dev:shop/a@{run}")]);
    }
    running.stop().await.unwrap();
}

// C53 C17
#[tokio::test(start_paused = true)]
async fn what_was_read_for_an_object_is_forgotten_though_a_predicate_hides_that_it_is_gone() {
    let server = shop(&["a"]).await;
    let runs = Runs::default();
    let controller = calling(&runs, |cx| drop(cx.lister::<Route>().get(&ObjectKey::new("shop", "a"))));
    let no_deletions = Predicate::new(|_, new: Option<&Reading>| new.is_some());
    let controller = controller.reads::<Route>().predicate(no_deletions);
    let running = Manager::new(server.client()).controller(controller).spawn();
    assert_eq!(runs.since().await, ["initial_list"]);
    let report = || running.why::<Reading>(&ObjectKey::new("shop", "reading")).remove(0).to_string();
    server.delete::<Reading>("shop/reading").await;
    let before = report();
    assert!(before.contains("it depends on routes.reads.example.dev shop/a"), "{before}");
    sleep(Duration::from_secs(60)).await;
    let after = report();
    assert!(!after.contains("it depends on"), "{after}");
    running.stop().await.unwrap();
}

// C58
#[tokio::test(start_paused = true)]
async fn the_reason_and_the_report_name_what_was_read() {
    let server = shop(&["a", "b"]).await;
    let runs = Runs::default();
    let controller = calling(&runs, |cx| {
        let routes = cx.lister::<Route>();
        routes.get(&ObjectKey::new("shop", "a"));
        routes.by_site("none");
    });
    let running = Manager::new(server.client()).controller(controller.reads::<Route>()).spawn();
    assert_eq!(runs.since().await, ["initial_list"]);
    port(&server, "b", 2).await;
    assert_eq!(runs.since().await, [""; 0]);
    port(&server, "a", 2).await;
    assert_eq!(runs.since().await, ["read:routes.reads.example.dev:shop/a@1"]);
    let why = running.why::<Reading>(&ObjectKey::new("shop", "reading"));
    let text = why.to_string();
    let wanted = "it depends on routes.reads.example.dev with by_site=none, routes.reads.example.dev shop/a";
    assert!(text.ends_with(wanted), "{text}");
    server.delete::<Route>("shop/a").await;
    assert_eq!(runs.since().await, ["read:routes.reads.example.dev:shop/a@2"]);
    running.stop().await.unwrap();
}

// C55
#[tokio::test(start_paused = true)]
async fn a_pick_a_count_and_whether_it_is_there_ask_for_a_run_only_when_they_change() {
    let server = shop(&["a"]).await;
    let runs = Runs::default();
    let controller = calling(&runs, |cx| {
        let routes = cx.lister::<Route>();
        routes.pick(&ObjectKey::new("shop", "a"), |route| route.spec.port);
        routes.contains(&ObjectKey::new("shop", "b"));
        routes.count_by_index("by_site", &"b".into());
    });
    let running = Manager::new(server.client()).controller(controller.reads::<Route>()).spawn();
    runs.since().await;
    server.patch_merge::<Route>("shop/a", json!({"spec": {"weight": 9}})).await;
    server.patch_merge::<Route>("shop/a", json!({"metadata": {"labels": {"tier": "gold"}}})).await;
    assert_eq!(runs.since().await.len(), 0);
    port(&server, "a", 2).await;
    assert_eq!(runs.since().await.len(), 1);
    server.create(&Route::new("b", RouteSpec { site: "a".to_owned(), port: 1, weight: 1 })).await;
    assert_eq!(runs.since().await.len(), 1, "b is there");
    port(&server, "b", 2).await;
    assert_eq!(runs.since().await.len(), 0);
    server.patch_merge::<Route>("shop/b", json!({"spec": {"site": "b"}})).await;
    assert_eq!(runs.since().await.len(), 1, "one more has this site");
    server.delete::<Route>("shop/a").await;
    assert_eq!(runs.since().await.len(), 1, "nothing can be picked");
    running.stop().await.unwrap();
}

// C53
#[tokio::test(start_paused = true)]
async fn what_is_not_declared_fails_the_run_and_the_error_names_the_line_to_add() {
    let server = shop(&[]).await;
    let controller = calling(&Runs::default(), |cx| drop(cx.lister::<Route>()));
    let running = Manager::new(server.client()).controller(controller).spawn();
    sleep(Duration::from_secs(5)).await;
    let why = running.why::<Reading>(&ObjectKey::new("shop", "reading")).to_string();
    assert!(why.contains("declare: add `.reads::<Route>()` to the controller"), "{why}");
    running.stop().await.unwrap();
}

// C56
#[tokio::test(start_paused = true)]
async fn what_a_key_writes_itself_asks_for_no_run() {
    for asked in ["nothing", "the kind", "its pages"] {
        own_writes(asked).await;
    }
}

/// Writes what it reads, before and after; the program may have asked the manager for the kind as well.
async fn own_writes(asked: &str) {
    let server = shop(&[]).await;
    let runs = Runs::default();
    let counted = runs.clone();
    let controller = Controller::from_fn(move |reading: Arc<Reading>, cx: Context<Reading>| {
        let runs = counted.clone();
        async move {
            runs.0.lock().unwrap().push(cx.reason().to_string());
            let seen = cx.lister::<Route>().namespace("shop").list().len();
            let mut route = Route::new(
                "own",
                RouteSpec { site: "a".to_owned(), port: 1, weight: reading.spec.seed as i32 },
            );
            route.metadata.namespace = Some("shop".to_owned());
            cx.apply(route).await?;
            // The cache has shown the write by then, and the moment of the run has not.
            sleep(Duration::from_secs(5)).await;
            cx.lister::<Route>().by_site("a");
            Ok::<_, watchkeeper::WriteError>(if seen > 1 {
                Action::backoff()
            } else {
                Action::await_change()
            })
        }
    });
    let manager = Manager::new(server.client());
    let _asked = match asked {
        "nothing" => None,
        "the kind" => Some(manager.lister::<Route>()),
        _ => Some(manager.informer::<Route>().page_size(100).lister()),
    };
    let running = manager.controller(controller.reads::<Route>()).spawn();
    assert_eq!(runs.since().await, ["initial_list"]);
    server.patch_merge::<Reading>("shop/reading", json!({"spec": {"seed": 1}})).await;
    assert_eq!(runs.since().await, ["changed"]);
    port(&server, "own", 7).await;
    assert_eq!(runs.since().await.len(), 1, "somebody else's change");
    running.stop().await.unwrap();
}

// C59
#[tokio::test(start_paused = true)]
async fn all_reads_of_a_run_see_one_moment_and_a_change_after_it_asks_for_another_run() {
    let server = shop(&["a"]).await;
    let (seen, client) = (Arc::new(Mutex::new(Vec::new())), server.client());
    let noted = seen.clone();
    let controller = Controller::from_fn(move |_: Arc<Reading>, cx: Context<Reading>| {
        let (seen, client) = (noted.clone(), client.clone());
        async move {
            let routes = cx.snapshot().lister::<Route>();
            let before = routes.namespace("shop").list().len();
            if cx.id() == 1 {
                let spec = RouteSpec { site: "a".to_owned(), port: 1, weight: 1 };
                let routes = Api::<Route>::namespaced(client, "shop");
                routes.create(&PostParams::default(), &Route::new("b", spec)).await.unwrap();
                sleep(Duration::from_secs(5)).await;
            }
            // Read for the first time after the change.
            let site = cx.lister::<Route>().by_site("a").len();
            seen.lock().unwrap().push((before, routes.namespace("shop").list().len(), site));
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    });
    let running = Manager::new(server.client()).controller(controller.reads::<Route>()).spawn();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(*seen.lock().unwrap(), [(1, 1, 1), (2, 2, 2)]);
    running.stop().await.unwrap();
}

// C53
#[tokio::test(start_paused = true)]
async fn a_first_read_after_a_change_that_the_moment_does_not_show_asks_for_another_run() {
    let server = shop(&["a"]).await;
    let (runs, client) = (Runs::default(), server.client());
    let counted = runs.clone();
    let controller = Controller::from_fn(move |_: Arc<Reading>, cx: Context<Reading>| {
        let (runs, client) = (counted.clone(), client.clone());
        async move {
            runs.0.lock().unwrap().push(cx.reason().to_string());
            let routes = cx.snapshot().lister::<Route>();
            if cx.id() == 1 {
                let routes = Api::<Route>::namespaced(client, "shop");
                let change = Patch::Merge(json!({"spec": {"port": 5}}));
                routes.patch("a", &PatchParams::default(), &change).await.unwrap();
                sleep(Duration::from_secs(5)).await;
            }
            let port = routes.pick(&ObjectKey::new("shop", "a"), |route| route.spec.port);
            runs.0.lock().unwrap().push(format!("{port:?}"));
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    });
    let running = Manager::new(server.client()).controller(controller.reads::<Route>()).spawn();
    let wanted = ["initial_list", "Some(1)", "changed", "Some(5)"];
    assert_eq!(runs.since().await, wanted);
    running.stop().await.unwrap();
}

// C53
#[tokio::test(start_paused = true)]
async fn reads_may_be_narrowed_and_each_is_found_by_its_watch() {
    let server = shop(&["a", "defaults"]).await;
    let runs = Runs::default();
    let defaults = || Watch::<Route>::new().namespace("shop").named("defaults");
    let controller = calling(&runs, move |cx| {
        assert_eq!(cx.lister_of(&defaults()).list().len(), 1);
    });
    let defaults = Watch::<Route>::new().namespace("shop").named("defaults");
    let manager = Manager::new(server.client()).controller(controller.watch(defaults).reads::<Route>());
    let running = manager.spawn();
    assert_eq!(runs.since().await.len(), 1);
    port(&server, "a", 2).await;
    assert_eq!(runs.since().await.len(), 0);
    port(&server, "defaults", 2).await;
    assert_eq!(runs.since().await.len(), 1);
    running.stop().await.unwrap();
}

// C53
#[tokio::test(start_paused = true)]
async fn what_an_object_owns_is_found_by_its_uid() {
    let server = shop(&["stranger"]).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let controller = Controller::from_fn(move |_: Arc<Reading>, cx: Context<Reading>| {
        let seen = noted.clone();
        async move {
            seen.lock().unwrap().push(cx.owned::<Route>().keys());
            let mut route = Route::new("own", RouteSpec { site: "a".to_owned(), port: 1, weight: 1 });
            route.metadata.namespace = Some("shop".to_owned());
            cx.apply(route).await?;
            Ok::<_, watchkeeper::WriteError>(Action::requeue_after(Duration::from_secs(10)))
        }
    });
    let running = Manager::new(server.client()).controller(controller.owns::<Route>()).spawn();
    sleep(Duration::from_secs(15)).await;
    assert_eq!(*seen.lock().unwrap(), [vec![], vec![ObjectKey::new("shop", "own")]]);
    running.stop().await.unwrap();
}

// C53
#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_what_is_watched_counts_as_gone() {
    let server = shop(&["a"]).await;
    server.patch_merge::<Route>("shop/a", json!({"metadata": {"labels": {"tier": "gold"}}})).await;
    let (runs, found) = (Runs::default(), Arc::new(AtomicU64::new(9)));
    let gold = || Watch::<Route>::new().label_selector("tier=gold").unwrap();
    let seen = found.clone();
    let controller = calling(&runs, move |cx| {
        let routes = cx.lister_of(&gold());
        seen.store(u64::from(routes.get(&ObjectKey::new("shop", "a")).is_some()), Ordering::Relaxed);
    });
    let running = Manager::new(server.client()).controller(controller.watch(gold())).spawn();
    assert_eq!((runs.since().await.len(), found.load(Ordering::Relaxed)), (1, 1));
    server.patch_merge::<Route>("shop/a", json!({"metadata": {"labels": {"tier": "silver"}}})).await;
    assert_eq!((runs.since().await.len(), found.load(Ordering::Relaxed)), (1, 0));
    server.patch_merge::<Route>("shop/a", json!({"metadata": {"labels": {"tier": "gold"}}})).await;
    assert_eq!((runs.since().await.len(), found.load(Ordering::Relaxed)), (1, 1));
    running.stop().await.unwrap();
}

/// Writes fields that the schema refuses and the program can't read.
async fn write_any(server: &ApiServer, name: &str, spec: serde_json::Value) {
    let resource = kube::core::ApiResource::erase::<Route>(&());
    let routes = Api::<kube::core::DynamicObject>::namespaced_with(server.client(), "shop", &resource);
    let mut route = kube::core::DynamicObject::new(name, &resource);
    route.data = json!({"spec": spec});
    let apply = PatchParams::apply("somebody").force();
    routes.patch(name, &apply, &Patch::Apply(&route)).await.unwrap();
}

// C53
#[tokio::test(start_paused = true)]
async fn an_object_that_turns_unreadable_or_readable_again_asks_for_a_run_of_each_key_that_read_it() {
    let mut loose = serde_json::to_value(Route::crd()).unwrap();
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let server = ApiServer::in_memory().crd_object(loose).crd::<Reading>().namespace("shop").start().await;
    for name in ["by-name", "by-site", "whole", "counting", "stranger"] {
        server.create(&Reading::new(name, ReadingSpec { seed: 0 })).await;
    }
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noted = runs.clone();
    let controller = Controller::from_fn(move |reading: Arc<Reading>, cx: Context<Reading>| {
        let routes = cx.lister::<Route>();
        let found = match reading.name_any().as_str() {
            "by-name" => usize::from(routes.get(&ObjectKey::new("shop", "a")).is_some()),
            "by-site" => routes.by_site("a").len(),
            "whole" => routes.list().len(),
            "counting" => routes.len(),
            _ => usize::from(routes.get(&ObjectKey::new("shop", "b")).is_some()),
        };
        noted.lock().unwrap().push((reading.name_any(), found));
        async { Ok::<_, watchkeeper::Error>(Action::await_change()) }
    });
    let running = Manager::new(server.client()).controller(controller.reads::<Route>()).spawn();
    let since = async || {
        sleep(Duration::from_secs(30)).await;
        let mut runs = std::mem::take(&mut *runs.lock().unwrap());
        runs.sort();
        runs.into_iter().map(|(name, found)| format!("{name} {found}")).collect::<Vec<_>>().join(", ")
    };
    let none_there = "by-name 0, by-site 0, counting 0, whole 0";
    let without_sites = "by-name 0, counting 0, whole 0";
    assert_eq!(since().await, "by-name 0, by-site 0, counting 0, stranger 0, whole 0");
    // It begins unreadable: no run sees it. Nobody knows its site.
    write_any(&server, "a", json!({"site": "a", "port": "many", "weight": 1})).await;
    assert_eq!(since().await, without_sites);
    let readable = |port: i32| json!({"site": "a", "port": port, "weight": 1});
    write_any(&server, "a", readable(1)).await;
    let one_there = none_there.replace('0', "1");
    assert_eq!(since().await, one_there);
    // The cache keeps the last state that could be read.
    write_any(&server, "a", json!({"site": "a", "port": "many", "weight": 1})).await;
    assert_eq!(since().await, one_there);
    write_any(&server, "a", readable(2)).await;
    assert_eq!(since().await, one_there);
    write_any(&server, "a", json!({"site": "a", "port": "many", "weight": 1})).await;
    assert_eq!(since().await, one_there);
    Api::<Route>::namespaced(server.client(), "shop").delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(since().await, none_there);
    running.stop().await.unwrap();
}

// C53
#[tokio::test(start_paused = true)]
async fn what_is_owned_may_be_watched_in_a_namespace_of_its_own_or_in_several() {
    for is_own in [true, false] {
        let server =
            ApiServer::in_memory().crd::<Route>().crd::<Reading>().namespace("shop").namespace("hub");
        let server = server.start().await;
        for namespace in ["shop", "hub"] {
            let mut reading = Reading::new("reading", ReadingSpec { seed: 0 });
            reading.metadata.namespace = Some(namespace.to_owned());
            server.create(&reading).await;
        }
        let seen = Arc::new(Mutex::new(BTreeMap::<String, Vec<ObjectKey>>::new()));
        let noted = seen.clone();
        let controller = Controller::from_fn(move |_: Arc<Reading>, cx: Context<Reading>| {
            let seen = noted.clone();
            async move {
                let owned = cx.owned::<Route>().keys();
                seen.lock().unwrap().insert(cx.key().to_string(), owned);
                let spec = RouteSpec { site: "a".to_owned(), port: 1, weight: 1 };
                cx.apply(Route::new("own", spec)).await?;
                Ok::<_, watchkeeper::WriteError>(Action::requeue_after(Duration::from_secs(10)))
            }
        });
        let controller = match is_own {
            true => controller.watch(Watch::<Route>::new().owned().namespace("shop")),
            false => controller.namespace("shop").namespace("hub").owns::<Route>(),
        };
        let running = Manager::new(server.client()).controller(controller).spawn();
        sleep(Duration::from_secs(25)).await;
        let seen = seen.lock().unwrap().clone();
        let own = |namespace| (format!("{namespace}/reading"), vec![ObjectKey::new(namespace, "own")]);
        let hub = if is_own { ("hub/reading".to_owned(), Vec::new()) } else { own("hub") };
        assert_eq!(seen, BTreeMap::from([own("shop"), hub]), "a watch of its own: {is_own}");
        running.stop().await.unwrap();
    }
}

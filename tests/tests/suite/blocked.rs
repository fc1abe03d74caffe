//! How far the rest falls behind while user code blocks its thread, on runtimes of a few threads and in real time.
//!
//! `BLOCKED_RUNS=200 cargo test -p watchkeeper-tests --test suite behind -- --nocapture` shows the lag of many runs.

use std::sync::{Condvar, Mutex};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Resource, core::ObjectMeta};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use watchkeeper::{
    Error, Running, informer::EventHandler, leader_election::LeaderElection, object::Version, prelude::*,
};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::backend::Log;

/// How long what goes on may take on a busy machine; somebody blocks for twice as long at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Blocks who passes it until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Passage>, Condvar)>);

#[derive(Default, PartialEq)]
enum Passage {
    #[default]
    Shut,
    Waited,
    Open,
}

impl Gate {
    fn pass(&self) {
        let (passage, changed) = &*self.0;
        let mut passage = passage.lock().unwrap();
        if *passage == Passage::Shut {
            *passage = Passage::Waited;
        }
        changed.notify_all();
        drop(changed.wait_timeout_while(passage, 2 * PATIENCE, |passage| *passage != Passage::Open).unwrap());
    }

    /// Returns once somebody is blocked.
    async fn blocks(&self) {
        let blocked = async {
            while *self.0.0.lock().unwrap() != Passage::Waited {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, blocked).await.expect("nobody is blocked");
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = Passage::Open;
        self.0.1.notify_all();
    }
}

/// The highest version that somebody was shown.
#[derive(Clone)]
struct Seen(&'static str, Arc<watch::Sender<u64>>);

impl Seen {
    fn by(whom: &'static str) -> Self {
        Self(whom, Arc::new(watch::Sender::new(0)))
    }

    fn note(&self, object: &impl Resource) {
        let version = version_of(object);
        self.1.send_if_modified(|seen| {
            let is_newer = version > *seen;
            *seen = version.max(*seen);
            is_newer
        });
    }

    fn latest(&self) -> u64 {
        *self.1.borrow()
    }

    /// Returns when a version was shown; fails if that takes long.
    async fn reaches(&self, version: u64) -> Instant {
        let mut seen = self.1.subscribe();
        let reached = timeout(PATIENCE, seen.wait_for(|seen| *seen >= version)).await;
        assert!(reached.is_ok(), "{} waits for what blocks", self.0);
        Instant::now()
    }
}

fn version_of(object: &impl Resource) -> u64 {
    object.meta().resource_version.as_deref().unwrap().parse().unwrap()
}

fn named(name: String) -> ObjectMeta {
    ObjectMeta { name: Some(name), ..ObjectMeta::default() }
}

fn config_map(name: impl Into<String>) -> ConfigMap {
    ConfigMap { metadata: named(name.into()), ..ConfigMap::default() }
}

fn secret(name: impl Into<String>) -> Secret {
    Secret { metadata: named(name.into()), ..Secret::default() }
}

fn on_workers<T>(workers: usize, test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_time().build();
    runtime.unwrap().block_on(test)
}

/// A controller that notes what it is called with.
fn noting<K: Watched<Object = K, DynamicType = ()> + Object>(
    name: &str,
    seen: &Seen,
) -> Controller<K, impl Reconciler<K> + use<K>> {
    let seen = seen.clone();
    let controller = Controller::from_fn(move |object: Arc<K>, _: Context<K>| {
        seen.note(&*object);
        async { Ok::<_, watchkeeper::Error>(Action::await_change()) }
    });
    controller.namespace("shop").named(name)
}

/// How a handler blocks.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    /// At a call, for good.
    ForEver,
    /// At each call, for 20 ms.
    Often,
}

/// Blocks in its calls.
struct Blocking {
    how: Blocks,
    calls: Mutex<u32>,
    gate: Gate,
}

impl Blocking {
    fn call(&self) {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls
        };
        match self.how {
            // In the second wave, which is measured.
            Blocks::ForEver if call == 60 => self.gate.pass(),
            Blocks::ForEver => {}
            Blocks::Often => std::thread::park_timeout(Duration::from_millis(20)),
        }
    }
}

impl EventHandler<ConfigMap> for Blocking {
    fn on_add(&self, _: Arc<ConfigMap>, _: AddOrigin) {
        self.call();
    }

    fn on_update(&self, _: Arc<ConfigMap>, _: Arc<ConfigMap>) {
        self.call();
    }
}

/// Writes in waves, and returns by how much the slowest was behind the server after any of them.
async fn lag(how: Blocks) -> Duration {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let manager = Manager::new(server.client());
    let informer = manager.informer::<ConfigMap>().namespace("shop").build();
    let gate = Gate::default();
    let blocking = informer.add_handler(Blocking { how, calls: Mutex::new(0), gate: gate.clone() });
    let [handler, own, other] = ["another handler", "its controller", "another controller"].map(Seen::by);
    let noted = handler.clone();
    let noted_too = handler.clone();
    let noting_handler = informer
        .handler()
        .on_add(move |object, _| noted.note(&*object))
        .on_update(move |_, object| noted_too.note(&*object))
        .register();
    let lister = informer.lister();
    let own_controller = noting::<ConfigMap>("own", &own);
    let other_controller = noting::<Secret>("other", &other);
    let running = manager.controller(own_controller).controller(other_controller).spawn();
    let mut longest = Duration::ZERO;
    for wave in 0..4 {
        let began = Instant::now();
        let mut last = 0;
        for at in 0..45 {
            last = version_of(&server.create(&config_map(format!("map-{wave}-{at}"))).await);
        }
        let last_secret = version_of(&server.create(&secret(format!("secret-{wave}"))).await);
        let written = Instant::now();
        assert!(written - began < PATIENCE, "the writes waited too");
        lister.wait_for_version(Version(last), PATIENCE).await.expect("the cache goes on");
        let mut reached = vec![Instant::now()];
        for (seen, version) in [(&handler, last), (&own, last), (&other, last_secret)] {
            reached.push(seen.reaches(version).await);
        }
        let behind = reached.into_iter().map(|reached| reached - written).max();
        // The first wave also counts what it takes to list and start.
        longest = if wave == 0 { Duration::ZERO } else { longest.max(behind.unwrap_or_default()) };
    }
    gate.open();
    drop((blocking, noting_handler));
    running.stop().await.unwrap();
    longest
}

// I24
#[test]
fn a_handler_that_blocks_leaves_cache_handlers_and_controllers_hardly_behind() {
    let runs: usize = std::env::var("BLOCKED_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(5);
    for how in [Blocks::ForEver, Blocks::Often] {
        for workers in [1, 2, 4] {
            let mut lags: Vec<_> = (0..runs).map(|_| on_workers(workers, lag(how))).collect();
            lags.sort_unstable();
            let (median, largest) = (lags[runs / 2], lags[runs - 1]);
            eprintln!("{how:?}, {workers} workers, {runs} runs: median {median:?}, largest {largest:?}");
            // The largest also depends on what else the machine does.
            assert!(median < Duration::from_millis(50), "{how:?}, {workers} workers: {median:?}");
        }
    }
}

/// Which code of a controller blocks.
#[derive(Clone, Copy, Debug)]
enum Place {
    Predicate,
    Mapping,
}

/// Blocks in a controller's code at a ConfigMap; other kinds go on, all that sees ConfigMaps waits.
async fn holds_up_its_kind_alone(place: Place) {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let manager = Manager::new(server.client());
    let informer = manager.informer::<ConfigMap>().namespace("shop").build();
    let [handler, own, other] =
        ["a handler", "a controller of the kind", "a controller of another"].map(Seen::by);
    let noted = handler.clone();
    let noting_handler = informer.handler().on_add(move |object, _| noted.note(&*object)).register();
    let gate = Gate::default();
    let blocked = gate.clone();
    let blocks = move |object: &ConfigMap| {
        if object.name() == "bad" {
            blocked.pass();
        }
    };
    let other_controller = noting::<Secret>("other", &other);
    let blocking = noting::<Secret>("blocking", &Seen::by("nobody"));
    let watch = Watch::<ConfigMap>::new().namespace("shop");
    let watch = match place {
        Place::Predicate => {
            let predicate = Predicate::new(move |_, new: Option<&ConfigMap>| {
                new.into_iter().for_each(&blocks);
                true
            });
            watch.mapped(|_| Vec::new()).only_if(predicate)
        }
        Place::Mapping => watch.mapped(move |map| {
            blocks(map);
            Vec::new()
        }),
    };
    let blocking = blocking.watch(watch);
    let manager = manager.controller(noting::<ConfigMap>("own", &own));
    let running = manager.controller(other_controller).controller(blocking).spawn();
    let first = version_of(&server.create(&config_map("first")).await);
    handler.reaches(first).await;
    own.reaches(first).await;
    server.create(&config_map("bad")).await;
    gate.blocks().await;
    let later = version_of(&server.create(&config_map("later")).await);
    for at in 0..10 {
        other.reaches(version_of(&server.create(&secret(format!("secret-{at}"))).await)).await;
    }
    let cached = informer.lister().resource_version().map(|version| version.0);
    let shown = [handler.latest(), own.latest()];
    gate.open();
    assert!(cached < Some(later), "{place:?}: the cache waits");
    assert!(
        shown.iter().all(|shown| *shown < later),
        "{place:?}: handlers and controllers of the kind wait: {shown:?}"
    );
    handler.reaches(later).await;
    own.reaches(later).await;
    drop(noting_handler);
    running.stop().await.unwrap();
}

// I27
#[test]
fn a_mapping_or_a_predicate_that_blocks_holds_up_its_kind_alone() {
    for place in [Place::Mapping, Place::Predicate] {
        for workers in [1, 2] {
            on_workers(workers, holds_up_its_kind_alone(place));
        }
    }
}

// C52
#[tokio::test]
async fn the_log_says_that_a_mapping_or_a_predicate_is_slow_after_four_slow_calls_in_a_row() {
    let slow = |_: &ConfigMap| std::thread::park_timeout(Duration::from_millis(15));
    for place in [Place::Mapping, Place::Predicate] {
        let log = Log::default();
        let _taken = log.take();
        let server = ApiServer::in_memory().namespace("shop").start().await;
        let seen = Seen::by("the controller");
        let controller = noting::<ConfigMap>("slow", &seen);
        let controller = match place {
            Place::Mapping => controller.watches::<ConfigMap>(move |map| {
                slow(map);
                Vec::new()
            }),
            Place::Predicate => controller.predicate(Predicate::new(move |_, new: Option<&ConfigMap>| {
                new.into_iter().for_each(slow);
                true
            })),
        };
        let running = Manager::new(server.client()).controller(controller).spawn();
        let lines = || log.lines_with(&["WARN", "a controller's mapping or predicate is slow"]);
        for at in 0..4 {
            assert_eq!(lines(), Vec::<String>::new(), "{place:?}, {at} calls");
            let version = version_of(&server.create(&config_map(format!("map-{at}"))).await);
            seen.reaches(version).await;
        }
        log.says(&["a controller's mapping or predicate is slow", "configmaps", "until it returns"]).await;
        assert_eq!(lines().len(), 1, "{place:?}");
        running.stop().await.unwrap();
    }
}

/// The runs that outlasted a term. A test hears of them in place of the end of the process.
static OUTLASTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Starts a leader, and waits until its run blocks a thread.
async fn blocked_leader(name: &str, gate: &Gate) -> Running {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map("a")).await;
    let election = LeaderElection::new(name).lease_duration(Duration::from_secs(2));
    let election = election.renew_deadline(Duration::from_secs(1)).retry_period(Duration::from_millis(300));
    let election =
        election.on_overrun(|who| OUTLASTS.lock().unwrap().push(who.to_owned())).identity("blocked");
    let passed = gate.clone();
    let blocking = Controller::from_fn(move |_: Arc<ConfigMap>, _: Context<ConfigMap>| {
        passed.pass();
        async { Ok::<_, watchkeeper::Error>(Action::await_change()) }
    });
    let manager = Manager::new(server.client()).leader_election(election);
    let manager = manager.controller(blocking.namespace("shop").named(name));
    let running = manager.grace_period(Duration::from_millis(100)).spawn();
    gate.blocks().await;
    running
}

/// Waits, on a thread that no run blocks, until the process would have ended because of a run.
fn outlasts(name: &str) -> bool {
    let told = || OUTLASTS.lock().unwrap().iter().any(|who| who.contains(name));
    (0..1_000).any(|_| {
        std::thread::park_timeout(Duration::from_millis(10));
        told()
    })
}

// L5
#[test]
fn a_run_that_blocks_all_threads_past_the_term_ends_the_process() {
    let gate = Gate::default();
    on_workers(1, async {
        let running = blocked_leader("all-threads", &gate).await;
        assert!(outlasts("all-threads"), "nobody ended it");
        gate.open();
        drop(running);
    });
}

// L5
#[test]
fn a_run_that_blocks_past_a_stop_and_the_term_ends_the_process() {
    let gate = Gate::default();
    on_workers(3, async {
        let stopped = blocked_leader("past-a-stop", &gate).await.stop().await;
        assert!(matches!(stopped, Err(Error::PastGracePeriod { .. })), "{stopped:?}");
        assert!(outlasts("past-a-stop"), "nobody ended it");
        gate.open();
    });
}

// L5
#[test]
fn a_run_that_ends_in_time_lets_the_process_go_on_and_so_does_a_runtime_that_goes() {
    let gate = Gate::default();
    on_workers(3, async {
        let running = blocked_leader("in-time", &gate).await;
        gate.open();
        running.stop().await.unwrap();
    });
    let gate = Gate::default();
    let kept = on_workers(3, async {
        let running = blocked_leader("without-a-runtime", &gate).await;
        gate.open();
        running
    });
    std::thread::park_timeout(Duration::from_secs(3));
    let told = OUTLASTS.lock().unwrap().clone();
    let others = ["all-threads", "past-a-stop"];
    assert!(told.iter().all(|who| others.iter().any(|other| who.contains(other))), "{told:?}");
    drop(kept);
}

// P28
#[test]
fn a_removed_controller_that_blocks_its_thread_keeps_its_name_until_it_has_ended() {
    on_workers(2, async {
        let server = ApiServer::in_memory().namespace("shop").start().await;
        server.create(&config_map("a")).await;
        let (gate, seen) = (Gate::default(), Seen::by("the next one"));
        let kept = gate.clone();
        let blocking = Controller::from_fn(move |_: Arc<ConfigMap>, _: Context<ConfigMap>| {
            let gate = kept.clone();
            async move {
                gate.pass();
                Ok::<_, watchkeeper::Error>(Action::await_change())
            }
        });
        let mut running = Manager::new(server.client()).grace_period(Duration::from_millis(100)).spawn();
        running.add(blocking.named("maps")).unwrap();
        gate.blocks().await;
        let late = running.remove("maps").await.unwrap_err();
        assert!(matches!(late, Error::PastGracePeriod { .. }), "{late}");
        // Two runs of one key would go on at the same time.
        let refused = running.add(noting::<ConfigMap>("maps", &seen)).unwrap_err();
        assert!(matches!(refused, Error::DuplicateController(_)), "{refused}");
        assert_eq!(running.why::<ConfigMap>(&ObjectKey::new("shop", "a")).len(), 1);
        gate.open();
        let ended = async {
            while !running.why::<ConfigMap>(&ObjectKey::new("shop", "a")).is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, ended).await.expect("it is still shown");
        let added = async {
            while running.add(noting::<ConfigMap>("maps", &seen)).is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, added).await.expect("its name is not free");
        seen.reaches(1).await;
        running.stop().await.unwrap();
    });
}

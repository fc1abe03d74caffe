//! Work that replicas share: managers, one server, and everything that goes wrong between them. Never do two work on
//! one key.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{
        Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use http::{HeaderValue, Request, header::USER_AGENT};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Secret},
    rbac::v1::ClusterRole,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    client::Body,
    core::ObjectMeta,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tower::service_fn;
use watchkeeper::{
    Running, Sharding,
    clock::WallClock,
    informer::{Deleted, Marker},
    leader_election::LeaderElection,
    prelude::*,
    reflector::ReflectorConfig,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{
    cable::{Cable, Passes},
    does,
};

/// How long troubles last, and how long everything goes on without.
const TROUBLED: Duration = Duration::from_secs(150);
const CALM: Duration = Duration::from_secs(90);
/// After this, replicas that were started together share the work.
pub(crate) const SHARED: Duration = Duration::from_secs(25);
pub(crate) const NAMESPACES: usize = 12;

/// A run of a key: the replica, its process, and the number of the run.
type RunOf = (usize, u32, u64);

/// What was written to one key, in order.
#[derive(Default)]
struct WrittenKey {
    last: Option<RunOf>,
    over: HashSet<RunOf>,
    at: Option<Instant>,
}

/// What was written, by key.
#[derive(Default)]
struct Written {
    keys: BTreeMap<ObjectKey, WrittenKey>,
    moves: usize,
}

impl Written {
    fn take(&mut self, seed: u64, key: &ObjectKey, run: RunOf) {
        let written = self.keys.entry(key.clone()).or_default();
        let before = written.last;
        assert!(!written.over.contains(&run), "seed {seed}: {key}: {run:?} writes, after {before:?} began");
        if before != Some(run) {
            written.over.extend(written.last.replace(run));
            self.moves += usize::from(before.is_some_and(|before| (before.0, before.1) != (run.0, run.1)));
        }
        written.at = Some(Instant::now());
    }
}

struct Replica {
    running: Option<Running>,
    cable: Cable,
    /// By how many seconds its wall clock is off.
    off: Arc<AtomicI64>,
    process: u32,
}

/// How replicas divide the work.
#[derive(Clone, Copy, PartialEq)]
enum Divided {
    Shared,
    /// In another number of slots.
    SharedOtherwise,
    /// One works for all.
    Led,
}

struct World {
    seed: u64,
    server: ApiServer,
    random: SmallRng,
    replicas: Vec<Replica>,
    written: Arc<Mutex<Written>>,
    runs: Arc<AtomicU64>,
    /// How long a write takes.
    lasts: Duration,
    /// Whether caches hold a replica's part alone.
    splits_caches: bool,
    /// Whether each namespace has a controller of its own.
    is_by_namespace: bool,
}

fn map(namespace: usize, name: &str) -> ConfigMap {
    let (name, namespace) = (Some(name.to_owned()), Some(format!("tenant-{namespace}")));
    ConfigMap { metadata: ObjectMeta { name, namespace, ..ObjectMeta::default() }, ..ConfigMap::default() }
}

/// A map in each of some namespaces.
pub(crate) async fn cluster() -> ApiServer {
    let mut server = ApiServer::in_memory().namespace("shop");
    for at in 0..NAMESPACES {
        server = server.namespace(format!("tenant-{at}"));
    }
    let server = server.start().await;
    for at in 0..NAMESPACES {
        server.create(&map(at, "a")).await;
    }
    server
}

impl World {
    async fn new(seed: u64) -> Self {
        let server = cluster().await;
        let mut random = SmallRng::seed_from_u64(seed);
        let lasts = Duration::from_millis(random.random_range(150..2_000));
        let (replicas, written, runs) = Default::default();
        let (splits_caches, is_by_namespace) = (seed % 2 == 1, seed.is_multiple_of(3));
        Self { seed, server, random, replicas, written, runs, lasts, splits_caches, is_by_namespace }
    }

    fn start(&mut self, who: usize, process: u32, divided: Divided) -> Replica {
        let (cable, client) = Cable::of(self.server.client());
        let off = Arc::new(AtomicI64::new(0));
        let (read, system) = (off.clone(), WallClock::system());
        let clock = WallClock::custom(move || {
            let off = read.load(Ordering::SeqCst);
            let by = Duration::from_secs(off.unsigned_abs());
            if off < 0 { system.now() - by } else { system.now() + by }
        });
        let config =
            ReflectorConfig { clock, seed: Some(self.random.random()), ..ReflectorConfig::default() };
        let manager = Manager::with_config(client, config);
        let leases = LeaderElection::new("maps").namespace("shop");
        let sharding = Sharding::from(leases.clone());
        let sharding = if self.splits_caches { sharding.split_caches() } else { sharding };
        let manager = match divided {
            Divided::Shared => manager.sharded(sharding),
            Divided::SharedOtherwise => manager.sharded(sharding.slots(32)),
            Divided::Led => manager.leader_election(leases),
        };
        let client = manager.client().clone();
        let (seed, written, runs, lasts) = (self.seed, self.written.clone(), self.runs.clone(), self.lasts);
        let make = move || {
            let (client, written, runs) = (client.clone(), written.clone(), runs.clone());
            let (writes, _) = does::<ConfigMap, _, _>(move |map: Arc<ConfigMap>, _| {
                let (key, name) = (ObjectKey::of(&*map), map.name_any());
                let maps = Api::<ConfigMap>::namespaced(client.clone(), key.namespace().unwrap_or_default());
                let run = (who, process, runs.fetch_add(1, Ordering::SeqCst));
                let written = written.clone();
                async move {
                    // A run takes its time, and writes several times: the term may end on its way.
                    for _ in 0..3 {
                        let by = json!({"data": {"by": format!("{run:?}")}});
                        maps.patch(&name, &Default::default(), &Patch::Merge(by)).await?;
                        written.lock().unwrap().take(seed, &key, run);
                        sleep(lasts).await;
                    }
                    Ok(Action::requeue_after(Duration::from_secs(1)))
                }
            });
            // A reply that is lost must not hold up a slot for good.
            Controller::new(writes).workers(20).deadline(Duration::from_secs(40))
        };
        let manager = manager.grace_period(Duration::from_secs(5).max(lasts * 4));
        let manager = match self.is_by_namespace {
            true => manager.controller_in_namespaces("", make).unwrap(),
            false => manager.controller(make()),
        };
        let running = Some(manager.spawn());
        Replica { running, cable, off, process }
    }

    fn add(&mut self, divided: Divided) {
        let replica = self.start(self.replicas.len(), 0, divided);
        self.replicas.push(replica);
    }

    async fn trouble(&mut self) {
        let who = self.random.random_range(0..self.replicas.len());
        let passes =
            [Passes::Nothing, Passes::RequestsAlone, Passes::RepliesAlone][self.random.random_range(0..3)];
        let faults = self.server.faults();
        let times = self.random.random_range(1..8);
        match self.random.random_range(0..12) {
            0..3 => self.replicas[who].cable.set(passes),
            3 => self.replicas[who].cable.set(Passes::Both),
            4 => {
                let by = self.random.random_range(-900..900);
                self.replicas[who].off.fetch_add(by, Ordering::SeqCst);
            }
            5 => drop(faults.on(Verb::Update, "leases").times(times).then(Fault::Status(500))),
            6 => drop(faults.on(Verb::Update, "leases").times(2).then(Fault::Status(409))),
            7 => drop(faults.on(Verb::List, "leases").times(times).then(Fault::Status(503))),
            8 => self.meddle(true).await,
            9 => self.meddle(false).await,
            _ => {
                // Stopped politely, or dropped; then it comes back.
                if let Some(running) = self.replicas[who].running.take() {
                    match self.random.random_bool(0.5) {
                        true => drop(running.stop().await),
                        false => drop(running),
                    }
                }
                let process = self.replicas[who].process + 1;
                // In some worlds a version that leads takes the place of one that shares, and back.
                let leads = self.seed % 4 >= 2 && self.random.random_bool(0.5);
                let otherwise = self.seed % 4 == 1 && self.random.random_bool(0.5);
                let divided = match (leads, otherwise) {
                    (true, _) => Divided::Led,
                    (false, true) => Divided::SharedOtherwise,
                    (false, false) => Divided::Shared,
                };
                self.replicas[who] = self.start(who, process, divided);
            }
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.server.client(), "shop")
    }

    /// Deletes or edits a Lease.
    async fn meddle(&mut self, deletes: bool) {
        // What fails for others fails here.
        let listed = self.leases().list(&ListParams::default()).await;
        let leases = listed.map(|leases| leases.items).unwrap_or_default();
        if leases.is_empty() {
            return;
        }
        let name = leases[self.random.random_range(0..leases.len())].name_any();
        if deletes {
            let _ = self.leases().delete(&name, &DeleteParams::default()).await;
            return;
        }
        let edits = [
            json!({"spec": {"holderIdentity": "nobody-we-know"}}),
            json!({"spec": {"leaseDurationSeconds": 1}}),
            json!({"spec": {"renewTime": "2001-01-01T00:00:00.000000Z"}}),
            json!({"metadata": {"labels": {"watchkeeper.dev/shards": null}}}),
            json!({"metadata": {"annotations": {"watchkeeper.dev/slots": "{}"}}}),
            json!({"metadata": {"annotations": {"watchkeeper.dev/slots": null}}}),
        ];
        let edit = edits[self.random.random_range(0..edits.len())].clone();
        let _ = self.leases().patch(&name, &PatchParams::default(), &Patch::Merge(edit)).await;
    }

    async fn play(mut self) -> usize {
        (0..3).for_each(|_| self.add(Divided::Shared));
        let began = Instant::now();
        while began.elapsed() < TROUBLED {
            let pause = Duration::from_millis(self.random.random_range(100..12_000));
            sleep(pause).await;
            self.trouble().await;
        }
        self.server.faults().clear();
        self.replicas.iter().for_each(|replica| replica.cable.set(Passes::Both));
        sleep(CALM).await;
        self.all_work();
        self.written.lock().unwrap().moves
    }

    /// Checks that every key was written a moment ago.
    fn all_work(&self) {
        let written = self.written.lock().unwrap();
        assert_eq!(written.keys.len(), NAMESPACES, "seed {}", self.seed);
        for (key, written) in &written.keys {
            let last = written.at.unwrap().elapsed();
            let whys = || {
                let running = self.replicas.iter().filter_map(|replica| replica.running.as_ref());
                running.map(|running| running.why::<ConfigMap>(key).to_string()).collect::<Vec<_>>()
            };
            let seed = self.seed;
            assert!(
                last < Duration::from_secs(10),
                "seed {seed}: nobody works on {key} for {last:?}: {:#?}",
                whys()
            );
        }
    }

    /// Returns who wrote each key last.
    fn owners(&self) -> Vec<usize> {
        self.written.lock().unwrap().keys.values().map(|written| written.last.unwrap().0).collect()
    }

    async fn stop(&mut self, who: usize) {
        self.replicas[who].running.take().unwrap().stop().await.unwrap();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let many = std::env::var("WATCHKEEPER_SHARD_SEEDS").ok().and_then(|many| many.parse().ok());
    let from = std::env::var("WATCHKEEPER_SHARD_FROM").ok().and_then(|from| from.parse().ok()).unwrap_or(0);
    from..from + many.unwrap_or(4)
}

// H2 H3
#[test]
fn whatever_goes_wrong_between_managers_and_their_server_never_do_two_work_on_one_key() {
    let (mut moves, seeds) = (0, seeds());
    for seed in seeds.clone() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        moves += runtime.block_on(async { World::new(seed).await.play().await });
    }
    assert!(moves > 10 * seeds.count(), "{moves} moves prove little");
}

// H4 H5
#[tokio::test(start_paused = true)]
async fn replicas_share_the_work_and_pass_it_on() {
    let mut world = World::new(1).await;
    world.lasts = Duration::from_millis(150);
    (0..3).for_each(|_| world.add(Divided::Shared));
    sleep(SHARED).await;
    world.all_work();
    let owners: BTreeSet<_> = world.owners().into_iter().collect();
    assert_eq!(owners.len(), 3, "{:?}", world.owners());

    // One that stops hands over what it has.
    world.stop(0).await;
    let stopped = Instant::now();
    let before = world.written.lock().unwrap().moves;
    while world.owners().contains(&0) {
        sleep(Duration::from_millis(10)).await;
    }
    let took = stopped.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(world.written.lock().unwrap().moves > before);
    // One that is gone keeps its part for a lease duration.
    world.replicas[1].cable.set(Passes::Nothing);
    let gone = Instant::now();
    while world.owners().contains(&1) {
        sleep(Duration::from_millis(10)).await;
    }
    let took = gone.elapsed();
    assert!(took > Duration::from_secs(10) && took < Duration::from_secs(18), "{took:?}");
    world.all_work();
}

// H6
#[tokio::test(start_paused = true)]
async fn replicas_that_share_the_work_wait_for_a_leader_and_it_for_them() {
    let mut world = World::new(2).await;
    world.lasts = Duration::from_millis(150);
    world.add(Divided::Led);
    sleep(SHARED).await;
    world.add(Divided::Shared);
    world.add(Divided::Shared);
    sleep(SHARED * 2).await;
    assert_eq!(world.owners(), [0; NAMESPACES]);
    world.stop(0).await;
    sleep(SHARED).await;
    assert_eq!(world.owners().into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
    // And back.
    world.add(Divided::Led);
    sleep(SHARED * 2).await;
    world.stop(1).await;
    sleep(SHARED).await;
    assert_eq!(world.owners(), [2; NAMESPACES]);
    world.stop(2).await;
    sleep(SHARED).await;
    assert_eq!(world.owners(), [3; NAMESPACES]);
    world.all_work();
}

// H2 H5
#[tokio::test(start_paused = true)]
async fn a_slot_moves_once_its_runs_have_ended() {
    let mut world = World::new(4).await;
    // A run lasts three times as long.
    world.lasts = Duration::from_secs(12);
    world.add(Divided::Shared);
    sleep(SHARED * 2).await;
    world.add(Divided::Shared);
    let joined = Instant::now();
    // Replica 1 may work 15 s later. The runs of that moment go on, and what moves runs there after them.
    sleep(SHARED * 4).await;
    let owners: BTreeSet<_> = world.owners().into_iter().collect();
    assert_eq!(owners, BTreeSet::from([0, 1]), "since {:?}", joined.elapsed());
    world.stop(1).await;
    sleep(SHARED * 3).await;
    assert_eq!(world.owners(), [0; NAMESPACES]);
}

// H7 H8
#[tokio::test(start_paused = true)]
async fn split_caches_hold_a_replicas_part_and_what_moves_away_is_not_deleted() {
    let server = cluster().await;
    let mut running = Vec::new();
    let deletions = Arc::new(AtomicU64::new(0));
    for seed in 0..2 {
        let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
        let manager = Manager::with_config(server.client(), config);
        let manager = manager.sharded(Sharding::new("maps").split_caches());
        let keeps = Keeps { deletions: deletions.clone() };
        let controller =
            Controller::new(keeps).named("keeper").finalizer("example.dev/keeper").owns::<Secret>();
        running.push(manager.controller(controller).spawn());
        sleep(SHARED).await;
    }
    // Past the time after which caches forget what moved away.
    sleep(SHARED * 2).await;
    let parts = [cached(&running[0]).await, cached(&running[1]).await];
    assert_eq!(parts.iter().sum::<usize>(), 2 * NAMESPACES, "maps and secrets, each once: {parts:?}");
    assert!(parts.iter().all(|part| *part > 0), "{parts:?}");

    // A child that somebody deletes comes back: the change reaches the replica that works on it.
    for at in 0..NAMESPACES {
        server.delete::<Secret>(&format!("tenant-{at}/a")).await;
    }
    sleep(Duration::from_secs(5)).await;
    for at in 0..NAMESPACES {
        assert!(server.get::<Secret>(&format!("tenant-{at}/a")).await.is_some(), "tenant-{at}");
    }
    // All goes back to the first, whose caches had forgotten a part: nothing is taken for deleted.
    running.pop().unwrap().stop().await.unwrap();
    sleep(SHARED).await;
    assert_eq!(cached(&running[0]).await, 2 * NAMESPACES);
    for at in 0..NAMESPACES {
        let map = server.get::<ConfigMap>(&format!("tenant-{at}/a")).await.unwrap();
        assert_eq!(map.metadata.finalizers.unwrap_or_default(), ["example.dev/keeper"], "tenant-{at}");
    }
    assert_eq!(deletions.load(Ordering::SeqCst), 0);
    let why = running[0].why::<ConfigMap>(&ObjectKey::new("tenant-0", "a"));
    assert!(why.to_string().contains("nothing to do until it changes"), "{why}");
}

/// Starts a replica of a seed that shares the work, and waits until it may work.
pub(crate) async fn replica<K: Marker, R>(
    client: kube::Client,
    seed: u64,
    controller: Controller<K, R>,
) -> Running {
    let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
    let manager = Manager::with_config(client, config).sharded("maps");
    let running = manager.controller(controller).spawn();
    sleep(SHARED).await;
    running
}

// H11
#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_runs_on_caches_that_show_what_the_last_replica_saw() {
    let server = cluster().await;
    let counted = Arc::new(Mutex::new(BTreeMap::<ObjectKey, u64>::new()));
    let counts = || {
        let (counted, client) = (counted.clone(), server.client());
        // Writes one more than the cache shows, and notes it. A cache that is behind leads to a lower number.
        let (counts, _) = does::<ConfigMap, _, _>(move |map: Arc<ConfigMap>, _| {
            let (counted, key) = (counted.clone(), ObjectKey::of(&*map));
            let maps = Api::<ConfigMap>::namespaced(client.clone(), key.namespace().unwrap_or_default());
            async move {
                let shown =
                    map.data.as_ref().and_then(|data| data.get("n")?.parse::<u64>().ok()).unwrap_or(0);
                let next = shown + 1;
                let before = counted.lock().unwrap().insert(key.clone(), next);
                assert!(before.is_none_or(|before| before < next), "{key}: {next} after {before:?}");
                let data = json!({"data": {"n": next.to_string()}});
                maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(data)).await?;
                // Its own change wakes it: it is not written by the context.
                sleep(Duration::from_secs(1)).await;
                Ok(Action::await_change())
            }
        });
        Controller::new(counts).workers(20).panics(Panics::Propagate)
    };
    let mut first = replica(server.client(), 0, counts()).await;
    // The second replica gets lists of the maps, and no event: its caches are as old as its last list.
    let inner = server.client();
    let named = service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("second"));
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    let client = kube::Client::new(named, "default");
    server.faults().on(Verb::Watch, "configmaps").user_agent("second").then(Fault::Silence);
    let mut second = replica(client, 1, counts()).await;
    assert!(!server.faults().log().is_empty(), "its watch is silent");
    sleep(SHARED).await;
    let owned = |running: &Running| {
        let keys = counted.lock().unwrap().keys().cloned().collect::<Vec<_>>();
        let here = |key: &ObjectKey| !running.why::<ConfigMap>(key).to_string().contains("another replica");
        keys.iter().filter(|key| here(key)).count()
    };
    assert!(owned(&second) > 0 && owned(&first) + owned(&second) == NAMESPACES);
    for running in [&mut first, &mut second] {
        let ended = tokio::time::timeout(Duration::from_millis(1), running.ended()).await;
        assert!(ended.is_err(), "{ended:?}");
    }
}

// H8
#[tokio::test(start_paused = true)]
async fn split_caches_show_what_a_cluster_scoped_object_owns() {
    let server = cluster().await;
    let mut running = Vec::new();
    for seed in 0..2 {
        let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
        let manager = Manager::with_config(server.client(), config);
        let manager = manager.sharded(Sharding::new("grants").split_caches());
        let (grants, _) =
            does::<ClusterRole, _, _>(|role: Arc<ClusterRole>, cx: Context<ClusterRole>| async move {
                let (name, namespace) = (Some("granted".to_owned()), role.metadata.name.clone());
                let namespace = namespace.map(|name| name.replace("grants", "tenant"));
                let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
                cx.apply(Secret { metadata, ..Secret::default() }).await?;
                Ok(Action::await_change())
            });
        running.push(manager.controller(Controller::new(grants).owns::<Secret>()).spawn());
    }
    for at in 0..NAMESPACES {
        let metadata = ObjectMeta { name: Some(format!("grants-{at}")), ..ObjectMeta::default() };
        server.create(&ClusterRole { metadata, ..ClusterRole::default() }).await;
    }
    sleep(SHARED * 2).await;
    // The owner's slot is that of its name, and not that of the child's namespace.
    for at in 0..NAMESPACES {
        let name = format!("tenant-{at}/granted");
        assert!(server.get::<Secret>(&name).await.is_some(), "{name}");
        server.delete::<Secret>(&name).await;
    }
    sleep(Duration::from_secs(5)).await;
    for at in 0..NAMESPACES {
        assert!(server.get::<Secret>(&format!("tenant-{at}/granted")).await.is_some(), "tenant-{at}");
    }
}

// H9
#[tokio::test(start_paused = true)]
async fn replicas_together_keep_to_a_rate_limit() {
    let server = cluster().await;
    let mut replicas = Vec::new();
    for seed in 0..2 {
        let (runs, record) = does::<ConfigMap, _, _>(|_: Arc<ConfigMap>, _| async {
            Ok(Action::requeue_after(Duration::from_millis(10)))
        });
        let controller = Controller::new(runs).workers(20).rate_limit(RateLimit::per_second(20).burst(20));
        replicas.push((replica(server.client(), seed, controller).await, record));
    }
    sleep(SHARED).await;
    let ran = || replicas.iter().map(|(_, record)| record.starts().len()).collect::<Vec<_>>();
    let before = ran();
    sleep(Duration::from_secs(60)).await;
    let ran: Vec<_> = ran().iter().zip(before).map(|(now, before)| now - before).collect();
    assert!(ran.iter().all(|ran| (540..=620).contains(ran)), "half of 20 a second each: {ran:?}");
}

// H12
#[tokio::test(start_paused = true)]
async fn a_leaders_task_runs_in_the_replica_that_has_its_slot() {
    let server = cluster().await;
    let running = Arc::new(Mutex::new(BTreeSet::new()));
    let mut replicas = Vec::new();
    for seed in 0..2_u64 {
        let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
        let (manager, at_work) = (Manager::with_config(server.client(), config), running.clone());
        let manager = manager.sharded("maps").leader_task("sweep", move |stopping| {
            let at_work = at_work.clone();
            async move {
                assert!(at_work.lock().unwrap().insert(seed), "it runs twice in {seed}");
                assert_eq!(at_work.lock().unwrap().len(), 1, "it runs in both");
                stopping.wait().await;
                // The end takes its time, and nobody else begins meanwhile.
                sleep(Duration::from_secs(5)).await;
                at_work.lock().unwrap().remove(&seed);
                Ok::<_, watchkeeper::Error>(())
            }
        });
        replicas.push(Some(manager.spawn()));
        sleep(SHARED).await;
    }
    sleep(SHARED).await;
    for _ in 0..2 {
        let at = running.lock().unwrap().first().copied().expect("somebody runs it");
        if let Some(replica) = replicas[usize::try_from(at).unwrap()].take() {
            replica.stop().await.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
        let now = running.lock().unwrap().first().copied();
        let is_left = replicas.iter().any(Option::is_some);
        assert_eq!(now.is_some(), is_left, "{now:?} after {at}");
        assert_ne!(now, Some(at));
    }
}

/// Counts the objects that a replica caches.
async fn cached(running: &Running) -> usize {
    let report = serde_json::to_value(running.inspector().debug_report(None).await).unwrap();
    let informers = report["informers"].as_array().unwrap().iter();
    informers.map(|informer| informer["objects"].as_u64().unwrap() as usize).sum()
}

/// Keeps a Secret for each ConfigMap.
pub(crate) struct Keeps {
    pub(crate) deletions: Arc<AtomicU64>,
}

impl Reconciler<ConfigMap> for Keeps {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, map: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        let metadata = ObjectMeta { name: map.metadata.name.clone(), ..ObjectMeta::default() };
        cx.apply(Secret { metadata, ..Secret::default() }).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Cleanup, Self::Error> {
        self.deletions.fetch_add(1, Ordering::SeqCst);
        Ok(Cleanup::Done)
    }

    async fn deleted(&self, _: Deleted<ConfigMap>, _: &Context<ConfigMap>) -> Result<(), Self::Error> {
        self.deletions.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

//! Elections by seeds: managers, one server, and everything that goes wrong between them. Never do two work at a time.

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    core::ObjectMeta,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{
    Running, clock::WallClock, leader_election::LeaderElection, prelude::*, reflector::ReflectorConfig,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{
    cable::{Cable, Passes},
    does,
};

/// How long troubles last, and how long everything goes on without.
const TROUBLED: Duration = Duration::from_secs(150);
const CALM: Duration = Duration::from_secs(60);

/// A term of leadership: the replica, its process, and when it began to lead.
type Term = (usize, u32, Instant);

/// What was written, in order.
#[derive(Default)]
struct Written {
    last: Option<Term>,
    over: HashSet<Term>,
    terms: usize,
    at: Option<Instant>,
}

impl Written {
    fn take(&mut self, seed: u64, term: Term) {
        assert!(!self.over.contains(&term), "seed {seed}: two at work: {term:?} writes after another began");
        if self.last != Some(term) {
            self.over.extend(self.last.replace(term));
            self.terms += 1;
        }
        self.at = Some(Instant::now());
    }
}

struct Replica {
    running: Option<Running>,
    cable: Cable,
    /// By how many seconds its wall clock is off.
    off: Arc<AtomicI64>,
    process: u32,
}

struct World {
    seed: u64,
    server: ApiServer,
    random: SmallRng,
    replicas: Vec<Replica>,
    written: Arc<Mutex<Written>>,
}

impl World {
    async fn new(seed: u64) -> Self {
        let server = ApiServer::in_memory().namespace("shop").start().await;
        for name in ["a", "b", "c"] {
            let metadata = ObjectMeta { name: Some(name.into()), ..Default::default() };
            server.create(&ConfigMap { metadata, ..Default::default() }).await;
        }
        let (random, written) = (SmallRng::seed_from_u64(seed), Arc::default());
        let mut world = Self { seed, server, random, replicas: Vec::new(), written };
        for who in 0..3 {
            let replica = world.start(who, 0);
            world.replicas.push(replica);
        }
        world
    }

    fn start(&mut self, who: usize, process: u32) -> Replica {
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
        let election = LeaderElection::new("maps").namespace("shop").identity(format!("replica-{who}"));
        let manager = Manager::with_config(client, config).leader_election(election);
        let (leadership, client) = (manager.leadership().unwrap(), manager.client().clone());
        let (seed, written) = (self.seed, self.written.clone());
        let lasts = Duration::from_millis(self.random.random_range(10..3_000));
        let (writes, _) = does::<ConfigMap, _, _>(move |map: Arc<ConfigMap>, _| {
            let (maps, written) = (Api::<ConfigMap>::namespaced(client.clone(), "shop"), written.clone());
            let term = (who, process, leadership.since());
            async move {
                // A run takes its time, and writes several times: the term may end on its way.
                for _ in 0..3 {
                    let by = json!({"data": {"by": format!("{term:?}")}});
                    maps.patch(&map.name_any(), &Default::default(), &Patch::Merge(by)).await?;
                    written.lock().unwrap().take(seed, term);
                    sleep(lasts).await;
                }
                Ok(Action::requeue_after(Duration::from_millis(200)))
            }
        });
        let controller = Controller::new(writes).namespace("shop").workers(2);
        let running = Some(manager.grace_period(Duration::from_secs(5)).controller(controller).spawn());
        Replica { running, cable, off, process }
    }

    async fn trouble(&mut self) {
        let who = self.random.random_range(0..self.replicas.len());
        let passes =
            [Passes::Nothing, Passes::RequestsAlone, Passes::RepliesAlone][self.random.random_range(0..3)];
        let faults = self.server.faults();
        match self.random.random_range(0..11) {
            0..3 => self.replicas[who].cable.set(passes),
            3 => self.replicas[who].cable.set(Passes::Both),
            4 => {
                let by = self.random.random_range(-900..900);
                self.replicas[who].off.fetch_add(by, Ordering::SeqCst);
            }
            5 => drop(
                faults
                    .on(Verb::Update, "leases")
                    .times(self.random.random_range(1..8))
                    .then(Fault::Status(500)),
            ),
            6 => drop(faults.on(Verb::Update, "leases").times(2).then(Fault::Status(409))),
            7 => drop(
                faults.on(Verb::Get, "leases").times(self.random.random_range(1..8)).then(Fault::Status(503)),
            ),
            8 => drop(self.leases().delete("maps", &DeleteParams::default()).await),
            9 => self.meddle().await,
            _ => {
                // Stopped politely, or dropped; then it comes back.
                if let Some(running) = self.replicas[who].running.take() {
                    match self.random.random_bool(0.5) {
                        true => drop(running.stop().await),
                        false => drop(running),
                    }
                }
                let process = self.replicas[who].process + 1;
                self.replicas[who] = self.start(who, process);
            }
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.server.client(), "shop")
    }

    async fn meddle(&mut self) {
        let edits = [
            json!({"spec": {"holderIdentity": "replica-0"}}),
            json!({"spec": {"leaseDurationSeconds": 1, "holderIdentity": "nobody-we-know"}}),
            json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 15}}),
            json!({"spec": {"renewTime": "2001-01-01T00:00:00.000000Z"}}),
            json!({"metadata": {"labels": {"edited": "by-hand"}}}),
        ];
        let edit = edits[self.random.random_range(0..edits.len())].clone();
        // There may be none, and what fails for others fails here.
        let _ = self.leases().patch("maps", &PatchParams::default(), &Patch::Merge(edit)).await;
    }

    async fn play(mut self) -> usize {
        let began = Instant::now();
        while began.elapsed() < TROUBLED {
            let pause = Duration::from_millis(self.random.random_range(100..12_000));
            sleep(pause).await;
            self.trouble().await;
        }
        self.server.faults().clear();
        self.replicas.iter().for_each(|replica| replica.cable.set(Passes::Both));
        sleep(CALM).await;
        let written = self.written.lock().unwrap();
        let last = written.at.map(|at| at.elapsed());
        assert!(
            last.is_some_and(|last| last < Duration::from_secs(10)),
            "seed {}: nobody works: {last:?}",
            self.seed
        );
        written.terms
    }
}

fn seeds() -> std::ops::Range<u64> {
    let many = std::env::var("WATCHKEEPER_ELECTION_SEEDS").ok().and_then(|many| many.parse().ok());
    0..many.unwrap_or(40)
}

// L5 L6
#[test]
fn whatever_goes_wrong_between_managers_and_their_server_never_do_two_work() {
    let mut terms = 0;
    for seed in seeds() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        terms += runtime.block_on(async { World::new(seed).await.play().await });
    }
    assert!(terms as u64 > 3 * seeds().end, "{terms} terms prove little");
}

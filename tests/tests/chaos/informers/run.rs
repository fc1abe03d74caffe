//! A run: the server, the informers, the steps, and the judgement once all is healed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use tokio::time::{Duration, Instant, sleep};
use watchkeeper::{
    ObjectKey, SharedInformerFactory,
    informer::{Dynamic, Metadata},
    list_watch::ListWatchError,
    object::Kind,
    reflector::{ReflectorConfig, WatchError},
};
use watchkeeper_apiserver::{ApiServer, Fault, Restart, Verb};

use super::{
    ledger::Ledger,
    plan::{Honest, Informer, Loss, NAMESPACES, Object, Place, Plan, Sort, Step, Trouble},
    state::{Content, Form as _, POISON, State},
    subject::{Subject, Watching},
};
use crate::seeds::Verdict;

/// How long after the healing everything must be right: the longest back-off, and the longest spread of lists.
const HEALED: Duration = Duration::from_secs(300);

struct Run {
    ledger: Ledger,
    server: ApiServer,
    informers: Vec<Box<dyn Subject>>,
    /// Versions that the server may not reach again before the informers have noticed that it lost them.
    lost: Vec<Option<u64>>,
    /// The oldest version that the server can go back to.
    remembered: u64,
    /// Whether the server ever did what only a list makes good.
    deceived: bool,
    /// Whether a version has always stood for the same state.
    honest: Arc<AtomicBool>,
}

/// Does what a plan says, and judges.
pub(crate) async fn run(plan: Plan) -> Verdict {
    let mut server = ApiServer::in_memory().seed(plan.seed);
    for namespace in NAMESPACES {
        server = server.namespace(namespace);
    }
    let (server, ledger) = (server.start().await, Ledger::new());
    let honest = Arc::new(AtomicBool::new(true));
    let numbered = plan.informers.iter().enumerate();
    let mut informers: Vec<_> =
        numbered.map(|(at, informer)| begin((&server, &ledger, &honest), plan.seed, at, informer)).collect();
    for (subject, informer) in informers.iter_mut().zip(&plan.informers) {
        informer.listeners.iter().for_each(|listener| subject.join(*listener));
    }
    let (lost, remembered) = (vec![None; informers.len()], server.resource_version());
    let mut run = Run { ledger, server, informers, lost, remembered, deceived: false, honest };
    for step in &plan.steps {
        run.ledger.trace(format_args!("{step:?}"));
        run.step(step).await;
    }
    run.judge().await;
    for request in run.server.requests().list() {
        run.ledger.trace(format_args!(
            "{} {}?{} {:?}",
            request.method, request.path, request.query, request.status
        ));
    }
    let (wrongs, trace) = run.ledger.close();
    Verdict { wrongs, script: plan.script(), trace }
}

/// Finds it wrong that a cache differs from a list at the same version, as long as the server is honest.
fn no_difference(ledger: &Ledger, honest: &Arc<AtomicBool>) -> Arc<dyn Fn(&WatchError) + Send + Sync> {
    let (ledger, honest) = (ledger.clone(), honest.clone());
    Arc::new(move |told| {
        if matches!(&*told.error, ListWatchError::Inconsistent { .. }) && honest.load(Ordering::SeqCst) {
            ledger.wrong(told.to_string());
        }
    })
}

fn begin(
    (server, ledger, honest): (&ApiServer, &Ledger, &Arc<AtomicBool>),
    seed: u64,
    at: usize,
    informer: &Informer,
) -> Box<dyn Subject> {
    let config = ReflectorConfig {
        seed: Some(seed.wrapping_add(at as u64)),
        consistency_check: Some(Duration::from_secs(17)),
        on_error: no_difference(ledger, honest),
        ..ReflectorConfig::default()
    };
    let factory = SharedInformerFactory::with_config(server.client(), config);
    let (name, selection) = (format!("{at}:{:?}", informer.sort), informer.selection);
    match informer.sort {
        Sort::Streaming | Sort::Paged(_) | Sort::AnyVersion | Sort::Compact => {
            let asked = factory.informer::<ConfigMap>();
            let asked = match informer.sort {
                Sort::Paged(size) => asked.page_size(size),
                Sort::AnyVersion => asked.any_version(),
                Sort::Compact => asked.compact(),
                _ => asked,
            };
            Watching::boxed(&name, ledger, factory, asked, selection)
        }
        Sort::Metadata => {
            let asked = factory.informer::<Metadata<ConfigMap>>();
            Watching::boxed(&name, ledger, factory, asked, selection)
        }
        Sort::Dynamic => {
            let asked = factory.informer_of(Dynamic::new(Kind::of::<ConfigMap>()));
            Watching::boxed(&name, ledger, factory, asked, selection)
        }
    }
}

impl Run {
    async fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(time) => sleep(*time).await,
            Step::Put(object) if self.may_write(1) => self.put(object).await,
            Step::Delete(place) if self.may_write(1) => self.delete(place).await,
            Step::Recreate(object) if self.may_write(2) => {
                self.delete(&object.place).await;
                self.put(object).await;
            }
            Step::Put(_) | Step::Delete(_) | Step::Recreate(_) => {}
            Step::Start(at) => self.informers[*at].start(),
            Step::Join(at, listener) => self.informers[*at].join(*listener),
            Step::Leave(at, n) => self.informers[*at].leave(*n),
            Step::Compact => {
                self.remembered = self.server.resource_version();
                self.server.compact();
            }
            Step::Restart(loss) => self.restart(*loss).await,
            Step::Arm(trouble) => self.arm(trouble),
            Step::Partition => self.server.partition(),
            Step::Hold => self.server.watches("configmaps").hold(),
            Step::Heal => self.heal(),
        }
    }

    async fn put(&self, object: &Object) {
        let Place { namespace, name } = object.place;
        let label =
            |name: &str, value: &str| (!value.is_empty()).then(|| (name.to_owned(), value.to_owned()));
        let labels: BTreeMap<_, _> =
            [label("tier", object.tier), label("tags", &object.tags)].into_iter().flatten().collect();
        let poison = object.poisoned.then(|| (POISON.to_owned(), "yes".to_owned()));
        let value = Some(("value".to_owned(), object.value.to_string()));
        let wanted = ConfigMap {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            data: Some([value, poison].into_iter().flatten().collect()),
            ..ConfigMap::default()
        };
        let made = match self.server.get::<ConfigMap>(&format!("{namespace}/{name}")).await {
            Some(_) => self.server.update(&wanted).await,
            None => self.server.create(&wanted).await,
        };
        self.ledger.remember(ConfigMap::state(&made));
    }

    async fn delete(&self, Place { namespace, name }: &Place) {
        let key = format!("{namespace}/{name}");
        if self.server.get::<ConfigMap>(&key).await.is_some() {
            self.server.delete::<ConfigMap>(&key).await;
        }
    }

    async fn restart(&mut self, loss: Loss) {
        match loss {
            Loss::Nothing => self.server.restart(Restart::Keep),
            Loss::History => self.server.restart(Restart::ForgetHistory),
            Loss::Everything => {
                self.lose_versions();
                self.server.restart(Restart::Empty);
                self.server.install().await.unwrap();
            }
            Loss::Latest(versions) => {
                let back = self.server.resource_version().saturating_sub(versions).max(self.remembered);
                self.lose_versions();
                self.server.restart(Restart::At(back));
            }
        }
        if matches!(loss, Loss::History | Loss::Everything) {
            self.remembered = self.server.resource_version();
        }
    }

    /// Notes which versions may not come again before the informers have noticed.
    fn lose_versions(&mut self) {
        self.honest.store(false, Ordering::SeqCst);
        self.ledger.next_epoch();
        for (lost, informer) in self.lost.iter_mut().zip(&self.informers) {
            let version = Some(informer.version()).filter(|version| *version > 0);
            *lost = version.into_iter().chain(*lost).min();
        }
    }

    /// Returns whether this many writes stay below a version that some informer still holds.
    ///
    /// A server that comes back to a version before anybody looks can't be told from one that never left it. Of
    /// several namespaces in one cache only the lowest version is known, so that theirs count to the end.
    fn may_write(&mut self, writes: u64) -> bool {
        let next = self.server.resource_version() + writes;
        for (lost, informer) in self.lost.iter_mut().zip(&self.informers) {
            *lost = lost.filter(|lost| informer.extents() > 1 || informer.version() >= *lost);
        }
        self.lost.iter().flatten().all(|lost| next < *lost)
    }

    fn arm(&mut self, Trouble { verb, times, fault, honest }: &Trouble) {
        self.server.faults().on(*verb, "configmaps").times(*times).then(fault.clone());
        if *honest == Honest::No {
            self.deceived = true;
            self.honest.store(false, Ordering::SeqCst);
        }
    }

    fn heal(&self) {
        self.server.watches("configmaps").resume();
        self.server.heal();
        self.server.faults().clear();
    }

    /// Has everything listed once more: what a server kept to itself comes no other way.
    async fn relist(&self) {
        let gone = self.server.faults().on(Verb::Watch, "configmaps").then(Fault::Status(410));
        self.server.restart(Restart::Keep);
        // Every watch is opened again within that time, as all were well before.
        sleep(Duration::from_secs(5)).await;
        gone.disarm();
    }

    /// Heals everything, waits until all is right, and says what is not.
    async fn judge(&mut self) {
        self.heal();
        self.informers.iter().for_each(|informer| informer.start());
        if self.deceived {
            sleep(Duration::from_secs(120)).await;
            self.relist().await;
        }
        let (healed, mut pause) = (Instant::now(), Duration::from_millis(100));
        let truth = self.truth().await;
        let wrongs = loop {
            sleep(pause).await;
            let wrongs: Vec<_> =
                self.informers.iter().flat_map(|informer| self.wrongs(&**informer, &truth)).collect();
            if wrongs.is_empty() || healed.elapsed() > HEALED {
                break wrongs;
            }
            pause = (pause * 2).min(Duration::from_secs(30));
        };
        self.ledger.trace(format_args!("right after {:?}", healed.elapsed()));
        wrongs.iter().for_each(|wrong| self.ledger.wrong(wrong));
        for informer in &self.informers {
            informer.end().await;
        }
    }

    fn wrongs(&self, informer: &dyn Subject, truth: &Content) -> Vec<String> {
        let (cached, server) = (informer.version(), self.server.resource_version());
        let mut wrongs = informer.check(truth);
        wrongs.extend(
            (cached > server).then(|| format!("a cache is of version {cached}, the server of {server}")),
        );
        wrongs
    }

    async fn truth(&self) -> Content {
        let objects = self.server.list::<ConfigMap>("*").await;
        objects
            .iter()
            .map(|object| (ObjectKey::of(object), ConfigMap::state(object)))
            .collect::<BTreeMap<_, State>>()
    }
}

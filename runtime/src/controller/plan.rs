//! From a built controller to one that can run: ask for informers, connect them.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use futures::future::BoxFuture;
use rand::{SeedableRng, rngs::SmallRng};

use super::{
    Controller, Reconciler,
    budget::Budgets,
    doubts,
    enqueue::{self, Enqueuer, EventDedup},
    last_read::LastRead,
    queue::ControllerQueue,
    sources::{self, CacheOf, InformerKey, Objects, OpenSource, Selection, Synced},
    start::{Connections, PreparedController, Stop, Waits, gate, run_workers},
    tombstones::Tombstones,
    unreadable::UnreadableObjects,
    worker::ControllerCore,
};
use crate::{
    informer::{SharedInformerFactory, SyncState, Watched},
    metrics::Metrics,
    object::{Kind, Scope},
    workqueue::{ConfigError, InvalidRate},
    writes::{Author, Counters, Recorder, Rights, Sender, Use, WaitForOwn, Writer, own_writes::SourceId},
};

/// Says why a controller can't be started, or has given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// No worker would ever run.
    #[error("controller {name}: zero workers run nothing; `workers` must be at least 1")]
    NoWorkers {
        /// The controller.
        name: String,
    },
    /// More workers than make sense: each holds a task.
    #[error(
        "controller {name}: {workers} workers are too many; 65536 may run at once, and a few do for most"
    )]
    TooManyWorkers {
        /// The controller.
        name: String,
        /// How many were asked for.
        workers: usize,
    },
    /// There can be no such namespace.
    #[error(
        "controller {name}: {namespace:?} can't be a namespace: use 1 to 63 of a-z, 0-9, '-', not '-' at either end"
    )]
    Namespace {
        /// The controller.
        name: String,
        /// The namespace.
        namespace: String,
    },
    /// No cache would ever sync in time.
    #[error("controller {name}: a sync timeout of zero gives up at once; leave it out, or allow some time")]
    NoTimeToSync {
        /// The controller.
        name: String,
    },
    /// The rate of retries lets nothing pass, or is none.
    #[error("controller {name}: the retry rate is refused")]
    RetryRate {
        /// The controller.
        name: String,
        /// What is wrong with it.
        #[source]
        source: InvalidRate,
    },
    /// No run would ever end in time.
    #[error("controller {name}: a deadline of zero ends every run; leave it out, or allow some time")]
    NoTime {
        /// The controller.
        name: String,
    },
    /// The rate limit lets nothing pass, or is none.
    #[error("controller {name}: the rate limit is refused")]
    RateLimit {
        /// The controller.
        name: String,
        /// What is wrong with it.
        #[source]
        source: ConfigError,
    },
    /// The storm limit lets nothing pass, or is none.
    #[error("controller {name}: the storm limit is refused")]
    StormLimit {
        /// The controller.
        name: String,
        /// What is wrong with it.
        #[source]
        source: InvalidRate,
    },
    /// Kubernetes would refuse the finalizer on every object.
    #[error("controller {name}: {finalizer:?} is no qualified name; write it like `example.dev/volume`")]
    Finalizer {
        /// The controller.
        name: String,
        /// The finalizer.
        finalizer: String,
    },
    /// The API server would refuse the field manager on every write.
    #[error(
        "controller name {name:?} can't be a field manager: use 1 to 128 of a-z, A-Z, 0-9, '.', '-', '_', '/'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The API server would refuse the field manager on every write.
    #[error(
        "controller {name}: {field_manager:?} can't be a field manager: use 1 to 128 of a-z, A-Z, 0-9, '.', '-', '_', '/'"
    )]
    FieldManager {
        /// The controller.
        name: String,
        /// The field manager.
        field_manager: String,
    },
    /// Caches did not sync within the time that `sync_timeout` gives them.
    #[error("controller {name}: not synced within {waited:?}: {}", named(lagging))]
    NotSynced {
        /// The controller.
        name: String,
        /// Whom it waits for, and why.
        lagging: Vec<SyncState>,
        /// How long it waited.
        waited: Duration,
    },
}

fn named(lagging: &[SyncState]) -> String {
    lagging.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What a manager gives its controllers.
pub(crate) struct ControllerEnv<'a> {
    pub(crate) sender: &'a Sender,
    pub(crate) factory: &'a SharedInformerFactory,
    /// The informers that the program asked for.
    pub(crate) asked: &'a [Arc<dyn Synced>],
    pub(crate) metrics: &'a Metrics,
    /// Decides what is random; `None`: nobody knows.
    pub(crate) seed: Option<u64>,
    pub(crate) writes: Writes,
}

/// What becomes of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// They are sent.
    Sent,
    /// They are answered here: no cache ever shows them.
    Simulated,
}

/// A namespace that is watched on its own; `None`: all at once.
type Place = Option<Arc<str>>;

/// An informer that keys wait for: those of its namespace, or all.
type Awaited = (Place, Arc<dyn Synced>);

/// Finds the informers of a kind that the program reads, asking for some if there is none.
pub(crate) type Read = Box<dyn FnOnce(&ControllerEnv<'_>, &[Place]) -> Vec<Awaited> + Send>;

pub(crate) fn read<W: Watched<DynamicType = ()>>() -> Read {
    Box::new(|env, places| {
        let kind = W::kind_of(&());
        let asked = env.asked.iter().filter(|informer| informer.kind() == kind);
        let asked: Vec<Awaited> = asked.map(|informer| (None, informer.clone())).collect();
        if !asked.is_empty() {
            return asked;
        }
        let of = |place: &Place| -> Awaited {
            let everything = Selection::default();
            let informer = sources::informer_of::<W>(env.factory, (), place.as_deref(), &everything);
            (place.clone(), Arc::new(informer))
        };
        places_of(kind.scope, places).iter().map(of).collect()
    })
}

/// A kind without namespaces is watched once.
fn places_of(scope: Scope, places: &[Place]) -> &[Place] {
    match scope {
        Scope::Namespaced => places,
        Scope::Cluster => &[None],
    }
}

/// A controller whose types are forgotten: what a manager holds.
pub(crate) struct Plan {
    pub(crate) name: Arc<str>,
    /// What it needs, in which namespaces; none: in all.
    pub(crate) rights: Rights,
    pub(crate) namespaces: Vec<Arc<str>>,
    prepare: Prepare,
}

type Prepare = Box<dyn FnOnce(&ControllerEnv<'_>) -> Result<PreparedController, ControllerError> + Send>;

impl Plan {
    /// Asks for the informers and connects them; nothing runs yet.
    pub(crate) fn prepare(self, env: &ControllerEnv<'_>) -> Result<PreparedController, ControllerError> {
        (self.prepare)(env)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({})", self.name)
    }
}

pub(super) fn plan<K: Watched, R: Reconciler<K>>(
    mut controller: Controller<K, R>,
    dynamic_type: K::DynamicType,
) -> Plan {
    let kind = K::kind_of(&dynamic_type);
    let name: Arc<str> = controller.settings.name.clone().unwrap_or_else(|| kind.to_string()).into();
    if controller.settings.finalizer.is_some() {
        controller.rights.allow(&kind, Use::Patch);
    }
    if !controller.selection.is_everything() {
        // What left the selection is told from what is gone by a GET.
        controller.rights.allow(&kind, Use::Get);
    }
    Plan {
        name: name.clone(),
        rights: controller.rights.clone(),
        namespaces: controller.settings.namespaces.clone(),
        prepare: Box::new(move |env| prepare(controller, dynamic_type, kind, name, env)),
    }
}

fn prepare<K: Watched, R: Reconciler<K>>(
    controller: Controller<K, R>,
    dynamic_type: K::DynamicType,
    kind: Kind,
    name: Arc<str>,
    env: &ControllerEnv<'_>,
) -> Result<PreparedController, ControllerError> {
    let queue = controller.settings.checked_queue(&name)?;
    queue.report_to(env.metrics, &*name);
    let places: Vec<Place> = match controller.settings.namespaces.is_empty() || kind.scope == Scope::Cluster {
        true => vec![None],
        false => controller.settings.namespaces.iter().cloned().map(Some).collect(),
    };
    let metrics = env.metrics.reconcile().of(&name);
    let tombstones = Arc::new(Tombstones::new(metrics.deletions_dropped.clone()));
    let opened = open_all(&controller, &dynamic_type, &tombstones, &places, env);
    let Controller { reconciler, settings, selection, sources, reads, rights, .. } = controller;
    let mut awaited = opened.awaited;
    match reads.is_empty() {
        true => awaited.extend(env.asked.iter().map(|informer| (None, informer.clone()))),
        false => reads.into_iter().for_each(|read| awaited.extend(read(env, &places))),
    }
    let waits = Arc::new(waits(awaited, &places));
    let shut = waits.by_namespace.iter().map(|(namespace, _)| namespace.clone());
    let queue = Arc::new(ControllerQueue::new(queue, shut));
    let (views, connects): (Vec<_>, Vec<_>) =
        opened.kind_sources.into_iter().map(|kind_source| (kind_source.view, kind_source.connect)).unzip();
    let gate = Arc::new(gate(&waits, env.factory.server()));
    let field_manager = settings.field_manager.as_deref().map_or_else(|| name.clone(), Arc::from);
    let wait_for_own = match env.writes {
        Writes::Sent => settings.wait_for_own,
        Writes::Simulated => WaitForOwn::Never,
    };
    let author = Author { controller: name.clone(), field_manager, declared: rights };
    let seed = env.seed.unwrap_or_else(rand::random);
    let (sender, dropped) = (env.sender.clone(), metrics.events_dropped.clone());
    let recorder = Recorder::new(sender, &author, env.factory.clock(), seed, dropped);
    let writer = Writer::new(
        env.sender.clone(),
        author,
        views,
        gate.clone(),
        queue.clone(),
        wait_for_own,
        Counters { overdue: metrics.overdue.clone(), contradicted: metrics.contradicted.clone() },
    );
    let dedup = Arc::new(EventDedup::of(opened.shared));
    let enqueuer = Enqueuer { queue: queue.clone(), writer, kind: kind.clone(), dedup };
    let connections: Connections = connects.into_iter().map(|connect| connect(&enqueuer)).collect();
    let core = Arc::new(ControllerCore {
        metrics,
        name: name.clone(),
        kind: kind.to_string(),
        dynamic_type,
        reconciler: Arc::new(reconciler),
        objects: opened.objects,
        selection,
        tombstones,
        queue,
        writer: enqueuer.writer.clone(),
        recorder,
        last_read: LastRead::with(settings.finalizer.as_ref()),
        finalizer: settings.finalizer,
        panics: settings.panics,
        deadline: settings.deadline,
        waits: waits.clone(),
        gate,
        budgets: Mutex::new(Budgets::new(settings.storm_limit)),
        failures: Mutex::new(HashMap::new()),
        jitter: Mutex::new(SmallRng::seed_from_u64(seed)),
        runs: AtomicU64::new(0),
    });
    let (inspected, workers) = (core.clone(), settings.workers);
    let work = Box::new(move |stop: Stop| -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (writer, doubted, recorder) = (core.writer.clone(), core.clone(), core.recorder.clone());
            let abort = stop.abort.clone();
            tokio::select! {
                biased;
                () = run_workers(core, workers, connections, (enqueuer, sources), stop) => {}
                never = writer.follow_up() => match never {},
                never = recorder.run() => match never {},
                never = doubts::follow(&doubted.name, &doubted.gate, &doubted.queue) => match never {},
            }
            // Whoever aborts does not wait for that either.
            let _ = abort.run_until_cancelled(recorder.flush()).await;
        })
    });
    Ok(PreparedController { name, waits, sync_timeout: settings.sync_timeout, inspected, work })
}

/// What was asked for, not yet connected.
struct Opened<K> {
    kind_sources: Vec<OpenSource>,
    awaited: Vec<Awaited>,
    objects: Objects<K>,
    /// The informers that feed the controller more than once.
    shared: Vec<SourceId>,
}

/// Asks for the informers of the reconciled kind and of all that feeds it, in every place.
fn open_all<K: Watched, R>(
    controller: &Controller<K, R>,
    dynamic_type: &K::DynamicType,
    tombstones: &Arc<Tombstones<K::Object>>,
    places: &[Place],
    env: &ControllerEnv<'_>,
) -> Opened<K::Object> {
    let Controller { selection, predicate, kind_sources, .. } = controller;
    // One informer is one source, also where it feeds the controller twice: a kind that owns its own kind.
    let mut sources = Vec::new();
    let objects = Objects { caches: Vec::new() };
    let mut opened = Opened { kind_sources: Vec::new(), awaited: Vec::new(), objects, shared: Vec::new() };
    for place in places {
        let source = source_of(&mut sources, (InformerKey::of::<K>(dynamic_type, selection), place.clone()));
        let namespace = place.as_deref();
        let itself = sources::informer_of::<K>(env.factory, dynamic_type.clone(), namespace, selection);
        let lister = itself.cache();
        let (tombstones, predicate) = (tombstones.clone(), predicate.clone());
        let kind_source =
            sources::open(itself, namespace, source, selection, move |enqueuer| enqueue::EnqueueObject {
                enqueuer: enqueuer.clone(),
                source,
                tombstones,
                predicate,
                unreadable_objects: UnreadableObjects::default(),
            });
        let (namespace, informer) = (place.clone(), kind_source.informer.clone());
        opened.objects.caches.push(CacheOf { namespace, lister, informer });
        opened.awaited.push((place.clone(), kind_source.informer.clone()));
        opened.kind_sources.push(kind_source);
    }
    for kind_source in kind_sources {
        for place in places_of(kind_source.scope, places) {
            let known = sources.len();
            let source = source_of(&mut sources, (kind_source.asked.clone(), place.clone()));
            if sources.len() == known {
                opened.shared.push(source);
            }
            let kind_source = (kind_source.open)(env.factory, place.as_deref(), source);
            opened.awaited.push((place.clone(), kind_source.informer.clone()));
            opened.kind_sources.push(kind_source);
        }
    }
    opened
}

fn source_of(sources: &mut Vec<(InformerKey, Place)>, asked: (InformerKey, Place)) -> SourceId {
    let known = sources.iter().position(|source| *source == asked);
    SourceId(known.unwrap_or_else(|| {
        sources.push(asked);
        sources.len() - 1
    }))
}

/// With one namespace, or none, all keys wait for the same; with several, each for its own.
fn waits(awaited: Vec<Awaited>, places: &[Place]) -> Waits {
    if places.len() <= 1 {
        return Waits { common: awaited.into_iter().map(|(_, of)| of).collect(), by_namespace: Vec::new() };
    }
    let of = |place: &Place| awaited.iter().filter(|(of, _)| of == place).map(|(_, of)| of.clone()).collect();
    let by_namespace = places.iter().filter_map(|place| Some((place.clone()?, of(place)))).collect();
    Waits { common: of(&None), by_namespace }
}

//! From a built controller to one that can run: ask for informers, connect them.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use rand::{SeedableRng, rngs::SmallRng};

use super::{
    Controller, Reconciler,
    budget::Budgets,
    doubts,
    enqueue::{self, Hub, Told},
    feed::{self, Asked, CacheOf, Objects, OpenFeed, Selection, Synced},
    graves::Graves,
    intake::Intake,
    last_read::LastRead,
    mended::Mending,
    start::{Connections, Planned, Waits, gate, run_workers},
    term::Term,
    worker::Engine,
};
use crate::{
    informer::{SharedInformerFactory, SyncState, Watched},
    metrics::Metrics,
    object::{Kind, Scope},
    workqueue::{ConfigError, InvalidRate},
    writes::{Author, Counters, Sender, Writer, own_writes::SourceId},
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
pub(crate) struct Surroundings<'a> {
    pub(crate) sender: &'a Sender,
    pub(crate) factory: &'a SharedInformerFactory,
    /// The informers that the program asked for.
    pub(crate) asked: &'a [Arc<dyn Synced>],
    pub(crate) metrics: &'a Metrics,
    /// Decides what is random; `None`: nobody knows.
    pub(crate) seed: Option<u64>,
    pub(crate) election: Election,
}

/// Says whether there is one term of work, or one for each time that this replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Election {
    None,
    Held,
}

/// A namespace that is watched on its own; `None`: all at once.
type Place = Option<Arc<str>>;

/// An informer that keys wait for: those of its namespace, or all.
type Awaited = (Place, Arc<dyn Synced>);

/// Finds the informers of a kind that the program reads, asking for some if there is none.
pub(crate) type Read = Box<dyn FnOnce(&Surroundings<'_>, &[Place]) -> Vec<Awaited> + Send>;

pub(crate) fn read<W: Watched<Question = ()>>() -> Read {
    Box::new(|around, places| {
        let kind = W::kind_of(&());
        let asked = around.asked.iter().filter(|informer| informer.kind() == kind);
        let asked: Vec<Awaited> = asked.map(|informer| (None, informer.clone())).collect();
        if !asked.is_empty() {
            return asked;
        }
        let of = |place: &Place| -> Awaited {
            let everything = Selection::default();
            let informer = feed::informer_of::<W>(around.factory, (), place.as_deref(), &everything);
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
    prepare: Prepare,
}

type Prepare = Box<dyn FnOnce(&Surroundings<'_>) -> Result<Planned, ControllerError> + Send>;

impl Plan {
    /// Asks for the informers and connects them; nothing runs yet.
    pub(crate) fn prepare(self, around: &Surroundings<'_>) -> Result<Planned, ControllerError> {
        (self.prepare)(around)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({})", self.name)
    }
}

pub(super) fn plan<K: Watched, R: Reconciler<K>>(
    controller: Controller<K, R>,
    question: K::Question,
) -> Plan {
    let kind = K::kind_of(&question);
    let name: Arc<str> = controller.settings.name.clone().unwrap_or_else(|| kind.to_string()).into();
    Plan {
        name: name.clone(),
        prepare: Box::new(move |around| prepare(controller, question, kind, name, around)),
    }
}

fn prepare<K: Watched, R: Reconciler<K>>(
    controller: Controller<K, R>,
    question: K::Question,
    kind: Kind,
    name: Arc<str>,
    around: &Surroundings<'_>,
) -> Result<Planned, ControllerError> {
    let queue = controller.settings.checked_queue(&name)?;
    queue.report_to(around.metrics, &*name);
    let places: Vec<Place> = match controller.settings.namespaces.is_empty() || kind.scope == Scope::Cluster {
        true => vec![None],
        false => controller.settings.namespaces.iter().cloned().map(Some).collect(),
    };
    let metrics = around.metrics.reconcile().of(&name);
    let graves = Arc::new(Graves::new(metrics.deletions_dropped.clone()));
    let opened = open_all(&controller, &question, &graves, &places, around);
    let Controller { reconciler, settings, selection, sources, reads, .. } = controller;
    let mut awaited = opened.awaited;
    match reads.is_empty() {
        true => awaited.extend(around.asked.iter().map(|informer| (None, informer.clone()))),
        false => reads.into_iter().for_each(|read| awaited.extend(read(around, &places))),
    }
    let waits = Arc::new(waits(awaited, &places));
    let shut = waits.by_namespace.iter().map(|(namespace, _)| namespace.clone());
    let intake = Arc::new(Intake::new(queue, shut));
    let (views, connects): (Vec<_>, Vec<_>) =
        opened.feeds.into_iter().map(|feed| (feed.view, feed.connect)).unzip();
    let gate = Arc::new(gate(&waits, around.factory.server()));
    let field_manager = settings.field_manager.as_deref().map_or_else(|| name.clone(), Arc::from);
    let writer = Writer::new(
        around.sender.clone(),
        Author { controller: name.clone(), field_manager },
        views,
        gate.clone(),
        intake.clone(),
        settings.wait_for_own,
        Counters { overdue: metrics.overdue.clone(), contradicted: metrics.contradicted.clone() },
    );
    let told = Arc::new(Told::of(opened.shared));
    let hub = Hub { intake: intake.clone(), writer, kind: kind.clone(), told };
    let elected = around.election == Election::Held;
    let connect = move |hub: &Hub| -> Connections { connects.iter().map(|connect| connect(hub)).collect() };
    // Before the informers start: what they list first comes in one go.
    let mut at_first = (!elected).then(|| connect(&hub));
    let seed = around.seed.unwrap_or_else(rand::random);
    let engine = Arc::new(Engine {
        metrics,
        name: name.clone(),
        kind: kind.to_string(),
        question,
        reconciler: Arc::new(reconciler),
        objects: opened.objects,
        selection,
        graves,
        intake,
        writer: hub.writer.clone(),
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
        stands_by: AtomicBool::new(elected),
    });
    let (inspected, workers) = (engine.clone(), settings.workers);
    let work = Box::new(move |term: Term| -> BoxFuture<'static, ()> {
        let (engine, sources) = (engine.clone(), (hub.clone(), sources.clone()));
        let connections = at_first.take().unwrap_or_else(|| {
            engine.begin_anew();
            connect(&hub)
        });
        Box::pin(async move {
            let (writer, doubted) = (engine.writer.clone(), engine.clone());
            engine.stands_by.store(false, Ordering::Relaxed);
            tokio::select! {
                biased;
                () = run_workers(engine, workers, connections, sources, term) => {}
                never = writer.attend() => match never {},
                never = doubts::attend(&doubted.name, &doubted.gate, &doubted.intake) => match never {},
            }
            doubted.stands_by.store(elected, Ordering::Relaxed);
        })
    });
    Ok(Planned { name, waits, sync_timeout: settings.sync_timeout, inspected, work })
}

/// What was asked for, not yet connected.
struct Opened<K> {
    feeds: Vec<OpenFeed>,
    awaited: Vec<Awaited>,
    objects: Objects<K>,
    /// The informers that feed the controller more than once.
    shared: Vec<SourceId>,
}

/// Asks for the informers of the reconciled kind and of all that feeds it, in every place.
fn open_all<K: Watched, R>(
    controller: &Controller<K, R>,
    question: &K::Question,
    graves: &Arc<Graves<K::Object>>,
    places: &[Place],
    around: &Surroundings<'_>,
) -> Opened<K::Object> {
    let Controller { selection, predicate, feeds, .. } = controller;
    // One informer is one source, also where it feeds the controller twice: a kind that owns its own kind.
    let mut sources = Vec::new();
    let objects = Objects { caches: Vec::new() };
    let mut opened = Opened { feeds: Vec::new(), awaited: Vec::new(), objects, shared: Vec::new() };
    for place in places {
        let source = source_of(&mut sources, (Asked::of::<K>(question, selection), place.clone()));
        let namespace = place.as_deref();
        let itself = feed::informer_of::<K>(around.factory, question.clone(), namespace, selection);
        let lister = itself.cache();
        let (graves, predicate) = (graves.clone(), predicate.clone());
        let feed = feed::open(itself, namespace, source, selection, move |hub| enqueue::Itself {
            hub: hub.clone(),
            source,
            graves: graves.clone(),
            predicate: predicate.clone(),
            mending: Mending::default(),
        });
        let (namespace, informer) = (place.clone(), feed.informer.clone());
        opened.objects.caches.push(CacheOf { namespace, lister, informer });
        opened.awaited.push((place.clone(), feed.informer.clone()));
        opened.feeds.push(feed);
    }
    for feed in feeds {
        for place in places_of(feed.scope, places) {
            let known = sources.len();
            let source = source_of(&mut sources, (feed.asked.clone(), place.clone()));
            if sources.len() == known {
                opened.shared.push(source);
            }
            let feed = (feed.open)(around.factory, place.as_deref(), source);
            opened.awaited.push((place.clone(), feed.informer.clone()));
            opened.feeds.push(feed);
        }
    }
    opened
}

fn source_of(sources: &mut Vec<(Asked, Place)>, asked: (Asked, Place)) -> SourceId {
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

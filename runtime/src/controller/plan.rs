//! From a built controller to one that can run: ask for informers, connect them.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
};

use rand::{SeedableRng, rngs::SmallRng};

use super::{
    Reconciler,
    context::ContextBase,
    definition::Definition,
    enqueue::{EnqueueObject, Enqueuer},
    env::{Awaited, ControllerEnv, Election, Place, Writes},
    error::ControllerError,
    recent::RecentRuns,
    sources::{self, CacheOf, Connect, ForeignSource, InformerKey, OpenSource, ReconciledObjects},
    start::PreparedController,
    waits::{Waits, gate},
    watch::{Cluster, Narrowing, Watch},
    worker::ControllerCore,
};
use crate::{
    backoff::random_seed,
    informer::Watched,
    keys::{Keys, SourceId, StormLimit},
    object::{Kind, Scope},
    writes::{Author, Counters, Recorder, Rights, Use, Writer},
};

/// A controller whose types are forgotten: what a manager holds.
pub(crate) struct Plan {
    pub(crate) name: Arc<str>,
    /// What it needs, in which namespaces; none: in all.
    pub(crate) rights: Rights,
    pub(crate) namespaces: Vec<Arc<str>>,
    /// What it watches narrowly, and what that takes.
    pub(crate) narrowed: Vec<(Narrowing, Rights)>,
    /// The other clusters that it reads from.
    pub(crate) clusters: Vec<Cluster>,
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
    mut definition: Definition<K, R>,
    dynamic_type: K::DynamicType,
) -> Plan {
    let kind = K::kind_of(&dynamic_type);
    let name: Arc<str> = definition.settings.name.clone().unwrap_or_else(|| kind.to_string()).into();
    if definition.settings.finalizer.is_some() {
        definition.rights.allow(&kind, Use::Patch);
    }
    if !definition.selection.is_everything() {
        // A GET distinguishes what left the selection from what is gone.
        definition.rights.allow(&kind, Use::Get);
    }
    Plan {
        name: name.clone(),
        rights: definition.rights.clone(),
        namespaces: definition.settings.namespaces.clone(),
        narrowed: definition.narrowed.clone(),
        clusters: definition.clusters.clone(),
        prepare: Box::new(move |env| prepare(definition, dynamic_type, kind, name, env)),
    }
}

/// Refuses to own objects of other clusters.
fn check_owned(name: &str, owned_elsewhere: &[String]) -> Result<(), ControllerError> {
    match owned_elsewhere.first() {
        Some(kind) => Err(ControllerError::OwnedElsewhere { name: name.to_owned(), kind: kind.clone() }),
        None => Ok(()),
    }
}

fn prepare<K: Watched, R: Reconciler<K>>(
    mut definition: Definition<K, R>,
    dynamic_type: K::DynamicType,
    kind: Kind,
    name: Arc<str>,
    env: &ControllerEnv<'_>,
) -> Result<PreparedController, ControllerError> {
    check_owned(&name, &definition.owned_elsewhere)?;
    let queue = definition.settings.checked_queue(&name)?;
    queue.report_to(env.metrics, &*name);
    let places: Vec<Place> = match definition.settings.namespaces.is_empty() || kind.scope == Scope::Cluster {
        true => vec![None],
        false => definition.settings.namespaces.iter().cloned().map(Some).collect(),
    };
    let metrics = env.metrics.reconcile().of(&name);
    let opened = open_all(&mut definition, &dynamic_type, &places, env);
    let Definition { reconciler, settings, selection, sources, reads, .. } = definition;
    let mut awaited = opened.awaited;
    match reads.is_empty() {
        true => awaited.extend(env.asked.iter().map(|informer| (None, informer.clone()))),
        false => reads.into_iter().for_each(|read| awaited.extend(read(env, &places))),
    }
    let waits = Arc::new(waits(awaited, &places));
    let shut = waits.by_namespace.iter().map(|(namespace, _)| namespace.clone());
    let keys = Keys::new(
        queue,
        gate(&waits, env.factory.server()),
        shut,
        opened.shared,
        StormLimit::new(settings.storm_limit),
        metrics.deletions_dropped.clone(),
    );
    let (views, mut connects): (Vec<_>, Vec<_>) =
        opened.kind_sources.into_iter().map(|kind_source| (kind_source.view, kind_source.connect)).unzip();
    connects.extend(opened.foreign);
    let field_manager = settings.field_manager.as_deref().map_or_else(|| name.clone(), Arc::from);
    let waits_for_own = settings.waits_for_own && env.writes == Writes::Sent;
    let author = Author { controller: name.clone(), field_manager };
    let seed = env.seed.unwrap_or_else(random_seed);
    let (sender, dropped) = (env.sender.clone(), metrics.events_dropped.clone());
    let recorder = Recorder::new(sender, &author, env.factory.clock(), seed, dropped);
    let writer = Writer::new(
        env.sender.clone(),
        author,
        views,
        keys.clone(),
        waits_for_own,
        Counters { overdue: metrics.overdue.clone(), contradicted: metrics.contradicted.clone() },
    );
    let enqueuer = Enqueuer { keys: keys.clone(), writer, kind: kind.clone() };
    let outlives = (env.election == Election::Held).then(|| (name.clone(), env.leftovers.clone()));
    let core = Arc::new(ControllerCore {
        metrics,
        name: name.clone(),
        kind_name: kind.to_string(),
        reconciler: Arc::new(reconciler),
        objects: opened.objects,
        selection,
        keys,
        base: ContextBase::new(kind, enqueuer.writer.clone(), recorder, outlives),
        finalizer: settings.finalizer,
        panics: settings.panics,
        deadline: settings.deadline,
        waits: waits.clone(),
        jitter: Mutex::new(SmallRng::seed_from_u64(seed)),
        runs: AtomicU64::new(0),
        stands_by: AtomicBool::new(env.election == Election::Held),
        trace_ids: env.trace_ids.clone(),
        workers: settings.workers,
        recent: RecentRuns::default(),
    });
    Ok(PreparedController::new(core, enqueuer, connects, sources, settings.sync_timeout, env.election))
}

/// What was asked for, not yet connected.
struct Opened<K> {
    kind_sources: Vec<OpenSource>,
    /// Of other clusters.
    foreign: Vec<Connect>,
    awaited: Vec<Awaited>,
    objects: ReconciledObjects<K>,
    /// The informers that feed the controller more than once.
    shared: Vec<SourceId>,
}

/// Asks for the informers of the reconciled kind and of all that feeds it, in every place.
fn open_all<K: Watched, R>(
    definition: &mut Definition<K, R>,
    dynamic_type: &K::DynamicType,
    places: &[Place],
    env: &ControllerEnv<'_>,
) -> Opened<K::Object> {
    let foreign_sources = mem::take(&mut definition.foreign_sources);
    let Definition { selection, predicate, kind_sources, settings, .. } = definition;
    // One informer is one source, also where it feeds the controller twice: a kind that owns its own kind.
    let mut sources = Vec::new();
    let objects = ReconciledObjects { caches: Vec::new() };
    let mut opened = Opened {
        kind_sources: Vec::new(),
        foreign: Vec::new(),
        awaited: Vec::new(),
        objects,
        shared: Vec::new(),
    };
    for place in places {
        let source = source_of(&mut sources, (InformerKey::of::<K>(dynamic_type, selection), place.clone()));
        let namespace = place.as_deref();
        let watch = Watch::<K>::with_type(dynamic_type.clone()).selecting(selection);
        let itself = watch.informer(env.factory, namespace);
        let lister = itself.cache();
        let predicate = predicate.clone();
        let finalizer: Option<Arc<str>> = settings.finalizer.as_deref().map(Arc::from);
        let kind_source = sources::open(itself, namespace, source, selection, move |enqueuer| {
            EnqueueObject::new(enqueuer, source, predicate.clone(), finalizer.clone())
        });
        let (namespace, informer) = (place.clone(), kind_source.informer.clone());
        opened.objects.caches.push(CacheOf { namespace, lister, informer });
        opened.awaited.push((place.clone(), kind_source.informer.clone()));
        opened.kind_sources.push(kind_source);
    }
    for kind_source in kind_sources {
        for place in kind_source.places(places) {
            let known = sources.len();
            let source = source_of(&mut sources, (kind_source.asked.clone(), place.clone()));
            if sources.len() == known {
                opened.shared.push(source);
            }
            // Where it has a namespace of its own, the keys of all wait for it.
            let waiting = place.clone().filter(|_| kind_source.namespace.is_none());
            let kind_source = (kind_source.open)(env.factory, place.as_deref(), source);
            opened.awaited.push((waiting, kind_source.informer.clone()));
            opened.kind_sources.push(kind_source);
        }
    }
    for ForeignSource { informer, connect } in foreign_sources {
        opened.awaited.push((None, informer));
        opened.foreign.push(connect);
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

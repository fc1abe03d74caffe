//! From a built controller to one that can run: ask for informers, connect them.

use std::{
    any::{Any, TypeId},
    iter::once,
    marker::PhantomData,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use parking_lot::Mutex;
use rand::{SeedableRng, rngs::SmallRng};

use super::{
    Leftovers, Reconciler,
    context::ContextBase,
    core::ControllerCore,
    error::ControllerError,
    predicate::Predicate,
    reads::ReadCaches,
    recent::RecentRuns,
    running::RunningController,
    settings::Settings,
    sources::{CachePart, ControllerSources, ReconciledObjects, Source},
    stream_source::StreamSource,
    trace::FindTraceId,
    watch::{Cluster, Narrowing, Selection},
    worker::Worker,
};
use crate::{
    backoff::random_seed,
    informer::{AnyInformer, SharedInformerFactory, Watched},
    keys::{Keys, StormLimit},
    metrics::Metrics,
    object::{Kind, ObjectKey},
    workqueue::WorkQueue,
    writes::{Author, Counters, Recorder, Rights, Sender, Writer},
};

/// What a manager gives its controllers.
pub(crate) struct ControllerEnv<'a> {
    pub(crate) sender: &'a Sender,
    pub(crate) factory: &'a SharedInformerFactory,
    /// The informers that the program asked for.
    pub(crate) asked: &'a [AnyInformer],
    pub(crate) metrics: &'a Metrics,
    /// Decides what is random; `None`: nobody knows.
    pub(crate) seed: Option<u64>,
    /// This replica's part of the objects, if caches hold no more.
    pub(crate) part: Option<&'a CachePart>,
    /// Whether there is a term of work each time that this replica leads. Otherwise there is one term.
    pub(crate) is_elected: bool,
    /// Where work is noted that outlives its run.
    pub(crate) leftovers: &'a Arc<Leftovers>,
    /// Whether the server only tries writes: no cache ever shows them.
    pub(crate) is_dry_run: bool,
    pub(crate) recorder: Option<&'a crate::flight_recorder::Recording>,
    pub(crate) trace_id: &'a Option<FindTraceId>,
}

/// What a controller is made of, without its types.
pub(crate) struct Definition {
    pub(crate) kind: Kind,
    pub(crate) settings: Settings,
    pub(crate) selection: Selection,
    /// A [`Predicate`] of the reconciled type.
    pub(super) predicate: Option<Box<dyn Any + Send>>,
    /// What it watches, but for the reconciled kind.
    pub(super) sources: Vec<Source>,
    pub(super) streams: Vec<StreamSource>,
    /// The other clusters that it reads from.
    pub(crate) clusters: Vec<Cluster>,
    /// A kind of another cluster whose owners it is to enqueue: refused.
    pub(super) owned_elsewhere: Option<String>,
    pub(crate) rights: Rights,
    /// What is watched narrowly, and what that takes.
    pub(crate) narrowed: Vec<(Narrowing, Rights)>,
}

impl Definition {
    pub(super) fn new(kind: Kind) -> Self {
        let settings = Settings::new(kind.to_string().into());
        let (selection, predicate, sources, streams, clusters) = Default::default();
        let (owned_elsewhere, rights, narrowed) = Default::default();
        Self {
            kind,
            settings,
            selection,
            predicate,
            sources,
            streams,
            clusters,
            owned_elsewhere,
            rights,
            narrowed,
        }
    }

    /// Makes the controller's queue, if nothing is refused.
    fn checked_queue(&self) -> Result<WorkQueue<ObjectKey>, ControllerError> {
        if let Some(kind) = &self.owned_elsewhere {
            let problem = format!(
                "{kind} is in another cluster, where objects have no owner in this one: use `mapped`, not `owned`"
            );
            return Err(ControllerError::Refused { name: self.settings.name.to_string(), problem });
        }
        self.settings.checked_queue()
    }

    /// Shows the kinds that it reads in its own cluster.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        once(&self.kind).chain(self.sources.iter().filter_map(Source::kind_here))
    }

    /// Adds the permissions that a watch needs.
    pub(super) fn allow_watch(&mut self, kind: &Kind, narrowing: &Narrowing) {
        if narrowing.is_none() {
            return self.rights.watch(kind);
        }
        let mut rights = Rights::default();
        rights.watch(kind);
        self.narrowed.push((narrowing.clone(), rights));
    }
}

/// A controller whose types are forgotten: what a manager holds.
pub(crate) struct Plan {
    pub(crate) definition: Definition,
    pub(super) prepare: Prepare,
}

/// Prepares a controller of a type.
pub(super) type Prepare =
    Box<dyn FnOnce(Definition, &ControllerEnv<'_>) -> Result<RunningController, ControllerError> + Send>;

impl Plan {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.definition.settings.name
    }

    /// Asks for the informers and connects them; nothing runs yet.
    pub(crate) fn prepare(self, env: &ControllerEnv<'_>) -> Result<RunningController, ControllerError> {
        (self.prepare)(self.definition, env)
    }
}

impl_debug!(Plan, this => name: this.definition.settings.name);

/// Refuses what can't be started, asks for the informers of a controller and connects them.
pub(super) fn prepare<K: Watched, R: Reconciler<K>>(
    reconciler: R,
    dynamic_type: K::DynamicType,
    mut definition: Definition,
    env: &ControllerEnv<'_>,
) -> Result<RunningController, ControllerError> {
    let queue = definition.checked_queue()?;
    let predicate = definition.predicate.take();
    let predicate = predicate.map(|of| *of.downcast::<Predicate<K::Object>>().expect("it is of this type"));
    let Definition { kind, settings, selection, .. } = &definition;
    let mut sources =
        ControllerSources::new(env.factory, env.asked, env.part.cloned(), kind, &settings.namespaces);
    let finalizer = settings.finalizer.as_deref();
    let objects = Arc::new(sources.reconciled::<K>(dynamic_type, selection, predicate, finalizer));
    let selects_some = !selection.is_everything();
    // What only is read comes last: it may be read from what feeds the controller.
    definition.sources.sort_by_key(Source::is_read);
    mem::take(&mut definition.sources).into_iter().for_each(|source| sources.open(source));
    let (streams, connects) = (mem::take(&mut definition.streams), mem::take(&mut sources.connects));
    let core = core(definition, queue, sources, (TypeId::of::<K>(), objects.clone()), env);
    let worker = Arc::new(Worker::<K, R> {
        core: core.clone(),
        reconciler,
        objects,
        selects_some,
        reconciled: PhantomData,
    });
    Ok(RunningController::new(core, worker, connects, streams))
}

fn core(
    definition: Definition,
    queue: WorkQueue<ObjectKey>,
    mut sources: ControllerSources<'_>,
    (reconciles, objects): (TypeId, Arc<ReconciledObjects>),
    env: &ControllerEnv<'_>,
) -> Arc<ControllerCore> {
    let Definition { kind, settings, rights, .. } = definition;
    let name = settings.name.clone();
    queue.report_to(env.metrics, &*name);
    let metrics = env.metrics.shared.reconcile.of(&name);
    let counts = &metrics.counts;
    let waits = sources.waits();
    let keys = Keys::new(
        queue,
        waits.gate(env.factory.server()),
        waits.namespaces.iter().cloned(),
        sources.shared,
        StormLimit::new(settings.storm_limit),
        counts.deletions_dropped.clone(),
    );
    let author = settings.author().clone();
    let field_manager = settings.field_manager.as_deref().map_or_else(|| author.clone(), Arc::from);
    let sender = if env.is_dry_run { env.sender.of(name.clone()) } else { env.sender.clone() };
    let author = Author { controller: author, field_manager, declared: rights };
    let seed = env.seed.unwrap_or_else(random_seed);
    let dropped = counts.events_dropped.clone();
    let recorder = Recorder::new(sender.clone(), &author, env.factory.clock(), seed, dropped);
    let counters = Counters { overdue: counts.overdue.clone(), contradicted: counts.contradicted.clone() };
    let waits_for_own = settings.waits_for_own && !env.is_dry_run;
    let writer = Writer::new(sender, author, sources.views, keys.clone(), waits_for_own, counters);
    Arc::new(ControllerCore {
        settings,
        base: Arc::new(ContextBase { kind, writer, recorder, keys: keys.clone(), _events: None }),
        reads: Arc::new(ReadCaches { reads: sources.reads, owned: sources.owned }),
        reconciles,
        objects,
        waits: Arc::new(waits),
        keys,
        metrics,
        recent: RecentRuns::new(env.recorder.cloned()),
        runs: AtomicU64::new(0),
        jitter: Mutex::new(SmallRng::seed_from_u64(seed)),
        trace_id: env.trace_id.clone(),
        leftovers: env.is_elected.then(|| env.leftovers.clone()),
        stands_by: AtomicBool::new(env.is_elected),
    })
}

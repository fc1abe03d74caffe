//! What an informer's handles, tasks and registrations share, and how it starts and stops.

use std::sync::{Arc, Weak, atomic::AtomicU64};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{
    OnceCell,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    handler::Observer,
    listener::{AnyHandler, Listener},
    reflector_task::ReflectorTask,
    registration::{HandlerSlot, HandlerStatus, Latch},
    reliability::Reliability,
    report::{FailureReport, InformerReport, UNREADABLE_SHOWN, named},
    resync::ResyncRequest,
    sync_state::{Health, SyncPhase, SyncState, name_of},
    watched::Watched,
};
use crate::{
    clock::Moment,
    delta_fifo::{DeltaFifo, Extent, FifoSink, Transform},
    list_watch::AnySource,
    metrics::{CacheReport, CacheSource, Metrics},
    object::{AnyObject, Kind},
    reflector::{ReflectorConfig, WatchErrorHandler},
    store::{IndexDefinition, Indexer, ObjectIndex, StoredType},
    users_code::contained_in,
};

/// The informer without its users; its tasks hold it.
pub(super) struct InformerCore {
    pub(super) kind: Kind,
    /// Whether it keeps this replica's part of the objects alone.
    pub(super) is_part: bool,
    /// Its transform or options hook may leave out something.
    pub(super) is_altered: bool,
    /// Which objects are asked for, in one line; empty: all.
    pub(super) selector: String,
    /// The type of the objects, for messages.
    pub(super) object: &'static str,
    /// The cluster that it is read from; `None`: the manager's own.
    pub(super) cluster: Option<Arc<str>>,
    pub(super) indexer: Indexer<dyn AnyObject>,
    pub(super) fifo: DeltaFifo<dyn AnyObject>,
    pub(super) health: Arc<Health>,
    pub(super) reliability: Arc<Reliability>,
    /// What each extent is read from.
    pub(super) sources: Vec<(Extent, Arc<dyn AnySource>)>,
    /// Counts panics of handlers, mappings and predicates.
    pub(super) panics: Counter,
    /// The highest version of an object that the cache was given; zero: none is known.
    pub(super) newest: AtomicU64,
    pub(super) synced: Latch,
    pub(super) stop: CancellationToken,
    /// The informer's own tasks.
    pub(super) tasks: TaskTracker,
    /// Where the tasks are counted as well: the factory's.
    fleet: TaskTracker,
    pub(super) resync: Arc<ResyncRequest>,
    /// The last term of leadership that waited for it, and whether it has been brought up to date for that.
    pub(super) current: Mutex<(Arc<()>, Arc<OnceCell<()>>)>,
    /// Whether there are index functions that did not come with the type.
    pub(super) users_indexes: Latch,
    /// To the processor, which refuses them once the informer is over.
    commands: UnboundedSender<Command>,
    /// What its tasks begin with; `None` once they have, or never will.
    unstarted: Mutex<Option<Unstarted>>,
    handlers: Mutex<Vec<Weak<dyn HandlerSlot>>>,
}

type Unstarted = (UnboundedReceiver<Command>, Vec<(ReflectorTask, FifoSink<dyn AnyObject>)>);

/// What the processor is to do.
pub(super) enum Command {
    /// Add a handler.
    Join(Arc<Listener>, Box<dyn AnyHandler>),
    /// Add an observer.
    Look(ObserverEntry),
    /// Forget those that were removed.
    Sweep,
}

/// An observer, and what its registration watches.
pub(super) struct ObserverEntry {
    pub(super) observer: Arc<dyn Observer>,
    pub(super) status: Arc<HandlerStatus>,
}

/// What an informer is made of.
pub(super) struct InformerParts {
    /// The type of the objects.
    pub(super) object: StoredType,
    pub(super) kind: Kind,
    /// Whether it keeps this replica's part of the objects alone.
    pub(super) is_part: bool,
    /// Its options hook may leave out something.
    pub(super) is_altered: bool,
    /// Which objects are asked for, in one line; empty: all.
    pub(super) selector: String,
    /// The cluster that it is read from; `None`: the manager's own.
    pub(super) cluster: Option<Arc<str>>,
    pub(super) indexes: Vec<ObjectIndex>,
    pub(super) feeds: Vec<ReflectorTask>,
    pub(super) transform: Option<Transform<dyn AnyObject>>,
    /// Where the cache is counted.
    pub(super) metrics: Option<Metrics>,
    /// Decides the order in which the cache lists; `None`: a random one.
    pub(super) seed: Option<u64>,
    /// Called for objects that can't be read; the reflectors call it for failures themselves.
    pub(super) on_error: WatchErrorHandler,
    pub(super) stop: CancellationToken,
    /// Counts the tasks of several informers.
    pub(super) fleet: TaskTracker,
}

impl InformerParts {
    /// Makes the parts of an informer that no factory shares; the sources are still missing.
    pub(super) fn new<W: Watched>(kind: Kind, config: &ReflectorConfig) -> Self {
        Self {
            object: StoredType::of::<W::Object>(),
            kind,
            is_part: false,
            is_altered: false,
            selector: String::new(),
            cluster: None,
            indexes: W::indexes().into_iter().map(IndexDefinition::erased).collect(),
            feeds: Vec::new(),
            transform: None,
            metrics: config.metrics.clone(),
            seed: config.seed,
            on_error: config.on_error.clone(),
            stop: CancellationToken::new(),
            fleet: TaskTracker::new(),
        }
    }
}

impl InformerCore {
    pub(super) fn new(parts: InformerParts) -> Arc<Self> {
        let (kind, feeds, metrics) = (parts.kind, parts.feeds, parts.metrics);
        let name = name_of(&kind, parts.cluster.as_deref());
        let panics =
            metrics.as_ref().map(|metrics| metrics.shared.fetch.informer_panics(&name)).unwrap_or_default();
        let (indexer, fifo) = (Indexer::of_type(parts.object, parts.seed), DeltaFifo::new());
        let health = Arc::new(Health::new(parts.on_error));
        let (told, named) = (health.clone(), name.clone());
        indexer.report_unreadable(move |unreadable| told.tell_unreadable(&named, unreadable));
        for definition in parts.indexes {
            if let Err(error) = indexer.index(definition) {
                tracing::error!(%kind, %error, "index left out");
            }
        }
        indexer.write(|batch| feeds.iter().for_each(|feed| batch.set_version(&feed.extent, None)));
        let server = feeds.first().map(|feed| feed.server.clone()).unwrap_or_default();
        let reliability = Arc::new(Reliability::new(server, feeds.iter().map(|feed| feed.extent.clone())));
        let sources = feeds.iter().map(|feed| (feed.extent.clone(), feed.source.clone())).collect();
        let sink = |feed: ReflectorTask| {
            let sink = fifo.sink(feed.extent.clone(), parts.transform.clone());
            (feed, sink)
        };
        let feeds = feeds.into_iter().map(sink).collect();
        let (commands, received) = unbounded_channel();
        let core = Arc::new(Self {
            kind,
            is_part: parts.is_part,
            is_altered: parts.is_altered || parts.transform.is_some(),
            selector: parts.selector,
            object: parts.object.object.name,
            cluster: parts.cluster,
            indexer,
            fifo,
            health,
            reliability,
            sources,
            panics,
            newest: AtomicU64::new(0),
            synced: Latch::default(),
            stop: parts.stop,
            tasks: TaskTracker::new(),
            fleet: parts.fleet,
            resync: Arc::default(),
            current: Mutex::default(),
            users_indexes: Latch::default(),
            commands,
            unstarted: Mutex::new(Some((received, feeds))),
            handlers: Mutex::default(),
        });
        if let Some(metrics) = metrics {
            let source: Arc<dyn CacheSource> = core.clone();
            metrics.shared.fetch.report_cache(name, &core.kind, Arc::downgrade(&source));
        }
        core
    }

    /// Notes a handler, whose backlog is measured for as long as somebody holds it.
    pub(super) fn note_handler(&self, handler: &Arc<dyn HandlerSlot>) {
        let mut handlers = self.handlers.lock();
        handlers.retain(|handler| handler.strong_count() > 0);
        handlers.push(Arc::downgrade(handler));
    }

    /// Returns the handlers that somebody holds.
    pub(super) fn handlers(&self) -> Vec<Arc<dyn HandlerSlot>> {
        let handlers = self.handlers.lock();
        handlers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns what its tasks begin with, unless they have begun or never will.
    pub(super) fn begin(&self) -> Option<Unstarted> {
        let (mut commands, feeds) = self.unstarted.lock().take()?;
        if self.stop.is_cancelled() {
            self.refuse_all(&mut commands);
            return None;
        }
        Some((commands, feeds))
    }

    /// Runs a task that a shutdown waits for.
    ///
    /// Boxed, as all that a task needs to know of its kind: tasks are compiled once, not for each kind.
    pub(super) fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tasks.spawn(self.fleet.track_future(task));
    }

    /// Runs a task without which the cache goes stale: once it has ended, the informer is over, and says so.
    pub(super) fn spawn_vital(self: &Arc<Self>, what: &'static str, task: BoxFuture<'static, ()>) {
        let core = self.clone();
        self.spawn(Box::pin(async move {
            let ended = contained_in(task).await;
            if ended.is_none() || !core.stop.is_cancelled() {
                let kind = &core.kind;
                tracing::error!(%kind, "the informer of {kind} is over: {what} panicked, which is a defect");
                core.health.lose(what);
                core.stop();
            }
        }));
    }

    /// Returns whether the cache holds at least what the first list held, and is kept up to date.
    pub(super) fn has_synced(&self) -> bool {
        self.synced.is_set() && !self.health.is_lost()
    }

    /// Stops the tasks, or sees to it that they never start.
    pub(super) fn stop(&self) {
        self.stop.cancel();
        let unstarted = self.unstarted.lock().take();
        unstarted.into_iter().for_each(|(mut commands, _)| self.refuse_all(&mut commands));
    }

    /// Hands a command to the processor; refused once the informer is over.
    pub(super) fn send(&self, command: Command) {
        match self.stop.is_cancelled() {
            true => self.refuse(command),
            false => self.commands.send(command).unwrap_or_else(|refused| self.refuse(refused.0)),
        }
    }

    /// Refuses the commands that wait, and those that come.
    pub(super) fn refuse_all(&self, commands: &mut UnboundedReceiver<Command>) {
        commands.close();
        std::iter::from_fn(|| commands.try_recv().ok()).for_each(|command| self.refuse(command));
    }

    /// Names it, for messages.
    pub(super) fn name(&self) -> String {
        name_of(&self.kind, self.cluster.as_deref())
    }

    pub(super) fn state(&self) -> SyncState {
        let lister = self.indexer.lister();
        let mut unreadable = lister.unreadable_or_outdated();
        unreadable.extend(self.health.nameless());
        let phase = match self.stop.is_cancelled() {
            true => SyncPhase::Stopped,
            false if self.unstarted.lock().is_some() => SyncPhase::NotStarted,
            false if self.synced.is_set() => SyncPhase::Synced,
            false => SyncPhase::Syncing,
        };
        SyncState {
            kind: self.kind.clone(),
            cluster: self.cluster.clone(),
            phase,
            failure: self.health.failure(),
            unreadable,
            resource_version: lister.resource_version(),
        }
    }

    /// Shows how the cache stands, for debug pages.
    pub(super) fn report(&self) -> InformerReport {
        let (state, lister) = (self.state(), self.indexer.lister());
        let extents = self.sources.iter().map(|(extent, _)| extent);
        let namespaces = extents.filter_map(|extent| match extent {
            Extent::All => None,
            Extent::Namespace(namespace) => Some(namespace.to_string()),
        });
        let cache = CacheSource::report(self);
        InformerReport {
            kind: state.kind.to_string(),
            cluster: state.cluster.as_deref().map(str::to_owned),
            version: state.kind.version.to_string(),
            namespaces: namespaces.collect(),
            selector: String::new(),
            phase: state.phase,
            objects: cache.objects,
            bytes: lister.bytes(),
            resource_version: state.resource_version.map(|version| version.0),
            last_event: lister.last_event().map(Moment::from),
            failure: state.failure.map(FailureReport::from),
            unreadable: state.unreadable.len(),
            unreadable_objects: state
                .unreadable
                .iter()
                .take(UNREADABLE_SHOWN)
                .map(|one| named(one))
                .collect(),
            handlers: cache.handlers,
            handler_backlog: cache.depth,
        }
    }

    fn refuse(&self, command: Command) {
        match command {
            Command::Join(listener, _) => listener.remove(),
            Command::Look(observer) => observer.status.removed.set(),
            Command::Sweep => return,
        }
        tracing::warn!(kind = %self.kind, "the informer was stopped: a handler was refused");
    }
}

impl CacheSource for InformerCore {
    fn report(&self) -> CacheReport {
        let lister = self.indexer.lister();
        let mut report = CacheReport {
            queued: self.fifo.len(),
            objects: lister.len(),
            unreadable: lister.count_unreadable(),
            version: lister.resource_version().map(|version| version.0),
            ..CacheReport::default()
        };
        for handler in self.handlers().iter().filter(|handler| !handler.status().removed.is_set()) {
            let backlog = handler.backlog();
            report.handlers += 1;
            report.depth += backlog.depth;
            report.oldest = report.oldest.max(backlog.oldest.unwrap_or_default());
        }
        report
    }
}

/// What users hold, directly or in a lister or registration; with the last one the informer stops.
pub(super) struct Handle {
    pub(super) core: Arc<InformerCore>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.stop();
    }
}

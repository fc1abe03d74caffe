//! Hands out one informer a question, starts and stops them together.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use kube::Client;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    core::{Handle, Parts},
    query::{NameRefused, Query},
    report::InformerReport,
    shared::SharedInformer,
    start::start,
    sync_state::{NotSynced, SyncState},
    watched::Watched,
};
use crate::{
    clock::WallClock,
    object::Object,
    reflector::{ReflectorConfig, Server},
};

/// Shares informers: one list and one watch per query.
///
/// Clones are the same factory. Informers live as long as somebody uses them; the factory alone keeps none alive.
#[derive(Clone)]
pub struct SharedInformerFactory {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    /// Its name, where it is not the manager's own.
    cluster: Option<Arc<str>>,
    config: ReflectorConfig,
    stop: CancellationToken,
    tasks: TaskTracker,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    informers: Vec<SharedEntry>,
    functions: HashMap<Arc<str>, TypeId>,
}

/// A query, and its informer.
struct SharedEntry {
    query: Query,
    /// What the marker asked, as its `Watched::DynamicType`.
    dynamic_type: Arc<dyn Any + Send + Sync>,
    informer: Weak<dyn Informer>,
}

/// An informer of any kind, as the factory handles it.
trait Informer: Any + Send + Sync {
    fn start(&self);
    fn stop(&self);
    /// Returns whether it was stopped, and so answers no more.
    fn is_over(&self) -> bool;
    fn state(&self) -> SyncState;
    fn report(&self) -> InformerReport;
    fn settled(&self) -> futures::future::BoxFuture<'static, ()>;
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<K: Object> Informer for Handle<K> {
    fn start(&self) {
        start(&self.core);
    }

    fn stop(&self) {
        self.core.stop();
    }

    fn is_over(&self) -> bool {
        self.core.stop.is_cancelled()
    }

    fn state(&self) -> SyncState {
        self.core.state()
    }

    fn report(&self) -> InformerReport {
        self.core.report()
    }

    /// Waits until it is synced or stopped.
    fn settled(&self) -> futures::future::BoxFuture<'static, ()> {
        let (synced, stop) = (self.core.synced.clone(), self.core.stop.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                () = synced.wait() => {}
                () = stop.cancelled() => {}
            }
        })
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl SharedInformerFactory {
    /// Creates a factory of informers that ask through a client.
    ///
    /// `kube::Client` hides 429, 503 and 504 behind retries of its own by default: build it with
    /// `config.default_retry = false`, so that failures show in the sync state.
    pub fn new(client: Client) -> Self {
        Self::with_config(client, ReflectorConfig::default())
    }

    /// Creates a factory whose informers list and watch as a configuration says.
    ///
    /// Name, first list and page size are each informer's own. Here is the place of a watch error handler for all
    /// informers, and of the [`Metrics`](crate::metrics::Metrics) in which they count.
    pub fn with_config(client: Client, config: ReflectorConfig) -> Self {
        Self::of(client, config, None)
    }

    /// Creates a factory for another cluster: it shares the configuration, and nothing that is known of this one.
    pub(crate) fn of_cluster(&self, name: Arc<str>, client: Client) -> Self {
        let (server, log) = Default::default();
        let config = ReflectorConfig { server, log, ..self.reflector_config() };
        Self::of(client, config, Some(name))
    }

    fn of(client: Client, config: ReflectorConfig, cluster: Option<Arc<str>>) -> Self {
        let shared = Shared {
            client,
            cluster,
            config,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            known: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Starts every informer that was not started before.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        self.informers().iter().for_each(|informer| informer.start());
    }

    /// Waits until every informer that is in use has synced.
    ///
    /// # Errors
    /// Some have not within the time given, or were stopped: the error names them, why, and what to do.
    pub async fn wait_for_sync(&self, within: Duration) -> Result<(), NotSynced> {
        let started = Instant::now();
        let informers = self.informers();
        let settled = futures::future::join_all(informers.iter().map(|informer| informer.settled()));
        let _ = tokio::time::timeout(within, settled).await;
        let states = informers.iter().map(|informer| informer.state());
        let laggards: Vec<SyncState> = states.filter(|state| !state.is_synced()).collect();
        match laggards.is_empty() {
            true => Ok(()),
            false => Err(NotSynced { laggards, waited: started.elapsed() }),
        }
    }

    /// Returns the state of every informer that is in use.
    pub fn sync_states(&self) -> Vec<SyncState> {
        self.informers().iter().map(|informer| informer.state()).collect()
    }

    /// Shows every informer that is in use, as debug pages do.
    pub(crate) fn reports(&self) -> Vec<InformerReport> {
        let known = self.known();
        let used = known
            .informers
            .iter()
            .filter_map(|entry| Some((entry.informer.upgrade()?, entry.query.selector())));
        // Not under the lock: the last user of one may be gone by now.
        let used: Vec<_> = used.collect();
        drop(known);
        used.iter().map(|(informer, selector)| informer.report().selecting(selector)).collect()
    }

    /// Stops every informer for good, and waits until no task is left.
    ///
    /// A handler that blocks is waited for. Informers asked for afterwards never start.
    pub async fn shutdown(&self) {
        self.stop();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Stops every informer for good, without waiting for its tasks to end.
    pub fn stop(&self) {
        self.shared.stop.cancel();
        self.informers().iter().for_each(|informer| informer.stop());
    }

    /// Counts the tasks that run for informers of this factory.
    pub fn tasks(&self) -> usize {
        self.shared.tasks.len()
    }

    /// Returns what the informers read from.
    pub(crate) fn server(&self) -> Server {
        self.shared.config.server.clone()
    }

    /// Returns the clock for the time of day.
    pub(crate) fn clock(&self) -> WallClock {
        self.shared.config.clock.clone()
    }

    /// Returns the name of the cluster, where it is not the manager's own.
    pub(crate) fn cluster(&self) -> Option<Arc<str>> {
        self.shared.cluster.clone()
    }

    pub(super) fn client(&self) -> Client {
        self.shared.client.clone()
    }

    pub(super) fn reflector_config(&self) -> ReflectorConfig {
        self.shared.config.clone()
    }

    pub(super) fn find_or_build<W: Watched>(
        &self,
        query: Query,
        dynamic_type: W::DynamicType,
        parts: impl FnOnce(CancellationToken, TaskTracker) -> Parts<W::Object>,
    ) -> SharedInformer<W> {
        let mut known = self.known();
        let same = |answer: &&SharedEntry| {
            answer.query.is(&query) && answer.dynamic_type.downcast_ref() == Some(&dynamic_type)
        };
        // One that a sharer shut down makes room for another.
        known.informers.retain(|answer| {
            answer.informer.upgrade().is_some_and(|informer| !same(&answer) || !informer.is_over())
        });
        let held = known.informers.iter().filter(same);
        let held = held.filter_map(|answer| answer.informer.upgrade()?.as_any().downcast().ok()).next();
        if let Some(handle) = held {
            return SharedInformer::of_handle(handle);
        }
        let informer =
            SharedInformer::of_parts(parts(self.shared.stop.child_token(), self.shared.tasks.clone()));
        let handle: Arc<dyn Informer> = informer.handle().clone();
        known.informers.push(SharedEntry {
            query,
            dynamic_type: Arc::new(dynamic_type),
            informer: Arc::downgrade(&handle),
        });
        informer
    }

    /// Gives a function a name, once and for all.
    ///
    /// One that captures values is refused: two of one type may differ in what they captured.
    pub(super) fn name_function<F: 'static>(&self, name: &str) -> Result<Arc<str>, NameRefused> {
        if size_of::<F>() != 0 {
            return Err(NameRefused::Captures(name.to_owned()));
        }
        let function = TypeId::of::<F>();
        let mut known = self.known();
        let name: Arc<str> = name.into();
        match *known.functions.entry(name.clone()).or_insert(function) == function {
            true => Ok(name),
            false => Err(NameRefused::Taken(name.to_string())),
        }
    }

    fn informers(&self) -> Vec<Arc<dyn Informer>> {
        self.known().informers.iter().filter_map(|answer| answer.informer.upgrade()).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactory").field("informers", &self.sync_states()).finish()
    }
}

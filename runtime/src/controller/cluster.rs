//! Another cluster that a manager's controllers read from.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::sources::Synced;
use crate::{
    delta_fifo::Transformed,
    informer::{InformerBuilder, InformerReport, SharedInformer, SharedInformerFactory, SyncState, Watched},
    store::InvalidSelector,
    writes::Rights,
};

/// Another cluster: its caches feed controllers, and nothing is written there.
///
/// Made by [`Manager::cluster`](crate::Manager::cluster), which says more. Clones are the same cluster. Its informers start
/// and stop with the manager; what is asked for once that runs starts at once.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    factory: SharedInformerFactory,
    started: AtomicBool,
    requested: Mutex<Requested>,
}

#[derive(Default)]
struct Requested {
    /// What controllers wait for.
    informers: Vec<Arc<dyn Synced>>,
    /// What is read, in which namespaces; none: in all.
    rights: Vec<(Rights, Vec<Arc<str>>)>,
}

impl Cluster {
    pub(crate) fn new(name: Arc<str>, factory: SharedInformerFactory) -> Self {
        let (started, requested) = (AtomicBool::new(false), Mutex::default());
        Self { shared: Arc::new(Shared { name, factory, started, requested }) }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Asks for a kind of this cluster, to feed a controller, or to be read.
    pub fn kind<W: Watched<DynamicType = ()>>(&self) -> ClusterKind<W> {
        self.kind_of_type(())
    }

    /// Asks for what a marker asks for.
    pub fn kind_for<W: Watched>(&self, marker: W) -> ClusterKind<W> {
        self.kind_of_type(marker.dynamic_type())
    }

    fn kind_of_type<W: Watched>(&self, dynamic_type: W::DynamicType) -> ClusterKind<W> {
        let builder = self.shared.factory.informer_of(dynamic_type);
        ClusterKind { cluster: self.clone(), builder, namespaces: Vec::new() }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Hands over the informers that the program asked for, once.
    pub(crate) fn take_informers(&self) -> Vec<Arc<dyn Synced>> {
        mem::take(&mut self.requested().informers)
    }

    /// Returns what must be allowed there.
    pub(crate) fn rights(&self) -> Vec<(Rights, Vec<Arc<str>>)> {
        self.requested().rights.clone()
    }

    pub(crate) fn start(&self) {
        self.shared.started.store(true, Ordering::SeqCst);
        self.shared.factory.start();
    }

    pub(crate) fn stop(&self) {
        self.shared.factory.stop();
    }

    pub(crate) async fn shutdown(&self) {
        self.shared.factory.shutdown().await;
    }

    pub(crate) fn sync_states(&self) -> Vec<SyncState> {
        self.shared.factory.sync_states()
    }

    pub(crate) fn reports(&self) -> Vec<InformerReport> {
        self.shared.factory.reports()
    }

    fn note<W: Watched>(&self, informer: &SharedInformer<W>, namespaces: Vec<Arc<str>>) {
        let mut rights = Rights::default();
        rights.watch(SharedInformer::kind(informer));
        self.requested().rights.push((rights, namespaces));
        // Either this sees that it was started, or the start sees this one.
        if self.shared.started.load(Ordering::SeqCst) {
            informer.start();
        }
    }

    fn requested(&self) -> MutexGuard<'_, Requested> {
        self.shared.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.shared.name).finish()
    }
}

/// A kind of another cluster; equal ones share an informer.
///
/// For [`Controller::watches_from`](super::Controller::watches_from) and
/// [`reads_from`](super::Controller::reads_from), or for a lister.
#[must_use = "ask it for a lister, or let a controller watch it"]
pub struct ClusterKind<W: Watched> {
    cluster: Cluster,
    builder: InformerBuilder<W>,
    namespaces: Vec<Arc<str>>,
}

impl<W: Watched> ClusterKind<W> {
    /// Narrows it to one namespace of that cluster; a controller's own namespaces do not count there.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        let namespace = namespace.into();
        self.namespaces =
            Some(namespace.clone()).filter(|namespace| !namespace.is_empty()).into_iter().collect();
        self.builder = self.builder.namespace(namespace);
        self
    }

    /// Narrows it to objects whose labels match.
    ///
    /// # Errors
    /// The selector does not parse.
    pub fn label_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        self.builder = self.builder.label_selector(selector)?;
        Ok(self)
    }

    /// Narrows it to objects whose fields match, by the server's rules for the kind.
    ///
    /// # Errors
    /// The selector does not parse.
    pub fn field_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        self.builder = self.builder.field_selector(selector)?;
        Ok(self)
    }

    /// Changes each object before it is cached, in a cache of its own: see [`InformerBuilder::transform`].
    pub fn transform<T: Transformed>(
        mut self,
        change: impl Fn(&mut W::Object) -> T + Send + Sync + 'static,
    ) -> Self {
        self.builder = self.builder.transform(change);
        self
    }

    /// Returns the shared informer.
    ///
    /// Asked for before the manager starts, controllers without [`reads`](super::Controller::reads) wait for it.
    pub fn build(self) -> SharedInformer<W> {
        let cluster = self.cluster.clone();
        let informer = self.built();
        if !cluster.shared.started.load(Ordering::SeqCst) {
            cluster.requested().informers.push(Arc::new(informer.clone()));
        }
        informer
    }

    /// Returns the lister of the shared informer, as [`build`](Self::build) does.
    pub fn lister(self) -> W::Lister {
        self.build().lister()
    }

    /// Names the cluster.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the shared informer, for a controller that says itself that it waits for it.
    pub(crate) fn built(self) -> SharedInformer<W> {
        let informer = self.builder.build();
        self.cluster.note(&informer, self.namespaces);
        informer
    }
}

impl<W: Watched> fmt::Debug for ClusterKind<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterKind").field("cluster", &self.cluster).field("builder", &self.builder).finish()
    }
}

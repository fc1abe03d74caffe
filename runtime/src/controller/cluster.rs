//! A cluster that informers read from: the manager's own, or another one.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{sources::Synced, watch::Watch};
use crate::{
    informer::{InformerBuilder, InformerReport, SharedInformer, SharedInformerFactory, SyncState, Watched},
    writes::Rights,
};

/// Another cluster: its caches feed controllers, and nothing is written there.
///
/// Made by [`Manager::cluster`](crate::Manager::cluster), which says more. Clones are the same cluster. Its informers
/// start and stop with the manager. An informer that is asked for while the manager runs starts at once.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<ClusterState>,
}

struct ClusterState {
    /// Empty: the manager's own.
    name: Arc<str>,
    factory: SharedInformerFactory,
    started: AtomicBool,
    requested: Mutex<Requested>,
}

#[derive(Default)]
struct Requested {
    /// The informers that controllers wait for.
    informers: Vec<Arc<dyn Synced>>,
    rights: Vec<ReadRights>,
}

/// What an informer needs: its namespaces (empty: all), and the only object that it reads (`None`: all).
pub(crate) type ReadRights = (Rights, Vec<Arc<str>>, Option<String>);

impl Cluster {
    pub(crate) fn new(name: Arc<str>, factory: SharedInformerFactory) -> Self {
        let (started, requested) = (AtomicBool::new(false), Mutex::default());
        Self { shared: Arc::new(ClusterState { name, factory, started, requested }) }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Reads a kind from the shared cache of this cluster.
    pub fn lister<W: Watched<DynamicType = ()>>(&self) -> W::Lister {
        self.informer::<W>().lister()
    }

    /// Asks for the shared informer of a kind of this cluster, as [`Manager::informer`](crate::Manager::informer) does.
    ///
    /// If it is asked for before the manager starts, controllers without [`reads`](super::Controller::reads) wait for it.
    pub fn informer<W: Watched<DynamicType = ()>>(&self) -> InformerBuilder<W> {
        self.informer_of(Watch::new())
    }

    /// Asks for the shared informer of a [`Watch`].
    pub fn informer_of<W: Watched>(&self, watch: Watch<W>) -> InformerBuilder<W> {
        let cluster = self.clone();
        watch.builder(&self.shared.factory, None).on_build(Box::new(move |informer, namespaces, name| {
            cluster.note(informer, namespaces, name);
            // Either this sees that the cluster was started, or the start sees this informer.
            match cluster.shared.started.load(Ordering::SeqCst) {
                true => informer.start(),
                false => cluster.requested().informers.push(Arc::new(informer.clone())),
            }
        }))
    }

    /// Returns the informer of a watch, for a controller that says itself whether it waits for it.
    pub(crate) fn feed<W: Watched>(&self, watch: &Watch<W>) -> SharedInformer<W> {
        let informer = watch.informer(&self.shared.factory, None);
        let narrowing = watch.narrowing();
        self.note(&informer, narrowing.namespace.clone().into_iter().collect(), narrowing.name.clone());
        informer
    }

    fn note<W: Watched>(
        &self,
        informer: &SharedInformer<W>,
        namespaces: Vec<Arc<str>>,
        name: Option<String>,
    ) {
        let mut rights = Rights::default();
        rights.watch(SharedInformer::kind(informer));
        self.requested().rights.push((rights, namespaces, name));
    }

    pub(crate) fn factory(&self) -> &SharedInformerFactory {
        &self.shared.factory
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Hands over the informers that the program asked for, once.
    pub(crate) fn take_informers(&self) -> Vec<Arc<dyn Synced>> {
        mem::take(&mut self.requested().informers)
    }

    /// Returns the permissions that its informers need.
    pub(crate) fn rights(&self) -> Vec<ReadRights> {
        self.requested().rights.clone()
    }

    pub(crate) fn start(&self) {
        self.shared.started.store(true, Ordering::SeqCst);
        self.shared.factory.start();
    }

    /// Stops its informers without waiting; those that are asked for later are over at once.
    pub(crate) fn stop(&self) {
        self.shared.started.store(true, Ordering::SeqCst);
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

    fn requested(&self) -> MutexGuard<'_, Requested> {
        self.shared.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.shared.name).finish()
    }
}

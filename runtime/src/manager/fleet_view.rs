//! One kind in all clusters of a fleet, for controllers of the manager's own cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use futures::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    controller::Cluster,
    informer::{Registration, SharedInformer, Watched},
    object::{Kind, ObjectKey},
    store::Lister,
    users_code::contained,
};

/// A kind as it is cached from each cluster of a [`Fleet`](super::Fleet), for a controller that works in the manager's own cluster, the hub.
///
/// Made by [`Fleet::view`](super::Fleet::view). [`keys`](Self::keys) runs the hub's objects that something in a cluster concerns, and
/// [`listers`](Self::listers) reads all clusters:
///
/// ```
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// # use watchkeeper::{manager::Fleet, prelude::*};
/// # fn hub(manager: Manager) -> Manager {
/// let fleet = manager.fleet(Fleet::kubeconfig_secrets("fleet-system"));
/// let agents = fleet.view::<Deployment>();
/// // A ConfigMap of the hub counts the Deployments of its name in all clusters.
/// let keys = agents.keys(|_cluster, agent| vec![ObjectKey::new("agents", agent.name_any())]);
/// let counts = Controller::from_fn(move |map: Arc<ConfigMap>, _cx: Context<ConfigMap>| {
///     let agents = agents.clone();
///     async move {
///         let key = ObjectKey::new("agent-system", map.name_any());
///         let listers = agents.listers();
///         // A cluster that was not listed so far may have one.
///         let Some(listers) = listers.values().cloned().collect::<Option<Vec<_>>>() else {
///             return Ok(Action::requeue_after(Duration::from_secs(5)));
///         };
///         let there = listers.iter().filter(|lister| lister.get(&key).is_some()).count();
///         println!("{} has {there} agents", map.name_any());
///         Ok::<_, watchkeeper::Error>(Action::await_change())
///     }
/// });
/// manager.controller(counts.named("counts").source(keys))
/// # }
/// ```
///
/// - A cluster that can't be reached keeps what was cached, and holds up no other. One that has never been listed is there without
///   a lister: nobody knows what it has.
/// - When a cluster leaves, its objects are gone from here, and their keys run.
/// - If replicas [share the work](super::Manager::sharded), a replica sees the clusters of its own share alone, and runs the keys of
///   its own share alone: a key that a cluster of its share names may be another replica's, which does not see that cluster. So
///   elect a leader if a controller adds up all clusters.
/// - What a run reads here is not noted: no other change than that of `keys` runs it again.
///
/// Clones are the same view.
pub struct FleetView<W: Watched> {
    shared: Arc<ViewShared<W>>,
}

impl_clone!([W: Watched] FleetView<W>, shared);

impl_debug!([W: Watched] FleetView<W>, this => clusters: this.shared.clusters.lock().len());

struct ViewShared<W: Watched> {
    clusters: Mutex<BTreeMap<Arc<str>, ViewedCluster<W>>>,
    /// Those that are followed.
    queues: Mutex<Vec<Weak<KeyQueue<W::Object>>>>,
}

struct ViewedCluster<W: Watched> {
    informer: SharedInformer<W>,
    _registration: Registration,
}

/// Names the keys that an object of a cluster concerns.
type KeysOf<K> = dyn Fn(&str, &K) -> Vec<ObjectKey> + Send + Sync;

/// The keys of one stream that wait, each once.
struct KeyQueue<K> {
    keys_of: Box<KeysOf<K>>,
    waiting: Mutex<BTreeSet<ObjectKey>>,
    added: Notify,
}

impl<K> KeyQueue<K> {
    fn add(&self, cluster: &str, object: &K) {
        let keys = contained(|| (self.keys_of)(cluster, object)).unwrap_or_default();
        self.waiting.lock().extend(keys);
        self.added.notify_one();
    }

    async fn next(&self) -> ObjectKey {
        loop {
            if let Some(key) = self.waiting.lock().pop_first() {
                return key;
            }
            self.added.notified().await;
        }
    }
}

impl<W: Watched<DynamicType = (), Lister = Lister<<W as Watched>::Object>>> FleetView<W> {
    pub(super) fn new() -> Self {
        Self { shared: Arc::new(ViewShared { clusters: Mutex::default(), queues: Mutex::default() }) }
    }

    /// Returns a reader of the cache of each cluster that is there, by its name; `None` until its first list is through.
    ///
    /// The end of a first list runs nothing where it is empty: let a run that waits for it come back by itself.
    pub fn listers(&self) -> BTreeMap<Arc<str>, Option<W::Lister>> {
        let clusters = self.shared.clusters.lock();
        let lister = |informer: &SharedInformer<W>| informer.has_synced().then(|| informer.lister());
        clusters.iter().map(|(name, cluster)| (name.clone(), lister(&cluster.informer))).collect()
    }

    /// Names keys of the hub for each object that comes, changes or goes in a cluster, and for each one of a cluster that leaves: for
    /// [`Controller::source`](crate::Controller::source).
    ///
    /// The function gets the cluster's name and the object; of one that changed it gets both states, one after the other. If it
    /// panics, the object names no key. Keys that wait are kept once. The first state of each object counts as well. An
    /// object whose last state is not known when it goes, because it never decoded, names no key.
    pub fn keys(
        &self,
        keys_of: impl Fn(&str, &W::Object) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> impl Stream<Item = ObjectKey> + Send + 'static {
        let queue = Arc::new(KeyQueue {
            keys_of: Box::new(keys_of),
            waiting: Mutex::default(),
            added: Notify::new(),
        });
        self.shared.queues.lock().push(Arc::downgrade(&queue));
        // A cluster may be there already, or have listed a part: its handler adds the rest.
        let there: Vec<_> = {
            let clusters = self.shared.clusters.lock();
            clusters.iter().map(|(name, cluster)| (name.clone(), cluster.informer.lister())).collect()
        };
        for (name, lister) in there {
            lister.list().iter().for_each(|object| queue.add(&name, object));
        }
        stream::unfold(queue, |queue| async { Some((queue.next().await, queue)) })
    }
}

impl<W: Watched> ViewShared<W> {
    fn changed(&self, cluster: &str, object: &W::Object) {
        let queues: Vec<_> = {
            let mut queues = self.queues.lock();
            queues.retain(|queue| queue.strong_count() > 0);
            queues.iter().filter_map(Weak::upgrade).collect()
        };
        // User code, without the lock.
        queues.iter().for_each(|queue| queue.add(cluster, object));
    }
}

/// What a fleet does with its views.
pub(super) trait View: Send + Sync {
    /// The kind that is cached of each cluster.
    fn kind(&self) -> Kind;
    /// A cluster comes, and is about to start.
    fn come(&self, cluster: &Cluster);
    fn leave(&self, cluster: &str);
}

impl<W: Watched<DynamicType = (), Lister = Lister<<W as Watched>::Object>>> View for FleetView<W> {
    fn kind(&self) -> Kind {
        W::kind_of(&())
    }

    fn come(&self, cluster: &Cluster) {
        let name: Arc<str> = cluster.name().into();
        let informer = cluster.informer::<W>().build();
        let note = |object: &W::Object, view: &Weak<ViewShared<W>>, name: &str| {
            if let Some(view) = view.upgrade() {
                view.changed(name, object);
            }
        };
        let of = || (Arc::downgrade(&self.shared), name.clone());
        let ((view, added), (other, updated), (last, deleted)) = (of(), of(), of());
        let handler = informer
            .handler()
            .on_add(move |object, _| note(&object, &view, &added))
            .on_update(move |old, new| {
                note(&old, &other, &updated);
                note(&new, &other, &updated);
            })
            .on_delete(move |gone| {
                if let Some(object) = gone.last_state() {
                    note(object, &last, &deleted);
                }
            });
        let registration = handler.register();
        let viewed = ViewedCluster { informer, _registration: registration };
        self.shared.clusters.lock().insert(name, viewed);
    }

    fn leave(&self, cluster: &str) {
        let Some(left) = self.shared.clusters.lock().remove(cluster) else { return };
        left.informer.lister().list().iter().for_each(|object| self.shared.changed(cluster, object));
    }
}

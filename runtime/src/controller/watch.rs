//! Which objects of a kind are watched, in which cluster, and which keys their changes enqueue.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use super::predicate::{ChangeFilter, Predicate};
use crate::{
    informer::{AnyInformer, InformerBuilder, SharedInformerFactory, Watched},
    list_watch::Keeps,
    object::{Object, ObjectKey, Scope},
    store::{CachedObject, FieldSelector, InvalidSelector, Selector},
    writes::{Rights, Selects},
};

/// Says which objects of a kind are watched, and which keys their changes enqueue.
///
/// [`Controller::watch`](super::Controller::watch) takes it, and so do [`Manager::informer_of`](crate::Manager::informer_of)
/// and [`Cluster::informer_of`](super::Cluster::informer_of). It covers all objects of the kind unless it is narrowed, and
/// enqueues nothing unless it is [`owned`](Self::owned) or [`mapped`](Self::mapped). The API server is asked only for the
/// objects that it covers, and the cache holds no others. Equal watches share an informer.
/// [`Manager::rules`](crate::Manager::rules) allows no more than that.
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use watchkeeper::{controller::{Predicate, Watch}, prelude::*};
/// # fn defaulted<R: Reconciler<Secret>>(manager: &Manager, controller: Controller<Secret, R>) -> Controller<Secret, R> {
/// let defaults = Watch::<ConfigMap>::new().namespace("ops").named("defaults");
/// let lister = manager.informer_of(defaults.clone()).lister();
/// controller
///     .watch(defaults.mapped(move |_| vec![ObjectKey::new("shop", "all")]))
///     .watch(Watch::<Secret>::new().owned().only_if(Predicate::labels()))
/// # }
/// ```
#[must_use = "it does nothing until a controller or a manager gets it"]
pub struct Watch<W: Watched> {
    dynamic_type: W::DynamicType,
    narrowing: Narrowing,
    /// `None`: the manager's own.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) predicate: Option<ChangeFilter>,
    pub(crate) enqueues: Enqueues,
}

/// A namespace that is watched on its own; `None`: all at once.
pub(crate) type Place = Option<Arc<str>>;

/// Which keys a change enqueues.
#[derive(Clone)]
pub(crate) enum Enqueues {
    /// None: the objects are only read.
    Nothing,
    /// That of the controlling owner.
    Owner,
    /// What the user's function returns.
    Mapped(KeysOf),
}

type KeysOf = Arc<dyn Fn(&CachedObject) -> Option<Vec<ObjectKey>> + Send + Sync>;

impl Enqueues {
    /// Enqueues the keys that the user's function finds for an object that can be read.
    pub(crate) fn mapped<C: Object>(mapping: impl Fn(&C) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        Self::Mapped(Arc::new(move |object| object.object_as().ok().map(|object| mapping(&*object))))
    }
}

/// What a watch is narrowed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Narrowing {
    /// `None`: as its controller.
    pub(crate) namespace: Place,
    /// The one object that is meant.
    pub(crate) name: Option<String>,
    selection: Selection,
}

/// Which objects of a kind are meant, apart from their namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Selectors in Kubernetes' syntax, known to be readable; empty: all.
    pub(crate) labels: String,
    pub(crate) fields: String,
}

impl Selection {
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn selects(&self) -> Selects {
        match (self.is_everything(), self.labels.parse()) {
            (true, _) => Selects::Everything,
            (false, Ok(labels)) if self.fields.is_empty() => Selects::Labels(labels),
            (false, _) => Selects::SomeFields,
        }
    }
}

impl<W: Watched<DynamicType = ()>> Watch<W> {
    /// Watches all objects of a kind that its type names.
    pub fn new() -> Self {
        Self::with_type(())
    }
}

impl<W: Watched<DynamicType = ()>> Default for Watch<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Watched> Watch<W> {
    /// Watches all objects of the kind that a marker names: `Watch::of(Dynamic::new(kind))`.
    pub fn of(marker: W) -> Self {
        Self::with_type(marker.dynamic_type())
    }

    pub(crate) fn with_type(dynamic_type: W::DynamicType) -> Self {
        let (narrowing, enqueues) = (Narrowing::default(), Enqueues::Nothing);
        Self { dynamic_type, narrowing, cluster: None, predicate: None, enqueues }
    }

    /// Enqueues the owner of each object that changes.
    ///
    /// The owner is the one whose reference says `controller: true`, compared by group, kind and name. If an object
    /// changes owners, both run. Deletions that were missed while a watch was down are found by the next list, and
    /// enqueue the owner too. Objects outside the watch do not enqueue their owners.
    pub fn owned(mut self) -> Self {
        self.enqueues = Enqueues::Owner;
        self
    }

    /// Enqueues the keys that a function returns for each object that changes.
    ///
    /// A change enqueues the keys of its old and its new state; a deletion enqueues the keys of the last state. The
    /// function runs as each change is applied, so it must return at once. It may read listers. An object that never
    /// decoded has no keys.
    pub fn mapped(mut self, mapping: impl Fn(&W::Object) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        self.enqueues = Enqueues::mapped(mapping);
        self
    }

    /// Enqueues keys only for changes that pass a predicate.
    ///
    /// It does not apply to what runs read by [`Context::lister`](crate::Context::lister): there,
    /// [`pick`](crate::Lister::pick) leaves out what does not matter.
    pub fn only_if(mut self, predicate: Predicate<W::Object>) -> Self {
        self.predicate = Some(predicate.erased());
        self
    }

    /// Watches the objects of another cluster, made by [`Manager::cluster`](crate::Manager::cluster).
    ///
    /// - Every change counts as foreign. Nothing is compared with that cache: neither writes of the controller, nor
    ///   owners, nor versions. An object there and an object here with the same name are different objects.
    /// - The controller's [namespaces](super::Controller::namespace) do not apply there.
    /// - The controller starts only once that cache has synced as well. While that cluster is out of reach later, the
    ///   controller continues with what it has, also as a new leader; `/readyz?verbose` says so.
    ///
    /// A cluster of another manager is refused at the start, and so is a watch there that is [`owned`](Self::owned):
    /// an owner and its objects are in one cluster.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::{controller::Watch, prelude::*};
    /// # fn copied<R: Reconciler<Secret>>(manager: Manager, hub: kube::Client, reconciler: R) -> Manager {
    /// let hub = manager.cluster("hub", hub);
    /// let settings = Watch::<ConfigMap>::new().in_cluster(&hub).namespace("settings");
    /// manager.controller(
    ///     Controller::<Secret, _>::new(reconciler)
    ///         .watch(settings.mapped(|map| vec![ObjectKey::new("shop", map.name_any())])),
    /// )
    /// # }
    /// ```
    pub fn in_cluster(mut self, cluster: &Cluster) -> Self {
        self.cluster = Some(cluster.clone());
        self
    }

    /// Narrows it to one namespace, whatever namespaces the controller keeps to; an empty name means those.
    ///
    /// Kinds without namespaces ignore it.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        let namespaced = W::kind_of(&self.dynamic_type).scope == Scope::Namespaced;
        self.narrowing.namespace =
            Some(namespace.into()).filter(|namespace| namespaced && !namespace.is_empty());
        self
    }

    /// Narrows it to the objects of one name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.narrowing.name = Some(name.into());
        self
    }

    /// Narrows it to objects whose labels match, in Kubernetes' syntax.
    ///
    /// # Errors
    /// The selector can't be read.
    pub fn label_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        selector.parse::<Selector>()?;
        self.narrowing.selection.labels = selector.to_owned();
        Ok(self)
    }

    /// Narrows it to objects whose fields match; the server knows only some fields of each kind.
    ///
    /// # Errors
    /// The selector can't be read.
    pub fn field_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        selector.parse::<FieldSelector>()?;
        self.narrowing.selection.fields = selector.to_owned();
        Ok(self)
    }

    pub(crate) fn selecting(mut self, selection: &Selection) -> Self {
        self.narrowing.selection = selection.clone();
        self
    }

    pub(crate) fn dynamic_type(&self) -> &W::DynamicType {
        &self.dynamic_type
    }

    pub(crate) fn narrowing(&self) -> &Narrowing {
        &self.narrowing
    }

    /// Asks a factory for it, in a namespace of its own or else in another.
    pub(crate) fn builder(
        &self,
        factory: &SharedInformerFactory,
        otherwise: Option<&str>,
    ) -> InformerBuilder<W> {
        const READ: &str = "selectors were checked when they were given";
        let Selection { labels, fields } = self.narrowing.selection();
        let mut builder = InformerBuilder::<W>::new(factory.clone(), self.dynamic_type.clone());
        if let Some(namespace) = self.narrowing.namespace.as_deref().or(otherwise) {
            builder = builder.namespace(namespace);
        }
        if !labels.is_empty() {
            builder = builder.label_selector(&labels).expect(READ);
        }
        if !fields.is_empty() {
            builder = builder.field_selector(&fields).expect(READ);
        }
        builder.object_name(self.narrowing.name.clone())
    }

    /// Asks for the informer of a place; of this replica's part alone, if it says what that is.
    pub(crate) fn informer(
        &self,
        factory: &SharedInformerFactory,
        otherwise: Option<&str>,
        keeps: Option<&Keeps>,
    ) -> AnyInformer {
        self.builder(factory, otherwise).keeping(keeps.cloned()).build().any().clone()
    }
}

impl Narrowing {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The selectors, that of the name among them.
    pub(crate) fn selection(&self) -> Selection {
        let Selection { labels, fields } = self.selection.clone();
        let name = self.name.as_ref().map(|name| format!("metadata.name={}", escaped(name)));
        let fields = name.into_iter().chain(Some(fields).filter(|fields| !fields.is_empty()));
        Selection { labels, fields: fields.collect::<Vec<_>>().join(",") }
    }
}

/// Writes a value as field selectors have it.
fn escaped(value: &str) -> String {
    value.chars().flat_map(|c| matches!(c, '\\' | ',' | '=').then_some('\\').into_iter().chain([c])).collect()
}

impl_clone!([W: Watched] Watch<W>, dynamic_type, narrowing, cluster, predicate, enqueues);

impl_debug!([W: Watched] Watch<W>, this => kind: W::kind_of(&this.dynamic_type), narrowing: this.narrowing);

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
    informers: Vec<AnyInformer>,
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
                false => cluster.shared.requested.lock().informers.push(informer.clone()),
            }
        }))
    }

    /// Returns the informer of a watch, for a controller that says itself whether it waits for it.
    pub(crate) fn feed<W: Watched>(&self, watch: &Watch<W>) -> AnyInformer {
        let informer = watch.informer(&self.shared.factory, None, None);
        let narrowing = watch.narrowing();
        self.note(&informer, narrowing.namespace.clone().into_iter().collect(), narrowing.name.clone());
        informer
    }

    /// Notes what an informer must be allowed to do, for [`rights`](Self::rights): only before the start, since a program
    /// may ask for informers again and again.
    fn note(&self, informer: &AnyInformer, namespaces: Vec<Arc<str>>, name: Option<String>) {
        if self.shared.started.load(Ordering::SeqCst) {
            return;
        }
        let mut rights = Rights::default();
        rights.watch(informer.kind());
        self.shared.requested.lock().rights.push((rights, namespaces, name));
    }

    pub(crate) fn factory(&self) -> &SharedInformerFactory {
        &self.shared.factory
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Hands over the informers that the program asked for, once.
    pub(crate) fn take_informers(&self) -> Vec<AnyInformer> {
        mem::take(&mut self.shared.requested.lock().informers)
    }

    /// Returns the permissions that its informers need that were asked for before the start.
    pub(crate) fn rights(&self) -> Vec<ReadRights> {
        self.shared.requested.lock().rights.clone()
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
}

impl_debug!(Cluster, this => name: this.shared.name);

/// Finds the keys of an object's owners of a kind, those that do not control it included.
///
/// For [`Controller::watches`](super::Controller::watches), where an object has several owners:
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use watchkeeper::prelude::*;
/// # fn wakes_all<R: Reconciler<Secret>>(controller: Controller<Secret, R>) -> Controller<Secret, R> {
/// use watchkeeper::controller::owners_of;
///
/// controller.watches::<ConfigMap>(owners_of::<Secret, _>)
/// # }
/// ```
pub fn owners_of<K: Watched<DynamicType = ()>, C: Object>(object: &C) -> Vec<ObjectKey> {
    let (kind, meta) = (K::kind_of(&()), object.meta());
    let namespace = match kind.scope {
        Scope::Namespaced => meta.namespace.as_deref().unwrap_or_default(),
        Scope::Cluster => "",
    };
    let owners = meta.owner_references.iter().flatten();
    let of_kind = owners.filter(|owner| kind.is_named_by(&owner.api_version, &owner.kind));
    of_kind.map(|owner| ObjectKey::new(namespace, &owner.name)).collect()
}

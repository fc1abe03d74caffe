//! The informers that feed a controller, whatever their type.

use std::{
    any::{Any, TypeId},
    sync::Arc,
};

use super::{
    enqueue::Enqueuer,
    synced::Synced,
    watch::{Selection, Watch},
};
use crate::{
    informer::{Observer, ObserverRegistration, SharedInformer, SharedInformerFactory, Watched},
    keys::SourceId,
    list_watch::Representation,
    object::{Kind, Object, ObjectKey, Scope},
    store::{CachedObject, Lister, Lookup},
    writes::{CacheView, CachedMeta, CachedTarget, Selects, Shown},
};

/// Shows a cache to writes.
fn cache_view<W: Watched>(
    informer: &SharedInformer<W>,
    source: SourceId,
    namespace: Option<&str>,
    selects: Selects,
) -> CacheView {
    let (lister, watched) = (informer.cache(), informer.clone());
    let kind = SharedInformer::kind(informer).clone();
    // An informer of a cluster-scoped kind has no namespace to keep to.
    let namespace = namespace.filter(|_| kind.scope == Scope::Namespaced).map(str::to_owned);
    let (shown, failing) = (lister.clone(), informer.clone());
    let (compared, lost) = (informer.clone(), informer.clone());
    CacheView {
        source,
        kind,
        namespace,
        selects: selects.clone(),
        look_up: Box::new(move |key| look_up(&watched, &lister, key, &selects)),
        show: (W::form() == Representation::Whole)
            .then(|| -> Box<dyn Fn(&_) -> _ + Send + Sync> { Box::new(move |key| show(&shown, key)) }),
        is_open: Box::new(move || !failing.is_failing()),
        compare: Box::new(move |key| compared.compare(key)),
        report_history_loss: Box::new(move |key| lost.report_history_loss(key)),
    }
}

fn show<K: Object>(lister: &Lister<K>, key: &ObjectKey) -> Option<Shown> {
    let Lookup::Found(object) = lister.lookup(key) else { return None };
    Some(object)
}

fn look_up<W: Watched>(
    informer: &SharedInformer<W>,
    lister: &Lister<W::Object>,
    key: &ObjectKey,
    selects: &Selects,
) -> CachedTarget {
    match lister.current(key) {
        Ok(Some(object)) => CachedTarget::Present(CachedMeta {
            uid: object.uid().unwrap_or_default().to_owned(),
            resource_version: object.resource_version().unwrap_or_default().to_owned(),
            owners: object.owners().into_owned(),
            finalizers: object.finalizers().into_owned(),
        }),
        Ok(None) if SharedInformer::has_synced(informer) => match selects {
            Selects::Everything => CachedTarget::Absent,
            Selects::Labels(_) | Selects::SomeFields => CachedTarget::Unselected,
        },
        Ok(None) | Err(_) => CachedTarget::Unknown,
    }
}

/// What is asked for before the start, and connected once the writer is there.
pub(crate) struct OpenSource {
    pub(crate) informer: Arc<dyn Synced>,
    pub(crate) view: CacheView,
    pub(crate) connect: Connect,
}

/// A kind of another cluster that feeds a controller: no write is compared with its cache.
pub(crate) struct ForeignSource {
    pub(crate) informer: Arc<dyn Synced>,
    pub(crate) connect: Connect,
}

impl ForeignSource {
    pub(crate) fn of<W: Watched, O: Observer<W::Object>>(
        informer: SharedInformer<W>,
        observer: impl Fn(&Enqueuer) -> O + Send + 'static,
    ) -> Self {
        let observed = informer.clone();
        let connect: Connect = Box::new(move |enqueuer| observed.observe(Arc::new(observer(enqueuer))));
        Self { informer: Arc::new(informer), connect }
    }
}

/// Connects an informer to the controller; the feed lasts as long as what is returned.
pub(crate) type Connect = Box<dyn Fn(&Enqueuer) -> ObserverRegistration + Send>;

/// A kind that feeds a controller, not yet asked for.
pub(crate) struct KindSource {
    pub(crate) asked: InformerKey,
    pub(crate) scope: Scope,
    /// A namespace of its own; `None`: as the controller.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) open: OpenFn,
}

type OpenFn = Box<dyn Fn(&SharedInformerFactory, Option<&str>, SourceId) -> OpenSource + Send + Sync>;

impl KindSource {
    /// A kind whose changes an observer maps to keys.
    pub(crate) fn of<W: Watched, O: Observer<W::Object>>(
        watch: Watch<W>,
        observer: impl Fn(&Enqueuer, SourceId, &Kind) -> O + Clone + Send + Sync + 'static,
    ) -> Self {
        let selection = watch.narrowing().selection();
        let asked = InformerKey::of::<W>(watch.dynamic_type(), &selection);
        let (scope, own) = (W::kind_of(watch.dynamic_type()).scope, watch.narrowing().namespace.clone());
        let open = Box::new(move |factory: &_, namespace: Option<&str>, source| {
            let informer = watch.informer(factory, namespace);
            let observer = observer.clone();
            let kind = SharedInformer::kind(&informer).clone();
            open(informer, namespace, source, &selection, move |enqueuer| observer(enqueuer, source, &kind))
        });
        Self { asked, scope, namespace: own, open }
    }

    /// Where it is watched: in its own namespace, or wherever the controller is.
    pub(crate) fn places(&self, controllers: &[Option<Arc<str>>]) -> Vec<Option<Arc<str>>> {
        match (&self.namespace, self.scope) {
            (Some(own), _) => vec![Some(own.clone())],
            (None, Scope::Namespaced) => controllers.to_vec(),
            (None, Scope::Cluster) => vec![None],
        }
    }
}

/// What an informer is asked for by marker, question and selection: equal ones get one informer.
#[derive(Clone)]
pub(crate) struct InformerKey {
    marker: TypeId,
    dynamic_type: Arc<dyn Any + Send + Sync>,
    selection: Selection,
    same: fn(&dyn Any, &dyn Any) -> bool,
}

impl InformerKey {
    pub(crate) fn of<W: Watched>(dynamic_type: &W::DynamicType, selection: &Selection) -> Self {
        let same = |one: &dyn Any, other: &dyn Any| {
            let (one, other) = (one.downcast_ref::<W::DynamicType>(), other.downcast_ref::<W::DynamicType>());
            one.is_some() && one == other
        };
        let dynamic_type = Arc::new(dynamic_type.clone());
        Self { marker: TypeId::of::<W>(), dynamic_type, selection: selection.clone(), same }
    }
}

impl PartialEq for InformerKey {
    fn eq(&self, other: &Self) -> bool {
        let same_marker = self.marker == other.marker && self.selection == other.selection;
        same_marker && (self.same)(&*self.dynamic_type, &*other.dynamic_type)
    }
}

/// Opens a feed whose changes an observer maps to keys.
pub(crate) fn open<W: Watched, O: Observer<W::Object>>(
    informer: SharedInformer<W>,
    namespace: Option<&str>,
    source: SourceId,
    selection: &Selection,
    observer: impl Fn(&Enqueuer) -> O + Send + 'static,
) -> OpenSource {
    let view = cache_view(&informer, source, namespace, selection.selects());
    let observed = informer.clone();
    let connect: Connect = Box::new(move |enqueuer| observed.observe(Arc::new(observer(enqueuer))));
    OpenSource { informer: Arc::new(informer), view, connect }
}

/// The caches of the reconciled kind: one, or one a namespace.
#[derive(Clone)]
pub(crate) struct ReconciledObjects<K> {
    pub(crate) caches: Vec<CacheOf<K>>,
}

/// The cache of a namespace, or of all.
#[derive(Clone)]
pub(crate) struct CacheOf<K> {
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) lister: Lister<K>,
    pub(crate) informer: Arc<dyn Synced>,
}

impl<K: Object> ReconciledObjects<K> {
    /// Finds an object; one that can't be read is so after those who judge its changes could know.
    pub(crate) fn lookup(&self, key: &ObjectKey) -> Lookup<K> {
        let Some(CacheOf { lister, .. }) = self.cache(key) else { return Lookup::Absent };
        let mut found = lister.lookup(key);
        // A compact object is known to be unreadable only now: a predicate may have filtered it before.
        while let Lookup::Unreadable(refused) = &found {
            match lister.lookup(key) {
                Lookup::Unreadable(again) if Arc::ptr_eq(&again, refused) => break,
                again => found = again,
            }
        }
        found
    }

    /// Finds an object as its cache holds it.
    pub(crate) fn cached(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        self.cache(key)?.lister.cached(key)
    }

    /// Whether a cache holds a state of an object, one that can't be read included.
    pub(crate) fn is_there(&self, key: &ObjectKey) -> bool {
        !matches!(self.cache(key).map(|cache| cache.lister.current(key)), None | Some(Ok(None)))
    }

    /// Whether there is no such object, as far as is known: its cache has synced, and does not hold it.
    pub(crate) fn is_gone(&self, key: &ObjectKey) -> bool {
        self.cache(key).is_none_or(|cache| cache.informer.has_synced()) && !self.is_there(key)
    }

    /// Returns the keys of a namespace's objects, or of all.
    pub(crate) fn keys(&self, namespace: Option<&str>) -> Vec<ObjectKey> {
        let asked = |cache: &&CacheOf<K>| namespace.is_none() || cache.namespace.as_deref() == namespace;
        let caches = self.caches.iter().filter(asked).map(|cache| &cache.lister);
        caches.flat_map(Lister::list_cached).map(|held| held.key().clone()).collect()
    }

    /// Returns the version of an object, unless its latest state is known to be unreadable.
    pub(crate) fn version(&self, key: &ObjectKey) -> Option<String> {
        let object = self.cache(key)?.lister.current(key).ok()??;
        object.resource_version().map(str::to_owned)
    }

    fn cache(&self, key: &ObjectKey) -> Option<&CacheOf<K>> {
        let covers = |cache: &&CacheOf<K>| {
            let namespace = cache.namespace.as_deref();
            namespace.is_none() || key.namespace().is_none() || namespace == key.namespace()
        };
        self.caches.iter().find(covers)
    }
}

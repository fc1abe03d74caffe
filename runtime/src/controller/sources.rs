//! The informers of a controller: those of what it reconciles, of what feeds it, and of what it reads.

use std::{any::TypeId, sync::Arc};

use super::{
    Why,
    enqueue::{EnqueueObject, EnqueueRelated, Enqueuer},
    predicate::{ChangeFilter, Predicate},
    reads::{EnqueueReaders, OwnedCache, ReadCacheEntry, ReadFeed},
    waits::Waits,
    watch::{Enqueues, Narrowing, Place, Selection, Watch},
};
use crate::{
    informer::{AnyInformer, Observer, ObserverRegistration, SharedInformerFactory, Watched, name_of},
    keys::{ReadKind, SourceId},
    list_watch::{Keeps, Representation},
    object::{AnyObject, Kind, ObjectKey, Scope},
    store::{AnyLister, CachedObject, Lookup},
    writes::{CacheView, CachedMeta, CachedTarget, Selects, Shown},
};

/// Shows a cache to writes.
fn cache_view(
    informer: &AnyInformer,
    form: Representation,
    source: SourceId,
    (namespace, selects): (Option<&str>, Selects),
    keeps: Option<Keeps>,
) -> CacheView {
    let (lister, watched) = (informer.lister(), informer.clone());
    let kind = informer.kind().clone();
    // An informer of a cluster-scoped kind has no namespace to keep to.
    let namespace = namespace.filter(|_| kind.scope == Scope::Namespaced).map(str::to_owned);
    let (shown, failing) = (lister.clone(), informer.clone());
    let (compared, lost) = (informer.clone(), informer.clone());
    CacheView {
        source,
        kind,
        namespace,
        selects: selects.clone(),
        look_up: Box::new(move |key| match look_up(&watched, &lister, key, &selects) {
            // It may be in another replica's part.
            CachedTarget::Absent if keeps.as_ref().is_some_and(|keeps| !keeps.keeps(key)) => {
                CachedTarget::Unselected
            }
            found => found,
        }),
        show: (form == Representation::Whole)
            .then(|| -> Box<dyn Fn(&_) -> _ + Send + Sync> { Box::new(move |key| show(&shown, key)) }),
        is_open: Box::new(move || !failing.is_failing()),
        compare: Box::new(move |key| compared.reliability().compare(key)),
        report_history_loss: Box::new(move |key| lost.reliability().report_history_loss(key)),
    }
}

fn show(lister: &AnyLister, key: &ObjectKey) -> Option<Shown> {
    let Lookup::Found(object) = lister.look_up(key) else { return None };
    Some(object)
}

fn look_up(informer: &AnyInformer, lister: &AnyLister, key: &ObjectKey, selects: &Selects) -> CachedTarget {
    match lister.current(key) {
        Ok(Some(object)) => CachedTarget::Present(CachedMeta {
            uid: object.uid().unwrap_or_default().to_owned(),
            resource_version: object.resource_version().unwrap_or_default().to_owned(),
            owners: object.owners().into_owned(),
            finalizers: object.finalizers().into_owned(),
        }),
        Ok(None) if informer.has_synced() => match selects {
            Selects::Everything => CachedTarget::Absent,
            Selects::Labels(_) | Selects::SomeFields => CachedTarget::Unselected,
        },
        Ok(None) | Err(_) => CachedTarget::Unknown,
    }
}

/// Connects an informer to the controller. The feed lasts as long as what is returned.
pub(super) type Connect = Box<dyn Fn(&Enqueuer) -> ObserverRegistration + Send + Sync>;

/// What feeds a controller besides the reconciled objects, whatever its type.
pub(super) struct Source {
    /// The type that it was declared with, and that of its objects.
    marker: TypeId,
    object: TypeId,
    kind: Kind,
    form: Representation,
    narrowing: Narrowing,
    /// The informer of another cluster, if it is there.
    elsewhere: Option<AnyInformer>,
    enqueues: Enqueues,
    predicate: Option<ChangeFilter>,
    /// Asks for the informer of a place.
    informer: AskInformer,
}

type AskInformer = Box<dyn Fn(&SharedInformerFactory, Option<&str>, Option<&Keeps>) -> AnyInformer + Send>;

impl Source {
    /// Returns its kind, if that is of the controller's own cluster.
    pub(super) fn kind_here(&self) -> Option<&Kind> {
        self.elsewhere.is_none().then_some(&self.kind)
    }

    /// Returns whether its objects are only read.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.enqueues, Enqueues::Nothing)
    }
}

/// Makes a source of a watch. That of another cluster is asked for at once, so that its cluster knows it before it starts.
pub(super) fn source<W: Watched>(watch: Watch<W>) -> Source {
    Source {
        marker: TypeId::of::<W>(),
        object: TypeId::of::<W::Object>(),
        kind: W::kind_of(watch.dynamic_type()),
        form: W::form(),
        narrowing: watch.narrowing().clone(),
        elsewhere: watch.cluster.as_ref().map(|cluster| cluster.feed(&watch)),
        enqueues: watch.enqueues.clone(),
        predicate: watch.predicate.clone(),
        informer: Box::new(move |factory, place, keeps| watch.informer(factory, place, keeps)),
    }
}

/// What caches hold if each replica caches its part alone.
#[derive(Clone)]
pub(crate) struct CachePart {
    pub(crate) keeps: Keeps,
    /// Whether objects are in the same part as an owner in their namespace.
    pub(crate) of_owned: bool,
}

/// The informers that a controller has asked for. They are connected once its writer is there.
pub(super) struct ControllerSources<'a> {
    factory: &'a SharedInformerFactory,
    /// The informers that the program asked for.
    asked: &'a [AnyInformer],
    /// This replica's part of the objects, if caches hold no more.
    part: Option<CachePart>,
    /// Where the controller works: in all namespaces at once, or in each of some.
    places: Vec<Place>,
    /// The informers of this cluster that feed it, by their position.
    feeding: Vec<AnyInformer>,
    /// Those that feed it more than once.
    pub(super) shared: Vec<SourceId>,
    pub(super) views: Vec<CacheView>,
    /// With whose keys wait for each: those of a namespace, or all.
    pub(super) connects: Vec<(Place, Connect)>,
    /// The caches that runs may read.
    pub(super) reads: Vec<ReadCacheEntry>,
    pub(super) owned: Vec<OwnedCache>,
    /// What keys wait for: those of a place, or all.
    awaited: Vec<(Place, AnyInformer)>,
    /// Whether the controller says what it reads.
    has_reads: bool,
}

impl<'a> ControllerSources<'a> {
    pub(super) fn new(
        factory: &'a SharedInformerFactory,
        asked: &'a [AnyInformer],
        part: Option<CachePart>,
        kind: &Kind,
        namespaces: &[Arc<str>],
    ) -> Self {
        let places = match namespaces.is_empty() || kind.scope == Scope::Cluster {
            true => vec![None],
            false => namespaces.iter().cloned().map(Some).collect(),
        };
        // What a cluster-scoped object owns is in a namespace, and so in another part than its owner.
        let in_namespaces = kind.scope == Scope::Namespaced;
        let part = part.map(|part| CachePart { of_owned: part.of_owned && in_namespaces, ..part });
        let (feeding, shared, views, connects) = Default::default();
        let (reads, owned, awaited) = Default::default();
        Self {
            factory,
            asked,
            part,
            places,
            feeding,
            shared,
            views,
            connects,
            reads,
            owned,
            awaited,
            has_reads: false,
        }
    }

    /// Asks for the informers of the reconciled kind.
    pub(super) fn reconciled<K: Watched>(
        &mut self,
        dynamic_type: K::DynamicType,
        selection: &Selection,
        predicate: Option<Predicate<K::Object>>,
        finalizer: Option<&str>,
    ) -> ReconciledObjects {
        let watch = Watch::<K>::with_type(dynamic_type).selecting(selection);
        let finalizer: Option<Arc<str>> = finalizer.map(Arc::from);
        let (places, predicate) = (self.places.clone(), predicate.map(Predicate::erased));
        let open = |place: Place| {
            let keeps = self.part.as_ref().map(|part| part.keeps.clone());
            let informer = watch.informer(self.factory, place.as_deref(), keeps.as_ref());
            let source = self.feed(&informer, K::form(), place.as_deref(), selection.selects(), keeps);
            let (predicate, finalizer) = (predicate.clone(), finalizer.clone());
            self.connect(place.clone(), &informer, move |enqueuer| {
                EnqueueObject::new(enqueuer, source, predicate.clone(), finalizer.clone())
            });
            self.awaited.push((place.clone(), informer.clone()));
            CacheOf { namespace: place, lister: informer.lister(), informer }
        };
        ReconciledObjects { caches: places.into_iter().map(open).collect() }
    }

    /// Opens a source: one of another cluster, or one of this cluster in its own namespace or in all places of the controller.
    pub(super) fn open(&mut self, source: Source) {
        if let Some(informer) = &source.elsewhere {
            return self.open_elsewhere(informer.clone(), &source);
        }
        let Source { kind, narrowing, .. } = &source;
        let (is_read, is_owned) = (source.is_read(), matches!(source.enqueues, Enqueues::Owner));
        if is_read {
            self.has_reads = true;
            let asked = self.asked.iter().filter(|informer| {
                let state = informer.state();
                state.kind == *kind && state.cluster == self.factory.cluster()
            });
            let asked: Vec<_> = asked.map(|informer| (None, informer.clone())).collect();
            if narrowing.is_none() && !asked.is_empty() {
                // Dropped again unless the program asked for the same: no other shows the whole kind for sure.
                let whole = (source.informer)(self.factory, None, None);
                let is_readable = |informer: &&AnyInformer| {
                    informer.object_type() == source.object
                        && informer.is_whole()
                        && informer.has_indexes_of(&whole)
                };
                let mut readable = asked.iter().map(|(_, informer)| informer).filter(is_readable);
                let is_read = if asked.iter().any(|(_, informer)| informer.is_same(&whole)) {
                    let id = self.feed(&whole, source.form, None, Selects::Everything, None);
                    self.read(&whole, &source, Some(id), None);
                    true
                } else if let Some(other) = readable.next() {
                    let id = self.feed(other, source.form, None, Selects::Everything, None);
                    self.read(other, &source, Some(id), None);
                    true
                } else {
                    // They show a part, or other types: runs need a cache of their own.
                    false
                };
                self.awaited.extend(asked);
                if is_read {
                    return;
                }
            }
        }
        let places = match (&narrowing.namespace, kind.scope) {
            (Some(own), _) => vec![Some(own.clone())],
            (None, Scope::Namespaced) => self.places.clone(),
            (None, Scope::Cluster) => vec![None],
        };
        for place in places {
            let keeps = self
                .part
                .as_ref()
                .filter(|part| part.of_owned && is_owned && kind.scope == Scope::Namespaced);
            let keeps = keeps.map(|part| part.keeps.clone());
            let informer = (source.informer)(self.factory, place.as_deref(), keeps.as_ref());
            let selects = narrowing.selection().selects();
            let id = self.feed(&informer, source.form, place.as_deref(), selects, keeps);
            // If it has a namespace of its own, it is for all keys.
            let waiting = place.filter(|_| narrowing.namespace.is_none());
            match is_read {
                true => self.read(&informer, &source, Some(id), waiting.clone()),
                false => self.relate(&informer, &source, Some(id), waiting.clone()),
            }
            if is_owned {
                let (marker, place, informer) = (source.marker, waiting.clone(), informer.clone());
                self.owned.push(OwnedCache { marker, place, informer });
            }
            self.awaited.push((waiting, informer));
        }
    }

    /// Opens a source of another cluster: no write is compared with its cache.
    fn open_elsewhere(&mut self, informer: AnyInformer, source: &Source) {
        match source.enqueues {
            Enqueues::Nothing => {
                self.has_reads = true;
                self.read(&informer, source, None, None);
            }
            _ => self.relate(&informer, source, None, None),
        }
        self.awaited.push((None, informer));
    }

    /// Names an informer that feeds the controller, and shows its cache to writes.
    fn feed(
        &mut self,
        informer: &AnyInformer,
        form: Representation,
        namespace: Option<&str>,
        selects: Selects,
        keeps: Option<Keeps>,
    ) -> SourceId {
        // One informer is one source, also if it feeds the controller twice: a kind that owns its own kind.
        if let Some(known) = self.feeding.iter().position(|known| known.is_same(informer)) {
            self.shared.push(SourceId(known));
            return SourceId(known);
        }
        let source = SourceId(self.feeding.len());
        self.feeding.push(informer.clone());
        self.views.push(cache_view(informer, form, source, (namespace, selects), keeps));
        source
    }

    /// Maps the changes of an informer to keys. Those of another cluster have no source.
    fn relate(&mut self, informer: &AnyInformer, source: &Source, id: Option<SourceId>, place: Place) {
        let kind: Arc<str> = name_of(informer.kind(), informer.cluster().as_deref()).into();
        let (enqueues, predicate) = (source.enqueues.clone(), source.predicate.clone());
        self.connect(place, informer, move |enqueuer| {
            EnqueueRelated::new(enqueuer, id, kind.clone(), enqueues.clone(), predicate.clone())
        });
    }

    /// Lets runs read the cache of an informer.
    fn read(&mut self, informer: &AnyInformer, source: &Source, id: Option<SourceId>, place: Place) {
        let kind = ReadKind(u16::try_from(self.reads.len()).expect("a controller declares fewer reads"));
        let name: Arc<str> = name_of(informer.kind(), informer.cluster().as_deref()).into();
        let (shared, lister) = (Arc::new(ReadFeed::new(kind, id, name)), informer.lister());
        let entry = ReadCacheEntry {
            marker: source.marker,
            kind: source.kind.clone(),
            narrowing: source.narrowing.clone(),
            elsewhere: source.elsewhere.as_ref().and_then(AnyInformer::cluster),
            place: place.clone(),
            lister: lister.clone(),
            shared: shared.clone(),
        };
        self.reads.push(entry);
        self.connect(place, informer, move |enqueuer| {
            EnqueueReaders::new(enqueuer, shared.clone(), lister.clone())
        });
    }

    fn connect<O: Observer>(
        &mut self,
        place: Place,
        informer: &AnyInformer,
        observer: impl Fn(&Enqueuer) -> O + Send + Sync + 'static,
    ) {
        let informer = informer.clone();
        // With one place, all keys wait for the same.
        let place = place.filter(|_| self.places.len() > 1);
        let connect: Connect = Box::new(move |enqueuer| informer.observe(Arc::new(observer(enqueuer))));
        self.connects.push((place, connect));
    }

    /// Returns what keys wait for: with one place all for the same, with several each for its own.
    pub(super) fn waits(&mut self) -> Waits {
        if !self.has_reads {
            self.awaited.extend(self.asked.iter().map(|informer| (None, informer.clone())));
        }
        let is_split = self.places.len() > 1;
        let namespaces = self.places.iter().flatten().filter(|_| is_split).cloned().collect();
        let awaited = std::mem::take(&mut self.awaited).into_iter();
        let awaited = awaited.map(|(place, informer)| (place.filter(|_| is_split), informer)).collect();
        Waits::new(self.factory.cluster(), namespaces, awaited, &self.feeding)
    }
}

/// The caches of the reconciled kind: one, or one a namespace.
pub(super) struct ReconciledObjects {
    pub(super) caches: Vec<CacheOf>,
}

/// The cache of a namespace, or of all.
pub(super) struct CacheOf {
    namespace: Place,
    lister: AnyLister,
    informer: AnyInformer,
}

impl ReconciledObjects {
    /// Finds an object; one that can't be read is so after those who judge its changes could know.
    pub(super) fn lookup(&self, key: &ObjectKey) -> Lookup<dyn AnyObject> {
        let Some(CacheOf { lister, .. }) = self.cache(key) else { return Lookup::Absent };
        let mut found = lister.look_up(key);
        // A compact object is known to be unreadable only now: a predicate may have filtered it before.
        while let Lookup::Unreadable(refused) = &found {
            match lister.look_up(key) {
                Lookup::Unreadable(again) if Arc::ptr_eq(&again, refused) => break,
                again => found = again,
            }
        }
        found
    }

    /// Finds an object as its cache holds it.
    pub(super) fn cached(&self, key: &ObjectKey) -> Option<CachedObject> {
        self.cache(key)?.lister.cached(key)
    }

    /// Returns the version of an object, unless its latest state is known to be unreadable.
    pub(super) fn version(&self, key: &ObjectKey) -> Option<String> {
        let object = self.cache(key)?.lister.current(key).ok()??;
        object.resource_version().map(str::to_owned)
    }

    fn cache(&self, key: &ObjectKey) -> Option<&CacheOf> {
        let covers = |cache: &&CacheOf| {
            let namespace = cache.namespace.as_deref();
            namespace.is_none() || key.namespace().is_none() || namespace == key.namespace()
        };
        self.caches.iter().find(covers)
    }

    /// Says why a key that nothing asks for does not run.
    pub(super) fn idle(&self, key: &ObjectKey) -> Why {
        match self.lookup(key) {
            Lookup::Absent => Why::NotKnown,
            Lookup::Found(_) => Why::AwaitsChange,
            Lookup::Outdated { unreadable, .. } | Lookup::Unreadable(unreadable) => {
                Why::Unreadable(unreadable.error.clone())
            }
        }
    }

    /// Returns whether there is no such object, as far as is known: its cache has synced, and does not hold it.
    ///
    /// A state that can't be read counts as there.
    pub(super) fn is_gone(&self, key: &ObjectKey) -> bool {
        self.cache(key)
            .is_none_or(|cache| cache.informer.has_synced() && matches!(cache.lister.current(key), Ok(None)))
    }

    /// Returns the keys of a namespace's objects, or of all.
    pub(super) fn keys(&self, namespace: Option<&str>) -> Vec<ObjectKey> {
        let asked = |cache: &&CacheOf| namespace.is_none() || cache.namespace.as_deref() == namespace;
        let caches = self.caches.iter().filter(asked).map(|cache| &cache.lister);
        caches.flat_map(AnyLister::list_cached).map(|held| held.key().clone()).collect()
    }
}

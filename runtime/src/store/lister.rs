//! Reading the store: each call sees one moment, and nobody waits.

use std::{
    any::{Any, TypeId},
    collections::HashSet,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::{
    cached_object::{CachedObject, StoredType},
    decoded::DecodedObjects,
    index::IndexValue,
    objects::{Objects, listed, matching, readable},
    reads::{ReadAspect, ReadPart, ReadSet, ReadTracker, TrackedSnapshot},
    selector::Selector,
    snapshot::{ObjectTable, StoreSnapshot, total},
    spare::Spare,
};
use crate::{
    delta_fifo::{Extent, Transform},
    list_watch::{AnyItem, ObjectText, Unreadable},
    object::{AnyObject, Object, ObjectKey, Version, downcast, downcast_ref},
    reflector::Difference,
};

/// What the writer and the readers of a store share.
pub(super) struct SharedStore {
    pub(super) published: ArcSwap<StoreSnapshot>,
    /// Signalled after each write.
    pub(super) moved: watch::Sender<()>,
    pub(super) decoded: Arc<DecodedObjects>,
    pub(super) object: StoredType,
    /// Held by the one that writes: the copy that the next write changes, if there is one.
    pub(super) writing: Mutex<Option<Spare>>,
}

/// Reads a cache: objects by key, by namespace, by labels, by index.
///
/// No call sends a request or waits for a writer. What comes back is shared and immutable. The order of lists is
/// stable for a given content, and otherwise unspecified. A lister keeps its informer alive.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::{Lister, ObjectKey, store::Selector};
///
/// # fn read(pods: &Lister<Pod>) -> Result<(), Box<dyn std::error::Error>> {
/// let one = pods.get(&ObjectKey::new("shop", "a"));
/// let gold = pods.list_matching(&"tier=gold".parse::<Selector>()?);
/// let all = pods.list();
/// # let _ = (one, gold.len(), all.len()); Ok(()) }
/// ```
///
/// The book has more: [reads that wake](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/reads.md).
pub struct Lister<K: ?Sized> {
    shared: Arc<SharedStore>,
    keep: Option<Arc<dyn Any + Send + Sync>>,
    /// Where the lister of a run looks, and who hears of it.
    tracked: Option<Arc<TrackedSnapshot>>,
    object: PhantomData<fn(&K)>,
}

/// A reader that does not know the type of the objects.
pub(crate) type AnyLister = Lister<dyn AnyObject>;

/// What the cache knows of a key.
#[derive(Debug)]
pub enum Lookup<K: ?Sized> {
    /// The object, as last seen.
    Found(Arc<K>),
    /// The latest state could not be read; an earlier one is kept.
    Outdated {
        /// The last state that could be read.
        kept: Arc<K>,
        /// The latest state, as far as it could be read.
        unreadable: Arc<Unreadable>,
    },
    /// It is there, but no state of it could be read.
    Unreadable(Arc<Unreadable>),
    /// It is not there.
    Absent,
}

impl Lookup<dyn AnyObject> {
    /// Takes the objects as what they are.
    pub(crate) fn typed<K: Object>(self) -> Lookup<K> {
        match self {
            Self::Found(object) => Lookup::Found(downcast(object)),
            Self::Outdated { kept, unreadable } => Lookup::Outdated { kept: downcast(kept), unreadable },
            Self::Unreadable(unreadable) => Lookup::Unreadable(unreadable),
            Self::Absent => Lookup::Absent,
        }
    }
}

impl<K: Object> Lister<K> {
    /// Finds an object; an outdated one is found too (see [`lookup`](Lister::lookup)).
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let snapshot = self.snapshot();
        self.find(&snapshot, ReadAspect::Content, key)?.object_as().ok()
    }

    /// Looks an object up: found, outdated, unreadable or absent.
    pub fn lookup(&self, key: &ObjectKey) -> Lookup<K> {
        self.look_up(key).typed()
    }

    /// Lists all objects.
    pub fn list(&self) -> Objects<K> {
        self.note_set(|| ReadSet::Everything);
        let snapshot = self.snapshot();
        listed(&snapshot, &snapshot.objects)
    }

    /// Returns what a function picks of an object; `None` if the object is not there.
    ///
    /// The lister of a run ([`Context::lister`](crate::Context::lister)) lets the run repeat only when something else would
    /// be picked, and not for other changes of the object. The function is called again at each change, as the change is
    /// applied: it must be pure, and return at once. Elsewhere this reads like [`get`](Self::get).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use watchkeeper::prelude::*;
    /// # fn motd(settings: &Lister<ConfigMap>) -> Option<Option<String>> {
    /// settings.pick(&ObjectKey::new("shop", "settings"), |map| map.data.as_ref()?.get("motd").cloned())
    /// # }
    /// ```
    pub fn pick<T: PartialEq + Clone + Send + Sync + 'static>(
        &self,
        key: &ObjectKey,
        pick: impl Fn(&K) -> T + Send + Sync + 'static,
    ) -> Option<T> {
        let snapshot = self.snapshot();
        let object = snapshot.get(key.namespace(), key.name()).and_then(|held| held.object_as::<K>().ok());
        let picked = object.map(|object| pick(&object));
        if self.tracked.is_some() {
            let before = picked.clone();
            let check = move |object: Option<&dyn AnyObject>| {
                object.map(|object| pick(downcast_ref(object))) != before
            };
            self.find(&snapshot, ReadAspect::Picked(Arc::new(check)), key);
        }
        picked
    }

    /// Lists the objects whose labels match.
    ///
    /// Looks at every object, unless a [label index](super::IndexDefinition::label) narrows down what can match.
    pub fn list_matching(&self, selector: &Selector) -> Objects<K> {
        self.note_set(|| ReadSet::Selector { selector: selector.clone(), namespace: None });
        let snapshot = self.snapshot();
        match snapshot.narrowed(selector) {
            Some(buckets) => matching(selector, buckets.into_iter().flat_map(ObjectTable::iter)),
            None => matching(selector, snapshot.objects.iter()),
        }
    }

    /// Narrows the view to one namespace.
    pub fn namespace(&self, namespace: impl Into<Arc<str>>) -> NamespaceLister<K> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }

    /// Lists the objects that an index holds under a value.
    ///
    /// An index that is not defined holds nothing, which is logged.
    pub fn by_index(&self, index: &str, value: &IndexValue) -> Objects<K> {
        self.note_set(|| ReadSet::Index { index: index.into(), value: value.clone(), namespace: None });
        let snapshot = self.snapshot();
        let bucket = snapshot.indexed(index, value).unwrap_or_else(|| unknown(index));
        bucket.map(|bucket| listed(&snapshot, bucket)).unwrap_or_default()
    }
}

impl<K: ?Sized> Lister<K> {
    pub(super) fn reading(shared: Arc<SharedStore>) -> Self {
        Self { shared, keep: None, tracked: None, object: PhantomData }
    }

    /// Names the type of the objects, or forgets it. Nothing is checked before one is read.
    pub(crate) fn cast<J: ?Sized>(self) -> Lister<J> {
        Lister { shared: self.shared, keep: self.keep, tracked: self.tracked, object: PhantomData }
    }

    /// Ties the lifetime of what fills the cache to this lister and its clones.
    pub(crate) fn keeping(mut self, keep: Arc<dyn Any + Send + Sync>) -> Self {
        self.keep = Some(keep);
        self
    }

    /// Finds an object without decoding it: a compact cache decodes no more of it than is asked for.
    pub fn cached(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        self.find(&self.snapshot(), ReadAspect::Content, key).cloned().map(CachedObject::cast)
    }

    /// Looks an object up, whatever its type.
    pub(crate) fn look_up(&self, key: &ObjectKey) -> Lookup<dyn AnyObject> {
        let snapshot = self.snapshot();
        let object = self.find(&snapshot, ReadAspect::Content, key).map(CachedObject::any);
        match (object, snapshot.mark(key).cloned()) {
            (Some(Ok(object)), None) => Lookup::Found(object),
            (Some(Ok(kept)), Some(unreadable)) => Lookup::Outdated { kept, unreadable },
            (None | Some(Err(_)), Some(unreadable)) | (Some(Err(unreadable)), None) => {
                Lookup::Unreadable(unreadable)
            }
            (None, None) => Lookup::Absent,
        }
    }

    /// Finds an object without decoding it, unless its latest state is known to be unreadable.
    pub(crate) fn current(&self, key: &ObjectKey) -> Result<Option<CachedObject<K>>, Arc<Unreadable>> {
        let snapshot = self.shared.published.load();
        let held = snapshot.get(key.namespace(), key.name());
        match snapshot.mark(key).or_else(|| held.and_then(CachedObject::unreadable)) {
            Some(unreadable) => Err(unreadable.clone()),
            None => Ok(held.cloned().map(CachedObject::cast)),
        }
    }

    /// Finds the key of what an item says, transformed, as it is cached: readable, and word for word.
    pub(crate) fn repeated(
        &self,
        item: &AnyItem,
        transform: Option<&Transform<dyn AnyObject>>,
    ) -> Option<ObjectKey> {
        if self.is_empty() {
            return None;
        }
        let held = self.current(&item.key()?).ok()??;
        held.repeats(item, transform).then(|| held.key().clone())
    }

    /// Returns whether an index of that name is defined.
    pub fn has_index(&self, index: &str) -> bool {
        self.snapshot().has_index(index)
    }

    pub(crate) fn has_indexes_of(&self, other: &Self) -> bool {
        let here = self.snapshot();
        other.snapshot().index_names().all(|name| here.has_index(name))
    }

    /// Names the objects that are there but that no `list` shows, since no state of them could be read.
    ///
    /// A compact cache names only objects that were read before.
    pub fn unreadable(&self) -> Vec<Arc<Unreadable>> {
        self.note_set(|| ReadSet::Everything);
        let snapshot = self.snapshot();
        let hidden = |key: &ObjectKey| {
            let held = snapshot.get(key.namespace(), key.name());
            held.is_none_or(|held| held.unreadable().is_some())
        };
        let marked = snapshot.unreadable.iter().filter(|(key, _)| hidden(key));
        let marked = marked.map(|(_, unreadable)| unreadable.clone());
        marked.chain(self.refused(&snapshot)).collect()
    }

    /// Names all objects whose latest state could not be read, those with a kept earlier state included.
    pub fn unreadable_or_outdated(&self) -> Vec<Arc<Unreadable>> {
        self.note_set(|| ReadSet::Everything);
        let snapshot = self.snapshot();
        let marked = snapshot.unreadable.iter().map(|(_, unreadable)| unreadable.clone());
        marked.chain(self.refused(&snapshot)).collect()
    }

    /// Counts unreadable objects in O(1). A replaced object counts until its last reference is dropped.
    pub(crate) fn count_unreadable(&self) -> usize {
        self.snapshot().unreadable.len() + self.shared.decoded.count_refused()
    }

    /// Names the objects of a snapshot that did not decode when they were read, and are not marked.
    fn refused(&self, snapshot: &StoreSnapshot) -> Vec<Arc<Unreadable>> {
        if self.shared.decoded.count_refused() == 0 {
            return Vec::new();
        }
        let objects = snapshot.objects.iter().map(|stored| &stored.held);
        let unmarked = objects.filter(|held| snapshot.mark(held.key()).is_none());
        unmarked.filter_map(CachedObject::unreadable).cloned().collect()
    }

    /// Returns the version that the cache shows at least; `None` while unknown or opaque.
    ///
    /// With several namespaces in one cache it is the lowest of theirs.
    pub fn resource_version(&self) -> Option<Version> {
        self.snapshot().version()
    }

    /// Waits until the cache shows at least a version.
    ///
    /// # Errors
    /// It does not within the time given, by tokio's clock.
    pub async fn wait_for_version(
        &self,
        version: Version,
        within: Duration,
    ) -> Result<(), VersionNotReached> {
        let waited = tokio::time::timeout(within, self.reaches(version, None)).await;
        waited.map_err(|_| VersionNotReached { wanted: version, reached: self.resource_version(), within })
    }

    /// Ends once the cache, or a part of it, shows at least a version.
    pub(crate) async fn reaches(&self, version: Version, part: Option<&Extent>) {
        let mut moved = self.shared.moved.subscribe();
        // A writer sees the subscription, or this sees what it published.
        fence(Ordering::SeqCst);
        // Not the moment of a run, which never moves.
        while self.shared.published.load().version_of(part).is_none_or(|reached| reached < version) {
            if moved.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Lists all objects without decoding them, those included that can't be read.
    pub fn list_cached(&self) -> Vec<CachedObject<K>> {
        self.cached_if(|_| true)
    }

    /// Lists the objects for which a function returns `true`, without decoding them.
    pub(crate) fn cached_if(&self, keep: impl Fn(&CachedObject) -> bool) -> Vec<CachedObject<K>> {
        self.note_set(|| ReadSet::Everything);
        let snapshot = self.snapshot();
        let kept = snapshot.objects.iter().map(|stored| &stored.held).filter(|held| keep(held));
        kept.map(|held| held.clone().cast()).collect()
    }

    /// Counts the objects; in a compact cache, those included that do not decode.
    pub fn len(&self) -> usize {
        self.note(ReadAspect::Members, || ReadPart::Set(ReadSet::Everything));
        self.snapshot().objects.len()
    }

    /// Returns whether there is such an object, in whatever state.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        let snapshot = self.snapshot();
        // One that was never readable is there as well.
        self.find(&snapshot, ReadAspect::Members, key).is_some() || snapshot.mark(key).is_some()
    }

    /// Counts the objects that an index holds under a value.
    pub fn count_by_index(&self, index: &str, value: &IndexValue) -> usize {
        let set = || ReadSet::Index { index: index.into(), value: value.clone(), namespace: None };
        self.note(ReadAspect::Members, || ReadPart::Set(set()));
        let snapshot = self.snapshot();
        let bucket = snapshot.indexed(index, value).unwrap_or_else(|| unknown(index));
        bucket.map_or(0, ObjectTable::len)
    }

    /// Counts the bytes of the objects that are cached as text; `None` where none is.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let snapshot = self.snapshot();
        snapshot.compact.then(|| {
            snapshot.objects.iter().filter_map(|stored| stored.held.text()).map(ObjectText::len).sum()
        })
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns when something last came from the source of an informer.
    pub(crate) fn last_event(&self) -> Option<Instant> {
        self.snapshot().last_event
    }

    /// Compares what is cached of an extent with a list of it, by versions; a transform may have dropped an object, or
    /// its version.
    pub(crate) fn differences(
        &self,
        extent: &Extent,
        listed: &[AnyItem],
        transformed: bool,
    ) -> Vec<Difference> {
        let keys: HashSet<ObjectKey> = listed.iter().filter_map(AnyItem::key).collect();
        let mut found: Vec<_> = listed.iter().filter_map(|item| self.difference(item, transformed)).collect();
        // What has no name may be any of those that seem to be too many.
        if listed.iter().all(|item| item.key().is_some()) {
            let shown = self.snapshot().keys(extent).into_iter().filter(|key| !keys.contains(key));
            found.extend(shown.map(|key| {
                let shown = self.version_shown(&key).flatten();
                Difference { key, listed: None, shown: Some(shown.unwrap_or_default()) }
            }));
        }
        found
    }

    fn difference(&self, item: &AnyItem, transformed: bool) -> Option<Difference> {
        let key = item.key()?;
        let listed = item.resource_version().unwrap_or_default().to_owned();
        let shown = match self.version_shown(&key) {
            None if transformed => return None,
            None => None,
            Some(None) => return None,
            Some(Some(shown)) if shown == listed => return None,
            Some(shown) => shown,
        };
        Some(Difference { key, listed: Some(listed), shown })
    }

    /// Returns the version at which an object is cached or marked as unreadable; `None` if it is neither.
    fn version_shown(&self, key: &ObjectKey) -> Option<Option<String>> {
        let snapshot = self.snapshot();
        if let Some(unreadable) = snapshot.mark(key) {
            return Some(unreadable.identity.resource_version.clone());
        }
        let held = snapshot.get(key.namespace(), key.name())?;
        Some(held.resource_version().map(str::to_owned))
    }

    pub(super) fn snapshot(&self) -> Guard<Arc<StoreSnapshot>> {
        match &self.tracked {
            None => self.shared.published.load(),
            Some(tracked) => Guard::from_inner(tracked.snapshot.clone()),
        }
    }

    /// Returns the type of the objects.
    pub(crate) fn object_type(&self) -> TypeId {
        self.shared.object.object.id
    }

    /// Takes the present moment; a tracker hears of its reads.
    pub(crate) fn moment(&self, tracker: Arc<dyn ReadTracker>) -> TrackedSnapshot {
        TrackedSnapshot::new(self.shared.published.load_full(), tracker)
    }

    /// Returns the versions of what has changed of a read since the [moment](Self::at) that is read; see
    /// [`ReadTracker::note`].
    pub(crate) fn changes(&self, part: &ReadPart, aspect: &ReadAspect) -> Vec<Option<Version>> {
        let changes = |tracked: &Arc<TrackedSnapshot>| tracked.changes(part, aspect, &self.shared.published);
        self.tracked.as_ref().map(changes).unwrap_or_default()
    }

    /// Reads a moment that was taken of the same cache.
    pub(crate) fn at(mut self, moment: Arc<TrackedSnapshot>) -> Self {
        self.tracked = Some(moment);
        self
    }

    /// Tells of a read that is about to be done, if anybody wants to know.
    fn note(&self, aspect: ReadAspect, part: impl FnOnce() -> ReadPart) {
        if let Some(tracked) = &self.tracked {
            tracked.note(&part(), &aspect, &self.shared.published);
        }
    }

    fn note_set(&self, set: impl FnOnce() -> ReadSet) {
        self.note(ReadAspect::Content, || ReadPart::Set(set()));
    }

    /// Finds an object in this lister's snapshot.
    fn find<'s>(
        &self,
        snapshot: &'s StoreSnapshot,
        aspect: ReadAspect,
        key: &ObjectKey,
    ) -> Option<&'s CachedObject> {
        let held = snapshot.get(key.namespace(), key.name());
        // The cache's own key shares its text with the object.
        self.note(aspect, || ReadPart::Object(held.map_or(key, CachedObject::key).clone()));
        held
    }

    /// Gives the values of an object in an index, as the cache does; none if no index has that name.
    pub(crate) fn index_values(&self, index: &str, held: &CachedObject) -> Vec<IndexValue> {
        self.shared.published.load().values_in(index, held)
    }
}

/// Says that a cache did not show a version in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cache did not reach resource version {wanted} within {within:?}: it stands at {}", shown(.reached))]
pub struct VersionNotReached {
    /// What was waited for.
    pub wanted: Version,
    /// Where the cache stood at the end.
    pub reached: Option<Version>,
    /// How long was waited.
    pub within: Duration,
}

fn shown(version: &Option<Version>) -> String {
    version.map_or_else(|| "no known version".to_owned(), |version| version.to_string())
}

/// Reads one namespace of a cache.
#[derive(Clone)]
pub struct NamespaceLister<K> {
    lister: Lister<K>,
    namespace: Arc<str>,
}

impl<K: Object> NamespaceLister<K> {
    /// Finds an object by its name.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        let namespace = Some(&*self.namespace).filter(|namespace| !namespace.is_empty());
        let snapshot = self.lister.snapshot();
        let held = snapshot.get(namespace, name);
        let key = || ObjectKey::new(namespace.unwrap_or_default(), name);
        let key = || held.map_or_else(key, |held| held.key().clone());
        self.lister.note(ReadAspect::Content, || ReadPart::Object(key()));
        held?.object_as().ok()
    }

    /// Lists the namespace's objects.
    pub fn list(&self) -> Objects<K> {
        if self.namespace.is_empty() {
            return self.lister.list();
        }
        self.lister.note_set(|| ReadSet::Namespace(self.namespace.clone()));
        let snapshot = self.lister.snapshot();
        snapshot.namespace(&self.namespace).map(|bucket| listed(&snapshot, bucket)).unwrap_or_default()
    }

    /// Lists the namespace's objects whose labels match.
    ///
    /// Looks at every object of the namespace, unless a [label index](super::IndexDefinition::label) leaves fewer.
    pub fn list_matching(&self, selector: &Selector) -> Objects<K> {
        if self.namespace.is_empty() {
            return self.lister.list_matching(selector);
        }
        let namespace = || Some(self.namespace.clone());
        self.lister.note_set(|| ReadSet::Selector { selector: selector.clone(), namespace: namespace() });
        let snapshot = self.lister.snapshot();
        let Some(all) = snapshot.namespace(&self.namespace) else { return Objects::default() };
        match snapshot.narrowed(selector).filter(|buckets| total(buckets) < all.len()) {
            Some(buckets) => {
                let candidates = buckets.into_iter().flat_map(ObjectTable::iter);
                matching(selector, candidates.filter(|stored| self.holds(&stored.held)))
            }
            None => matching(selector, all.iter()),
        }
    }

    /// Lists the namespace's objects that an index holds under a value.
    pub fn by_index(&self, index: &str, value: &IndexValue) -> Objects<K> {
        if self.namespace.is_empty() {
            return self.lister.by_index(index, value);
        }
        let namespace = || Some(self.namespace.clone());
        self.lister.note_set(|| ReadSet::Index {
            index: index.into(),
            value: value.clone(),
            namespace: namespace(),
        });
        let snapshot = self.lister.snapshot();
        let bucket = snapshot.indexed(index, value).unwrap_or_else(|| unknown(index));
        let held = bucket.into_iter().flat_map(ObjectTable::iter).map(|stored| &stored.held);
        readable(held.filter(|held| self.holds(held)))
    }

    fn holds(&self, held: &CachedObject) -> bool {
        held.key().namespace().unwrap_or_default() == &*self.namespace
    }

    /// Returns the namespace.
    pub fn name(&self) -> &str {
        &self.namespace
    }
}

fn unknown(index: &str) -> Option<&'static ObjectTable> {
    tracing::error!(index, "no index of that name is defined; nothing is found");
    None
}

impl_clone!([K: ?Sized] Lister<K>, shared, keep, tracked, object);

impl_debug!([K: ?Sized] Lister<K>, this => len: this.shared.published.load().objects.len());

impl_debug!([K] NamespaceLister<K>, this => namespace: this.namespace);

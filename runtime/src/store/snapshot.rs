//! One moment of the store (objects, namespaces, indexes, marks and versions), and the batch that makes the next one.
//!
//! The writer keeps the snapshot before the published one, for the next write: see [`Spare`](super::spare::Spare).

use std::{collections::BTreeSet, hash::Hash, sync::Arc};

use kube::core::ObjectMeta;
use tokio::time::Instant;

use super::{
    cached_object::{CachedObject, StoredType},
    cow_map::{CowMap, Hashing},
    decoded::DecodedObjects,
    index::{DuplicateIndex, IndexValue, ObjectIndex},
    selector::Selector,
};
use crate::{
    delta_fifo::{Extent, named},
    list_watch::{AnyItem, FetchedItem, LabelFilter, RawObject, Unreadable},
    object::{AnyObject, Object, ObjectKey, Version},
};

/// Objects by key; all tables of a snapshot, and all snapshots, share what is held.
pub(super) type ObjectTable = CowMap<StoredObject>;
type Buckets<V> = CowMap<(V, ObjectTable)>;

/// If a copy lacks more than this part of the objects, a clone costs less: an eighth.
const LEAST_SHARE: usize = 8;

/// An object in a table, and what a scan needs to know of it.
#[derive(Clone)]
pub(super) struct StoredObject {
    pub(super) held: CachedObject,
    pub(super) labels: LabelFilter,
}

/// Shows the store at one moment; a clone costs a handful of references.
#[derive(Clone)]
pub(super) struct StoreSnapshot {
    hashing: Hashing,
    pub(super) objects: ObjectTable,
    namespaces: Buckets<Arc<str>>,
    /// Whether a compact object was ever stored.
    pub(super) compact: bool,
    indexes: Vec<SnapshotIndex>,
    pub(super) unreadable: CowMap<(ObjectKey, Arc<Unreadable>)>,
    versions: Vec<(Extent, Option<Version>)>,
    /// When something last came from the source.
    pub(super) last_event: Option<Instant>,
}

#[derive(Clone)]
struct SnapshotIndex {
    hashing: Hashing,
    definition: Arc<ObjectIndex>,
    buckets: Buckets<IndexValue>,
}

impl StoreSnapshot {
    pub(super) fn new(hashing: Hashing) -> Self {
        Self {
            hashing,
            objects: CowMap::new(),
            namespaces: CowMap::new(),
            compact: false,
            indexes: Vec::new(),
            unreadable: CowMap::new(),
            versions: Vec::new(),
            last_event: None,
        }
    }

    /// Finds an object by the parts of its key, without building one.
    pub(super) fn get(&self, namespace: Option<&str>, name: &str) -> Option<&CachedObject> {
        let same = |stored: &StoredObject| {
            let key = stored.held.key();
            // A key that the store gave out shares its text, which is then not looked at: it is seldom at hand.
            (std::ptr::eq(key.name(), name) || key.name() == name) && key.namespace() == namespace
        };
        self.objects.find(self.hashing.of(&(namespace, name)), same).map(|stored| &stored.held)
    }

    pub(super) fn mark(&self, key: &ObjectKey) -> Option<&Arc<Unreadable>> {
        if self.unreadable.is_empty() {
            return None;
        }
        self.unreadable.find(self.hashing.of(key), |(held, _)| held == key).map(|(_, unreadable)| unreadable)
    }

    /// Finds the objects of a namespace.
    pub(super) fn namespace(&self, namespace: &str) -> Option<&ObjectTable> {
        self.shared_namespace(namespace).map(|(_, bucket)| bucket)
    }

    fn shared_namespace(&self, namespace: &str) -> Option<&(Arc<str>, ObjectTable)> {
        self.namespaces.find(self.hashing.of(namespace), |(held, _)| **held == *namespace)
    }

    /// Finds what an index holds under a value; the outer `None` means that there is no such index.
    pub(super) fn indexed(&self, index: &str, value: &IndexValue) -> Option<Option<&ObjectTable>> {
        let index = self.indexes.iter().find(|held| held.definition.name() == index)?;
        Some(index.bucket(value))
    }

    /// Gives the values of an object in an index.
    pub(super) fn values_in(&self, index: &str, held: &CachedObject) -> Vec<IndexValue> {
        let index = self.indexes.iter().find(|known| known.definition.name() == index);
        index.map(|index| index.values(held)).unwrap_or_default()
    }

    /// Returns the version that every extent has reached, or one of them.
    pub(super) fn version_of(&self, only: Option<&Extent>) -> Option<Version> {
        let of = self.versions.iter().filter(|(extent, _)| only.is_none_or(|only| only == extent));
        of.map(|(_, version)| *version).collect::<Option<Vec<Version>>>()?.into_iter().min()
    }

    /// Returns the version that every extent has reached.
    pub(super) fn version(&self) -> Option<Version> {
        self.version_of(None)
    }

    /// Lists the keys of objects and marks within an extent.
    pub(super) fn keys(&self, extent: &Extent) -> Vec<ObjectKey> {
        let marked = self.unreadable.iter().map(|(key, _)| key);
        let only_marked =
            marked.filter(|key| self.get(key.namespace(), key.name()).is_none() && extent.holds(key));
        let objects = match extent {
            Extent::All => Some(&self.objects),
            Extent::Namespace(namespace) => self.namespace(namespace),
        };
        let objects = objects.into_iter().flat_map(ObjectTable::iter).map(|stored| stored.held.key());
        objects.chain(only_marked).cloned().collect()
    }

    pub(super) fn has_index(&self, name: &str) -> bool {
        self.index_names().any(|held| held == name)
    }

    pub(super) fn index_names(&self) -> impl Iterator<Item = &str> {
        self.indexes.iter().map(|index| index.definition.name())
    }

    /// Finds, by a label index, sets that hold all that a selector can match; `None` where no index helps.
    ///
    /// Of several indexes it takes the one that leaves least; one that only tells who has the label comes last.
    pub(super) fn narrowed(&self, selector: &Selector) -> Option<Vec<&ObjectTable>> {
        let indexed = |key: &str| self.indexes.iter().find(|index| index.definition.label_key() == Some(key));
        let needed = || selector.needed().filter_map(|(key, values)| Some((indexed(key)?, values)));
        let one_of = needed().filter_map(|(index, values)| Some(index.under(values?)));
        let least = one_of.min_by_key(|buckets| total(buckets));
        least.or_else(|| {
            let (index, _) = needed().next()?;
            Some(index.buckets.iter().map(|(_, bucket)| bucket).collect())
        })
    }
}

/// What one change does to all tables, with the values that the indexes gave: more than one snapshot can take it.
pub(super) struct TableChange {
    object: StoredObject,
    is_deleted: bool,
    indexes: Vec<IndexChange>,
}

/// The values of an index under which an object no longer belongs, and those under which it does.
struct IndexChange {
    left: Vec<IndexValue>,
    under: Vec<IndexValue>,
}

impl StoreSnapshot {
    /// Takes a change; returns the object that was there before.
    fn take(&mut self, change: &TableChange) -> Option<CachedObject> {
        let TableChange { object, is_deleted, indexes } = change;
        for (index, IndexChange { left, under }) in self.indexes.iter_mut().zip(indexes) {
            for value in left {
                take_from(&mut index.buckets, index.hashing.of(value), value, &object.held);
            }
            index.put(object, under);
        }
        if let Some(namespace) = object.held.key().shared_namespace() {
            let hash = self.hashing.of(&**namespace);
            match is_deleted {
                true => take_from(&mut self.namespaces, hash, namespace, &object.held),
                false => put_under(&mut self.namespaces, hash, namespace, object),
            }
        }
        match is_deleted {
            true => take(&mut self.objects, &object.held),
            false => put(&mut self.objects, object),
        }
    }

    /// Takes the changes that led from it to a later snapshot; `None` where a clone of that one costs less.
    pub(super) fn follow(mut self, later: &Self, changes: &NotedChanges) -> Option<Self> {
        let changes = changes.0.as_ref().filter(|_| self.indexes.len() == later.indexes.len())?;
        changes.iter().for_each(|change| drop(self.take(change)));
        let StoreSnapshot { objects, namespaces, indexes, .. } = self;
        Some(Self { objects, namespaces, indexes, ..later.clone() })
    }
}

/// Changes that a copy lacks; `None` once there are too many to repeat.
pub(super) struct NotedChanges(Option<Vec<TableChange>>);

impl NotedChanges {
    pub(super) fn new() -> Self {
        Self(Some(Vec::new()))
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a change of a store with this many objects.
    fn note(&mut self, change: TableChange, objects: usize) {
        self.0.take_if(|changes| changes.len() >= objects / LEAST_SHARE);
        if let Some(changes) = &mut self.0 {
            changes.push(change);
        }
    }

    /// Adds what followed.
    pub(super) fn followed_by(mut self, later: Self, objects: usize) -> Self {
        match later.0 {
            None => self.0 = None,
            Some(later) => later.into_iter().for_each(|change| self.note(change, objects)),
        }
        self
    }
}

/// Changes on their way into one snapshot; see [`Indexer::write`](super::Indexer::write).
pub struct WriteBatch {
    pub(super) next: StoreSnapshot,
    pub(super) changes: NotedChanges,
    pub(super) object: StoredType,
    pub(super) decoded: Arc<DecodedObjects>,
}

impl WriteBatch {
    /// Adds or replaces an object of the store's type; returns the one it replaces.
    pub fn upsert<K: Object>(&mut self, object: Arc<K>) -> Option<CachedObject> {
        let held = self.hold_object(object);
        self.put(held)
    }

    /// Adds or replaces an object that is kept as bytes; returns the one it replaces.
    pub fn upsert_raw(&mut self, object: RawObject) -> Option<CachedObject> {
        let held = self.hold_raw(object);
        self.put(held)
    }

    /// Takes an item in the form in which this store would hold it, without putting it in.
    pub(crate) fn hold(&self, item: AnyItem) -> Result<CachedObject, Box<Unreadable>> {
        match item {
            FetchedItem::Raw(raw) => Ok(self.hold_raw(*raw)),
            item => named(item).map(|object| self.hold_object(object)),
        }
    }

    /// Names an object without a name by the empty one.
    fn hold_object(&self, object: Arc<dyn AnyObject>) -> CachedObject {
        let ObjectMeta { namespace, name, .. } = object.metadata();
        let key = self.key(namespace.as_deref(), name.as_deref().unwrap_or_default());
        (self.object.hold)(key, object)
    }

    fn hold_raw(&self, RawObject { key, text }: RawObject) -> CachedObject {
        let key = self.key(key.namespace(), key.shared_name().clone());
        CachedObject::compact(key, text, &self.decoded)
    }

    /// Names an object as the store does already, or else with the namespace that others of it share; hashes the name as
    /// the tables do.
    fn key(&self, namespace: Option<&str>, name: impl AsRef<str> + Into<Arc<str>>) -> (ObjectKey, u64) {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        if let Some(held) = self.next.get(namespace, name.as_ref()) {
            return (held.key().clone(), held.hash());
        }
        let namespace = namespace.map(|namespace| {
            let shared = self.next.shared_namespace(namespace);
            shared.map_or_else(|| namespace.into(), |(shared, _)| shared.clone())
        });
        let key = ObjectKey::from_parts(namespace, name.into());
        let hash = self.next.hashing.of(&key);
        (key, hash)
    }

    /// Finds an object as the batch has left it.
    pub fn get(&self, key: &ObjectKey) -> Option<&CachedObject> {
        self.next.get(key.namespace(), key.name())
    }

    /// Puts in what [`hold`](Self::hold) took, everywhere at once; returns the object that it replaces.
    ///
    /// Indexes ask the user's code under which values they hold it.
    pub(crate) fn put(&mut self, held: CachedObject) -> Option<CachedObject> {
        let object = StoredObject { labels: held.labels(), held };
        let next = &mut self.next;
        next.compact |= object.held.text().is_some();
        let key = object.held.key();
        let old = match next.indexes.is_empty() {
            true => None,
            false => next.get(key.namespace(), key.name()),
        };
        let indexes =
            next.indexes.iter().map(|index| index.change(old, index.values(&object.held))).collect();
        self.take(TableChange { object, is_deleted: false, indexes })
    }

    /// Removes an object, everywhere at once; returns it if it was there.
    pub fn delete(&mut self, key: &ObjectKey) -> Option<CachedObject> {
        let held = self.get(key)?.clone();
        let indexes = self.next.indexes.iter().map(|index| index.change(Some(&held), Vec::new())).collect();
        let object = StoredObject { labels: LabelFilter::default(), held };
        self.take(TableChange { object, is_deleted: true, indexes })
    }

    fn take(&mut self, change: TableChange) -> Option<CachedObject> {
        let old = self.next.take(&change);
        self.changes.note(change, self.next.objects.len());
        old
    }

    /// Returns the mark of an object whose latest state could not be read.
    pub fn unreadable(&self, key: &ObjectKey) -> Option<&Arc<Unreadable>> {
        self.next.mark(key)
    }

    /// Marks an object as unreadable; an earlier state that is cached stays, outdated.
    pub fn mark_unreadable(&mut self, key: &ObjectKey, unreadable: Arc<Unreadable>) {
        let hash = self.next.hashing.of(key);
        self.next.unreadable.insert(hash, |(held, _)| held == key, (key.clone(), unreadable));
    }

    /// Takes the mark off an object.
    pub fn clear_unreadable(&mut self, key: &ObjectKey) -> Option<Arc<Unreadable>> {
        if self.next.unreadable.is_empty() {
            return None;
        }
        let hash = self.next.hashing.of(key);
        self.next.unreadable.remove(hash, |(held, _)| held == key).map(|(_, unreadable)| unreadable)
    }

    /// Lists the keys of objects and marks within an extent.
    pub fn keys(&self, extent: &Extent) -> Vec<ObjectKey> {
        self.next.keys(extent)
    }

    /// Returns the version that an extent has reached.
    pub fn version(&self, extent: &Extent) -> Option<Version> {
        self.next.versions.iter().find(|(held, _)| held == extent).and_then(|(_, version)| *version)
    }

    /// Says which version an extent has reached; `None` while unknown or opaque.
    pub fn set_version(&mut self, extent: &Extent, version: Option<Version>) {
        match self.next.versions.iter_mut().find(|(held, _)| held == extent) {
            Some((_, held)) => *held = version,
            None => self.next.versions.push((extent.clone(), version)),
        }
    }

    /// Advances the version that an extent has reached; it never falls.
    pub(crate) fn reach(&mut self, extent: &Extent, version: Option<Version>) {
        match self.next.versions.iter_mut().find(|(held, _)| held == extent) {
            Some((_, held)) => *held = version.max(*held),
            None if version.is_some() => self.next.versions.push((extent.clone(), version)),
            None => {}
        }
    }

    /// Returns the version that every extent has reached.
    pub fn resource_version(&self) -> Option<Version> {
        self.next.version()
    }

    /// Notes that something came from the source.
    pub(crate) fn note_event(&mut self) {
        self.next.last_event = Some(Instant::now());
    }

    /// Adds an index and fills it with what is there.
    pub(super) fn add_index(&mut self, definition: ObjectIndex) -> Result<(), DuplicateIndex> {
        if self.next.has_index(definition.name()) {
            return Err(DuplicateIndex(definition.name().to_owned()));
        }
        let (hashing, definition) = (self.next.hashing.clone(), Arc::new(definition));
        let mut index = SnapshotIndex { hashing, definition, buckets: CowMap::new() };
        for stored in self.next.objects.iter() {
            index.put(stored, &index.values(&stored.held));
        }
        self.next.indexes.push(index);
        Ok(())
    }
}

impl_debug!(WriteBatch, this => len: this.next.objects.len());

impl SnapshotIndex {
    fn bucket(&self, value: &IndexValue) -> Option<&ObjectTable> {
        self.buckets.find(self.hashing.of(value), |(held, _)| held == value).map(|(_, bucket)| bucket)
    }

    fn under(&self, values: &BTreeSet<String>) -> Vec<&ObjectTable> {
        values.iter().filter_map(|value| self.bucket(&IndexValue::from(value))).collect()
    }

    /// Works out under which values an object belongs, each once.
    fn values(&self, held: &CachedObject) -> Vec<IndexValue> {
        let mut values = self.definition.values(held).unwrap_or_else(|error| {
            let index = self.definition.name();
            tracing::warn!(index, object = %held.key(), error, "object left out of an index");
            Vec::new()
        });
        if values.len() > 1 {
            values.sort_unstable();
            values.dedup();
        }
        values
    }

    fn put(&mut self, stored: &StoredObject, under: &[IndexValue]) {
        for value in under {
            put_under(&mut self.buckets, self.hashing.of(value), value, stored);
        }
    }

    /// Says where a new state of an object belongs, and where only its old one did.
    fn change(&self, old: Option<&CachedObject>, under: Vec<IndexValue>) -> IndexChange {
        let mut left = old.map(|old| self.definition.values(old).unwrap_or_default()).unwrap_or_default();
        // They are sorted.
        left.retain(|value| under.binary_search(value).is_err());
        IndexChange { left, under }
    }
}

/// Counts what some sets hold together.
pub(super) fn total(buckets: &[&ObjectTable]) -> usize {
    buckets.iter().map(|bucket| bucket.len()).sum()
}

fn put(bucket: &mut ObjectTable, stored: &StoredObject) -> Option<CachedObject> {
    let same = |other: &StoredObject| other.held.key() == stored.held.key();
    bucket.insert(stored.held.hash(), same, stored.clone()).map(|old| old.held)
}

fn put_under<V: Clone + Eq + Hash>(buckets: &mut Buckets<V>, hash: u64, value: &V, stored: &StoredObject) {
    match buckets.find_mut(hash, |(held, _)| held == value) {
        Some((_, bucket)) => drop(put(bucket, stored)),
        None => {
            let mut bucket = CowMap::new();
            put(&mut bucket, stored);
            buckets.insert(hash, |_| false, (value.clone(), bucket));
        }
    }
}

fn take(bucket: &mut ObjectTable, held: &CachedObject) -> Option<CachedObject> {
    bucket.remove(held.hash(), |stored| stored.held.key() == held.key()).map(|old| old.held)
}

/// Takes an object out of a value's bucket, and the bucket out once it is empty.
fn take_from<V: Clone + Eq + Hash>(buckets: &mut Buckets<V>, hash: u64, value: &V, held: &CachedObject) {
    let Some((_, bucket)) = buckets.find_mut(hash, |(held, _)| held == value) else { return };
    take(bucket, held);
    if bucket.is_empty() {
        buckets.remove(hash, |(held, _)| held == value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl StoreSnapshot {
        pub(in crate::store) fn has_empty_bucket(&self) -> bool {
            self.namespaces.iter().any(|(_, bucket)| bucket.is_empty())
                || self.indexes.iter().any(|index| index.buckets.iter().any(|(_, bucket)| bucket.is_empty()))
        }
    }
}

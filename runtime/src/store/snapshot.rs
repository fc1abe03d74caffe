//! One moment of the store: objects, namespaces, indexes, marks and versions.

use std::{collections::BTreeSet, hash::Hash, sync::Arc};

use super::{
    cached_object::CachedObject,
    cow_map::{CowMap, Hashing},
    index::{IndexDefinition, IndexValue},
    selector::{Needed, Selector},
};
use crate::{
    delta_fifo::Extent,
    list_watch::{LabelFilter, Unreadable},
    object::{Object, ObjectKey, Version},
};

/// Objects by key; all tables of a snapshot, and all snapshots, share what is held.
pub(super) type Bucket<K> = CowMap<Stored<K>>;
type Buckets<V, K> = CowMap<(V, Bucket<K>)>;

/// An object in a table, and what a scan needs to know of it.
pub(super) struct Stored<K> {
    pub(super) held: CachedObject<K>,
    pub(super) labels: LabelFilter,
}

/// Shows the store at one moment; a clone costs a handful of references.
pub(super) struct Snapshot<K> {
    hashing: Hashing,
    pub(super) objects: Bucket<K>,
    namespaces: Buckets<Arc<str>, K>,
    /// Whether a compact object was ever stored.
    pub(super) compact: bool,
    indexes: Vec<Index<K>>,
    pub(super) unreadable: CowMap<(ObjectKey, Arc<Unreadable>)>,
    versions: Vec<(Extent, Option<Version>)>,
}

struct Index<K> {
    hashing: Hashing,
    definition: Arc<IndexDefinition<K>>,
    buckets: Buckets<IndexValue, K>,
}

impl<K> Snapshot<K> {
    pub(super) fn new(hashing: Hashing) -> Self {
        Self {
            hashing,
            objects: CowMap::new(),
            namespaces: CowMap::new(),
            compact: false,
            indexes: Vec::new(),
            unreadable: CowMap::new(),
            versions: Vec::new(),
        }
    }

    /// Finds an object by the parts of its key, without building one.
    pub(super) fn get(&self, namespace: Option<&str>, name: &str) -> Option<&CachedObject<K>> {
        let same = |stored: &Stored<K>| {
            let key = stored.held.key();
            // A key that the store gave out shares its text, which is then not looked at: it is seldom at hand.
            (std::ptr::eq(key.name(), name) || key.name() == name) && key.namespace() == namespace
        };
        self.objects.find(self.hashing.of(&(namespace, name)), same).map(|stored| &stored.held)
    }

    /// Hashes a key as the tables do.
    pub(super) fn hash(&self, key: &ObjectKey) -> u64 {
        self.hashing.of(key)
    }

    pub(super) fn mark(&self, key: &ObjectKey) -> Option<&Arc<Unreadable>> {
        if self.unreadable.is_empty() {
            return None;
        }
        self.unreadable.find(self.hashing.of(key), |(held, _)| held == key).map(|(_, unreadable)| unreadable)
    }

    /// Finds the objects of a namespace.
    pub(super) fn namespace(&self, namespace: &str) -> Option<&Bucket<K>> {
        self.shared_namespace(namespace).map(|(_, bucket)| bucket)
    }

    fn shared_namespace(&self, namespace: &str) -> Option<&(Arc<str>, Bucket<K>)> {
        self.namespaces.find(self.hashing.of(namespace), |(held, _)| **held == *namespace)
    }

    /// Finds what an index holds under a value; the outer `None` means that there is no such index.
    pub(super) fn indexed(&self, index: &str, value: &IndexValue) -> Option<Option<&Bucket<K>>> {
        let index = self.indexes.iter().find(|held| held.definition.name() == index)?;
        Some(index.bucket(value))
    }

    /// Returns the version that every extent has reached.
    pub(super) fn version(&self) -> Option<Version> {
        let versions: Option<Vec<Version>> = self.versions.iter().map(|(_, version)| *version).collect();
        versions?.into_iter().min()
    }

    pub(super) fn version_of(&self, extent: &Extent) -> Option<Version> {
        self.versions.iter().find(|(held, _)| held == extent).and_then(|(_, version)| *version)
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
        let objects = objects.into_iter().flat_map(Bucket::iter).map(|stored| stored.held.key());
        objects.chain(only_marked).cloned().collect()
    }

    fn set_version(&mut self, extent: &Extent, version: Option<Version>) {
        match self.versions.iter_mut().find(|(held, _)| held == extent) {
            Some((_, held)) => *held = version,
            None => self.versions.push((extent.clone(), version)),
        }
    }

    fn set_mark(&mut self, key: &ObjectKey, unreadable: &Arc<Unreadable>) {
        let mark = (key.clone(), unreadable.clone());
        self.unreadable.insert(self.hashing.of(key), |(held, _)| held == key, mark);
    }

    fn clear_mark(&mut self, key: &ObjectKey) {
        self.unreadable.remove(self.hashing.of(key), |(held, _)| held == key);
    }

    pub(super) fn has_index(&self, name: &str) -> bool {
        self.indexes.iter().any(|index| index.definition.name() == name)
    }

    /// Names an object as the store does already, or else with the namespace that others of it share.
    pub(super) fn key(&self, namespace: Option<&str>, name: impl AsRef<str> + Into<Arc<str>>) -> ObjectKey {
        if let Some(held) = self.get(namespace.filter(|namespace| !namespace.is_empty()), name.as_ref()) {
            return held.key().clone();
        }
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).map(|namespace| {
            let shared = self.shared_namespace(namespace);
            shared.map_or_else(|| namespace.into(), |(shared, _)| shared.clone())
        });
        ObjectKey::from_parts(namespace, name.into())
    }

    #[cfg(test)]
    pub(super) fn has_empty_bucket(&self) -> bool {
        self.namespaces.iter().any(|(_, bucket)| bucket.is_empty())
            || self.indexes.iter().any(|index| index.buckets.iter().any(|(_, bucket)| bucket.is_empty()))
    }
}

/// A change with all that it takes, so that another snapshot that shows the same can follow.
pub(super) enum Step<K> {
    /// Puts an object in, everywhere at once.
    Put(Stored<K>, Vec<Moved>),
    /// Takes an object out, everywhere at once.
    Take(CachedObject<K>, Vec<Moved>),
    Mark(ObjectKey, Arc<Unreadable>),
    ClearMark(ObjectKey),
    Version(Extent, Option<Version>),
}

/// Where an index no longer holds an object, and where it does.
#[derive(Default)]
pub(super) struct Moved {
    from: Vec<IndexValue>,
    to: Vec<IndexValue>,
}

impl<K: Object> Snapshot<K> {
    /// Says what it takes to put an object in. Here indexes ask the user's code what they hold it under.
    pub(super) fn put(&self, held: CachedObject<K>) -> Step<K> {
        let stored = Stored { labels: held.labels(), held };
        let old = match self.indexes.is_empty() {
            true => None,
            false => self.stored(stored.held.key(), stored.held.hash()),
        };
        let to: Vec<_> = self.indexes.iter().map(|index| index.values(&stored.held)).collect();
        // Of bytes, the old values are not read once more where they are seen to be the new ones.
        let count = to.iter().map(Vec::len).sum();
        let stays = old.filter(|old| old.index_values() == Some(count) && self.stands_under(old, &to));
        stored.held.note_index_values(Some(count));
        let moved = self.indexes.iter().zip(to).map(|(index, to)| match (old, stays) {
            (Some(old), None) => index.moved(old, to),
            _ => Moved { from: Vec::new(), to },
        });
        let moved = moved.collect();
        Step::Put(stored, moved)
    }

    /// Returns whether an object stands under all these values, those of each index by themselves.
    fn stands_under(&self, held: &CachedObject<K>, values: &[Vec<IndexValue>]) -> bool {
        let mut indexed = self.indexes.iter().zip(values);
        indexed.all(|(index, values)| values.iter().all(|value| index.holds(held, value)))
    }

    /// Says what it takes to take an object out; `None` where it is not there.
    pub(super) fn take_out(&self, key: &ObjectKey) -> Option<Step<K>> {
        let held = self.stored(key, self.hash(key))?;
        let moved = self.indexes.iter().map(|index| index.moved(held, Vec::new())).collect();
        Some(Step::Take(held.clone(), moved))
    }

    fn stored(&self, key: &ObjectKey, hash: u64) -> Option<&CachedObject<K>> {
        self.objects.find(hash, |stored| stored.held.key() == key).map(|stored| &stored.held)
    }

    /// Takes a step; returns the object that is no longer there.
    pub(super) fn take(&mut self, step: &Step<K>) -> Option<CachedObject<K>> {
        match step {
            Step::Put(stored, moved) => {
                self.compact |= stored.held.typed_object().is_none();
                if let Some(namespace) = stored.held.key().shared_namespace() {
                    let hash = self.hashing.of(&**namespace);
                    put_under(&mut self.namespaces, hash, namespace, stored);
                }
                for (index, moved) in self.indexes.iter_mut().zip(moved) {
                    index.take(&stored.held, &moved.from);
                    index.put(stored, &moved.to);
                }
                put(&mut self.objects, stored)
            }
            Step::Take(held, moved) => {
                if let Some(namespace) = held.key().shared_namespace() {
                    let hash = self.hashing.of(&**namespace);
                    take_from(&mut self.namespaces, hash, namespace, held);
                }
                self.indexes.iter_mut().zip(moved).for_each(|(index, moved)| index.take(held, &moved.from));
                self.objects.remove(held.hash(), |stored| stored.held.key() == held.key()).map(|old| old.held)
            }
            Step::Mark(key, unreadable) => {
                self.set_mark(key, unreadable);
                None
            }
            Step::ClearMark(key) => {
                self.clear_mark(key);
                None
            }
            Step::Version(extent, version) => {
                self.set_version(extent, *version);
                None
            }
        }
    }

    /// Adds an index and fills it with what is there.
    pub(super) fn add_index(&mut self, definition: IndexDefinition<K>) {
        let (hashing, definition) = (self.hashing.clone(), Arc::new(definition));
        let mut index = Index { hashing, definition, buckets: CowMap::new() };
        for stored in self.objects.iter() {
            stored.held.note_index_values(None);
            index.put(stored, &index.values(&stored.held));
        }
        self.indexes.push(index);
    }
}

impl<K> Snapshot<K> {
    /// Finds, by a label index, sets that hold all that a selector can match; `None` where no index helps.
    ///
    /// It takes the most selective index; one that only shows which objects have the label comes last.
    pub(super) fn narrowed(&self, selector: &Selector) -> Option<Vec<&Bucket<K>>> {
        let indexed = |key: &str| self.indexes.iter().find(|index| index.definition.label_key() == Some(key));
        let needed = || selector.needed().filter_map(|(key, needed)| Some((indexed(key)?, needed)));
        let one_of = needed().filter_map(|(index, needed)| match needed {
            Needed::OneOf(values) => Some(index.under(values)),
            Needed::Any => None,
        });
        let least = one_of.min_by_key(|buckets| total(buckets));
        least.or_else(|| {
            let (index, _) = needed().next()?;
            Some(index.buckets.iter().map(|(_, bucket)| bucket).collect())
        })
    }
}

impl<K> Index<K> {
    fn bucket(&self, value: &IndexValue) -> Option<&Bucket<K>> {
        self.buckets.find(self.hashing.of(value), |(held, _)| held == value).map(|(_, bucket)| bucket)
    }

    fn under(&self, values: &BTreeSet<String>) -> Vec<&Bucket<K>> {
        values.iter().filter_map(|value| self.bucket(&IndexValue::from(value))).collect()
    }
}

impl<K: Object> Index<K> {
    /// Says where an object's old state stands that its new one, which belongs there, does not.
    fn moved(&self, old: &CachedObject<K>, to: Vec<IndexValue>) -> Moved {
        let mut from = self.definition.values(old).unwrap_or_default();
        from.retain(|value| !to.contains(value));
        Moved { from, to }
    }

    /// Works out under which values an object belongs, each once.
    fn values(&self, held: &CachedObject<K>) -> Vec<IndexValue> {
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

    fn holds(&self, held: &CachedObject<K>, value: &IndexValue) -> bool {
        let same = |stored: &Stored<K>| stored.held.is_same(held);
        self.bucket(value).is_some_and(|bucket| bucket.find(held.hash(), same).is_some())
    }
}

impl<K> Index<K> {
    fn take(&mut self, held: &CachedObject<K>, from: &[IndexValue]) {
        for value in from {
            take_from(&mut self.buckets, self.hashing.of(value), value, held);
        }
    }

    fn put(&mut self, stored: &Stored<K>, under: &[IndexValue]) {
        for value in under {
            put_under(&mut self.buckets, self.hashing.of(value), value, stored);
        }
    }
}

/// Counts what some sets hold together.
pub(super) fn total<K>(buckets: &[&Bucket<K>]) -> usize {
    buckets.iter().map(|bucket| bucket.len()).sum()
}

fn put<K>(bucket: &mut Bucket<K>, stored: &Stored<K>) -> Option<CachedObject<K>> {
    let same = |other: &Stored<K>| other.held.key() == stored.held.key();
    bucket.insert(stored.held.hash(), same, stored.clone()).map(|old| old.held)
}

fn put_under<V: Clone + Eq + Hash, K>(buckets: &mut Buckets<V, K>, hash: u64, value: &V, stored: &Stored<K>) {
    match buckets.find_mut(hash, |(held, _)| held == value) {
        Some((_, bucket)) => drop(put(bucket, stored)),
        None => {
            let bucket = CowMap::of(stored.held.hash(), stored.clone());
            buckets.insert(hash, |_| false, (value.clone(), bucket));
        }
    }
}

/// Takes an object out of a value's bucket, and the bucket out once it is empty.
fn take_from<V: Clone + Eq + Hash, K>(
    buckets: &mut Buckets<V, K>,
    hash: u64,
    value: &V,
    held: &CachedObject<K>,
) {
    let Some((_, bucket)) = buckets.find_mut(hash, |(held, _)| held == value) else { return };
    bucket.remove(held.hash(), |stored| stored.held.key() == held.key());
    if bucket.is_empty() {
        buckets.remove(hash, |(held, _)| held == value);
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self {
            hashing: self.hashing.clone(),
            objects: self.objects.clone(),
            namespaces: self.namespaces.clone(),
            compact: self.compact,
            indexes: self.indexes.clone(),
            unreadable: self.unreadable.clone(),
            versions: self.versions.clone(),
        }
    }
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        let (hashing, definition) = (self.hashing.clone(), self.definition.clone());
        Self { hashing, definition, buckets: self.buckets.clone() }
    }
}

impl<K> Clone for Stored<K> {
    fn clone(&self) -> Self {
        Self { held: self.held.clone(), labels: self.labels }
    }
}

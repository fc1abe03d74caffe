//! One moment of the store: objects, namespaces, indexes, marks and versions.

use std::sync::Arc;

use super::{
    cow_map::{CowMap, hash_of},
    index::{IndexDefinition, IndexValue},
};
use crate::{
    delta_fifo::Extent,
    list_watch::Unreadable,
    object::{Object, ObjectKey, Version},
};

/// Holds one object under its key; shared by all tables of a snapshot, and by snapshots.
pub(super) struct Slot<K> {
    pub(super) key: ObjectKey,
    pub(super) object: Arc<K>,
}

pub(super) type Bucket<K> = CowMap<Arc<Slot<K>>>;
type Buckets<V, K> = CowMap<(V, Bucket<K>)>;

/// Shows the store at one moment; a clone costs a handful of references.
pub(super) struct Snapshot<K> {
    pub(super) objects: Bucket<K>,
    namespaces: Buckets<Arc<str>, K>,
    indexes: Vec<Index<K>>,
    pub(super) unreadable: CowMap<(ObjectKey, Arc<Unreadable>)>,
    versions: Vec<(Extent, Option<Version>)>,
}

struct Index<K> {
    definition: IndexDefinition<K>,
    buckets: Buckets<IndexValue, K>,
}

impl<K> Snapshot<K> {
    pub(super) fn new() -> Self {
        Self {
            objects: CowMap::new(),
            namespaces: CowMap::new(),
            indexes: Vec::new(),
            unreadable: CowMap::new(),
            versions: Vec::new(),
        }
    }

    /// Finds an object by the parts of its key, without building one.
    pub(super) fn get(&self, namespace: Option<&str>, name: &str) -> Option<&Arc<K>> {
        let same = |slot: &Arc<Slot<K>>| slot.key.name() == name && slot.key.namespace() == namespace;
        self.objects.find(hash_of(&(namespace, name)), same).map(|slot| &slot.object)
    }

    pub(super) fn mark(&self, key: &ObjectKey) -> Option<&Arc<Unreadable>> {
        if self.unreadable.is_empty() {
            return None;
        }
        self.unreadable.find(hash_of(key), |(held, _)| held == key).map(|(_, unreadable)| unreadable)
    }

    pub(super) fn namespace(&self, namespace: &str) -> Option<&Bucket<K>> {
        self.namespaces.find(hash_of(namespace), |(held, _)| **held == *namespace).map(|(_, bucket)| bucket)
    }

    /// Finds what an index holds under a value; the outer `None` means that there is no such index.
    pub(super) fn indexed(&self, index: &str, value: &IndexValue) -> Option<Option<&Bucket<K>>> {
        let index = self.indexes.iter().find(|held| held.definition.name() == index)?;
        Some(index.buckets.find(hash_of(value), |(held, _)| held == value).map(|(_, bucket)| bucket))
    }

    /// Returns the version that every extent has reached.
    pub(super) fn version(&self) -> Option<Version> {
        let versions: Option<Vec<Version>> = self.versions.iter().map(|(_, version)| *version).collect();
        versions?.into_iter().min()
    }

    pub(super) fn version_of(&self, extent: &Extent) -> Option<Version> {
        self.versions.iter().find(|(held, _)| held == extent).and_then(|(_, version)| *version)
    }

    pub(super) fn set_version(&mut self, extent: &Extent, version: Option<Version>) {
        match self.versions.iter_mut().find(|(held, _)| held == extent) {
            Some((_, held)) => *held = version,
            None => self.versions.push((extent.clone(), version)),
        }
    }
}

impl<K: Object> Snapshot<K> {
    /// Puts an object in, everywhere at once; returns the one it replaces.
    pub(super) fn upsert(&mut self, key: &ObjectKey, object: Arc<K>) -> Option<Arc<K>> {
        let slot = Arc::new(Slot { key: self.interned(key), object });
        let old = put(&mut self.objects, &slot);
        if let Some(namespace) = slot.key.shared_namespace() {
            put_under(&mut self.namespaces, namespace, &slot);
        }
        for index in &mut self.indexes {
            index.replace(old.as_ref(), Some(&slot));
        }
        old.map(|slot| slot.object.clone())
    }

    /// Takes an object out, everywhere at once.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let slot = self.objects.remove(hash_of(key), |slot| slot.key == *key)?;
        if let Some(namespace) = slot.key.shared_namespace() {
            take_from(&mut self.namespaces, namespace, &slot.key);
        }
        for index in &mut self.indexes {
            index.replace(Some(&slot), None);
        }
        Some(slot.object.clone())
    }

    pub(super) fn set_mark(&mut self, key: &ObjectKey, unreadable: Arc<Unreadable>) {
        self.unreadable.insert(hash_of(key), |(held, _)| held == key, (key.clone(), unreadable));
    }

    pub(super) fn clear_mark(&mut self, key: &ObjectKey) -> Option<Arc<Unreadable>> {
        if self.unreadable.is_empty() {
            return None;
        }
        self.unreadable.remove(hash_of(key), |(held, _)| held == key).map(|(_, unreadable)| unreadable)
    }

    pub(super) fn has_index(&self, name: &str) -> bool {
        self.indexes.iter().any(|index| index.definition.name() == name)
    }

    /// Adds an index and fills it with what is there.
    pub(super) fn add_index(&mut self, definition: IndexDefinition<K>) {
        let mut index = Index { definition, buckets: CowMap::new() };
        for slot in self.objects.iter() {
            index.replace(None, Some(slot));
        }
        self.indexes.push(index);
    }

    #[cfg(test)]
    pub(super) fn has_empty_bucket(&self) -> bool {
        self.namespaces.iter().any(|(_, bucket)| bucket.is_empty())
            || self.indexes.iter().any(|index| index.buckets.iter().any(|(_, bucket)| bucket.is_empty()))
    }

    /// Shares the namespace's text among all keys of the namespace.
    fn interned(&self, key: &ObjectKey) -> ObjectKey {
        let held = key.namespace().and_then(|namespace| {
            self.namespaces.find(hash_of(namespace), |(held, _)| **held == *namespace).map(|(held, _)| held)
        });
        match held {
            Some(namespace) => ObjectKey::from_parts(Some(namespace.clone()), key.name().into()),
            None => key.clone(),
        }
    }
}

impl<K: Object> Index<K> {
    /// Moves an object from where its old state stood to where the new one belongs.
    fn replace(&mut self, old: Option<&Arc<Slot<K>>>, new: Option<&Arc<Slot<K>>>) {
        let before = old.and_then(|slot| self.definition.values(&slot.object).ok()).unwrap_or_default();
        let after = new.map(|slot| self.values(slot)).unwrap_or_default();
        for value in before.iter().filter(|value| !after.contains(value)) {
            if let Some(slot) = old {
                take_from(&mut self.buckets, value, &slot.key);
            }
        }
        for value in &after {
            if let Some(slot) = new {
                put_under(&mut self.buckets, value, slot);
            }
        }
    }

    fn values(&self, slot: &Slot<K>) -> Vec<IndexValue> {
        self.definition.values(&slot.object).unwrap_or_else(|error| {
            let index = self.definition.name();
            tracing::warn!(index, object = %slot.key, error, "object left out of an index");
            Vec::new()
        })
    }
}

fn put<K>(bucket: &mut Bucket<K>, slot: &Arc<Slot<K>>) -> Option<Arc<Slot<K>>> {
    bucket.insert(hash_of(&slot.key), |held| held.key == slot.key, slot.clone())
}

fn put_under<V, K>(buckets: &mut Buckets<V, K>, value: &V, slot: &Arc<Slot<K>>)
where
    V: Clone + Eq + std::hash::Hash,
{
    let hash = hash_of(value);
    match buckets.find_mut(hash, |(held, _)| held == value) {
        Some((_, bucket)) => drop(put(bucket, slot)),
        None => {
            let mut bucket = CowMap::new();
            put(&mut bucket, slot);
            buckets.insert(hash, |(held, _)| held == value, (value.clone(), bucket));
        }
    }
}

/// Takes a key out of a value's bucket, and the bucket out once it is empty.
fn take_from<V, K>(buckets: &mut Buckets<V, K>, value: &V, key: &ObjectKey)
where
    V: Clone + Eq + std::hash::Hash,
{
    let hash = hash_of(value);
    let Some((_, bucket)) = buckets.find_mut(hash, |(held, _)| held == value) else { return };
    bucket.remove(hash_of(key), |held| held.key == *key);
    if bucket.is_empty() {
        buckets.remove(hash, |(held, _)| held == value);
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            namespaces: self.namespaces.clone(),
            indexes: self.indexes.clone(),
            unreadable: self.unreadable.clone(),
            versions: self.versions.clone(),
        }
    }
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { definition: self.definition.clone(), buckets: self.buckets.clone() }
    }
}

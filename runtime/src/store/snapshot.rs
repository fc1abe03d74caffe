//! One moment of the store: objects, namespaces, indexes, marks and versions.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    cow_map::{CowMap, hash_of},
    held::Held,
    index::{IndexDefinition, IndexValue},
    selector::{Needed, Selector},
};
use crate::{
    delta_fifo::Extent,
    list_watch::Unreadable,
    object::{Object, ObjectKey, Version},
};

/// Objects by key; all tables of a snapshot, and all snapshots, share what is held.
pub(super) type Bucket<K> = CowMap<Held<K>>;
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
    pub(super) fn get(&self, namespace: Option<&str>, name: &str) -> Option<&Held<K>> {
        let same = |held: &Held<K>| held.key().name() == name && held.key().namespace() == namespace;
        self.objects.find(hash_of(&(namespace, name)), same)
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
    pub(super) fn upsert(&mut self, held: Held<K>) -> Option<Held<K>> {
        let old = put(&mut self.objects, &held);
        if let Some(namespace) = held.key().shared_namespace() {
            put_under(&mut self.namespaces, namespace, &held);
        }
        for index in &mut self.indexes {
            index.replace(old.as_ref(), Some(&held));
        }
        old
    }

    /// Takes an object out, everywhere at once.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Held<K>> {
        let held = self.objects.remove(hash_of(key), |held| held.key() == key)?;
        if let Some(namespace) = held.key().shared_namespace() {
            take_from(&mut self.namespaces, namespace, held.key());
        }
        for index in &mut self.indexes {
            index.replace(Some(&held), None);
        }
        Some(held)
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
        for held in self.objects.iter() {
            index.replace(None, Some(held));
        }
        self.indexes.push(index);
    }

    #[cfg(test)]
    pub(super) fn has_empty_bucket(&self) -> bool {
        self.namespaces.iter().any(|(_, bucket)| bucket.is_empty())
            || self.indexes.iter().any(|index| index.buckets.iter().any(|(_, bucket)| bucket.is_empty()))
    }
}

impl<K> Snapshot<K> {
    /// Shares the namespace's text among all keys of the namespace.
    pub(super) fn interned(&self, key: ObjectKey) -> ObjectKey {
        let held = key.namespace().and_then(|namespace| {
            self.namespaces.find(hash_of(namespace), |(held, _)| **held == *namespace).map(|(held, _)| held)
        });
        match held {
            Some(namespace) => ObjectKey::from_parts(Some(namespace.clone()), key.shared_name().clone()),
            None => key,
        }
    }

    /// Finds, by a label index, sets that hold all that a selector can match; `None` where no index helps.
    ///
    /// Of several indexes it takes the one that leaves least; one that only tells who has the label comes last.
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
    fn under(&self, values: &BTreeSet<String>) -> Vec<&Bucket<K>> {
        let bucket = |value: &String| {
            let value = IndexValue::from(value);
            self.buckets.find(hash_of(&value), |(held, _)| *held == value).map(|(_, bucket)| bucket)
        };
        values.iter().filter_map(bucket).collect()
    }
}

impl<K: Object> Index<K> {
    /// Moves an object from where its old state stood to where the new one belongs.
    fn replace(&mut self, old: Option<&Held<K>>, new: Option<&Held<K>>) {
        let before = old.and_then(|held| self.definition.values(held).ok()).unwrap_or_default();
        let after = new.map(|held| self.values(held)).unwrap_or_default();
        for value in before.iter().filter(|value| !after.contains(value)) {
            if let Some(held) = old {
                take_from(&mut self.buckets, value, held.key());
            }
        }
        for value in &after {
            if let Some(held) = new {
                put_under(&mut self.buckets, value, held);
            }
        }
    }

    fn values(&self, held: &Held<K>) -> Vec<IndexValue> {
        self.definition.values(held).unwrap_or_else(|error| {
            let index = self.definition.name();
            tracing::warn!(index, object = %held.key(), error, "object left out of an index");
            Vec::new()
        })
    }
}

/// Counts what some sets hold together.
pub(super) fn total<K>(buckets: &[&Bucket<K>]) -> usize {
    buckets.iter().map(|bucket| bucket.len()).sum()
}

fn put<K>(bucket: &mut Bucket<K>, held: &Held<K>) -> Option<Held<K>> {
    bucket.insert(hash_of(held.key()), |other| other.key() == held.key(), held.clone())
}

fn put_under<V, K>(buckets: &mut Buckets<V, K>, value: &V, object: &Held<K>)
where
    V: Clone + Eq + std::hash::Hash,
{
    let hash = hash_of(value);
    match buckets.find_mut(hash, |(held, _)| held == value) {
        Some((_, bucket)) => drop(put(bucket, object)),
        None => {
            let mut bucket = CowMap::new();
            put(&mut bucket, object);
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
    bucket.remove(hash_of(key), |held| held.key() == key);
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

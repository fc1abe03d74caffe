//! The store's one writer: changes are made in batches, and published as one snapshot.

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    cached_object::{CachedObject, StoredType},
    cow_map::Hashing,
    decoded::DecodedObjects,
    index::{DuplicateIndex, IndexDefinition, ObjectIndex},
    lister::{Lister, SharedStore},
    snapshot::{NotedChanges, StoreSnapshot, WriteBatch},
    spare::Spare,
};
use crate::{
    delta_fifo::Extent,
    list_watch::{RawObject, Unreadable},
    object::{Object, ObjectKey},
};

/// Writes the store; usable alone, or fed by an informer.
///
/// Every write publishes a new snapshot; [`write`](Indexer::write) makes many changes and publishes once. Writers
/// wait for each other, never for readers. Clones write the same store.
pub struct Indexer<K: ?Sized> {
    shared: Arc<SharedStore>,
    object: PhantomData<fn(&K)>,
}

impl<K: Object> Indexer<K> {
    /// Creates an empty store without indexes.
    pub fn new() -> Self {
        Self::seeded(None)
    }

    /// Creates an empty store. A seed makes the list order reproducible; without one it is random.
    pub fn seeded(seed: Option<u64>) -> Self {
        Self::of_type(StoredType::of::<K>(), seed)
    }

    /// Creates an empty store with indexes, such as [`Watched::indexes`](crate::informer::Watched::indexes).
    ///
    /// # Errors
    /// Two of them bear one name.
    pub fn with_indexes(
        definitions: impl IntoIterator<Item = IndexDefinition<K>>,
    ) -> Result<Self, DuplicateIndex> {
        let indexer = Self::new();
        definitions.into_iter().try_for_each(|definition| indexer.add_index(definition))?;
        Ok(indexer)
    }

    /// Adds an index and fills it with the objects that are there.
    ///
    /// # Errors
    /// An index of that name exists.
    pub fn add_index(&self, definition: IndexDefinition<K>) -> Result<(), DuplicateIndex> {
        self.index(definition.erased())
    }

    /// Adds or replaces an object; returns the one it replaces.
    pub fn upsert(&self, object: Arc<K>) -> Option<CachedObject<K>> {
        self.write(|batch| batch.upsert(object)).map(CachedObject::cast)
    }

    /// Makes the store hold these objects and no others.
    pub fn replace(&self, objects: impl IntoIterator<Item = Arc<K>>) {
        self.write(|batch| {
            batch
                .keys(&Extent::All)
                .iter()
                .for_each(|key| drop((batch.delete(key), batch.clear_unreadable(key))));
            objects.into_iter().for_each(|object| drop(batch.upsert(object)));
        });
    }
}

impl<K: ?Sized> Indexer<K> {
    /// Creates an empty store of objects of a type, which may be forgotten.
    pub(crate) fn of_type(object: StoredType, seed: Option<u64>) -> Self {
        let hashing = Hashing::new(seed);
        let shared = SharedStore {
            published: ArcSwap::from_pointee(StoreSnapshot::new(hashing)),
            moved: watch::Sender::new(()),
            decoded: Arc::new(DecodedObjects::new(object.object)),
            object,
            writing: Mutex::default(),
        };
        Self { shared: Arc::new(shared), object: PhantomData }
    }

    /// Returns a reader; any number may exist.
    pub fn lister(&self) -> Lister<K> {
        Lister::reading(self.shared.clone())
    }

    /// Adds an index; see [`add_index`](Indexer::add_index).
    pub(crate) fn index(&self, index: ObjectIndex) -> Result<(), DuplicateIndex> {
        self.write(|batch| batch.add_index(index))
    }

    /// Makes several changes and publishes them as one.
    ///
    /// If the closure panics, nothing of it is published.
    pub fn write<R>(&self, changes: impl FnOnce(&mut WriteBatch) -> R) -> R {
        let mut spare = self.shared.writing.lock();
        let (next, behind) = self.next(spare.take());
        let (object, decoded) = (self.shared.object, self.shared.decoded.clone());
        let mut batch = WriteBatch { next, changes: NotedChanges::new(), object, decoded };
        let answer = changes(&mut batch);
        let WriteBatch { next, changes, .. } = batch;
        let is_compact = next.compact;
        let before = self.shared.published.swap(Arc::new(next));
        fence(Ordering::SeqCst);
        if self.shared.moved.receiver_count() > 0 {
            self.shared.moved.send_replace(());
        }
        let published = self.shared.published.load();
        let behind = match behind {
            Some((behind, missing)) => (behind, missing.followed_by(changes, published.objects.len())),
            None => (before, changes),
        };
        *spare = Spare::Behind(behind.0, behind.1).caught_up(&published);
        if is_compact {
            self.shared.decoded.sweep_if_due();
        }
        answer
    }

    /// Returns the snapshot that a write changes, and a copy that a reader holds, with what it lacks.
    fn next(&self, spare: Option<Spare>) -> (StoreSnapshot, Option<(Arc<StoreSnapshot>, NotedChanges)>) {
        let published = self.shared.published.load();
        match spare.and_then(|spare| spare.caught_up(&published)) {
            Some(Spare::Ready(next)) => (next, None),
            Some(Spare::Behind(behind, missing)) => {
                (StoreSnapshot::clone(&published), Some((behind, missing)))
            }
            None => (StoreSnapshot::clone(&published), None),
        }
    }

    /// Adds or replaces an object that is kept as bytes, and decoded when somebody reads it.
    pub fn upsert_raw(&self, object: RawObject) -> Option<CachedObject<K>> {
        self.write(|batch| batch.upsert_raw(object)).map(CachedObject::cast)
    }

    /// Removes an object; returns it if it was there.
    pub fn delete(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        self.write(|batch| batch.delete(key)).map(CachedObject::cast)
    }

    /// Calls this with each object that turns out not to decode when it is read; the first that is given stays.
    ///
    /// Readers call it: it must return at once, and must not write the store.
    pub fn report_unreadable(&self, report: impl Fn(&Arc<Unreadable>) + Send + Sync + 'static) {
        self.shared.decoded.report_to(Box::new(report));
    }
}

impl<K: Object> Default for Indexer<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl_clone!([K: ?Sized] Indexer<K>, shared, object);

impl_debug!([K: ?Sized] Indexer<K>, this => len: this.shared.published.load().objects.len());

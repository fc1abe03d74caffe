//! What a reflector writes to: transforms each object once, then queues it.

use std::{fmt, sync::Arc};

use super::{
    Audience, Delta, DeltaFifo, Extent, Transform,
    hidden::{Hidden, Originals},
};
use crate::{
    object::Object,
    reflector::{FetchReport, List, ReflectorStore, StoreChange},
};

/// Feeds one extent of a [`DeltaFifo`].
///
/// The transform, if there is one, runs here, before an object is queued; one that fails makes the object
/// unreadable, as if it had not decoded, until a later event, list or resync brings it through.
pub struct FifoSink<K> {
    fifo: DeltaFifo<K>,
    extent: Extent,
    hidden: Option<Arc<Hidden<K>>>,
}

impl<K: Object> DeltaFifo<K> {
    /// Opens an extent; what is returned is what its reflector writes to.
    ///
    /// Extents must not overlap, and are all opened before the first is fed: from then on `has_synced` waits for
    /// each of them.
    pub fn sink(&self, extent: Extent, transform: Option<Transform<K>>) -> FifoSink<K> {
        let hidden = transform.map(|transform| Arc::new(Hidden::new(transform)));
        self.open(&extent, hidden.as_ref());
        FifoSink { fifo: self.clone(), extent, hidden }
    }
}

impl<K: Object> FifoSink<K> {
    /// Returns the extent that is fed.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Counts the deltas that wait, of all extents.
    pub fn waiting(&self) -> usize {
        self.fifo.len()
    }

    /// Numbers what is written here next, among all extents.
    pub(crate) fn next_number(&self) -> u64 {
        self.fifo.next_number()
    }

    /// Returns up to which number deltas have been handled.
    pub(crate) fn handled(&self) -> u64 {
        self.fifo.handled()
    }

    /// Returns whether all that was written here, or into other extents, has been handled.
    pub fn is_settled(&self) -> bool {
        self.fifo.is_settled()
    }

    /// Returns the transform that objects pass on their way in.
    pub fn transform(&self) -> Option<&Transform<K>> {
        self.hidden.as_ref().map(|hidden| hidden.transform())
    }

    fn delta(&self, change: StoreChange<K>, originals: &mut Option<Originals<'_, K>>) -> Delta<K> {
        match (change, self.hidden.as_ref().zip(originals.as_mut())) {
            (StoreChange::Upsert(item), None) => Delta::Upserted(item),
            (StoreChange::Upsert(item), Some((hidden, originals))) => {
                Delta::Upserted(hidden.transformed(originals, item))
            }
            (StoreChange::Delete(item), None) => Delta::Deleted(item),
            (StoreChange::Delete(item), Some((hidden, originals))) => {
                Delta::Deleted(hidden.transformed_last(originals, item))
            }
            (StoreChange::Bookmark(resource_version), _) => Delta::Reached(resource_version),
        }
    }
}

impl<K: Object> ReflectorStore<K> for FifoSink<K> {
    fn replace(&self, mut list: List<K>) {
        let mut originals = self.hidden.as_ref().map(|hidden| hidden.lock());
        if let Some((hidden, originals)) = self.hidden.as_ref().zip(originals.as_mut()) {
            originals.clear();
            let items = list.items.into_iter();
            list.items = items.map(|item| hidden.transformed(originals, item)).collect();
        }
        self.fifo.push(&self.extent, [Delta::Replaced(list)]);
    }

    fn apply(&self, changes: Vec<StoreChange<K>>) {
        let mut originals = self.hidden.as_ref().map(|hidden| hidden.lock());
        let deltas: Vec<_> = changes.into_iter().map(|change| self.delta(change, &mut originals)).collect();
        self.fifo.push(&self.extent, deltas);
    }

    fn resync(&self) {
        self.fifo.resync(Audience::All);
    }

    fn report(&self, report: FetchReport) {
        tracing::trace!(extent = %self.extent, ?report, "fetch report");
    }
}

impl<K> fmt::Debug for FifoSink<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoSink").field("extent", &self.extent).finish()
    }
}

//! What a reflector writes to: transforms each object once, then queues it.

use std::fmt;

use super::{Audience, Delta, DeltaFifo, Extent, Transform};
use crate::{
    list_watch::Item,
    object::Object,
    reflector::{Epoch, FetchReport, ReflectorStore, StoreChange},
};

/// Feeds one extent of a [`DeltaFifo`].
///
/// The transform, if there is one, runs here, before an object is queued; one that fails makes the object
/// unreadable, as if it had not decoded.
pub struct FifoSink<K> {
    fifo: DeltaFifo<K>,
    extent: Extent,
    transform: Option<Transform<K>>,
}

impl<K: Object> FifoSink<K> {
    pub(super) fn new(fifo: DeltaFifo<K>, extent: Extent, transform: Option<Transform<K>>) -> Self {
        Self { fifo, extent, transform }
    }

    /// Returns the extent that is fed.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    fn prepared(&self, item: Item<K>) -> Item<K> {
        match &self.transform {
            Some(transform) => transform.apply(item),
            None => item,
        }
    }
}

impl<K: Object> ReflectorStore<K> for FifoSink<K> {
    fn replace(&self, items: Vec<Item<K>>, resource_version: &str, epoch: Epoch) {
        let items = items.into_iter().map(|item| self.prepared(item)).collect();
        let resource_version = resource_version.to_owned();
        self.fifo.push(&self.extent, [Delta::Replaced { items, resource_version, epoch }]);
    }

    fn apply(&self, changes: Vec<StoreChange<K>>) {
        let delta = |change| match change {
            StoreChange::Upsert(item) => Delta::Upserted(self.prepared(item)),
            StoreChange::Delete(item) => Delta::Deleted(self.prepared(item)),
            StoreChange::Bookmark(resource_version) => Delta::Reached(resource_version),
        };
        let deltas: Vec<_> = changes.into_iter().map(delta).collect();
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

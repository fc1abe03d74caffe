//! The queue: what is pending, in which order, and what has been handled; and the sinks that feed it.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    num::NonZeroUsize,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{
    Audience, Delta, DeltaEntry, Extent, Sync, Transform,
    hidden::{Hidden, Originals},
};
use crate::{
    list_watch::FetchedItem,
    object::{Object, ObjectKey},
    reflector::{FetchReport, List, ReflectorStore, StoreChange},
};

/// Queues deltas for one consumer.
///
/// - Deltas leave in the order in which they came. A batch holds at most the limit asked for; a replace is a
///   batch of its own.
/// - Nothing is folded but repeated deletes of one key, consecutive bookmarks, and resyncs that wait.
/// - [`has_synced`](DeltaFifo::has_synced) is true once the first replace of *every* extent has been handled,
///   that is: once the batch that held it was dropped.
/// - Producers never wait, for the consumer or for each other's work.
///
/// Clones are the same queue. There is one consumer: two that pop at once share the deltas between them.
pub struct DeltaFifo<K> {
    shared: Arc<SharedFifo<K>>,
}

struct SharedFifo<K> {
    state: Mutex<FifoState<K>>,
    ready: Notify,
    hidden: Mutex<Vec<(Extent, Arc<Hidden<K>>)>>,
}

struct FifoState<K> {
    entries: VecDeque<DeltaEntry<K>>,
    /// The sequence number of the first entry.
    first: u64,
    /// The deletions that wait, with their numbers, as long as nothing else of their key follows.
    ///
    /// Only a deletion can fold what comes after it, so that other deltas need no key here.
    deletions: HashMap<ObjectKey, u64, foldhash::fast::RandomState>,
    /// Whether the first replace of each extent has been handled.
    extents: Vec<(Extent, bool)>,
    /// How many batches are being handled.
    under_way: usize,
    /// Up to which number deltas have been handled.
    handled: u64,
    closed: bool,
}

impl<K: Object> DeltaFifo<K> {
    /// Creates an empty queue without extents.
    pub fn new() -> Self {
        let state = FifoState {
            entries: VecDeque::new(),
            first: 0,
            deletions: HashMap::default(),
            extents: Vec::new(),
            under_way: 0,
            handled: 0,
            closed: false,
        };
        Self {
            shared: Arc::new(SharedFifo {
                state: Mutex::new(state),
                ready: Notify::new(),
                hidden: Mutex::default(),
            }),
        }
    }

    /// Opens an extent; what is returned is what its reflector writes to.
    ///
    /// Extents must not overlap, and are all opened before the first is fed: from then on `has_synced` waits for
    /// each of them.
    pub fn sink(&self, extent: Extent, transform: Option<Transform<K>>) -> FifoSink<K> {
        let hidden = transform.map(|transform| Arc::new(Hidden::new(transform)));
        self.shared.lock().extents.push((extent.clone(), false));
        if let Some(hidden) = &hidden {
            self.shared.hidden.lock().push((extent.clone(), hidden.clone()));
        }
        FifoSink { fifo: self.clone(), extent, hidden }
    }

    /// Takes the next batch, waiting for one; `None` once the queue is closed and empty.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn pop(&self, limit: NonZeroUsize) -> Option<Batch<K>> {
        loop {
            {
                let mut state = self.shared.lock();
                if !state.entries.is_empty() {
                    state.under_way += 1;
                    let entries = state.take(limit.get());
                    return Some(Batch::of(entries, state.first, &self.shared));
                }
                if state.closed {
                    return None;
                }
            }
            self.shared.ready.notified().await;
        }
    }

    /// Refuses further deltas, and ends the wait of a consumer once the queue is empty.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.ready.notify_one();
    }

    /// Returns whether the first replace of every extent has been handled.
    pub fn has_synced(&self) -> bool {
        let state = self.shared.lock();
        !state.extents.is_empty() && state.extents.iter().all(|(_, replaced)| *replaced)
    }

    /// Returns whether nothing waits and all that was popped has been handled.
    pub fn is_settled(&self) -> bool {
        let state = self.shared.lock();
        state.entries.is_empty() && state.under_way == 0
    }

    /// Numbers the delta that comes next.
    pub(crate) fn next_number(&self) -> u64 {
        let state = self.shared.lock();
        state.first + state.entries.len() as u64
    }

    /// Returns up to which number, exclusive, deltas have been handled.
    pub(crate) fn handled(&self) -> u64 {
        self.shared.lock().handled
    }

    /// Returns whether a resync waits.
    pub fn awaits_resync(&self) -> bool {
        self.shared.lock().entries.iter().any(|entry| matches!(entry.delta, Delta::Sync(_)))
    }

    /// Counts the deltas that wait.
    pub fn len(&self) -> usize {
        self.shared.lock().entries.len()
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks for every known object to be shown again; transforms that failed are tried again.
    pub fn resync(&self, audience: Audience) {
        let hidden = self.shared.hidden.lock().clone();
        for (extent, hidden) in hidden {
            let mut originals = hidden.lock();
            let seen = hidden.retry(&mut originals);
            self.push(&extent, seen);
        }
        self.shared.lock().sync(audience);
        self.shared.ready.notify_one();
    }

    /// Queues deltas of one extent, in order.
    fn push(&self, extent: &Extent, deltas: impl IntoIterator<Item = Delta<K>>) {
        {
            let mut state = self.shared.lock();
            for delta in deltas {
                state.push(DeltaEntry { extent: extent.clone(), delta });
            }
        }
        self.shared.ready.notify_one();
    }
}

impl<K> SharedFifo<K> {
    fn lock(&self) -> MutexGuard<'_, FifoState<K>> {
        self.state.lock()
    }
}

impl<K: Object> FifoState<K> {
    fn push(&mut self, entry: DeltaEntry<K>) {
        #[cfg(test)]
        crate::counted::count(1);
        if self.closed || self.folds(&entry) {
            return;
        }
        match &entry.delta {
            Delta::Deleted(item) => {
                let number = self.first + self.entries.len() as u64;
                self.deletions.extend(item.key().map(|key| (key, number)));
            }
            Delta::Upserted(item) if !self.deletions.is_empty() => {
                item.key().and_then(|key| self.deletions.remove(&key));
            }
            // It may hold what was deleted before: a restored server's does.
            Delta::Replaced(_) => self.deletions.clear(),
            _ => {}
        }
        self.entries.push_back(entry);
    }

    /// Returns whether an entry adds nothing to what waits; a repeated delete leaves its version behind.
    fn folds(&mut self, entry: &DeltaEntry<K>) -> bool {
        match &entry.delta {
            Delta::Reached(version) => self.reach(&entry.extent, version.clone()),
            Delta::Deleted(item) if self.deletes_already(item) => {
                if let Some(version) = item.resource_version() {
                    self.push(DeltaEntry {
                        extent: entry.extent.clone(),
                        delta: Delta::Reached(version.to_owned()),
                    });
                }
                true
            }
            _ => false,
        }
    }

    fn reach(&mut self, extent: &Extent, version: String) -> bool {
        match self.entries.back_mut() {
            Some(DeltaEntry { extent: unchanged, delta: Delta::Reached(reached) }) if unchanged == extent => {
                *reached = version;
                true
            }
            _ => false,
        }
    }

    /// Returns whether the last that waits for the key is the deletion of the same object, readable.
    fn deletes_already(&self, item: &FetchedItem<K>) -> bool {
        if self.deletions.is_empty() {
            return false;
        }
        let last = item.key().and_then(|key| self.deletions.get(&key)).map(|number| number - self.first);
        match last.and_then(|at| self.entries.get(at as usize)).map(|entry| &entry.delta) {
            Some(Delta::Deleted(unchanged @ (FetchedItem::Object(_) | FetchedItem::Raw(_)))) => {
                unchanged.uid() == item.uid() || item.uid().is_none()
            }
            _ => false,
        }
    }

    fn sync(&mut self, audience: Audience) {
        if self.closed {
            return;
        }
        #[cfg(test)]
        crate::counted::count(self.entries.len());
        for entry in &mut self.entries {
            if let Delta::Sync(unchanged) = &mut entry.delta {
                unchanged.audience = unchanged.audience.max(audience);
                return;
            }
        }
        let pending = self.entries.iter().filter_map(DeltaEntry::key).collect();
        let delta = Delta::Sync(Sync { audience, pending });
        self.entries.push_back(DeltaEntry { extent: Extent::All, delta });
    }

    /// Takes entries up to the limit; a replace only as the first and last, a resync only as the last.
    fn take(&mut self, limit: usize) -> Vec<DeltaEntry<K>> {
        let replaces = |entry: &DeltaEntry<K>| matches!(entry.delta, Delta::Replaced(_));
        let count = match self.entries.front() {
            Some(first) if replaces(first) => 1,
            _ => {
                let changes = self.entries.iter().take(limit).take_while(|entry| !replaces(entry)).count();
                let syncs = |entry: &DeltaEntry<K>| matches!(entry.delta, Delta::Sync(_));
                self.entries.iter().take(changes).position(syncs).map_or(changes, |at| at + 1)
            }
        };
        #[cfg(test)]
        crate::counted::count(count);
        let taken: Vec<DeltaEntry<K>> = self.entries.drain(..count).collect();
        self.first += count as u64;
        let deleted = taken.iter().filter(|entry| matches!(entry.delta, Delta::Deleted(_)));
        for key in deleted.filter_map(DeltaEntry::key) {
            if self.deletions.get(&key).is_some_and(|number| *number < self.first) {
                self.deletions.remove(&key);
            }
        }
        taken
    }
}

/// Deltas to handle; dropping it says that they were.
pub struct Batch<K> {
    entries: Vec<DeltaEntry<K>>,
    replaced: Option<Extent>,
    /// The number of the delta that follows.
    end: u64,
    shared: Arc<SharedFifo<K>>,
}

impl<K> Batch<K> {
    fn of(entries: Vec<DeltaEntry<K>>, end: u64, shared: &Arc<SharedFifo<K>>) -> Self {
        let replaces = |entry: &&DeltaEntry<K>| matches!(entry.delta, Delta::Replaced(_));
        let replaced = entries.iter().find(replaces).map(|entry| entry.extent.clone());
        Self { entries, replaced, end, shared: shared.clone() }
    }

    /// Takes the deltas out; the batch stays behind to say when they are handled.
    pub fn take(&mut self) -> Vec<DeltaEntry<K>> {
        std::mem::take(&mut self.entries)
    }
}

impl<K> Drop for Batch<K> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.under_way -= 1;
        state.handled = state.handled.max(self.end);
        let Some(replaced) = &self.replaced else { return };
        for (extent, is_replaced) in &mut state.extents {
            *is_replaced |= extent == replaced;
        }
    }
}

/// Feeds one extent of a [`DeltaFifo`].
///
/// The transform, if there is one, runs here, before an object is queued; one that fails makes the object
/// unreadable, as if it had not decoded, until a later event, list or resync brings it through.
pub struct FifoSink<K> {
    fifo: DeltaFifo<K>,
    extent: Extent,
    hidden: Option<Arc<Hidden<K>>>,
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

impl<K: Object> Default for DeltaFifo<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for DeltaFifo<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K> fmt::Debug for DeltaFifo<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifo").field("waiting", &self.shared.lock().entries.len()).finish()
    }
}

impl<K> fmt::Debug for Batch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("deltas", &self.entries.len()).finish()
    }
}

impl<K> fmt::Debug for FifoSink<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoSink").field("extent", &self.extent).finish()
    }
}

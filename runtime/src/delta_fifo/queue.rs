//! The queue: what is pending, in which order, and what has been handled; and the sinks that feed it.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    Delta, Extent, Transform,
    hidden::{Hidden, Originals},
};
use crate::{
    object::AnyObject,
    reflector::{FetchReport, List, ReflectorStore, StoreChange},
};

/// Queues deltas for one consumer.
///
/// - Deltas leave in the order in which they came. A batch holds at most the limit asked for; a replace is a
///   batch of its own.
/// - Nothing is folded but resyncs that wait.
/// - [`has_synced`](DeltaFifo::has_synced) is true once the first replace of *every* extent has been handled,
///   that is: once the batch that held it was dropped.
/// - Producers never wait, for the consumer or for each other's work.
///
/// Clones are the same queue. There is one consumer: two that pop at once share the deltas between them.
pub struct DeltaFifo<K: ?Sized> {
    shared: Arc<SharedFifo<K>>,
}

struct SharedFifo<K: ?Sized> {
    state: Mutex<FifoState<K>>,
    /// How many deltas were pushed and are not handled yet.
    unhandled: AtomicUsize,
    ready: Notify,
    hidden: Mutex<Vec<(Extent, Arc<Hidden<K>>)>>,
}

struct FifoState<K: ?Sized> {
    entries: VecDeque<(Extent, Delta<K>)>,
    /// Whether the first replace of each extent has been handled.
    extents: Vec<(Extent, bool)>,
    closed: bool,
}

impl<K: AnyObject + ?Sized> DeltaFifo<K> {
    /// Creates an empty queue without extents.
    pub fn new() -> Self {
        let state = FifoState { entries: VecDeque::new(), extents: Vec::new(), closed: false };
        let shared = SharedFifo {
            state: Mutex::new(state),
            unhandled: AtomicUsize::new(0),
            ready: Notify::new(),
            hidden: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Opens an extent; what is returned is what its reflector writes to.
    ///
    /// Extents must not overlap, and are all opened before the first is fed: from then on `has_synced` waits for
    /// each of them.
    pub fn sink(&self, extent: Extent, transform: Option<Transform<K>>) -> FifoSink<K> {
        let hidden = transform.map(|transform| Arc::new(Hidden::new(transform)));
        self.shared.state.lock().extents.push((extent.clone(), false));
        self.shared.hidden.lock().extend(hidden.clone().map(|hidden| (extent.clone(), hidden)));
        FifoSink { fifo: self.clone(), extent, hidden }
    }

    /// Takes the next batch, waiting for one; `None` once the queue is closed and empty.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn pop(&self, limit: NonZeroUsize) -> Option<Batch<K>> {
        loop {
            {
                let mut state = self.shared.state.lock();
                if !state.entries.is_empty() {
                    let replaces = |(_, delta): &(Extent, Delta<K>)| matches!(delta, Delta::Replaced(_));
                    let waiting = state.entries.iter().take(limit.get());
                    let changes = waiting.take_while(|entry| !replaces(entry)).count();
                    #[cfg(test)]
                    crate::counted::count(changes);
                    // A replace is taken alone.
                    let entries: Vec<_> = state.entries.drain(..changes.max(1)).collect();
                    let replaced = match &entries[..] {
                        [(extent, Delta::Replaced(_))] => Some(extent.clone()),
                        _ => None,
                    };
                    let count = entries.len();
                    return Some(Batch { entries, count, replaced, shared: self.shared.clone() });
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
        self.shared.state.lock().closed = true;
        self.shared.ready.notify_one();
    }

    /// Returns whether the first replace of every extent has been handled.
    pub fn has_synced(&self) -> bool {
        let state = self.shared.state.lock();
        !state.extents.is_empty() && state.extents.iter().all(|(_, replaced)| *replaced)
    }

    /// Returns whether nothing waits and all that was popped has been handled.
    pub fn is_settled(&self) -> bool {
        self.shared.unhandled.load(Ordering::Acquire) == 0
    }

    /// Counts the deltas that wait.
    pub fn len(&self) -> usize {
        self.shared.state.lock().entries.len()
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks for every known object to be shown again; transforms that failed are tried again.
    pub fn resync(&self) {
        let hidden = self.shared.hidden.lock().clone();
        for (extent, hidden) in hidden {
            let mut originals = hidden.originals.lock();
            let seen = hidden.retry(&mut originals);
            self.push(&extent, seen);
        }
        let waits = self.shared.state.lock().entries.iter().any(|(_, delta)| matches!(delta, Delta::Sync));
        if !waits {
            self.push(&Extent::All, [Delta::Sync]);
        }
    }

    /// Queues deltas of one extent, in order.
    fn push(&self, extent: &Extent, deltas: impl IntoIterator<Item = Delta<K>>) {
        let mut state = self.shared.state.lock();
        if state.closed {
            return;
        }
        let before = state.entries.len();
        state.entries.extend(deltas.into_iter().map(|delta| (extent.clone(), delta)));
        self.shared.unhandled.fetch_add(state.entries.len() - before, Ordering::Relaxed);
        drop(state);
        self.shared.ready.notify_one();
    }
}

/// Deltas to handle; dropping it says that they were.
pub struct Batch<K: ?Sized> {
    entries: Vec<(Extent, Delta<K>)>,
    count: usize,
    replaced: Option<Extent>,
    shared: Arc<SharedFifo<K>>,
}

impl<K: ?Sized> Batch<K> {
    /// Takes the deltas out, each with the extent in which it holds; the batch stays behind to say when they are handled.
    pub fn take(&mut self) -> Vec<(Extent, Delta<K>)> {
        std::mem::take(&mut self.entries)
    }
}

impl<K: ?Sized> Drop for Batch<K> {
    fn drop(&mut self) {
        if let Some(replaced) = &self.replaced {
            for (extent, is_replaced) in &mut self.shared.state.lock().extents {
                *is_replaced |= extent == replaced;
            }
        }
        self.shared.unhandled.fetch_sub(self.count, Ordering::Release);
    }
}

/// Feeds one extent of a [`DeltaFifo`].
///
/// The transform, if there is one, runs here, before an object is queued; one that fails makes the object
/// unreadable, as if it had not decoded, until a later event, list or resync brings it through.
pub struct FifoSink<K: ?Sized> {
    fifo: DeltaFifo<K>,
    extent: Extent,
    hidden: Option<Arc<Hidden<K>>>,
}

impl<K: AnyObject + ?Sized> FifoSink<K> {
    /// Returns the extent that is fed.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Returns whether all that was written here, or into other extents, has been handled.
    pub fn is_settled(&self) -> bool {
        self.fifo.is_settled()
    }

    /// Returns the transform that objects pass on their way in.
    pub fn transform(&self) -> Option<&Transform<K>> {
        self.hidden.as_ref().map(|hidden| &hidden.transform)
    }

    /// Locks the originals that are kept, which nobody else changes while changes are queued.
    fn lock_hidden(&self) -> Option<(&Hidden<K>, Originals<'_, K>)> {
        self.hidden.as_ref().map(|hidden| (&**hidden, hidden.originals.lock()))
    }
}

impl<K: AnyObject + ?Sized> ReflectorStore<K> for FifoSink<K> {
    fn replace(&self, mut list: List<K>) {
        let mut locked = self.lock_hidden();
        if let Some((hidden, originals)) = &mut locked {
            originals.clear();
            let items = list.items.into_iter();
            list.items = items.map(|item| hidden.transformed(originals, item)).collect();
        }
        self.fifo.push(&self.extent, [Delta::Replaced(list)]);
    }

    fn apply(&self, changes: Vec<StoreChange<K>>) {
        let mut locked = self.lock_hidden();
        let delta = |change| match (change, &mut locked) {
            (StoreChange::Upsert(item), None) => Delta::Upserted(item),
            (StoreChange::Upsert(item), Some((hidden, originals))) => {
                Delta::Upserted(hidden.transformed(originals, item))
            }
            (StoreChange::Delete(item), None) => Delta::Deleted(item),
            (StoreChange::Delete(item), Some((hidden, originals))) => {
                Delta::Deleted(hidden.transformed_last(originals, item))
            }
            (StoreChange::Bookmark(resource_version), _) => Delta::Reached(resource_version),
        };
        // Before the queue is locked: a transform may block.
        let deltas: Vec<_> = changes.into_iter().map(delta).collect();
        self.fifo.push(&self.extent, deltas);
    }

    fn resync(&self) {
        self.fifo.resync();
    }

    fn report(&self, report: FetchReport) {
        self.fifo.push(&self.extent, [Delta::Reported(report)]);
    }
}

impl<K: AnyObject + ?Sized> Default for DeltaFifo<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl_clone!([K: ?Sized] DeltaFifo<K>, shared);

impl_debug!([K: ?Sized] DeltaFifo<K>, this => waiting: this.shared.state.lock().entries.len());

impl_debug!([K: ?Sized] Batch<K>, this => deltas: this.entries.len());

impl_debug!([K: ?Sized] FifoSink<K>, this => extent: this.extent);

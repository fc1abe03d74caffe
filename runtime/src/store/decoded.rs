//! The decoded objects of a compact store that somebody still holds, and those that do not decode.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    list_watch::{ObjectType, Unreadable},
    object::AnyObject,
};

/// How many decoded objects are held for later reads.
const RECENT: usize = 256;
/// Fewest new entries after which the table is swept.
const LEAST_SWEEP: usize = 1_024;
/// How long memory of objects that nobody holds may last, while the store is written.
const LAP: Duration = Duration::from_secs(10);

type Report = Box<dyn Fn(&Arc<Unreadable>) + Send + Sync>;

/// Finds the decoded form of compact objects, by their address, for as long as somebody holds it.
///
/// A weak reference keeps the room of the object itself, if not of what it points to. So dead ones are swept: once as
/// many new ones came as were alive after the last sweep, and at a write ten seconds after it.
pub(super) struct DecodedObjects {
    /// The type of the objects.
    pub(super) object: ObjectType,
    used: AtomicBool,
    table: Mutex<DecodedTable>,
    refused: AtomicUsize,
    report: OnceLock<Report>,
}

struct DecodedTable {
    alive: HashMap<usize, Weak<dyn AnyObject>, foldhash::fast::FixedState>,
    /// Kept for the next reader: several handlers read one change one after the other.
    recent: VecDeque<Arc<dyn AnyObject>>,
    until_sweep: usize,
    swept: Instant,
}

impl DecodedObjects {
    pub(super) fn new(object: ObjectType) -> Self {
        let table = DecodedTable {
            alive: HashMap::default(),
            recent: VecDeque::new(),
            until_sweep: LEAST_SWEEP,
            swept: Instant::now(),
        };
        let (used, refused, report) = Default::default();
        Self { object, used, table: Mutex::new(table), refused, report }
    }

    /// Finds an object that somebody holds.
    pub(super) fn find(&self, address: usize) -> Option<Arc<dyn AnyObject>> {
        self.table.lock().alive.get(&address).and_then(Weak::upgrade)
    }

    /// Remembers a decoded object; if another thread was faster, returns its.
    pub(super) fn keep(&self, address: usize, object: Arc<dyn AnyObject>) -> Arc<dyn AnyObject> {
        self.used.store(true, Ordering::Relaxed);
        let mut table = self.table.lock();
        if let Some(alive) = table.alive.get(&address).and_then(Weak::upgrade) {
            return alive;
        }
        table.alive.insert(address, Arc::downgrade(&object));
        table.recent.push_back(object.clone());
        let old = if table.recent.len() > RECENT { table.recent.pop_front() } else { None };
        table.until_sweep -= 1;
        if table.until_sweep == 0 {
            table.sweep();
        }
        drop(table);
        drop(old); // outside the lock: it may be large
        object
    }

    /// Forgets an object that is stored no more.
    pub(super) fn forget(&self, address: usize) {
        if self.used.load(Ordering::Relaxed) {
            self.table.lock().alive.remove(&address);
        }
    }

    /// Lets go of what nobody holds, if that was not done for a while.
    pub(super) fn sweep_if_due(&self) {
        let now = Instant::now();
        let recent = {
            let mut table = self.table.lock();
            if now.duration_since(table.swept) < LAP {
                return;
            }
            table.swept = now;
            std::mem::take(&mut table.recent)
        };
        drop(recent);
        self.table.lock().sweep();
    }

    /// Counts an object that does not decode, and reports it.
    pub(super) fn refuse(&self, unreadable: &Arc<Unreadable>) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        match self.report.get() {
            Some(report) => report(unreadable),
            None => {
                let key = unreadable.identity.key.as_ref();
                tracing::warn!(kind = self.object.name, object = ?key, error = unreadable.error, "an object can't be read");
            }
        }
    }

    /// Counts an object that did not decode as gone.
    pub(super) fn accept(&self) {
        self.refused.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts the objects that did not decode, those included that are stored no more but still held by somebody.
    pub(super) fn count_refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Sets the function that is called with objects that do not decode; the first one stays.
    pub(super) fn report_to(&self, report: Report) {
        self.report.set(report).ok();
    }
}

impl DecodedTable {
    fn sweep(&mut self) {
        self.alive.retain(|_, object| object.strong_count() > 0);
        self.alive.shrink_to(self.alive.len() * 2);
        self.until_sweep = self.alive.len().max(LEAST_SWEEP);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn remembered(decoded: &DecodedObjects) -> usize {
        decoded.table.lock().alive.len()
    }

    fn keep_one(decoded: &DecodedObjects, address: usize) -> Arc<dyn AnyObject> {
        decoded.keep(address, Arc::new(ConfigMap::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_holds_is_swept_in_time_and_by_number() {
        let decoded = DecodedObjects::new(ObjectType::of::<ConfigMap>());
        (0..100_000).for_each(|address| drop(keep_one(&decoded, address)));
        let bound = LEAST_SWEEP + RECENT;
        assert!(remembered(&decoded) <= bound, "{} are remembered", remembered(&decoded));
        let held: Vec<_> = (0..10_000).map(|address| keep_one(&decoded, 100_000 + address)).collect();
        assert!(remembered(&decoded) >= 10_000);
        drop(held);
        decoded.sweep_if_due();
        assert!(remembered(&decoded) >= 10_000, "it is not due");
        tokio::time::advance(LAP).await;
        decoded.sweep_if_due();
        assert_eq!(remembered(&decoded), 0);
    }

    #[test]
    fn the_first_of_two_that_decode_one_object_gives_it_to_both() {
        let decoded = DecodedObjects::new(ObjectType::of::<ConfigMap>());
        let first = keep_one(&decoded, 1);
        assert!(Arc::ptr_eq(&keep_one(&decoded, 1), &first));
        assert!(Arc::ptr_eq(&decoded.find(1).unwrap(), &first));
        assert!(decoded.find(2).is_none());
        decoded.forget(1);
        assert!(decoded.find(1).is_none());
    }
}

//! The decoded objects of a compact store that somebody still holds, and those that do not decode.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::list_watch::Unreadable;

/// How many tables share the work, so that readers seldom meet.
const SHARDS: usize = 16;
/// How many decoded objects a table holds for later reads.
const RECENT: usize = 16;
/// Fewest new entries after which a table is swept.
const LEAST_SWEEP: usize = 64;
/// How long memory of objects that nobody holds may last, while the store is written.
const LAP: Duration = Duration::from_secs(10);

type Report = Box<dyn Fn(&Arc<Unreadable>) + Send + Sync>;

/// Knows the decoded form of compact objects, by serial number, for as long as somebody holds it.
///
/// A weak reference keeps the room of the object itself, if not of what it points to. So dead ones are swept: once as
/// many new ones came as were alive after the last sweep, and at a write ten seconds after it.
pub(super) struct DecodedObjects<K> {
    next: AtomicU64,
    used: AtomicBool,
    shards: [Mutex<Shard<K>>; SHARDS],
    refused: Mutex<HashMap<u64, Arc<Unreadable>, foldhash::fast::FixedState>>,
    report: OnceLock<Report>,
    swept: Mutex<Instant>,
}

struct Shard<K> {
    alive: HashMap<u64, Weak<K>, foldhash::fast::FixedState>,
    /// Kept for the next reader: several handlers read one change one after the other.
    recent: VecDeque<Arc<K>>,
    until_sweep: usize,
}

impl<K> DecodedObjects<K> {
    pub(super) fn new() -> Self {
        let shard = || {
            Mutex::new(Shard { alive: HashMap::default(), recent: VecDeque::new(), until_sweep: LEAST_SWEEP })
        };
        Self {
            next: AtomicU64::new(0),
            used: AtomicBool::new(false),
            shards: std::array::from_fn(|_| shard()),
            refused: Mutex::default(),
            report: OnceLock::new(),
            swept: Mutex::new(Instant::now()),
        }
    }

    /// Numbers an object that is about to be stored; no two are alike.
    pub(super) fn serial(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Finds an object that somebody holds.
    pub(super) fn find(&self, serial: u64) -> Option<Arc<K>> {
        self.shard(serial).alive.get(&serial).and_then(Weak::upgrade)
    }

    /// Remembers a decoded object; if another thread was faster, returns its.
    pub(super) fn keep(&self, serial: u64, object: Arc<K>) -> Arc<K> {
        self.used.store(true, Ordering::Relaxed);
        let mut shard = self.shard(serial);
        if let Some(alive) = shard.alive.get(&serial).and_then(Weak::upgrade) {
            return alive;
        }
        shard.alive.insert(serial, Arc::downgrade(&object));
        shard.recent.push_back(object.clone());
        let old = if shard.recent.len() > RECENT { shard.recent.pop_front() } else { None };
        shard.until_sweep -= 1;
        if shard.until_sweep == 0 {
            shard.sweep();
        }
        drop(shard);
        drop(old); // outside the lock: it may be large
        object
    }

    /// Forgets an object that is stored no more.
    pub(super) fn forget(&self, serial: u64) {
        if self.used.load(Ordering::Relaxed) {
            self.shard(serial).alive.remove(&serial);
        }
    }

    /// Lets go of what nobody holds, if that was not done for a while.
    pub(super) fn sweep_if_due(&self) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        {
            let mut swept = self.swept.lock();
            if now.duration_since(*swept) < LAP {
                return;
            }
            *swept = now;
        }
        for shard in &self.shards {
            let recent = std::mem::take(&mut shard.lock().recent);
            drop(recent);
            shard.lock().sweep();
        }
    }

    /// Notes an object that does not decode, and says so.
    pub(super) fn refuse(&self, serial: u64, unreadable: &Arc<Unreadable>) {
        self.refused.lock().insert(serial, unreadable.clone());
        match self.report.get() {
            Some(report) => report(unreadable),
            None => {
                let key = unreadable.identity.key.as_ref();
                tracing::warn!(kind = std::any::type_name::<K>(), object = ?key, error = unreadable.error, "an object can't be read");
            }
        }
    }

    /// Forgets that an object did not decode, since it is stored no more.
    pub(super) fn accept(&self, serial: u64) {
        self.refused.lock().remove(&serial);
    }

    /// Shows the objects that did not decode, those included that are stored no more but still held by somebody.
    pub(super) fn refused(&self) -> Vec<(u64, Arc<Unreadable>)> {
        self.refused.lock().iter().map(|(serial, unreadable)| (*serial, unreadable.clone())).collect()
    }

    /// Counts them.
    pub(super) fn count_refused(&self) -> usize {
        self.refused.lock().len()
    }

    /// Sets the function that is called with objects that do not decode; the first one stays.
    pub(super) fn report_to(&self, report: Report) {
        self.report.set(report).ok();
    }

    fn shard(&self, serial: u64) -> MutexGuard<'_, Shard<K>> {
        self.shards[serial as usize % SHARDS].lock()
    }
}

impl<K> Shard<K> {
    fn sweep(&mut self) {
        self.alive.retain(|_, object| object.strong_count() > 0);
        self.alive.shrink_to(self.alive.len() * 2);
        self.until_sweep = self.alive.len().max(LEAST_SWEEP);
    }
}

impl<K> fmt::Debug for DecodedObjects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecodedObjects")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered(decoded: &DecodedObjects<[u8; 100]>) -> usize {
        decoded.shards.iter().map(|shard| shard.lock().alive.len()).sum()
    }

    fn keep_one(decoded: &DecodedObjects<[u8; 100]>) -> Arc<[u8; 100]> {
        decoded.keep(decoded.serial(), Arc::new([0; 100]))
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_holds_is_swept_in_time_and_by_number() {
        let decoded = DecodedObjects::new();
        (0..100_000).for_each(|_| drop(keep_one(&decoded)));
        let bound = SHARDS * (LEAST_SWEEP + RECENT);
        assert!(remembered(&decoded) <= bound, "{} are remembered", remembered(&decoded));
        let held: Vec<_> = (0..10_000).map(|_| keep_one(&decoded)).collect();
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
        let decoded = DecodedObjects::new();
        let (serial, other) = (decoded.serial(), decoded.serial());
        let first = decoded.keep(serial, Arc::new(1));
        assert!(Arc::ptr_eq(&decoded.keep(serial, Arc::new(1)), &first));
        assert!(Arc::ptr_eq(&decoded.find(serial).unwrap(), &first));
        assert!(decoded.find(other).is_none());
        decoded.forget(serial);
        assert!(decoded.find(serial).is_none());
    }
}

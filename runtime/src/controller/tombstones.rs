//! Deletions that a reconciler has yet to handle.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use crate::{informer::Gone, object::ObjectKey};

/// Most deletions that wait for one key; the oldest is dropped, and counted.
const TOMBSTONES_PER_KEY: usize = 4;
/// How often the user's code may fail at a deletion, and for how long, before it is given up: both.
const FAILURES_PER_DELETION: u32 = 5;
/// Longer than a server restarts or a certificate is renewed; until then a new object of the name waits.
const PATIENCE: Duration = Duration::from_secs(300);

/// A deletion that the reconciler has yet to handle.
#[derive(Debug)]
pub(crate) struct Tombstone<K> {
    pub(crate) last: Gone<K>,
    serial: u64,
    failures: u32,
    /// When it failed first.
    failed_at: Option<Instant>,
}

/// What a failure means for a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionRetry {
    /// The reconciler is called again.
    Later,
    /// It failed too often: the reconciler is not called again.
    GivenUp,
}

/// What became of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It was handled, was none, or is given up.
    Ended,
    /// The controller stops: it was not handled.
    Stopped,
}

/// Deletions of reconciled objects, by key, oldest first.
///
/// A deletion that is being handled stays until it is closed: a run that is dropped loses none.
#[derive(Debug)]
pub(crate) struct Tombstones<K> {
    known: Mutex<Known<K>>,
    dropped: Counter,
}

#[derive(Debug)]
struct Known<K> {
    by_key: HashMap<ObjectKey, VecDeque<Tombstone<K>>>,
    added: u64,
}

impl<K> Clone for Tombstone<K> {
    fn clone(&self) -> Self {
        let Self { last, serial, failures, failed_at } = self;
        Self { last: last.clone(), serial: *serial, failures: *failures, failed_at: *failed_at }
    }
}

impl<K> Tombstones<K> {
    /// Begins without any; those that are dropped are counted.
    pub(crate) fn new(dropped: Counter) -> Self {
        Self { known: Mutex::new(Known { by_key: HashMap::new(), added: 0 }), dropped }
    }

    /// Takes note of a deletion.
    pub(crate) fn add(&self, key: &ObjectKey, last: Gone<K>) {
        let mut known = self.known();
        known.added += 1;
        let serial = known.added;
        let waiting = known.by_key.entry(key.clone()).or_default();
        waiting.push_back(Tombstone { last, serial, failures: 0, failed_at: None });
        if waiting.len() > TOMBSTONES_PER_KEY {
            waiting.pop_front();
            self.dropped.inc();
            tracing::warn!(%key, "more than {TOMBSTONES_PER_KEY} deletions wait for one key: the oldest is dropped");
        }
    }

    /// Forgets all deletions: those of another time were another's to handle.
    pub(crate) fn clear(&self) {
        self.known().by_key.clear();
    }

    /// Shows the oldest deletion of a key.
    pub(crate) fn next(&self, key: &ObjectKey) -> Option<Tombstone<K>> {
        let known = self.known();
        if known.by_key.is_empty() {
            return None;
        }
        known.by_key.get(key)?.front().cloned()
    }

    /// Ends a deletion, which was handled, or is none.
    pub(crate) fn close(&self, key: &ObjectKey, tombstone: &Tombstone<K>) {
        let mut known = self.known();
        let Some(waiting) = known.by_key.get_mut(key) else { return };
        waiting.retain(|other| other.serial != tombstone.serial);
        if waiting.is_empty() {
            known.by_key.remove(key);
        }
    }

    /// Counts a failure of the user's code at a deletion, and says what follows.
    pub(crate) fn failed(&self, key: &ObjectKey, tombstone: &Tombstone<K>, now: Instant) -> DeletionRetry {
        let failed_at = tombstone.failed_at.unwrap_or(now);
        if tombstone.failures + 1 >= FAILURES_PER_DELETION && now - failed_at >= PATIENCE {
            self.close(key, tombstone);
            return DeletionRetry::GivenUp;
        }
        let mut known = self.known();
        let waiting = known.by_key.get_mut(key);
        if let Some(found) = waiting.into_iter().flatten().find(|other| other.serial == tombstone.serial) {
            found.failures = found.failures.saturating_add(1);
            found.failed_at = Some(failed_at);
        }
        DeletionRetry::Later
    }

    fn known(&self) -> MutexGuard<'_, Known<K>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn add(tombstones: &Tombstones<ConfigMap>, key: &ObjectKey, uid: usize) {
        let (key, uid) = (key.clone(), Some(uid.to_string()));
        tombstones.add(&key.clone(), Gone::Undecoded { key, uid, owners: Vec::new() });
    }

    // C15
    #[test]
    fn at_most_four_deletions_wait_for_a_key_however_often_one_fails() {
        let (tombstones, key) = (Tombstones::new(Counter::default()), ObjectKey::new("shop", "a"));
        (0..4).for_each(|at| add(&tombstones, &key, at));
        for at in 4..20 {
            let failing = tombstones.next(&key).unwrap();
            add(&tombstones, &key, at);
            tombstones.failed(&key, &failing, Instant::now());
        }
        let left = std::iter::from_fn(|| {
            let next = tombstones.next(&key)?;
            tombstones.close(&key, &next);
            Some(next)
        });
        let left: Vec<_> = left.map(|tombstone| tombstone.last.uid().unwrap().to_owned()).collect();
        assert_eq!(left, ["16", "17", "18", "19"]);
        assert_eq!(tombstones.dropped.get(), 16);
        assert!(tombstones.known().by_key.is_empty());
    }

    // C15 C47
    #[test]
    fn five_failures_and_five_minutes_end_a_deletion_and_neither_alone_nor_a_dropped_run_does() {
        let (tombstones, key) = (Tombstones::new(Counter::default()), ObjectKey::new("shop", "a"));
        let began = Instant::now();
        add(&tombstones, &key, 1);
        let told_and_dropped = tombstones.next(&key).unwrap();
        drop(told_and_dropped);
        let fails = |after: Duration| {
            let found = tombstones.next(&key).unwrap();
            tombstones.failed(&key, &found, began + after)
        };
        let second = Duration::from_secs(1);
        (0..50).for_each(|_| assert_eq!(fails(Duration::ZERO), DeletionRetry::Later, "not within a moment"));
        assert_eq!(fails(PATIENCE - second), DeletionRetry::Later);
        assert_eq!(fails(PATIENCE), DeletionRetry::GivenUp);
        assert!(tombstones.next(&key).is_none());
        add(&tombstones, &key, 2);
        for failure in 0..4 {
            assert_eq!(fails(failure * 2 * PATIENCE), DeletionRetry::Later, "not after few, however long");
        }
        assert_eq!(fails(8 * PATIENCE), DeletionRetry::GivenUp);
    }
}

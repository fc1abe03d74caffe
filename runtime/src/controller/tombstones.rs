//! Deletions that a reconciler has yet to handle.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use prometheus_client::metrics::counter::Counter;

use crate::{informer::Gone, object::ObjectKey};

/// Most deletions that wait for one key; the oldest is dropped, and counted.
const TOMBSTONES_PER_KEY: usize = 4;
/// How often a deletion may fail before it is given up.
const FAILURES_PER_DELETION: u32 = 5;

/// A deletion that the reconciler has yet to handle.
#[derive(Debug)]
pub(crate) struct Tombstone<K> {
    pub(crate) last: Gone<K>,
    serial: u64,
    failures: u32,
}

/// What a failure means for a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionRetry {
    /// The reconciler is called again.
    Later,
    /// It failed too often: the reconciler is not called again.
    GivenUp,
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
        Self { last: self.last.clone(), serial: self.serial, failures: self.failures }
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
        waiting.push_back(Tombstone { last, serial, failures: 0 });
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

    /// Counts a failure of a deletion, and says what follows.
    pub(crate) fn failed(&self, key: &ObjectKey, tombstone: &Tombstone<K>) -> DeletionRetry {
        if tombstone.failures + 1 >= FAILURES_PER_DELETION {
            self.close(key, tombstone);
            return DeletionRetry::GivenUp;
        }
        let mut known = self.known();
        let waiting = known.by_key.get_mut(key);
        if let Some(found) = waiting.into_iter().flatten().find(|other| other.serial == tombstone.serial) {
            found.failures += 1;
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
            tombstones.failed(&key, &failing);
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

    // C15
    #[test]
    fn the_fifth_failure_ends_a_deletion_and_a_dropped_run_ends_none() {
        let (tombstones, key) = (Tombstones::new(Counter::default()), ObjectKey::new("shop", "a"));
        add(&tombstones, &key, 1);
        let told_and_dropped = tombstones.next(&key).unwrap();
        drop(told_and_dropped);
        for _ in 0..4 {
            let found = tombstones.next(&key).unwrap();
            assert_eq!(tombstones.failed(&key, &found), DeletionRetry::Later);
        }
        let found = tombstones.next(&key).unwrap();
        assert_eq!(tombstones.failed(&key, &found), DeletionRetry::GivenUp);
        assert!(tombstones.next(&key).is_none());
    }
}

//! Deletions that a reconciler has yet to hear of.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use prometheus_client::metrics::counter::Counter;

use crate::{informer::Gone, object::ObjectKey};

/// Most deletions that wait for one key; the oldest is dropped, and counted.
const GRAVES_PER_KEY: usize = 4;
/// How often a deletion may fail before it is given up.
const FAILURES_PER_DELETION: u32 = 5;

/// A deletion that the reconciler has yet to hear of.
#[derive(Debug)]
pub(crate) struct Grave<K> {
    pub(crate) last: Gone<K>,
    serial: u64,
    failures: u32,
}

/// What a failure means for a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is told again.
    Waits,
    /// It failed too often: nobody is told again.
    GivenUp,
}

/// Deletions of reconciled objects, by key, oldest first.
///
/// One that is being told stays until it is closed: a run that is dropped loses none.
#[derive(Debug)]
pub(crate) struct Graves<K> {
    known: Mutex<Known<K>>,
    dropped: Counter,
}

#[derive(Debug)]
struct Known<K> {
    by_key: HashMap<ObjectKey, VecDeque<Grave<K>>>,
    dug: u64,
}

impl<K> Clone for Grave<K> {
    fn clone(&self) -> Self {
        Self { last: self.last.clone(), serial: self.serial, failures: self.failures }
    }
}

impl<K> Graves<K> {
    /// Begins without any; those that are dropped are counted.
    pub(crate) fn new(dropped: Counter) -> Self {
        Self { known: Mutex::new(Known { by_key: HashMap::new(), dug: 0 }), dropped }
    }

    /// Takes note of a deletion.
    pub(crate) fn dig(&self, key: &ObjectKey, last: Gone<K>) {
        let mut known = self.known();
        known.dug += 1;
        let serial = known.dug;
        let waiting = known.by_key.entry(key.clone()).or_default();
        waiting.push_back(Grave { last, serial, failures: 0 });
        if waiting.len() > GRAVES_PER_KEY {
            waiting.pop_front();
            self.dropped.inc();
            tracing::warn!(%key, "more than {GRAVES_PER_KEY} deletions wait for one key: the oldest is dropped");
        }
    }

    /// Forgets all deletions: those of another time were another's to handle.
    pub(crate) fn clear(&self) {
        self.known().by_key.clear();
    }

    /// Shows the oldest deletion of a key.
    pub(crate) fn next(&self, key: &ObjectKey) -> Option<Grave<K>> {
        let known = self.known();
        if known.by_key.is_empty() {
            return None;
        }
        known.by_key.get(key)?.front().cloned()
    }

    /// Ends a deletion, which was told, or is none.
    pub(crate) fn close(&self, key: &ObjectKey, grave: &Grave<K>) {
        let mut known = self.known();
        let Some(waiting) = known.by_key.get_mut(key) else { return };
        waiting.retain(|other| other.serial != grave.serial);
        if waiting.is_empty() {
            known.by_key.remove(key);
        }
    }

    /// Counts a failure of a deletion, and says what follows.
    pub(crate) fn failed(&self, key: &ObjectKey, grave: &Grave<K>) -> Fate {
        if grave.failures + 1 >= FAILURES_PER_DELETION {
            self.close(key, grave);
            return Fate::GivenUp;
        }
        let mut known = self.known();
        let waiting = known.by_key.get_mut(key);
        if let Some(told) = waiting.into_iter().flatten().find(|other| other.serial == grave.serial) {
            told.failures += 1;
        }
        Fate::Waits
    }

    fn known(&self) -> MutexGuard<'_, Known<K>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn dig(graves: &Graves<ConfigMap>, key: &ObjectKey, uid: usize) {
        let (key, uid) = (key.clone(), Some(uid.to_string()));
        graves.dig(&key.clone(), Gone::Undecoded { key, uid, owners: Vec::new() });
    }

    // C15
    #[test]
    fn at_most_four_deletions_wait_for_a_key_however_often_one_fails() {
        let (graves, key) = (Graves::new(Counter::default()), ObjectKey::new("shop", "a"));
        (0..4).for_each(|at| dig(&graves, &key, at));
        for at in 4..20 {
            let failing = graves.next(&key).unwrap();
            dig(&graves, &key, at);
            graves.failed(&key, &failing);
        }
        let left = std::iter::from_fn(|| {
            let next = graves.next(&key)?;
            graves.close(&key, &next);
            Some(next)
        });
        let left: Vec<_> = left.map(|grave| grave.last.uid().unwrap().to_owned()).collect();
        assert_eq!(left, ["16", "17", "18", "19"]);
        assert_eq!(graves.dropped.get(), 16);
        assert!(graves.known().by_key.is_empty());
    }

    // C15
    #[test]
    fn the_fifth_failure_ends_a_deletion_and_a_dropped_run_ends_none() {
        let (graves, key) = (Graves::new(Counter::default()), ObjectKey::new("shop", "a"));
        dig(&graves, &key, 1);
        let told_and_dropped = graves.next(&key).unwrap();
        drop(told_and_dropped);
        for _ in 0..4 {
            let told = graves.next(&key).unwrap();
            assert_eq!(graves.failed(&key, &told), Fate::Waits);
        }
        let told = graves.next(&key).unwrap();
        assert_eq!(graves.failed(&key, &told), Fate::GivenUp);
        assert!(graves.next(&key).is_none());
    }
}

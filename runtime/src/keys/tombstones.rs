//! Deletions of one key that the reconciler has yet to handle.

use std::{any::Any, collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

/// A value of the reconciled type. The table does not know that type, so that it is compiled once.
pub(crate) type StoredState = Arc<dyn Any + Send + Sync>;

/// The most deletions that wait for one key. The oldest is dropped, and counted.
pub(super) const TOMBSTONES_PER_KEY: usize = 4;
/// A deletion is given up after this many failures of the user's code, if they also took this long.
const FAILURES_PER_DELETION: u32 = 5;
/// Longer than a restart of the server or the renewal of a certificate. Until then a new object of the name waits.
const PATIENCE: Duration = Duration::from_secs(300);

/// A deletion that the reconciler has yet to handle.
#[derive(Clone, Debug)]
pub(crate) struct Tombstone {
    /// What is known of the object that is gone.
    pub(crate) last: StoredState,
    serial: u64,
    failures: u32,
    /// When it failed first.
    failed_at: Option<Instant>,
}

/// The deletions of one key, oldest first.
///
/// A deletion stays until it is closed: a run that is dropped does not lose it.
#[derive(Debug, Default)]
pub(super) struct Tombstones(VecDeque<Tombstone>);

impl Tombstones {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a deletion. Returns whether the oldest was dropped for it.
    pub(super) fn add(&mut self, last: StoredState, serial: u64) -> bool {
        self.0.push_back(Tombstone { last, serial, failures: 0, failed_at: None });
        let is_full = self.0.len() > TOMBSTONES_PER_KEY;
        if is_full {
            self.0.pop_front();
        }
        is_full
    }

    /// Returns the oldest.
    pub(super) fn first(&self) -> Option<&Tombstone> {
        self.0.front()
    }

    /// Ends a deletion that was handled, or was none.
    pub(super) fn close(&mut self, tombstone: &Tombstone) {
        self.0.retain(|other| other.serial != tombstone.serial);
    }

    /// Counts a failure of the user's code. Returns whether the deletion is given up.
    pub(super) fn fail(&mut self, tombstone: &Tombstone, now: Instant) -> bool {
        let failed_at = tombstone.failed_at.unwrap_or(now);
        if tombstone.failures + 1 >= FAILURES_PER_DELETION && now - failed_at >= PATIENCE {
            self.close(tombstone);
            return true;
        }
        if let Some(found) = self.0.iter_mut().find(|other| other.serial == tombstone.serial) {
            found.failures = found.failures.saturating_add(1);
            found.failed_at = Some(failed_at);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serials(tombstones: &mut Tombstones) -> Vec<u64> {
        std::iter::from_fn(|| {
            let first = tombstones.first()?.clone();
            tombstones.close(&first);
            Some(first.serial)
        })
        .collect()
    }

    // C15
    #[test]
    fn at_most_four_deletions_wait_for_a_key_however_often_one_fails() {
        let mut tombstones = Tombstones::default();
        (0..4).for_each(|serial| assert!(!tombstones.add(Arc::new(()), serial)));
        for serial in 4..20 {
            let failing = tombstones.first().unwrap().clone();
            assert!(tombstones.add(Arc::new(()), serial), "the oldest is dropped");
            assert!(!tombstones.fail(&failing, Instant::now()));
        }
        assert_eq!(serials(&mut tombstones), [16, 17, 18, 19]);
        assert!(tombstones.is_empty());
    }

    // C15 C47
    #[test]
    fn five_failures_and_five_minutes_end_a_deletion_and_neither_alone_nor_a_dropped_run_does() {
        let (mut tombstones, began) = (Tombstones::default(), Instant::now());
        tombstones.add(Arc::new(()), 1);
        let shown_and_dropped = tombstones.first().unwrap().clone();
        drop(shown_and_dropped);
        let fails = |tombstones: &mut Tombstones, after: Duration| {
            let first = tombstones.first().unwrap().clone();
            tombstones.fail(&first, began + after)
        };
        (0..50).for_each(|_| assert!(!fails(&mut tombstones, Duration::ZERO), "not within a moment"));
        assert!(!fails(&mut tombstones, PATIENCE - Duration::from_secs(1)));
        assert!(fails(&mut tombstones, PATIENCE));
        assert!(tombstones.is_empty());
        tombstones.add(Arc::new(()), 2);
        for failure in 0..4 {
            assert!(!fails(&mut tombstones, failure * 2 * PATIENCE), "not after few, however long");
        }
        assert!(fails(&mut tombstones, 8 * PATIENCE));
    }
}

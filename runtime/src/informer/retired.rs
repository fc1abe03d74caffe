//! States that a burst of changes replaced, on their way back to the task that decodes, which drops them one by one.
//!
//! An allocator gives memory out again fastest if it is asked for next, on the thread that gave it back. Dropping the
//! states of a batch together took 11,000 instructions an event more than dropping one with each that is decoded; and
//! dropped on another thread they made the two wait for each other 23,000 times in 200,000 events.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most states that wait.
const MOST: usize = 256;

/// How many states are worth it.
const BURST: usize = 8;

/// Keeps what a burst retired for a moment: until as many events came, or the processor sees that none do.
#[derive(Debug)]
pub(super) struct Retired<T> {
    waiting: Mutex<Vec<T>>,
}

impl<T> Retired<T> {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::new(Vec::new()) }
    }

    /// Leaves states to be dropped with events to come; a few, and more than can wait, are dropped now.
    pub(super) fn retire(&self, mut states: Vec<T>) {
        if states.len() >= BURST {
            let mut waiting = self.lock();
            let room = MOST.saturating_sub(waiting.len());
            let left = states.split_off(room.min(states.len()));
            waiting.append(&mut states);
            // Unlocked before the rest is dropped: that runs code of users.
            drop(waiting);
            drop(left);
        }
    }

    /// Drops one of those that wait.
    pub(super) fn drop_one(&self) {
        let one = self.lock().pop();
        drop(one);
    }

    /// Drops all that wait.
    pub(super) fn drop_all(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        drop(waiting);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_burst_waits_within_bounds_and_a_few_do_not() {
        let (retired, state) = (Retired::new(), Arc::new(()));
        let held = || Arc::strong_count(&state) - 1;
        retired.retire(vec![state.clone(); BURST - 1]);
        assert_eq!(held(), 0);
        retired.retire(vec![state.clone(); BURST]);
        retired.drop_one();
        assert_eq!(held(), BURST - 1);
        for _ in 0..MOST {
            retired.retire(vec![state.clone(); BURST]);
        }
        assert_eq!(held(), MOST);
        retired.drop_all();
        assert!(held() == 0 && retired.is_empty());
    }
}

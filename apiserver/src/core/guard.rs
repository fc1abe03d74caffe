//! The guard: the locked state; releasing it wakes those who wait for written versions.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::state::State;
use crate::store::Wakes;

/// The state, locked.
pub(super) struct Guard<'a> {
    state: MutexGuard<'a, State>,
    // Dropped after the lock.
    wakes: Wakes,
}

impl<'a> Guard<'a> {
    /// Locks the state.
    pub(super) fn lock(state: &'a Mutex<State>) -> Self {
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        Self { state, wakes: Wakes::default() }
    }
}

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.wakes = self.state.store.take_wakes();
    }
}

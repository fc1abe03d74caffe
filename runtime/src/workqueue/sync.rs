//! The primitives of the queue's shell, in one place so that a model checker sees them all.

pub(super) use std::sync::{Arc, Mutex};

pub(super) use tokio::task::coop::poll_proceed;
pub(super) use tokio::time::{Sleep, sleep_until};

use std::sync::{MutexGuard, PoisonError};
#[cfg(not(test))]
use std::task::Waker;

/// Locks, whoever panicked before: the state is consistent between operations.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    switch_point();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks as well, while another lock is held: nobody waits in between.
pub(super) fn lock_within<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks where a model checker may let another task go first.
///
/// Before the lock and before each wake-up is everywhere: under the lock nobody waits.
#[cfg(not(test))]
pub(super) const fn switch_point() {}

/// Wakes a task that waits.
#[cfg(not(test))]
pub(super) fn wake(waker: Waker) {
    waker.wake();
}

#[cfg(test)]
pub(super) use super::tests::schedules::{switch_point, wake};

//! The primitives of the queue that a model checker must see, in one place.

pub(super) use std::sync::Arc;

pub(super) use parking_lot::Mutex;
use parking_lot::MutexGuard;

/// Locks the mutex. The state is consistent between operations, so a panic elsewhere does not poison it.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    switch_point();
    mutex.lock()
}

/// Marks where a model checker may let another task go first.
///
/// Before each lock and before each wake-up is enough: no code waits while it holds the lock.
#[cfg(not(test))]
pub(super) const fn switch_point() {}

/// Wakes a task.
#[cfg(not(test))]
pub(super) fn wake(waker: std::task::Waker) {
    waker.wake();
}

#[cfg(test)]
pub(super) use super::tests::schedules::{switch_point, wake};

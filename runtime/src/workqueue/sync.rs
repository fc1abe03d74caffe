//! The primitives of the queue's shell, in one place so that a model checker can swap them.

pub(super) use std::sync::{Arc, Mutex};

pub(super) use tokio::task::coop::consume_budget;
pub(super) use tokio::time::{Sleep, sleep_until};

use std::sync::{MutexGuard, PoisonError};

/// Locks, whoever panicked before: the state is consistent between operations.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

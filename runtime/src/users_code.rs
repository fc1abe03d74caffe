//! Calls code of the user's: a panic is contained, and what blocks holds up no other task.

use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use futures::FutureExt;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task,
};

/// Returns whether tasks of this runtime can go on while one of them blocks its thread.
pub(crate) fn others_go_on() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Runs what may block, for as long as it likes; only within a task of our own.
///
/// On a runtime of several threads the other tasks of this thread go on on another one. Without that, some would wait
/// for it although other threads are idle: the task that was woken last, and those that have spent their budget. A
/// runtime of one thread has no other thread: there, everything waits.
pub(crate) fn may_block<T>(call: impl FnOnce() -> T) -> T {
    match others_go_on() {
        true => task::block_in_place(call),
        false => call(),
    }
}

/// Calls a function; `None` if it panicked.
pub(crate) fn contained<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(discard).ok()
}

/// Awaits a future; `None` if it panicked.
pub(crate) async fn contained_in<T>(run: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(run).catch_unwind().await.map_err(discard).ok()
}

/// Drops what somebody panicked with, which may panic in turn, and what it panics with then.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(another);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    /// Panics with its like when it is dropped.
    struct Endless;

    impl Drop for Endless {
        fn drop(&mut self) {
            panic_any(Endless);
        }
    }

    // I29
    #[tokio::test]
    async fn a_panic_whose_payload_panics_when_it_is_dropped_is_contained() {
        assert_eq!(contained(|| panic_any(Endless)), None::<()>);
        assert_eq!(contained(|| 7), Some(7));
        assert_eq!(contained_in(async { panic_any(Endless) }).await, None::<()>);
        assert_eq!(contained_in(async { 7 }).await, Some(7));
    }
}

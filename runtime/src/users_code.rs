//! Calls user code: contains its panics, and lets other tasks go on while it blocks.

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

/// Returns whether other tasks of this runtime can go on while one of them blocks its thread.
pub(crate) fn others_go_on() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Runs code that may block for long. Must be called within a task of the runtime crate.
///
/// On a runtime with several threads, the other tasks of this thread move to another one. Without that, some of them
/// would wait although other threads are idle: the task that was woken last, and those that have used up their budget. On
/// a runtime with one thread, all tasks wait.
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

/// Drops the payload of a panic. If that panics in turn, the new payload is leaked.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(another);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    /// Panics with another one of these when it is dropped.
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

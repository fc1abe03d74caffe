//! What a reconcile came to.

use std::{error::Error, time::Duration};

use crate::{chain::chain, workqueue::Priority};

/// What happens to a key after a reconcile that did not fail.
///
/// An `Action` is exactly one of: wait for a change, run again later, or back off.
///
/// | Returned | The key runs again | Its failures |
/// |---|---|---|
/// | [`await_change`](Self::await_change) | when something changes | are cleared |
/// | [`requeue_after`](Self::requeue_after) | after that time, or when something changes | are cleared |
/// | [`backoff`](Self::backoff) | after a delay that grows, or when something changes | count on |
///
/// ```
/// use watchkeeper::prelude::*;
///
/// fn next(ready: bool) -> Action {
///     if ready { Action::requeue_after(Duration::from_secs(300)) } else { Action::backoff() }
/// }
/// assert_ne!(next(true), next(false));
/// ```
///
/// The book has more: [what follows each result of a run](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/queue.md#waiting-after-a-failure).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an action does something only when it is returned"]
pub struct Action {
    pub(crate) next: NextRun,
    /// The priority of the next run; `None` keeps that of this run.
    pub(crate) priority: Option<Priority>,
}

/// The ways a key goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRun {
    AwaitChange,
    RequeueAfter {
        after: Duration,
        jitter: Duration,
    },
    Backoff {
        at_least: Duration,
    },
    /// Nothing was done: the object can't be read. What the key is owed stays owed.
    NotReconciled,
}

impl Action {
    /// Done; run again when something changes. Clears the key's failures.
    pub fn await_change() -> Self {
        Self::of(NextRun::AwaitChange)
    }

    /// Done; run again after `after`, or sooner if something really changes. Clears the key's failures.
    ///
    /// Never early, and never before the controller's rate limit allows: with many objects due at once the
    /// later ones wait their turn. A resync does not shorten it.
    pub fn requeue_after(after: Duration) -> Self {
        Self::of(NextRun::RequeueAfter { after, jitter: Duration::ZERO })
    }

    /// Means [`requeue_after`](Self::requeue_after): the name that kube-rs has for it, for code that comes from there.
    ///
    /// See [`Controller::from_kube_rs`](super::Controller::from_kube_rs).
    pub fn requeue(after: Duration) -> Self {
        Self::requeue_after(after)
    }

    /// Like [`Action::requeue_after`], later by a random time of up to `jitter`.
    pub fn requeue_after_with_jitter(after: Duration, jitter: Duration) -> Self {
        Self::of(NextRun::RequeueAfter { after, jitter })
    }

    /// Not ready yet: run again after a delay that grows with every attempt.
    ///
    /// Attempts keep counting: this is neither a success nor an error.
    pub fn backoff() -> Self {
        Self::of(NextRun::Backoff { at_least: Duration::ZERO })
    }

    /// Like [`Action::backoff`], and not before `at_least` unless something changes.
    pub fn backoff_at_least(at_least: Duration) -> Self {
        Self::of(NextRun::Backoff { at_least })
    }

    /// Sets the priority of the run that follows; without this it keeps that of the run that ends.
    ///
    /// What a first list or a resync asked for is low, what a change asked for normal: a change still raises it.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The object can't be read: nothing of what its key is owed is spent.
    pub(crate) fn not_reconciled() -> Self {
        Self::of(NextRun::NotReconciled)
    }

    fn of(next: NextRun) -> Self {
        Self { next, priority: None }
    }
}

/// Whether a cleanup is over.
///
/// ```
/// use watchkeeper::prelude::*;
///
/// fn next(volumes_left: usize) -> Cleanup {
///     match volumes_left {
///         0 => Cleanup::Done,
///         _ => Cleanup::Pending(Action::requeue_after(Duration::from_secs(10))),
///     }
/// }
/// assert_eq!(next(0), Cleanup::Done);
/// ```
///
/// The book has more: [cleaning up](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/tutorial/cleanup.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the finalizer goes only when a cleanup says that it is done"]
pub enum Cleanup {
    /// Everything is released: the finalizer goes.
    Done,
    /// Not yet: the finalizer stays, and cleanup runs again as the action says.
    Pending(Action),
}

/// Marks an error that retrying does not repair: it is reported, and the key waits for a change.
///
/// `Err(Terminal::new(error).into())` works with every error type that can hold a standard error.
///
/// ```
/// use watchkeeper::prelude::*;
///
/// fn plan(name: &str) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
///     match name {
///         "gold" => Ok(3),
///         other => Err(Terminal::new(format!("there is no plan {other:?}")).into()),
///     }
/// }
/// assert!(Terminal::is_in(&*plan("tin").unwrap_err()));
/// ```
///
/// The book has more: [when it fails](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/tutorial/failure.md).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Terminal(#[source] TerminalCause);

/// What a terminal error wraps: found in the chain also where an error type shows `Terminal` transparently.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct TerminalCause(Box<dyn Error + Send + Sync>);

impl Terminal {
    /// Marks an error as terminal.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(TerminalCause(error.into()))
    }

    /// Returns whether an error, or one that caused it, is marked.
    pub fn is_in(error: &(dyn Error + 'static)) -> bool {
        chain(error).any(|cause| cause.is::<TerminalCause>())
    }
}

/// Marks an error after which the key runs again with growing delay, and not before this one.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct NotBefore {
    pub(crate) delay: Duration,
    #[source]
    pub(crate) error: Box<dyn Error + Send + Sync>,
}

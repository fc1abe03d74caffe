//! How a run ended, and what that means for its key.

use std::time::Duration;

/// How a run ended. Each replaces the key's own timer.
///
/// A key that was [`add`](super::WorkQueue::add)ed while in flight runs again in any case: at once, or, if the run
/// failed, once the floor is over. One that was only [`touch`](super::WorkQueue::touch)ed runs again after
/// [`Done`](Self::Done) and [`Forget`](Self::Forget) alone, as those set no timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is said: failures stay as counted, no timer. What dropping the guard means.
    #[default]
    Done,
    /// Success: failures are cleared.
    Forget,
    /// Success, and again after this long: failures are cleared. Not before, unless something really changes.
    RequeueAfter(Duration),
    /// Failure: one more counted; again when the back-off is over.
    Retry {
        /// Waits at least this long, whatever the back-off says.
        at_least: Duration,
    },
    /// No failure, none counted: again after the first step of the back-off (a conflict, say).
    ///
    /// Several in a row take further steps, up to the floor, so that what never ends does not spin.
    RetryUncounted,
    /// Failure, one more counted; not again before something really changes, and not before the floor.
    Terminal,
    /// No verdict: queued again at once, at the back, nothing counted. Dropped once the queue is shut down, as a retry is:
    /// who gives a key back may be leaving, and a drain must end.
    PutBack,
}

impl Outcome {
    /// Whether a run follows for this alone.
    pub(super) const fn asks_again(self) -> bool {
        match self {
            Self::Done | Self::Forget | Self::Terminal => false,
            Self::RequeueAfter(_) | Self::Retry { .. } | Self::RetryUncounted | Self::PutBack => true,
        }
    }
}

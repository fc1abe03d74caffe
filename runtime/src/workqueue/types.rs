//! The values that callers pass: priorities, outcomes, settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::rate_limit::{InvalidRate, RateLimit};
use super::rate_limiter::{ItemExponentialFailure, RateLimiter};

/// Who goes first among the keys that are ready.
///
/// A key has the highest priority that was asked for it; while it waits it is never lowered. Raised, it joins the back
/// of its new line. One grant in eight goes to whoever has waited longest, whatever its priority: nothing starves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// After all else: what changed nothing, and what a start finds.
    Low,
    /// What really changed.
    #[default]
    Normal,
    /// Before all else.
    High,
}

impl Priority {
    /// All of them, the first to go first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Returns its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// Its place among all.
    pub(super) const fn rank(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }
}

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

/// The settings of a [`WorkQueue`](super::WorkQueue).
#[derive(Clone)]
pub struct WorkQueueConfig {
    /// How long a key waits after each failure in a row. Default: 5 ms, doubling, up to 1,000 s.
    pub backoff: Arc<dyn RateLimiter>,
    /// What every grant pays, whatever put the key there. Default: none.
    pub rate: Option<RateLimit>,
    /// What the retries of failures pay besides, before they count as ready. Default: none.
    pub retry_rate: Option<RateLimit>,
    /// What a real change brings a failed key forward to: the lesser of its back-off and this, counted from the
    /// failure. Default: 1 s.
    pub floor: Duration,
}

pub(super) const DEFAULT_FLOOR: Duration = Duration::from_secs(1);

impl Default for WorkQueueConfig {
    fn default() -> Self {
        Self {
            backoff: Arc::new(ItemExponentialFailure::default()),
            rate: None,
            retry_rate: None,
            floor: DEFAULT_FLOOR,
        }
    }
}

impl fmt::Debug for WorkQueueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueConfig")
            .field("rate", &self.rate)
            .field("retry_rate", &self.retry_rate)
            .field("floor", &self.floor)
            .finish_non_exhaustive()
    }
}

/// Why a queue can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The rate of all grants is refused.
    #[error(transparent)]
    Rate(InvalidRate),
    /// The rate of retries is refused.
    #[error("retry rate: {0}")]
    RetryRate(#[source] InvalidRate),
}

//! The values that callers pass: priorities, outcomes, settings.

use std::sync::Arc;
use std::time::Duration;

use super::rate_limit::RateLimit;
use super::rate_limiter::{ItemExponentialFailure, RateLimiter};

/// Which of the keys that are ready goes first.
///
/// A key has the highest priority that was asked for it. While it waits, its priority is never lowered. A key that is
/// raised joins the back of its new line. One grant in eight goes to the key that has waited longest in its line,
/// whatever its priority, so no key starves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// After all other keys: resyncs, and the keys that a start finds.
    Low,
    /// Real changes.
    #[default]
    Normal,
    /// Before all other keys.
    High,
}

impl Priority {
    /// All priorities, the highest first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Returns its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// Returns its index in [`Self::ALL`].
    pub(super) const fn rank(self) -> usize {
        Self::ALL.len() - 1 - self as usize
    }
}

/// How a run ended.
///
/// A key that was [`add`](super::WorkQueue::add)ed while in flight always runs again: at once, or, if the run failed,
/// once the floor is over. A key that was only [`touch`](super::WorkQueue::touch)ed runs again after
/// [`Done`](Self::Done) and [`Forget`](Self::Forget), which set no timer, and not after other outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// No verdict: failures stay as counted, no timer. A dropped guard means this.
    #[default]
    Done,
    /// Success: failures are cleared.
    Forget,
    /// Success: failures are cleared, and the key runs again after this delay. Only a real change makes it run before.
    RequeueAfter(Duration),
    /// Failure: counted, and the key runs again when the back-off is over.
    Retry {
        /// The key waits at least this long unless it is added again, even if the back-off is shorter.
        at_least: Duration,
    },
    /// Not a failure, for example a conflict: the key runs again after the first step of the back-off.
    ///
    /// Several in a row take further steps, up to the floor, so that a key that never succeeds does not spin.
    RetryUncounted,
    /// Failure: counted. The key runs again after a real change, and not before the floor.
    Terminal,
    /// No verdict: queued again at once, at the back, and not counted.
    ///
    /// After a shutdown the key is dropped, as a retry is: the worker may be leaving, and a drain must end.
    PutBack,
}

/// The settings of a [`WorkQueue`](super::WorkQueue).
#[derive(Clone)]
pub struct WorkQueueConfig {
    /// How long a key waits after each failure in a row. Default: 5 ms, doubling, up to 1,000 s.
    pub backoff: Arc<dyn RateLimiter>,
    /// The rate of all grants, for whatever reason a key was queued. Default: none.
    pub rate: Option<RateLimit>,
    /// The rate of retries of failures, which they also pay, before they count as ready. Default: none.
    pub retry_rate: Option<RateLimit>,
    /// The longest wait of a failed key after a real change: it then runs after its back-off or after this, whichever is
    /// shorter, counted from the failure. Default: 1 s.
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

impl_debug!(WorkQueueConfig, this => rate: this.rate, retry_rate: this.retry_rate, floor: this.floor);

/// How many keys are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// In line for a worker.
    pub ready: usize,
    /// Waiting for a timer or a back-off.
    pub delayed: usize,
    /// Held, whether or not a run was asked for.
    pub held: usize,
    /// Retries that wait for a token of the retry rate.
    pub awaiting_retry_token: usize,
    /// With a worker.
    pub in_flight: usize,
    /// Failed terminally, waiting for a change.
    pub awaiting_change: usize,
    /// The keys that are ready, by the rank of their priority.
    pub(super) ready_by_rank: [usize; Priority::ALL.len()],
    /// All of these, and those remembered for their failures.
    pub known: usize,
}

impl Depth {
    /// Returns how many keys of a priority are in line for a worker.
    pub const fn ready_at(&self, priority: Priority) -> usize {
        self.ready_by_rank[priority.rank()]
    }
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// No key is queued and none is in flight.
    Clean,
    /// A second shutdown came first.
    Aborted,
}

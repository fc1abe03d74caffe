//! What a queue can be told when it is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::rate_limit::{InvalidRate, RateLimit};
use super::rate_limiter::{ItemExponentialFailure, RateLimiter};

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
    #[error("rate: {0}")]
    Rate(#[source] InvalidRate),
    /// The rate of retries is refused.
    #[error("retry rate: {0}")]
    RetryRate(#[source] InvalidRate),
}

//! Back-off: how long a key waits after its n-th failure in a row, on its own or through a bucket that all keys share.

use std::time::Duration;

use parking_lot::Mutex;

use super::clock::{At, ClockOrigin, TimeSource};
use super::rate_limit::{InvalidRate, RateLimit};

/// How long a failed key waits.
///
/// The queue counts the failures, so a limiter keeps no state per key. It may keep state that all keys share. The queue
/// calls it once for each failure. For retries that do not count it calls it once in total for the first step, and again
/// for each further retry in a row. The call happens under the queue's lock: it must be quick and must not call the queue.
///
/// Any answer is valid: waits may shrink, and a wait too long for a timer (centuries) lasts until something really
/// changes. If a limiter panics, the wait is the floor ([`WorkQueueConfig::floor`]).
///
/// ```
/// use std::time::Duration;
/// use watchkeeper::workqueue::{ItemExponentialFailure, RateLimiter};
///
/// let doubling = ItemExponentialFailure::default();
/// let waits = [1, 2, 3, 20].map(|failures| doubling.delay(failures).as_millis());
/// assert_eq!(waits, [5, 10, 20, 1_000_000]);
///
/// /// Waits a minute longer after each failure.
/// struct Minutes;
///
/// impl RateLimiter for Minutes {
///     fn delay(&self, failures: u32) -> Duration {
///         Duration::from_secs(60) * failures
///     }
/// }
/// ```
///
/// The book has more: [waiting after a failure](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/queue.md#waiting-after-a-failure).
///
/// [`WorkQueueConfig::floor`]: super::WorkQueueConfig::floor
pub trait RateLimiter: Send + Sync + 'static {
    /// Returns the wait after the `failures`-th failure in a row (the first is 1).
    fn delay(&self, failures: u32) -> Duration;
}

/// Doubles the wait with each failure, up to a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemExponentialFailure {
    base: Duration,
    max: Duration,
}

impl ItemExponentialFailure {
    /// Waits `base` after the first failure and twice as long after each further one, but `max` at most.
    pub const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }
}

impl Default for ItemExponentialFailure {
    /// From 5 ms to 1,000 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(5), Duration::from_secs(1000))
    }
}

impl RateLimiter for ItemExponentialFailure {
    fn delay(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1);
        let doubled = |wait: Duration, times: u32| wait.saturating_mul(1 << times.min(31));
        doubled(doubled(self.base, doublings), doublings.saturating_sub(31)).min(self.max)
    }
}

/// Waits for a short time after the first failures, and for a long time after all further ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemFastSlow {
    fast: Duration,
    slow: Duration,
    fast_failures: u32,
}

impl ItemFastSlow {
    /// Waits `fast` after each of the first `fast_failures` failures, then `slow`.
    pub const fn new(fast: Duration, slow: Duration, fast_failures: u32) -> Self {
        Self { fast, slow, fast_failures }
    }
}

impl RateLimiter for ItemFastSlow {
    fn delay(&self, failures: u32) -> Duration {
        if failures <= self.fast_failures { self.fast } else { self.slow }
    }
}

/// Waits for the longer of the waits of two limiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxOf<A, B>(pub A, pub B);

impl<A: RateLimiter, B: RateLimiter> RateLimiter for MaxOf<A, B> {
    fn delay(&self, failures: u32) -> Duration {
        self.0.delay(failures).max(self.1.delay(failures))
    }
}

/// Caps what another limiter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithMaxWait<L> {
    limiter: L,
    max: Duration,
}

impl<L: RateLimiter> WithMaxWait<L> {
    /// Waits as long as `limiter` says, but `max` at most.
    pub const fn new(limiter: L, max: Duration) -> Self {
        Self { limiter, max }
    }
}

impl<L: RateLimiter> RateLimiter for WithMaxWait<L> {
    fn delay(&self, failures: u32) -> Duration {
        self.limiter.delay(failures).min(self.max)
    }
}

impl<L: RateLimiter + ?Sized> RateLimiter for Box<L> {
    fn delay(&self, failures: u32) -> Duration {
        (**self).delay(failures)
    }
}

impl<L: RateLimiter + ?Sized> RateLimiter for std::sync::Arc<L> {
    fn delay(&self, failures: u32) -> Duration {
        (**self).delay(failures)
    }
}

/// Lets failed keys wait for tokens of one bucket, in the order in which they failed.
///
/// Each failure takes the next token that is not taken, however far ahead it is. With more failures than tokens, waits
/// grow without end. [`WithMaxWait`](super::WithMaxWait) caps them, and with that it lifts the limit. Use
/// [`MaxOf`](super::MaxOf) to combine it with a wait per key. If a change makes a key run before its token is due, the
/// token is lost; [`WorkQueueConfig::retry_rate`](super::WorkQueueConfig::retry_rate) gives it back.
pub struct TokenBucket {
    origin: ClockOrigin,
    limit: RateLimit,
    /// When the bucket is full again if no more tokens are taken.
    full_at: Mutex<At>,
}

impl TokenBucket {
    /// Makes a full bucket.
    ///
    /// # Errors
    /// A rate that [`RateLimit::validate`] refuses.
    pub fn new(limit: RateLimit) -> Result<Self, InvalidRate> {
        limit.validate()?;
        Ok(Self { origin: ClockOrigin::starting_now(), limit, full_at: Mutex::new(At::START) })
    }
}

impl RateLimiter for TokenBucket {
    fn delay(&self, _failures: u32) -> Duration {
        let ((period, burst), now) = (self.limit.parts(), self.origin.now());
        let mut full_at = self.full_at.lock();
        let debt = full_at.since(now);
        *full_at = (*full_at).max(now).after(period);
        debt.saturating_sub(period.saturating_mul(burst - 1))
    }
}

impl_debug!(TokenBucket);

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    // Q9
    #[test]
    fn exponential_doubles_up_to_its_cap_and_never_overflows() {
        let limiter = ItemExponentialFailure::new(millis(1), millis(1000));
        let waits: Vec<_> = (1..=12).map(|failures| limiter.delay(failures).as_millis()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]);
        assert_eq!(limiter.delay(u32::MAX), millis(1000));
        assert_eq!(ItemExponentialFailure::new(Duration::MAX, Duration::MAX).delay(200), Duration::MAX);
        assert_eq!(ItemExponentialFailure::new(Duration::ZERO, millis(5)).delay(200), Duration::ZERO);
        assert_eq!(ItemExponentialFailure::default().delay(1), millis(5));
        assert_eq!(ItemExponentialFailure::default().delay(64), Duration::from_secs(1000));
    }

    // Q10
    #[test]
    fn fast_slow_turns_slow_after_its_threshold() {
        let limiter = ItemFastSlow::new(millis(5), millis(3000), 3);
        let waits: Vec<_> = (1..=5).map(|failures| limiter.delay(failures)).collect();
        assert_eq!(waits, [millis(5), millis(5), millis(5), millis(3000), millis(3000)]);
    }

    // Q10
    #[test]
    fn max_of_takes_the_worst_and_a_cap_clamps_it() {
        let worst = MaxOf(
            ItemFastSlow::new(millis(5), millis(300), 3),
            ItemExponentialFailure::new(millis(1), millis(1000)),
        );
        let waits: Vec<_> = (1..=5).map(|failures| worst.delay(failures)).collect();
        assert_eq!(waits, [millis(5), millis(5), millis(5), millis(300), millis(300)]);
        assert_eq!(worst.delay(11), millis(1000));
        assert_eq!(WithMaxWait::new(worst, millis(100)).delay(11), millis(100));
        assert_eq!(WithMaxWait::new(worst, millis(100)).delay(1), millis(5));
    }

    fn bucket(limit: RateLimit) -> TokenBucket {
        TokenBucket::new(limit).unwrap()
    }

    // Q10
    #[tokio::test(start_paused = true)]
    async fn each_failure_waits_for_a_token_of_its_own() {
        let bucket = bucket(RateLimit::per_second(10).burst(2));
        let millis = |failures| bucket.delay(failures).as_millis();
        assert_eq!([millis(1), millis(9), millis(1), millis(1)], [0, 0, 100, 200]);
        tokio::time::advance(Duration::from_millis(150)).await;
        assert_eq!(millis(1), 150, "three tokens ahead are taken");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!([millis(1), millis(1), millis(1)], [0, 0, 100], "full again, up to the burst");
    }

    // Q10
    #[tokio::test(start_paused = true)]
    async fn waits_for_a_very_slow_bucket_grow_without_end() {
        let bucket = bucket(RateLimit::per_period(Duration::from_secs(365 * 86_400)));
        let waits: Vec<_> = (0..1000).map(|_| bucket.delay(1)).collect();
        assert!(waits.is_sorted());
        assert!(waits[999] > Duration::from_secs(400 * 365 * 86_400));
    }

    // Q10
    #[test]
    fn a_rate_of_zero_is_refused() {
        assert_eq!(TokenBucket::new(RateLimit::per_second(0)).unwrap_err(), InvalidRate::ZERO);
    }
}

//! Back-off: how long a key waits after its n-th failure in a row, by itself or by a bucket that all keys share.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::clock::{At, Clock, ClockOrigin};
use super::rate_limit::{Bucket, InvalidRate, RateLimit, Taken};

/// How long a failed key waits.
///
/// The queue counts the failures, so a limiter holds nothing per key; it may hold what all keys share. It is asked once
/// for each failure, and once in all for the first step of retries that count for none. It is asked under the queue's
/// lock: it must be quick and must not call the queue.
///
/// Whatever it answers is done: waits may shrink, and one too long for a timer (centuries) lasts until something really
/// changes. One that panics counts as if it had asked for the floor ([`WorkQueueConfig::floor`]).
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
    /// Waits `base` after the first failure, twice as long after each further one, `max` at most.
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
        let doubled = 1u128
            .checked_shl(failures.saturating_sub(1))
            .and_then(|factor| self.base.as_nanos().checked_mul(factor))
            .filter(|nanos| *nanos < self.max.as_nanos());
        match doubled {
            Some(nanos) => Duration::new((nanos / NANOS) as u64, (nanos % NANOS) as u32),
            None if self.base.is_zero() => Duration::ZERO,
            None => self.max,
        }
    }
}

const NANOS: u128 = 1_000_000_000;

/// Waits shortly for the first failures, and long for all further ones.
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

/// Waits for the slower of two limiters.
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
    /// Waits as `limiter` says, `max` at most.
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
/// Each failure takes the next token that is not taken, however far ahead: with more failures than tokens, waits grow
/// without end ([`WithMaxWait`](super::WithMaxWait) ends them, and with that the limit). Combine it with a wait per key
/// by [`MaxOf`](super::MaxOf). Unlike [`WorkQueueConfig::retry_rate`](super::WorkQueueConfig::retry_rate), it does not
/// give back the token of a key that a change takes out meanwhile.
pub struct TokenBucket {
    origin: ClockOrigin,
    reserved: Mutex<Reserved>,
}

/// The bucket, and how far ahead its tokens are taken.
struct Reserved {
    bucket: Bucket,
    last: At,
}

/// Tokens so far ahead (146 years) are not counted any more.
const HORIZON: At = At::from_nanos(1 << 62);

impl TokenBucket {
    /// Makes a full bucket.
    ///
    /// # Errors
    /// A rate that [`RateLimit::validate`] refuses.
    pub fn new(limit: RateLimit) -> Result<Self, InvalidRate> {
        let reserved = Mutex::new(Reserved { bucket: Bucket::new(limit)?, last: At::START });
        Ok(Self { origin: ClockOrigin::starting_now(), reserved })
    }
}

impl RateLimiter for TokenBucket {
    fn delay(&self, _failures: u32) -> Duration {
        let now = self.origin.now();
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).reserve(now).since(now)
    }
}

impl Reserved {
    /// Takes the next token that is not taken. Answers when it may be used.
    fn reserve(&mut self, now: At) -> At {
        let at = self.last.max(now);
        if at >= HORIZON {
            return At::LATEST;
        }
        self.last = at;
        if self.bucket.take(at) == Taken::No {
            self.last = self.bucket.opens();
            self.bucket.take(self.last);
        }
        self.last
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBucket").finish_non_exhaustive()
    }
}

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
        assert_eq!([millis(1), millis(1), millis(1)], [0, 0, 100], "full again, and no fuller");
    }

    // Q10
    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_is_slow_beyond_reason_lets_wait_without_end() {
        let bucket = bucket(RateLimit::per_period(Duration::from_secs(365 * 86_400)));
        let waits: Vec<_> = (0..1000).map(|_| bucket.delay(1)).collect();
        assert!(waits.is_sorted());
        assert!(waits[999] > Duration::from_secs(400 * 365 * 86_400));
    }

    // Q10
    #[test]
    fn a_rate_that_is_none_is_refused() {
        assert_eq!(TokenBucket::new(RateLimit::per_second(0)).unwrap_err(), InvalidRate::Zero);
    }
}

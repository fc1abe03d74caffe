//! A token bucket as a back-off: the failures of all keys share it.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::clock::{At, Clock, ClockOrigin};
use super::rate_limit::{Bucket, InvalidRate, RateLimit, Taken};
use super::rate_limiter::RateLimiter;

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

//! Token buckets: how many keys may be handed out over any window.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::Quota;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};

use super::clock::At;

/// A token bucket's size and pace: over any window `w`, at most `burst + rate × w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    period: Duration,
    burst: u32,
}

impl RateLimit {
    /// Allows `tokens` a second; the burst is one second's worth unless [`burst`](Self::burst) says otherwise.
    ///
    /// Zero is refused when a queue is made of it: see [`validate`](Self::validate).
    pub const fn per_second(tokens: u32) -> Self {
        match tokens {
            0 => Self { period: Duration::MAX, burst: 0 },
            _ => {
                Self { period: Duration::from_nanos(1_000_000_000u64.div_ceil(tokens as u64)), burst: tokens }
            }
        }
    }

    /// Allows one token a `period`, with a burst of one unless [`burst`](Self::burst) says otherwise.
    pub const fn per_period(period: Duration) -> Self {
        Self { period, burst: 1 }
    }

    /// Sets how many tokens a full bucket holds.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        // a rate of zero stays refused, whatever its burst
        if self.burst != 0 || !matches!(self.period, Duration::MAX) {
            self.burst = burst;
        }
        self
    }

    /// Returns the period of a token, and how many a full bucket holds.
    pub(crate) const fn parts(self) -> (Duration, u32) {
        (self.period, self.burst)
    }

    /// Checks that the bucket lets anything pass, and is a limit at all.
    ///
    /// # Errors
    /// A rate of zero, a burst of zero, a period of zero or of more than a year.
    pub const fn validate(&self) -> Result<(), InvalidRate> {
        if matches!(self.period, Duration::MAX) {
            return Err(InvalidRate::Zero);
        }
        if self.period.is_zero() {
            return Err(InvalidRate::Unlimited);
        }
        if self.period.as_secs() > YEAR.as_secs() {
            return Err(InvalidRate::TooSlow);
        }
        if self.burst == 0 {
            return Err(InvalidRate::NoBurst);
        }
        Ok(())
    }
}

const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Why a [`RateLimit`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRate {
    /// Nothing would ever run.
    #[error("a rate of zero lets nothing run; leave the rate out to lift it")]
    Zero,
    /// A bucket that holds nothing lets nothing pass.
    #[error("a burst of zero lets nothing run; it must be at least 1")]
    NoBurst,
    /// One token every zero seconds limits nothing.
    #[error("a period of zero limits nothing; leave the rate out to lift it")]
    Unlimited,
    /// Periods end at a year.
    #[error("a period of more than a year lets nothing run")]
    TooSlow,
}

/// The hand of the bucket's clock: set to the time passed in, before each check.
#[derive(Clone, Debug)]
struct Hand(Arc<AtomicU64>);

impl Clock for Hand {
    type Instant = At;

    fn now(&self) -> At {
        At::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A token bucket whose time is passed in.
#[derive(Debug)]
pub(super) struct Bucket {
    limiter: governor::RateLimiter<NotKeyed, InMemoryState, Hand, NoOpMiddleware<At>>,
    hand: Hand,
    opens: At,
}

impl Bucket {
    /// # Errors
    /// What [`RateLimit::validate`] refuses.
    pub(super) fn new(limit: RateLimit) -> Result<Self, InvalidRate> {
        limit.validate()?;
        let period = limit.period.max(Duration::from_nanos(1));
        // all arithmetic of the bucket stays below 2^62 ns
        let most = (1u128 << 62) / period.as_nanos();
        let burst = u32::try_from(most).map_or(limit.burst, |most| limit.burst.min(most));
        let quota = Quota::with_period(period).ok_or(InvalidRate::Unlimited)?;
        let quota = quota.allow_burst(NonZeroU32::new(burst).ok_or(InvalidRate::NoBurst)?);
        let hand = Hand(Arc::new(AtomicU64::new(0)));
        let limiter = governor::RateLimiter::direct_with_clock(quota, hand.clone());
        Ok(Self { limiter, hand, opens: At::START })
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: At) -> Taken {
        if now < self.opens {
            return Taken::No;
        }
        self.hand.0.store(now.nanos(), Ordering::Relaxed);
        match self.limiter.check() {
            Ok(()) => {
                self.opens = At::START;
                Taken::Yes
            }
            Err(not_until) => {
                self.opens = not_until.earliest_possible();
                Taken::No
            }
        }
    }

    /// Returns before which time there is no token, as far as is known.
    pub(super) fn opens(&self) -> At {
        self.opens
    }
}

/// Whether a token was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_limits_nothing_or_everything() {
        let day = Duration::from_secs(86_400);
        for (limit, expected) in [
            (RateLimit::per_second(0), Err(InvalidRate::Zero)),
            (RateLimit::per_second(0).burst(5), Err(InvalidRate::Zero)),
            (RateLimit::per_second(5).burst(0), Err(InvalidRate::NoBurst)),
            (RateLimit::per_period(Duration::ZERO), Err(InvalidRate::Unlimited)),
            (RateLimit::per_period(Duration::MAX), Err(InvalidRate::Zero)),
            (RateLimit::per_period(day * 400), Err(InvalidRate::TooSlow)),
            (RateLimit::per_period(day).burst(u32::MAX), Ok(())),
            (RateLimit::per_second(u32::MAX), Ok(())),
        ] {
            assert_eq!(limit.validate(), expected, "{limit:?}");
            assert_eq!(Bucket::new(limit).map(|_| ()), expected, "{limit:?}");
        }
    }

    // C11
    #[test]
    fn grants_a_burst_and_then_one_a_period() {
        let mut bucket = Bucket::new(RateLimit::per_second(3).burst(2)).unwrap();
        let third = 333_333_334;
        let mut at = |nanos| bucket.take(At::from_nanos(nanos));
        assert_eq!([at(0), at(0), at(0)], [Taken::Yes, Taken::Yes, Taken::No]);
        assert_eq!([at(third - 1), at(third), at(third)], [Taken::No, Taken::Yes, Taken::No]);
        assert_eq!(bucket.opens(), At::from_nanos(2 * third));
    }
}

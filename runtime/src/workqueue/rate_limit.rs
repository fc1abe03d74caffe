//! Token buckets: how many keys may be handed out over any window.

use std::time::Duration;

use super::clock::At;

/// The size and pace of a token bucket: over any window `w`, at most `burst + rate × w` tokens.
///
/// With `per_second(20).burst(50)`, at most 50 + 20 × 10 = 250 tokens are handed out over any ten seconds.
///
/// ```
/// use std::time::Duration;
/// use watchkeeper::RateLimit;
///
/// const LIMIT: RateLimit = RateLimit::per_second(20).burst(50);
/// assert!(LIMIT.validate().is_ok());
/// assert!(RateLimit::per_second(0).validate().is_err());
/// assert!(RateLimit::per_period(Duration::from_secs(60)).validate().is_ok()); // one a minute
/// ```
///
/// The book has more: [the rate limit](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/queue.md#the-rate-limit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    period: Duration,
    burst: u32,
}

impl RateLimit {
    /// Allows `tokens` per second. The burst is the tokens of one second, unless [`burst`](Self::burst) is called.
    ///
    /// A queue refuses a rate of zero: see [`validate`](Self::validate).
    pub const fn per_second(tokens: u32) -> Self {
        match tokens {
            0 => Self { period: Duration::MAX, burst: 0 },
            _ => {
                Self { period: Duration::from_nanos(1_000_000_000u64.div_ceil(tokens as u64)), burst: tokens }
            }
        }
    }

    /// Allows one token per `period`. The burst is one, unless [`burst`](Self::burst) is called.
    pub const fn per_period(period: Duration) -> Self {
        Self { period, burst: 1 }
    }

    /// Sets how many tokens a full bucket holds.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// Returns the period of a token, and how many tokens a full bucket holds.
    pub(crate) const fn parts(self) -> (Duration, u32) {
        (self.period, self.burst)
    }

    /// Checks that this limit lets anything pass, and that it is a limit.
    ///
    /// # Errors
    /// A rate of zero, a burst of zero, a period of zero or of more than a year.
    pub const fn validate(&self) -> Result<(), InvalidRate> {
        if matches!(self.period, Duration::MAX) {
            return Err(InvalidRate::ZERO);
        }
        if self.period.is_zero() {
            return Err(InvalidRate::UNLIMITED);
        }
        if self.period.as_secs() > YEAR.as_secs() {
            return Err(InvalidRate::TOO_SLOW);
        }
        if self.burst == 0 {
            return Err(InvalidRate::NO_BURST);
        }
        Ok(())
    }
}

const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Why a [`RateLimit`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{of}{why}")]
pub struct InvalidRate {
    /// Which rate it is, where a queue has two.
    of: &'static str,
    why: &'static str,
}

impl InvalidRate {
    /// No key would ever run.
    pub(crate) const ZERO: Self = Self::new("a rate of zero lets nothing run; leave the rate out to lift it");
    /// A bucket that holds nothing lets nothing pass.
    const NO_BURST: Self = Self::new("a burst of zero lets nothing run; it must be at least 1");
    /// One token every zero seconds limits nothing.
    const UNLIMITED: Self = Self::new("a period of zero limits nothing; leave the rate out to lift it");
    /// Periods end at a year.
    const TOO_SLOW: Self = Self::new("a period of more than a year lets nothing run");

    const fn new(why: &'static str) -> Self {
        Self { of: "", why }
    }

    /// Says that it is the rate of retries.
    pub(super) fn of_retries(self) -> Self {
        Self { of: "retry rate: ", ..self }
    }
}

/// The tokens of a bucket. Time is passed in.
///
/// A token can be set aside for a later start, and is paid at the moment of that start. Until then it counts as part of
/// the burst, so a late payment allows no more starts than an early one. A start that does not come costs nothing.
#[derive(Debug)]
pub(super) struct Tokens {
    /// Period and burst of the whole limit. This bucket may have a part of it.
    whole: (u64, u64),
    period: u64,
    burst: u64,
    /// When the bucket is full again, or was.
    full_at: At,
    /// The same of a bucket of the whole limit: a part that grows again owes what it spent when it was larger.
    whole_full_at: At,
    /// The tokens that are set aside.
    reserved: u64,
    /// Runs that wait for a token of their own. Each comes before all keys that wait in line.
    claims: u64,
}

impl Tokens {
    /// # Errors
    /// What [`RateLimit::validate`] refuses.
    pub(super) fn new(limit: RateLimit) -> Result<Self, InvalidRate> {
        limit.validate()?;
        let period = u64::try_from(limit.period.as_nanos()).unwrap_or(u64::MAX).max(1);
        // This keeps all sums below 2^62 ns.
        let most = (1u64 << 62) / period;
        let burst = u64::from(limit.burst).min(most);
        let (full_at, whole_full_at) = (At::START, At::START);
        Ok(Self { whole: (period, burst), period, burst, full_at, whole_full_at, reserved: 0, claims: 0 })
    }

    /// Makes this the bucket of a part of the limit. What was spent stays spent.
    pub(super) fn share(&mut self, part: u32, of: u32, now: At) {
        let (part, of) = (u64::from(part.clamp(1, of.max(1))), u64::from(of.max(1)));
        let ((whole_period, burst), last_period) = (self.whole, self.period);
        self.period =
            u64::try_from(u128::from(whole_period) * u128::from(of) / u128::from(part)).unwrap_or(u64::MAX);
        let most = ((1u64 << 62) / self.period).max(1);
        self.burst = (burst * part / of).clamp(1, most);
        // Not in whole tokens: many small changes would add up.
        let missing = |full_at: At, period: u64| {
            let left = u128::from(full_at.nanos().saturating_sub(now.nanos()));
            (left * u128::from(self.period)).div_ceil(u128::from(period))
        };
        let missing = missing(self.full_at, last_period).max(missing(self.whole_full_at, whole_period));
        let missing = u64::try_from(missing).unwrap_or(u64::MAX).min(self.burst.saturating_mul(self.period));
        self.full_at = At::from_nanos(now.nanos().saturating_add(missing));
    }

    /// Takes a token, if there is one. Returns whether it did.
    pub(super) fn take(&mut self, now: At) -> bool {
        let is_taken = self.reserve(now);
        if is_taken {
            self.pay(now);
        }
        is_taken
    }

    /// Sets a token aside, if there is one that no run claims. Returns whether it did.
    pub(super) fn reserve(&mut self, now: At) -> bool {
        let is_free = self.opens() <= now;
        self.reserved += u64::from(is_free);
        is_free
    }

    /// Spends a token that was set aside.
    pub(super) fn pay(&mut self, now: At) {
        self.reserved -= 1;
        self.full_at = self.full_at.max(now).after(Duration::from_nanos(self.period));
        self.whole_full_at = self.whole_full_at.max(now).after(Duration::from_nanos(self.whole.0));
    }

    /// Puts back a token that was set aside.
    pub(super) fn give_back(&mut self) {
        self.reserved -= 1;
    }

    /// Adds a run that waits for a token.
    pub(super) fn claim(&mut self) {
        self.claims += 1;
    }

    /// Removes a run that waited for a token.
    pub(super) fn waive(&mut self) {
        self.claims -= 1;
    }

    /// Sets a token aside for a run that claims it, if there is one.
    ///
    /// # Errors
    /// When there will be one; never if that depends on the tokens that are set aside.
    pub(super) fn grant(&mut self, now: At) -> Result<(), At> {
        match self.holds_at(self.reserved + 1) {
            opens if now < opens => Err(opens),
            _ => {
                self.waive();
                self.reserved += 1;
                Ok(())
            }
        }
    }

    /// Returns from when on a token is free for the keys in line; never if that depends on the tokens that are set aside.
    pub(super) fn opens(&self) -> At {
        self.holds_at(self.reserved + self.claims + 1)
    }

    /// Returns when the bucket will hold this many tokens if none is spent.
    fn holds_at(&self, tokens: u64) -> At {
        match self.burst.checked_sub(tokens) {
            Some(more) => At::from_nanos(self.full_at.nanos().saturating_sub(more * self.period)),
            None => At::NEVER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_limits_nothing_or_everything() {
        let day = Duration::from_secs(86_400);
        for (limit, expected) in [
            (RateLimit::per_second(0), Err(InvalidRate::ZERO)),
            (RateLimit::per_second(0).burst(5), Err(InvalidRate::ZERO)),
            (RateLimit::per_second(5).burst(0), Err(InvalidRate::NO_BURST)),
            (RateLimit::per_period(Duration::ZERO), Err(InvalidRate::UNLIMITED)),
            (RateLimit::per_period(Duration::MAX), Err(InvalidRate::ZERO)),
            (RateLimit::per_period(day * 400), Err(InvalidRate::TOO_SLOW)),
            (RateLimit::per_period(day).burst(u32::MAX), Ok(())),
            (RateLimit::per_second(u32::MAX), Ok(())),
        ] {
            assert_eq!(limit.validate(), expected, "{limit:?}");
            assert_eq!(Tokens::new(limit).map(|_| ()), expected, "{limit:?}");
        }
    }

    // C11
    #[test]
    fn grants_a_burst_and_then_one_a_period() {
        let mut bucket = Tokens::new(RateLimit::per_second(3).burst(2)).unwrap();
        let third = 333_333_334;
        let mut at = |nanos| bucket.take(At::from_nanos(nanos));
        assert_eq!([at(0), at(0), at(0)], [true, true, false]);
        assert_eq!([at(third - 1), at(third), at(third)], [false, true, false]);
        assert_eq!(bucket.opens(), At::from_nanos(2 * third));
    }

    // C46
    #[test]
    fn a_token_that_is_set_aside_is_held_until_it_is_paid_and_given_back_whole() {
        let mut bucket = Tokens::new(RateLimit::per_second(1).burst(2)).unwrap();
        let at = |seconds: u64| At::from_nanos(seconds * 1_000_000_000);
        assert_eq!([bucket.reserve(at(0)), bucket.reserve(at(0))], [true, true]);
        assert!(!bucket.reserve(at(60)), "tokens that are set aside count as part of the burst");
        assert_eq!(bucket.opens(), At::NEVER, "time alone brings no token");
        bucket.give_back();
        assert!(bucket.reserve(at(60)), "a start that did not come costs nothing");
        bucket.pay(at(60));
        bucket.pay(at(60));
        assert!(!bucket.reserve(at(60)));
        assert_eq!(bucket.opens(), at(61));
        let taken = [at(61), at(61), at(62), at(62)].map(|now| bucket.take(now));
        assert_eq!(taken, [true, false, true, false]);
    }

    // C46
    #[test]
    fn a_run_that_claims_a_token_gets_the_next_one_before_those_in_line() {
        let mut bucket = Tokens::new(RateLimit::per_second(1).burst(1)).unwrap();
        let at = |seconds: u64| At::from_nanos(seconds * 1_000_000_000);
        assert!(bucket.take(at(0)));
        bucket.claim();
        assert_eq!(bucket.grant(at(0)), Err(at(1)));
        assert!(!bucket.reserve(at(5)), "it is claimed");
        assert_eq!(bucket.grant(at(5)), Ok(()));
        bucket.pay(at(5));
        assert_eq!([bucket.take(at(5)), bucket.take(at(6))], [false, true]);
        bucket.claim();
        bucket.waive();
        assert!(bucket.take(at(7)), "a run that stopped waiting claims nothing");
    }

    // H9
    #[test]
    fn a_part_of_a_limit_is_that_part_of_its_rate_and_burst() {
        let second = |at: u64| At::from_nanos(at * 1_000_000_000);
        let takes = |bucket: &mut Tokens, from: u64, seconds: u64| {
            (from..from + seconds)
                .map(|at| (0..100).filter(|_| bucket.take(second(at))).count())
                .sum::<usize>()
        };
        let limit = RateLimit::per_second(4).burst(8);
        let mut bucket = Tokens::new(limit).unwrap();
        bucket.share(16, 64, second(0));
        assert_eq!(takes(&mut bucket, 0, 10), 2 + 9);
        // What was spent stays spent: the larger bucket is not full at once.
        bucket.share(64, 64, second(9));
        assert_eq!(takes(&mut bucket, 9, 1), 6);
        assert_eq!(takes(&mut bucket, 10, 10), 40);
        // Also while it was smaller, and however often it changes.
        let mut bucket = Tokens::new(limit).unwrap();
        assert_eq!(takes(&mut bucket, 0, 1), 8);
        (0..10).for_each(|_| [16, 48, 64].iter().for_each(|part| bucket.share(*part, 64, second(0))));
        assert_eq!([takes(&mut bucket, 0, 1), takes(&mut bucket, 1, 1), takes(&mut bucket, 2, 1)], [0, 4, 4]);
        for (part, of) in [(0, 0), (0, 64), (u32::MAX, 1), (1, u32::MAX)] {
            bucket.share(part, of, second(20));
            bucket.take(second(u64::from(u32::MAX)));
        }
    }
}

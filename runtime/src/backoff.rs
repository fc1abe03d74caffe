//! Delays between attempts: exponential with jitter, or by a custom schedule.

use std::{fmt, sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Returns a random seed from the system.
pub(crate) fn random_seed() -> u64 {
    SmallRng::from_os_rng().random()
}

/// How long to wait after each failure.
///
/// The default is exponential: from 800 ms, doubling up to 30 s, with jitter.
#[derive(Clone)]
pub enum BackoffSchedule {
    /// Grows by a factor up to a cap. Each delay is uniform in `[d, 2d)`, so that clients spread out.
    Exponential {
        /// The first delay, before jitter.
        initial: Duration,
        /// The factor between one delay and the next.
        factor: f64,
        /// The largest delay, before jitter.
        cap: Duration,
    },
    /// Calls a function with the number of failures before this one. Its delay has no jitter.
    Custom(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

impl BackoffSchedule {
    /// Makes a schedule from a function of the number of earlier failures.
    pub fn custom(schedule: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(schedule))
    }

    /// Makes a schedule that doubles from one delay up to another.
    pub fn doubling(initial: Duration, cap: Duration) -> Self {
        Self::Exponential { initial, factor: 2.0, cap }
    }
}

impl Default for BackoffSchedule {
    fn default() -> Self {
        Self::doubling(Duration::from_millis(800), Duration::from_secs(30))
    }
}

impl fmt::Debug for BackoffSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exponential { initial, factor, cap } => {
                write!(f, "Exponential({initial:?}, times {factor}, up to {cap:?})")
            }
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// Counts failures and returns how long to wait after each.
///
/// Pure: equal seeds give equal delays, and no clock is read.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Backoff {
    schedule: BackoffSchedule,
    rng: SmallRng,
    failures: u32,
}

impl Backoff {
    /// Starts a schedule. The seed determines the jitter.
    pub fn new(schedule: BackoffSchedule, seed: u64) -> Self {
        Self { schedule, rng: SmallRng::seed_from_u64(seed), failures: 0 }
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.next_delay_within(Duration::MAX)
    }

    /// Does the same as [`next_delay`](Self::next_delay) with a lower cap. A custom schedule has no cap.
    pub fn next_delay_within(&mut self, lower: Duration) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        match &self.schedule {
            BackoffSchedule::Exponential { initial, factor, cap } => {
                let delay = grown(*initial, *factor, failures).min(*cap).min(lower);
                seconds(delay.as_secs_f64() * self.rng.random_range(1.0..2.0))
            }
            BackoffSchedule::Custom(schedule) => schedule(failures),
        }
    }

    /// Starts again from the first delay, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the number of failures since the start or the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

fn grown(initial: Duration, factor: f64, times: u32) -> Duration {
    seconds(initial.as_secs_f64() * factor.powi(times.min(1_000) as i32))
}

/// Converts any number to a duration. One that is too long, or not a number, becomes the longest.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R8
    #[test]
    fn delays_double_to_the_cap_and_are_jittered_upwards() {
        let mut backoff = Backoff::new(BackoffSchedule::default(), 7);
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0] {
            let delay = backoff.next_delay().as_secs_f64();
            assert!((base..2.0 * base).contains(&delay), "{delay} is not in [{base}, {})", 2.0 * base);
        }
        backoff.reset();
        assert!(backoff.next_delay() < Duration::from_millis(1_600));
    }

    #[test]
    fn equal_seeds_give_equal_delays_and_others_differ() {
        let delays = |seed| {
            let mut backoff = Backoff::new(BackoffSchedule::default(), seed);
            (0..5).map(|_| backoff.next_delay()).collect::<Vec<_>>()
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
    }

    // R8
    #[test]
    fn a_custom_schedule_has_no_jitter() {
        let schedule = BackoffSchedule::custom(|failures| Duration::from_secs(u64::from(failures) * 10));
        let mut backoff = Backoff::new(schedule, 0);
        let delays: Vec<_> = (0..3).map(|_| backoff.next_delay().as_secs()).collect();
        assert_eq!(delays, [0, 10, 20]);
        assert_eq!(backoff.failures(), 3);
    }

    #[test]
    fn delays_that_are_too_long_become_the_longest() {
        for schedule in [
            BackoffSchedule::doubling(Duration::MAX, Duration::MAX),
            BackoffSchedule::Exponential { initial: Duration::MAX, factor: f64::NAN, cap: Duration::MAX },
        ] {
            let mut backoff = Backoff::new(schedule, 0);
            assert_eq!([backoff.next_delay(), backoff.next_delay()], [Duration::MAX; 2]);
        }
    }

    #[test]
    fn no_number_of_failures_overflows() {
        let schedule = BackoffSchedule::doubling(Duration::from_secs(1), Duration::from_secs(60));
        let mut backoff = Backoff { failures: u32::MAX, ..Backoff::new(schedule, 0) };
        assert!(backoff.next_delay() >= Duration::from_secs(60));
    }
}

//! How often one key may run if its runs write. Pure: times are passed in.
//!
//! A key that has not run lately has its full budget and holds no state.

use std::time::Duration;

use tokio::time::Instant;

use crate::workqueue::RateLimit;

/// The budget of every key: a number of runs at once, then one a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StormLimit {
    period: Duration,
    burst: u32,
}

/// What one key has spent of its budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpentBudget {
    /// When the budget is full again.
    full_at: Instant,
    /// Whether the key has used it up since it was last full.
    is_storm: bool,
}

/// What a run is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunCost {
    /// A run that wrote, as far as can be known.
    Whole,
    /// A run during which the object moved, whatever moved it.
    Tenth,
}

/// The most that a tenth is, however long the period: a key that writes nothing may run ten times a second.
const MOST_FOR_A_TENTH: Duration = Duration::from_millis(100);

impl StormLimit {
    pub(crate) fn new(limit: RateLimit) -> Self {
        let (period, burst) = limit.parts();
        Self { period, burst }
    }

    /// Charges a run. Returns whether a storm begins: the first wait since the budget was last full.
    pub(super) fn charge(&self, spent: &mut Option<SpentBudget>, cost: RunCost, now: Instant) -> bool {
        let cost = match cost {
            RunCost::Whole => self.period,
            RunCost::Tenth => (self.period / 10).min(MOST_FOR_A_TENTH),
        };
        let before = spent.filter(|spent| !spent.is_over(now));
        let before = before.unwrap_or(SpentBudget { full_at: now, is_storm: false });
        let charged = SpentBudget { full_at: before.full_at + cost, ..before };
        let is_storm = before.is_storm || !self.wait(Some(charged), now).is_zero();
        *spent = Some(SpentBudget { is_storm, ..charged });
        is_storm && !before.is_storm
    }

    /// Returns how long the key's next run has to wait.
    pub(super) fn wait(&self, spent: Option<SpentBudget>, now: Instant) -> Duration {
        let debt = spent.map_or(Duration::ZERO, |spent| spent.full_at.saturating_duration_since(now));
        debt.saturating_sub(self.period.saturating_mul(self.burst.saturating_sub(1)))
    }
}

impl SpentBudget {
    /// Returns whether the budget is full again.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // C30
    #[test]
    fn ten_runs_at_once_are_free_and_then_one_a_second() {
        let (limit, now, mut spent) =
            (StormLimit::new(RateLimit::per_second(1).burst(10)), Instant::now(), None);
        let mut charge = |now| {
            let begins = limit.charge(&mut spent, RunCost::Whole, now);
            (begins, limit.wait(spent, now))
        };
        for _ in 0..9 {
            assert_eq!(charge(now), (false, Duration::ZERO));
        }
        assert_eq!(charge(now), (true, SECOND));
        let later = now + SECOND;
        assert_eq!(charge(later), (false, SECOND), "the storm goes on");
        let much_later = later + 60 * SECOND;
        for _ in 0..9 {
            assert_eq!(charge(much_later), (false, Duration::ZERO), "full again");
        }
        assert_eq!(charge(much_later), (true, SECOND), "and no fuller");
        assert_eq!(limit.wait(spent, much_later + SECOND), Duration::ZERO);
    }

    // C30
    #[test]
    fn a_move_of_unknown_origin_costs_a_tenth_and_no_more_than_a_tenth_of_a_second() {
        for (limit, at_once) in [
            (RateLimit::per_second(1).burst(10), 90),
            (RateLimit::per_period(20 * SECOND).burst(2), 200),
            (RateLimit::per_second(10).burst(1), 0),
        ] {
            let (budget, now, mut spent) = (StormLimit::new(limit), Instant::now(), None);
            let free = std::iter::repeat_with(|| budget.charge(&mut spent, RunCost::Tenth, now));
            assert_eq!(free.take_while(|begins| !begins).count(), at_once, "{limit:?}");
        }
    }
}

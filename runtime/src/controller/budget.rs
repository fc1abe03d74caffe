//! What one key may do in a storm: runs that write are paced, key by key.
//!
//! Pure: times are passed in. A key that has not run lately has its full budget and holds no state.

use std::{hash::Hash, time::Duration};

use foldhash::HashMap;
use tokio::time::Instant;

use crate::workqueue::RateLimit;

/// The budgets of all keys: so many runs at once, then one a period.
#[derive(Debug)]
pub(crate) struct Budgets<Key> {
    period: Duration,
    burst: u32,
    spent: HashMap<Key, Spent>,
}

#[derive(Clone, Copy, Debug)]
struct Spent {
    /// When the budget is full again.
    full_at: Instant,
    storm: Storm,
}

/// Whether a key has used up its budget since it was last full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storm {
    No,
    Reported,
}

/// What a charge means for the key's next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charged {
    /// It may start at once.
    Free,
    /// It waits this long.
    Paced {
        wait: Duration,
        /// Whether to log that: the first wait since the budget was last full.
        phase: StormPhase,
    },
}

/// What a run is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// A run that wrote, as far as can be known.
    Whole,
    /// A run during which the object moved, whoever moved it.
    Tenth,
}

/// What a tenth is at most, however long the period: who writes nothing is not paced at less than ten runs a second.
const MOST_FOR_A_TENTH: Duration = Duration::from_millis(100);

/// Whether a storm was reported before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StormPhase {
    Begins,
    GoesOn,
}

impl<Key: Clone + Eq + Hash> Budgets<Key> {
    pub(crate) fn new(limit: RateLimit) -> Self {
        let (period, burst) = limit.parts();
        Self { period, burst, spent: HashMap::default() }
    }

    /// Charges a run to its key.
    pub(crate) fn charge(&mut self, key: &Key, cost: Cost, now: Instant) -> Charged {
        let cost = match cost {
            Cost::Whole => self.period,
            Cost::Tenth => (self.period / 10).min(MOST_FOR_A_TENTH),
        };
        let spent = self.spent.entry(key.clone()).or_insert(Spent { full_at: now, storm: Storm::No });
        if spent.full_at <= now {
            *spent = Spent { full_at: now, storm: Storm::No };
        }
        spent.full_at += cost;
        let debt = spent.full_at.duration_since(now);
        let wait = debt.saturating_sub(self.period.saturating_mul(self.burst.saturating_sub(1)));
        if wait.is_zero() {
            return Charged::Free;
        }
        let phase = match spent.storm {
            Storm::No => StormPhase::Begins,
            Storm::Reported => StormPhase::GoesOn,
        };
        spent.storm = Storm::Reported;
        Charged::Paced { wait, phase }
    }

    /// Whether nobody has spent any lately, as far as is known.
    pub(crate) fn are_full(&self) -> bool {
        self.spent.is_empty()
    }

    /// Returns how long the key's next run has to wait yet; zero: not at all.
    pub(crate) fn wait(&self, key: &Key, now: Instant) -> Duration {
        let Some(spent) = self.spent.get(key) else { return Duration::ZERO };
        let debt = spent.full_at.saturating_duration_since(now);
        debt.saturating_sub(self.period.saturating_mul(self.burst.saturating_sub(1)))
    }

    /// Forgets the keys whose budgets are full again.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.spent.retain(|_, spent| spent.full_at > now);
        if self.spent.len() * 4 < self.spent.capacity() {
            self.spent.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn budgets() -> Budgets<&'static str> {
        Budgets::new(RateLimit::per_second(1).burst(10))
    }

    // C30
    #[test]
    fn ten_runs_at_once_are_free_and_then_one_a_second() {
        let (mut budgets, now) = (budgets(), Instant::now());
        for _ in 0..9 {
            assert_eq!(budgets.charge(&"a", Cost::Whole, now), Charged::Free);
        }
        assert_eq!(
            budgets.charge(&"a", Cost::Whole, now),
            Charged::Paced { wait: SECOND, phase: StormPhase::Begins }
        );
        assert_eq!(budgets.wait(&"a", now), SECOND);
        assert_eq!(budgets.wait(&"b", now), Duration::ZERO, "a budget a key");
        let later = now + SECOND;
        assert_eq!(budgets.wait(&"a", later), Duration::ZERO);
        assert_eq!(
            budgets.charge(&"a", Cost::Whole, later),
            Charged::Paced { wait: SECOND, phase: StormPhase::GoesOn }
        );
        let much_later = later + 60 * SECOND;
        for _ in 0..9 {
            assert_eq!(budgets.charge(&"a", Cost::Whole, much_later), Charged::Free, "full again");
        }
        let paced = Charged::Paced { wait: SECOND, phase: StormPhase::Begins };
        assert_eq!(budgets.charge(&"a", Cost::Whole, much_later), paced, "and no fuller");
    }

    // C30
    #[test]
    fn a_move_of_unknown_origin_costs_a_tenth_and_no_more_than_a_tenth_of_a_second() {
        for (limit, at_once) in [
            (RateLimit::per_second(1).burst(10), 90),
            (RateLimit::per_period(20 * SECOND).burst(2), 200),
            (RateLimit::per_second(10).burst(1), 0),
        ] {
            let (mut budgets, now) = (Budgets::new(limit), Instant::now());
            let free = std::iter::repeat_with(|| budgets.charge(&"a", Cost::Tenth, now));
            assert_eq!(free.take_while(|charged| *charged == Charged::Free).count(), at_once, "{limit:?}");
        }
    }

    // C30
    #[test]
    fn idle_keys_hold_no_state() {
        let (mut budgets, now) = (budgets(), Instant::now());
        budgets.charge(&"a", Cost::Whole, now);
        budgets.sweep(now);
        assert_eq!(budgets.spent.len(), 1);
        budgets.sweep(now + SECOND);
        assert_eq!(budgets.spent.capacity(), 0);
    }
}

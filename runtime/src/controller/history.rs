//! What is remembered of keys between their runs: what they spent, and how they failed.

use std::time::Duration;

use foldhash::HashMap;
use tokio::time::Instant;

use super::{
    Action, LastError,
    action::Next,
    budget::Budgets,
    run::{Failure, FailureAction},
};
use crate::{clock::Moment, object::ObjectKey, workqueue::RateLimit};

/// The history of all keys, under one lock: a key that did not fail and has its full budget has none.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) budgets: Budgets<ObjectKey>,
    /// How the last runs of keys failed that have not succeeded since.
    pub(crate) failures: HashMap<ObjectKey, LastError>,
}

impl History {
    pub(crate) fn new(storm_limit: RateLimit) -> Self {
        Self { budgets: Budgets::new(storm_limit), failures: HashMap::default() }
    }

    /// Takes note of a run that ended; returns how long the key's next run has to wait for its budget, and how many runs
    /// had failed before this one succeeded.
    pub(super) fn ended(
        &mut self,
        (key, attempt): (&ObjectKey, u32),
        outcome: &Result<Action, Failure>,
        now: Instant,
    ) -> (Duration, Option<u32>) {
        let recovered = match outcome {
            Ok(Action { next: Next::NotReconciled, .. }) => None,
            Ok(_) if self.failures.is_empty() => None,
            Ok(_) => self.failures.remove(key).map(|last| last.attempt),
            Err(failure) => {
                if failure.action != FailureAction::RetryUncounted {
                    self.failed(key, attempt, failure);
                }
                None
            }
        };
        (if self.budgets.are_full() { Duration::ZERO } else { self.budgets.wait(key, now) }, recovered)
    }

    /// Keeps what debug pages show of a key that fails.
    pub(super) fn failed(&mut self, key: &ObjectKey, attempt: u32, failure: &Failure) {
        let (error, at) = (failure.report.clone(), Moment::now());
        self.failures.insert(key.clone(), LastError { error, at, attempt });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R63
    #[test]
    fn a_success_after_failures_says_how_many_there_were_once() {
        let (mut history, now) = (History::new(RateLimit::per_second(1).burst(1)), Instant::now());
        let key = ObjectKey::new("shop", "a");
        let mut ended =
            |attempt, outcome: Result<Action, Failure>| history.ended((&key, attempt), &outcome, now).1;
        let fails = |action| Err(Failure { report: "no".to_owned(), action });
        assert_eq!(ended(1, Ok(Action::await_change())), None);
        for attempt in 1..=13 {
            assert_eq!(ended(attempt, fails(FailureAction::Retry)), None);
        }
        assert_eq!(ended(14, fails(FailureAction::RetryUncounted)), None);
        assert_eq!(ended(14, Ok(Action::await_change())), Some(13));
        assert_eq!(ended(1, Ok(Action::await_change())), None);
    }
}

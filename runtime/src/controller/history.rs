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

    /// Takes note of a run that ended; returns how long the key's next run has to wait for its budget.
    pub(super) fn ended(
        &mut self,
        (key, attempt): (&ObjectKey, u32),
        outcome: &Result<Action, Failure>,
        now: Instant,
    ) -> Duration {
        match outcome {
            Ok(Action { next: Next::NotReconciled, .. }) => {}
            Ok(_) if self.failures.is_empty() => {}
            Ok(_) => drop(self.failures.remove(key)),
            Err(failure) if failure.action == FailureAction::RetryUncounted => {}
            Err(failure) => self.failed(key, attempt, failure),
        }
        if self.budgets.are_full() { Duration::ZERO } else { self.budgets.wait(key, now) }
    }

    /// Keeps what debug pages show of a key that fails.
    pub(super) fn failed(&mut self, key: &ObjectKey, attempt: u32, failure: &Failure) {
        let (error, at) = (failure.report.clone(), Moment::now());
        self.failures.insert(key.clone(), LastError { error, at, attempt });
    }
}

//! What workers do about storms: charge runs that write, hold back keys that do so too often.

use std::time::Duration;

use kube::Resource as _;
use tokio::time::Instant;

use super::{
    Action, Reason, Reconciler,
    budget::{Charged, Cost, StormPhase},
    context::RunInfo,
    run::{Failure, FailureAction},
    worker::ControllerCore,
};
use crate::{
    informer::Watched,
    object::ObjectKey,
    writes::record::{RunActivity, RunDone},
};

impl<K: Watched, R: Reconciler<K>> ControllerCore<K, R> {
    /// Charges a run to its key's budget, and reports a storm that begins.
    pub(super) fn charge(
        &self,
        run_info: &RunInfo,
        done: RunDone,
        began_with: Option<&K::Object>,
        outcome: &Result<Action, Failure>,
        now: Instant,
    ) {
        let Some(cost) = self.cost(run_info, done, began_with, outcome) else { return };
        let charged = self.history().budgets.charge(&run_info.key, cost, now);
        if let Charged::Paced { phase: StormPhase::Begins, .. } = charged {
            self.metrics.storms.inc();
            // It may be nobody's fault but the cache's: a server that was restored keeps no child of an owner that it has not.
            self.base.writer.doubt_cache_of(self.target(&run_info.key));
            match cost {
                Cost::Whole => tracing::warn!(
                    "a storm: the object is written in run after run, so its runs are slowed down; does someone else write the same \
                     fields?"
                ),
                Cost::Tenth => tracing::warn!(
                    "a storm: the object changes in run after run, so its runs are slowed down; does the reconciler write it through \
                     a client of its own?"
                ),
            }
        }
    }

    /// Returns what a run is charged: every conflict, and of runs that were no retry those that wrote, or may have.
    fn cost(
        &self,
        run_info: &RunInfo,
        done: RunDone,
        began_with: Option<&K::Object>,
        outcome: &Result<Action, Failure>,
    ) -> Option<Cost> {
        let key = &run_info.key;
        let moved = |began_with: &K::Object| {
            self.objects.version(key).as_deref() != began_with.meta().resource_version.as_deref()
        };
        match done.activity {
            _ if matches!(outcome, Err(failure) if failure.action == FailureAction::RetryUncounted) => {
                Some(Cost::Whole)
            }
            _ if run_info.reason.is_retry() => None,
            RunActivity::Wrote => Some(Cost::Whole),
            RunActivity::Changed if began_with.is_some_and(moved) => Some(match run_info.took_client() {
                true => Cost::Whole,
                false => Cost::Tenth,
            }),
            // What it may have written by the client can show after its end: a run for that change is charged.
            RunActivity::Changed | RunActivity::Nothing => {
                (run_info.took_client() && run_info.reason == Reason::Changed).then_some(Cost::Tenth)
            }
        }
    }

    /// Holds back a key that has used up its budget; retries are slowed by their back-off.
    pub(super) fn pace(&self, key: &ObjectKey, wait: Duration) {
        if !wait.is_zero() {
            self.metrics.paced.inc();
            self.queue.pace(key, wait);
        }
    }
}

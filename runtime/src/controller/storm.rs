//! What workers do about storms: charge runs that write, hold back keys that do so too often.

use std::sync::{MutexGuard, PoisonError};

use kube::Resource as _;
use tokio::time::Instant;

use super::{
    Action, Reason, Reconciler,
    budget::{Budgets, Charged, Cost, News},
    context::Ticket,
    run::{Failure, Way},
    worker::Engine,
};
use crate::{informer::Watched, object::ObjectKey, writes::own_writes::Did};

impl<K: Watched, R: Reconciler<K>> Engine<K, R> {
    /// Charges a run to its key's budget, and reports a storm that begins.
    pub(super) fn charge(
        &self,
        ticket: &Ticket,
        began_with: Option<&K::Object>,
        outcome: &Result<Action, Failure>,
    ) {
        let Some(cost) = self.cost(ticket, began_with, outcome) else { return };
        let charged = self.budgets().charge(&ticket.key, cost, Instant::now());
        if let Charged::Paced { news: News::Begins, .. } = charged {
            match cost {
                Cost::Whole => tracing::warn!(
                    "a storm: runs of one key keep writing, and are paced; does somebody else write the same fields?"
                ),
                Cost::Tenth => tracing::warn!(
                    "a storm: an object changes in run after run, and its runs are paced; does the reconciler write it \
                     through a client of its own?"
                ),
            }
        }
    }

    /// Tells what a run is charged: every conflict, and of runs that were no retry those that wrote, or may have.
    fn cost(
        &self,
        ticket: &Ticket,
        began_with: Option<&K::Object>,
        outcome: &Result<Action, Failure>,
    ) -> Option<Cost> {
        let key = &ticket.key;
        let moved = |began_with: &K::Object| {
            self.objects.version(key).as_deref() != began_with.meta().resource_version.as_deref()
        };
        match self.writer.did(key) {
            _ if matches!(outcome, Err(failure) if failure.way == Way::AfterFirstStep) => Some(Cost::Whole),
            _ if ticket.reason == Reason::Retry => None,
            Did::Write => Some(Cost::Whole),
            Did::Hear if began_with.is_some_and(moved) => Some(match ticket.took_client() {
                true => Cost::Whole,
                false => Cost::Tenth,
            }),
            Did::Hear | Did::Nothing => None,
        }
    }

    /// Holds back a key that has used up its budget; retries are slowed by their back-off.
    pub(super) fn pace(&self, key: &ObjectKey) {
        let wait = {
            let budgets = self.budgets();
            if budgets.are_full() {
                return;
            }
            budgets.wait(key, Instant::now())
        };
        if !wait.is_zero() {
            self.metrics.paced.inc();
            self.intake.pace(key, wait);
        }
    }

    pub(crate) fn budgets(&self) -> MutexGuard<'_, Budgets<ObjectKey>> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

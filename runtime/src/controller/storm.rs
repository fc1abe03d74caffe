//! What workers do about storms: charge runs that write, hold back keys that do so too often.

use std::sync::{MutexGuard, PoisonError};

use kube::Resource as _;
use tokio::time::Instant;

use super::{
    Reconciler,
    budget::{Budgets, Charged, News},
    context::Ticket,
    worker::Engine,
};
use crate::{informer::Watched, object::ObjectKey, writes::own_writes::Did};

impl<K: Watched, R: Reconciler<K>> Engine<K, R> {
    /// Charges a run that was no retry if it sent a write, or its object's version moved meanwhile.
    pub(super) fn charge(&self, ticket: &Ticket, began_with: Option<&K::Object>) {
        let key = &ticket.key;
        let moved = |began_with: &K::Object| {
            self.objects.version(key).as_deref() != began_with.meta().resource_version.as_deref()
        };
        let wrote = || match self.writer.did(key) {
            Did::Nothing => false,
            Did::Hear => began_with.is_some_and(moved),
            Did::Write => true,
        };
        if ticket.reason.is_retry() || !wrote() {
            return;
        }
        let charged = self.budgets().charge(key, Instant::now());
        if let Charged::Paced { news: News::Begins, .. } = charged {
            tracing::warn!(
                controller = %self.name,
                %key,
                "a storm: runs of one key keep writing, and are paced; does somebody else write the same fields?"
            );
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

//! What workers do about storms: charge runs that write, hold back keys that do so too often.

use std::sync::{MutexGuard, PoisonError};

use tokio::time::Instant;

use super::{
    Reconciler,
    budget::{Budgets, Charged, News},
    context::Ticket,
    worker::Engine,
};
use crate::{informer::Watched, object::ObjectKey};

impl<K: Watched, R: Reconciler<K>> Engine<K, R> {
    /// Charges a run that was no retry if it sent a write, or its object's version moved meanwhile.
    pub(super) fn charge(&self, ticket: &Ticket, before: Option<&str>) {
        let key = &ticket.key;
        let wrote =
            || self.writer.sent(key) || before.is_some() && self.objects.version(key).as_deref() != before;
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
        let wait = self.budgets().wait(key, Instant::now());
        if !wait.is_zero() {
            self.metrics.paced.inc();
            self.intake.pace(key, wait);
        }
    }

    pub(crate) fn budgets(&self) -> MutexGuard<'_, Budgets<ObjectKey>> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The guard of a key in flight.

use std::fmt;
use std::time::Duration;

use super::entry::QueueKey;
use super::outcome::Outcome;
use super::priority::Priority;
use super::shared::Shared;
use super::state::{Grant, Stood};
use super::sync::Arc;

/// A key in flight: nobody else gets it until this ends.
///
/// It ends with one of the methods that take it, or, when dropped (by a panic or a cancellation, too), as done. One that
/// is forgotten ([`std::mem::forget`]) never ends: its key stays in flight for good, what is said of it waits for good,
/// and a [`drain`](super::WorkQueue::drain) ends only with a second shutdown. Other keys do not suffer.
#[must_use = "a dropped item is done"]
pub struct Item<K: QueueKey> {
    shared: Arc<Shared<K>>,
    grant: Grant<K>,
    outcome: Outcome,
}

impl<K: QueueKey> Item<K> {
    pub(super) const fn new(shared: Arc<Shared<K>>, grant: Grant<K>) -> Self {
        Self { shared, grant, outcome: Outcome::Done }
    }

    /// Tells the key.
    pub const fn key(&self) -> &K {
        &self.grant.key
    }

    /// Counts the runs since the last success; the first is 1.
    pub const fn attempt(&self) -> u32 {
        self.grant.attempt
    }

    /// Whether nothing was said of the key but that a list lists it.
    pub(crate) fn was_only_listed(&self) -> bool {
        self.grant.stood == Stood::OnList
    }

    /// Tells the priority at which it was handed out.
    pub const fn priority(&self) -> Priority {
        self.grant.priority
    }

    /// Sets the priority of the run that this one's outcome asks for; without this it keeps its own.
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.grant.priority = priority;
        self
    }

    /// Ends the run as said.
    pub fn finish(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// Ends the run, saying nothing: failures stay as counted.
    pub fn done(self) {
        self.finish(Outcome::Done);
    }

    /// Ends the run as a success: failures are cleared.
    pub fn forget(self) {
        self.finish(Outcome::Forget);
    }

    /// Ends the run as a success; again after `delay`, not before unless something really changes.
    pub fn requeue_after(self, delay: Duration) {
        self.finish(Outcome::RequeueAfter(delay));
    }

    /// Ends the run as a failure: again when the back-off, which grows, is over.
    pub fn retry(self) {
        self.retry_at_least(Duration::ZERO);
    }

    /// Ends the run as a failure: again after the back-off, and after `delay`.
    pub fn retry_at_least(self, delay: Duration) {
        self.finish(Outcome::Retry { at_least: delay });
    }

    /// Runs the key again after the first step of its back-off, and counts no failure.
    ///
    /// Each in a row takes one step more, up to the floor (1 s unless set).
    pub fn retry_uncounted(self) {
        self.finish(Outcome::RetryUncounted);
    }

    /// Ends the run as a failure that only a real change can mend.
    pub fn terminal(self) {
        self.finish(Outcome::Terminal);
    }

    /// Gives the key back without a verdict: queued again at once, nothing counted; dropped after a shutdown.
    pub fn put_back(self) {
        self.finish(Outcome::PutBack);
    }
}

impl<K: QueueKey> Drop for Item<K> {
    fn drop(&mut self) {
        let (Grant { id, priority, .. }, outcome) = (&self.grant, self.outcome);
        self.shared.change(|state, clock| state.finish(*id, outcome, *priority, clock));
    }
}

impl<K: QueueKey + fmt::Debug> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", self.key())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

//! Looking on as an informer applies changes.

use super::{
    change::{Change, Progress},
    listed::{Accepted, Listed},
};

/// Looks on as an informer applies changes: no buffer, no task, nothing is left out.
///
/// Called from the informer's own task, in order, after the cache and its indexes have changed. Must return at
/// once: everything else waits. A panic is contained and counted. This is what controllers use; handlers, which
/// may be slow, are [`EventHandler`](super::EventHandler)s.
pub trait Observer<K>: Send + Sync + 'static {
    /// Sees one change.
    fn changed(&self, change: &Change<K>);

    /// Sees at once what a first list added; says how far it cared to look, and is shown the rest one by one.
    fn listed(&self, _listed: &Listed<'_, K>) -> Accepted {
        Accepted::First(0)
    }

    /// Returns whether code of the user's runs in its calls, which may block although it must not.
    ///
    /// Then the informer sees to it that nothing but itself is held up, at the price of a task hop a batch.
    fn may_block(&self) -> bool {
        true
    }

    /// Called with the version that the cache has reached, after all changes up to there were shown.
    fn progressed(&self, _progress: Progress) {}
}

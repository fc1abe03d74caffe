//! Without the feature `persistence`: nothing is written to disk.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::guard::Guard;
use crate::data::DataError;
use crate::state::State;

/// Whether it is on disk, or why not.
pub(super) type Committed = Result<(), Arc<DataError>>;

/// Waits until what was written before is on disk.
pub(super) type Ticket = oneshot::Receiver<Committed>;

/// The state, as the task that writes needs it.
pub(super) trait SharedState: Send + Sync + 'static {
    /// Locks the state.
    fn state(&self) -> Guard<'_>;
    /// Returns the committer.
    fn committer(&self) -> Option<&Committer>;
}

/// Never exists, since this build has no data file.
#[derive(Debug)]
pub(super) enum NoCommitter {}

pub(super) use NoCommitter as Committer;
pub(super) use SharedState as Shared;

impl NoCommitter {
    pub(super) fn ticket(&self, _: &State) -> Option<Ticket> {
        match *self {}
    }

    pub(super) fn start<S: Shared>(&self, _: &Weak<S>) {
        match *self {}
    }

    pub(super) fn close(&self, _: &State) -> Option<Ticket> {
        match *self {}
    }

    pub(super) fn abandon(&self) {
        match *self {}
    }
}

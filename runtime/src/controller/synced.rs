//! The informers that a controller waits for, whatever their type.

use std::fmt;

use futures::{FutureExt, future::BoxFuture};

use crate::{
    informer::{SharedInformer, SyncState, TermStart, Watched},
    reflector::Doubt,
};

/// An informer that a controller waits for.
pub(crate) trait Synced: Send + Sync {
    /// Returns whether its cache holds what the server held at some moment since the start.
    fn has_synced(&self) -> bool;
    /// Ends when it has synced.
    fn synced(&self) -> BoxFuture<'_, ()>;
    /// Ends when its cache holds what the server held after a term began.
    fn current<'a>(&'a self, start: &'a TermStart) -> BoxFuture<'a, ()>;
    /// Says what it watches, how far it has come, and what keeps it.
    fn state(&self) -> SyncState;
    /// Says why its cache can't be relied on at present, if so.
    fn doubt(&self) -> Option<Doubt>;
}

impl<W: Watched> Synced for SharedInformer<W> {
    fn has_synced(&self) -> bool {
        SharedInformer::has_synced(self)
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        SharedInformer::synced(self).boxed()
    }

    fn current<'a>(&'a self, start: &'a TermStart) -> BoxFuture<'a, ()> {
        SharedInformer::current(self, start).boxed()
    }

    fn state(&self) -> SyncState {
        self.sync_state()
    }

    fn doubt(&self) -> Option<Doubt> {
        SharedInformer::doubt(self)
    }
}

impl fmt::Debug for dyn Synced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Synced({})", self.state().name())
    }
}

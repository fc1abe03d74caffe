//! The informers that a controller waits for, whatever their type.

use std::fmt;

use futures::{FutureExt, future::BoxFuture};

use crate::{
    informer::{AnyInformer, SyncState, TermStart},
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

impl Synced for AnyInformer {
    fn has_synced(&self) -> bool {
        self.has_synced()
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        self.synced().boxed()
    }

    fn current<'a>(&'a self, start: &'a TermStart) -> BoxFuture<'a, ()> {
        self.current(start).boxed()
    }

    fn state(&self) -> SyncState {
        self.state()
    }

    fn doubt(&self) -> Option<Doubt> {
        self.doubt()
    }
}

impl fmt::Debug for dyn Synced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Synced({})", self.state().name())
    }
}

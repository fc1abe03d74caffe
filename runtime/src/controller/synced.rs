//! The informers that a controller waits for, whatever their type.

use std::{fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};

use crate::{
    informer::{
        FailureCause, FetchFailure, SharedInformer, SyncPhase, SyncState, TermStart, Watched, name_of,
    },
    object::Kind,
    reflector::Doubt,
};

/// An informer that somebody waits for.
pub(crate) trait Synced: Send + Sync {
    /// Which kind it watches.
    fn kind(&self) -> Kind;
    /// Which cluster it reads from; `None`: the manager's own.
    fn cluster(&self) -> Option<Arc<str>>;
    /// Whether its cache holds what the server held at some moment since the start.
    fn has_synced(&self) -> bool;
    /// Ends when it has synced.
    fn synced(&self) -> BoxFuture<'_, ()>;
    /// Ends when its cache holds what the server held after a term began.
    fn current<'a>(&'a self, start: &'a TermStart) -> BoxFuture<'a, ()>;
    /// Says how far it has come, and what keeps it.
    fn state(&self) -> SyncState;
    /// Says why its cache can't be relied on at present, if so.
    fn doubt(&self) -> Option<Doubt>;

    /// Names it, for messages.
    fn name(&self) -> String {
        name_of(&self.kind(), self.cluster().as_deref())
    }

    /// Says why it has not synced, in one line.
    fn why(&self) -> String {
        let state = self.state();
        match &state.failure {
            Some(failure) => explained(failure),
            None if state.phase == SyncPhase::Stopped => "its informer was stopped".to_owned(),
            None => "its first list is not through".to_owned(),
        }
    }
}

impl<W: Watched> Synced for SharedInformer<W> {
    fn kind(&self) -> Kind {
        SharedInformer::kind(self).clone()
    }

    fn cluster(&self) -> Option<Arc<str>> {
        SharedInformer::cluster(self)
    }

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

/// Says as people read it what keeps an informer from its objects.
fn explained(failure: &FetchFailure) -> String {
    let what = match failure.cause {
        FailureCause::Forbidden => "the server forbids it",
        FailureCause::Unauthorized => "the server does not accept the credentials",
        FailureCause::NotServed => "the server does not serve it",
        FailureCause::Unreachable => "the server is unreachable",
        FailureCause::TooLarge => "something is too large",
        FailureCause::Panicked => "code that it calls panics",
        FailureCause::Other => "it fails",
    };
    let (seconds, attempts) = (failure.since.elapsed().as_secs(), failure.attempts);
    let attempts = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
    format!("{what}, after {attempts} in {seconds} s: {}", failure.message)
}

impl fmt::Debug for dyn Synced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Synced({})", self.name())
    }
}

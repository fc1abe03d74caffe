//! The second copy of the tables, which the next write changes.
//!
//! A store has two copies of its tables. A write changes the one that is not published, in place, and publishes it. The
//! other then takes the same changes ([`Spare::caught_up`]). Without that, each write would copy a path of every table.
//!
//! A reader may still hold the copy that was published before. Nobody waits for it: until it lets go, writes begin with
//! a clone of the published snapshot and copy paths, and the held copy takes what it lacks afterwards. If it were given up
//! instead, one slow read would cost the tables of the whole store: the reader would free one copy, and the writes after
//! that would build another.

use std::sync::Arc;

use super::snapshot::{NotedChanges, StoreSnapshot};

/// A snapshot that is not published.
pub(super) enum Spare {
    /// It is like the published one, and nobody else holds it.
    Ready(StoreSnapshot),
    /// Readers may hold it, and it lacks changes.
    Behind(Arc<StoreSnapshot>, NotedChanges),
}

impl Spare {
    /// Lets it take what it lacks, unless a reader holds it; `None` where a clone of the published one costs less.
    pub(super) fn caught_up(self, published: &StoreSnapshot) -> Option<Self> {
        let Self::Behind(snapshot, missing) = self else { return Some(self) };
        match Arc::try_unwrap(snapshot) {
            Ok(snapshot) => snapshot.follow(published, &missing).map(Self::Ready),
            Err(snapshot) => (!missing.are_too_many()).then_some(Self::Behind(snapshot, missing)),
        }
    }
}

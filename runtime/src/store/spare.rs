//! The second copy of the tables, which the next write changes.
//!
//! A store has two copies of its tables. A write changes the one that is not published, in place, and publishes it. The
//! other then takes the same changes ([`Spare::caught_up`]). Without that, each write would copy a path of every table.
//!
//! A reader may still hold the copy that was published before. Nobody waits for it: until it lets go, writes begin with
//! a clone of the published snapshot and copy paths, and the held copy takes what it lacks afterwards. If it were given up
//! instead, one slow read would cost the tables of the whole store: the reader would free one copy, and the writes after
//! that would build another. With a million objects that took half a second.

use std::sync::Arc;

use super::snapshot::{StoreSnapshot, TableChange};

/// If the copy lacks more than this part of the objects, a clone costs less: an eighth.
const LEAST_SHARE: usize = 8;

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
        let changes = missing.0.as_ref()?;
        match Arc::try_unwrap(snapshot) {
            Ok(snapshot) => snapshot.follow(published, changes).map(Self::Ready),
            Err(snapshot) => Some(Self::Behind(snapshot, missing)),
        }
    }
}

/// Changes that a copy lacks; `None` once there are too many to repeat.
pub(super) struct NotedChanges(Option<Vec<TableChange>>);

impl NotedChanges {
    pub(super) fn new() -> Self {
        Self(Some(Vec::new()))
    }

    /// Adds a change of a store with this many objects.
    pub(super) fn note(&mut self, change: TableChange, objects: usize) {
        self.0.take_if(|changes| changes.len() >= objects / LEAST_SHARE);
        if let Some(changes) = &mut self.0 {
            changes.push(change);
        }
    }

    /// Adds what followed.
    pub(super) fn followed_by(mut self, later: Self, objects: usize) -> Self {
        match later.0 {
            None => self.0 = None,
            Some(later) => later.into_iter().for_each(|change| self.note(change, objects)),
        }
        self
    }
}

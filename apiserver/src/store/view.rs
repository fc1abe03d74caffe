//! Views: the store as a replica that lags behind has it.

use std::time::Duration;

use tokio::time::Instant;

use super::{ResourceId, Store};

/// How far a replica lags behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// By this many versions of the whole server; 0 means no lag.
    Versions(u64),
    /// By this much of tokio's time.
    Time(Duration),
    /// It is frozen at this version.
    Frozen(u64),
}

/// What reads of the newest state get from a lagging replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// The newest state.
    Kept,
    /// The replica's state.
    Broken,
}

/// The store as a replica sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// How far it lags behind.
    pub(crate) lag: Lag,
    /// What reads of the newest state get.
    pub(crate) consistency: Consistency,
}

impl View {
    /// Returns whether a read with a requested version, or without one, gets this view.
    pub(crate) fn covers(&self, version: &str) -> bool {
        self.consistency == Consistency::Broken || !version.is_empty()
    }
}

impl Store {
    /// Returns the newest version that a view of a resource shows, as far back as is remembered.
    pub(crate) fn seen(&self, id: &ResourceId, view: Option<View>) -> u64 {
        let seen = match view.map(|view| view.lag) {
            None => return self.version,
            Some(Lag::Versions(n)) => self.version.saturating_sub(n),
            Some(Lag::Frozen(version)) => version.min(self.version),
            Some(Lag::Time(time)) => self.version_before(time),
        };
        let forgotten = self.shelves.get(id).map_or(0, |shelf| shelf.forgotten);
        seen.max(self.compacted).max(forgotten).max(1)
    }

    /// Returns the newest version that is at least so old.
    fn version_before(&self, age: Duration) -> u64 {
        let Some(then) = Instant::now().checked_sub(age) else { return 0 };
        let newest = self.shelves.values().filter_map(|shelf| {
            let place = shelf.changes.partition_point(|change| change.at <= then);
            place.checked_sub(1).map(|place| shelf.changes[place].version)
        });
        newest.max().unwrap_or(0)
    }
}

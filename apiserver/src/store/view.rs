//! Views: the store as a replica that lags behind has it.

use std::time::Duration;

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

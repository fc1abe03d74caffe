//! Views: the store as a replica that lags behind has it.

use std::time::Duration;

/// How far a replica lags behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// By so many versions of the whole server; 0 is not at all.
    Versions(u64),
    /// By so much of tokio's time.
    Time(Duration),
    /// It stands still at this version.
    Frozen(u64),
}

/// What reads for the newest state get from a replica that lags.
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
    /// What reads for the newest state get.
    pub(crate) consistency: Consistency,
}

impl View {
    /// Returns whether a read that asks for a version, or for none, gets this view.
    pub(crate) fn covers(&self, version: &str) -> bool {
        self.consistency == Consistency::Broken || !version.is_empty()
    }
}

//! Says why a controller can't start, or has given up.

use std::time::Duration;

use crate::{informer::SyncState, workqueue::InvalidRate};

/// Why a controller can't be started, or has given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A setting is refused.
    #[error("controller {name}: {problem}")]
    Refused {
        /// The controller.
        name: String,
        /// What is wrong, and what to set instead.
        problem: String,
    },
    /// A rate lets nothing pass, or limits nothing.
    #[error("controller {name}: the {rate} is refused")]
    Rate {
        /// The controller.
        name: String,
        /// Which rate it is.
        rate: &'static str,
        /// What is wrong with it.
        #[source]
        source: InvalidRate,
    },
    /// Caches did not sync within the time that `sync_timeout` gives them.
    #[error("controller {name}: not synced within {waited:?}: {}", named(lagging))]
    NotSynced {
        /// The controller.
        name: String,
        /// The informers that it waits for, and why.
        lagging: Vec<SyncState>,
        /// How long it waited.
        waited: Duration,
    },
}

fn named(lagging: &[SyncState]) -> String {
    lagging.iter().map(|state| format!("{state}; {}", state.remedy())).collect::<Vec<_>>().join("; ")
}

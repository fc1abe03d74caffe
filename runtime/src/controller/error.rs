//! Says why a controller can't start, or has given up.

use std::time::Duration;

use crate::{
    informer::SyncState,
    workqueue::{ConfigError, InvalidRate},
};

/// Why a controller can't be started, or has given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// No worker would ever run.
    #[error("controller {name}: zero workers run nothing; `workers` must be at least 1")]
    NoWorkers {
        /// The controller.
        name: String,
    },
    /// More workers than make sense: each holds a task.
    #[error(
        "controller {name}: {workers} workers are too many; 65536 may run at once, and a few do for most"
    )]
    TooManyWorkers {
        /// The controller.
        name: String,
        /// How many were asked for.
        workers: usize,
    },
    /// There can be no such namespace.
    #[error(
        "controller {name}: {namespace:?} can't be a namespace: use 1 to 63 of a-z, 0-9, '-', not '-' at either end"
    )]
    Namespace {
        /// The controller.
        name: String,
        /// The namespace.
        namespace: String,
    },
    /// No cache would ever sync in time.
    #[error("controller {name}: a sync timeout of zero gives up at once; leave it out, or allow some time")]
    NoTimeToSync {
        /// The controller.
        name: String,
    },
    /// The rate of retries lets nothing pass, or is none.
    #[error("controller {name}: the retry rate is refused")]
    RetryRate {
        /// The controller.
        name: String,
        /// What is wrong with it.
        #[source]
        source: InvalidRate,
    },
    /// No run would ever end in time.
    #[error("controller {name}: a deadline of zero ends every run; leave it out, or allow some time")]
    NoTime {
        /// The controller.
        name: String,
    },
    /// The rate limit lets nothing pass, or is none.
    #[error("controller {name}: the rate limit is refused")]
    RateLimit {
        /// The controller.
        name: String,
        /// What is wrong with it.
        #[source]
        source: ConfigError,
    },
    /// The storm limit lets nothing pass, or is none.
    #[error("controller {name}: the storm limit is refused")]
    StormLimit {
        /// The controller.
        name: String,
        /// What is wrong with it.
        #[source]
        source: InvalidRate,
    },
    /// Kubernetes would refuse the finalizer on every object.
    #[error(
        "controller {name}: {finalizer:?} can't be a finalizer, it is not a qualified name: write it like `example.dev/volume`"
    )]
    Finalizer {
        /// The controller.
        name: String,
        /// The finalizer.
        finalizer: String,
    },
    /// The API server would refuse the field manager on every write.
    #[error(
        "controller name {name:?} can't be a field manager: use 1 to 128 of a-z, A-Z, 0-9, '.', '-', '_', '/'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The API server would refuse the field manager on every write.
    #[error(
        "controller {name}: {field_manager:?} can't be a field manager: use 1 to 128 of a-z, A-Z, 0-9, '.', '-', '_', '/'"
    )]
    FieldManager {
        /// The controller.
        name: String,
        /// The field manager.
        field_manager: String,
    },
    /// Objects of another cluster have no owners in this one.
    #[error(
        "controller {name}: {kind} is in another cluster, where objects have no owner in this one: use `mapped`, not `owned`"
    )]
    OwnedElsewhere {
        /// The controller.
        name: String,
        /// The kind, after the name of its cluster.
        kind: String,
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

//! What running controllers can fail with: the errors of all stages, composed once.

use std::{fmt, time::Duration};

use crate::{
    controller::{ControllerError, Terminal},
    informer::NotSynced,
    writes::WriteError,
};

/// What watchkeeper can fail with; also fit to be a reconciler's own error type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No cluster was found to talk to.
    #[error("no Kubernetes configuration: set KUBECONFIG, or run inside a cluster")]
    Configuration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The client could not be built, or a request of the program's own failed.
    #[error("{0}")]
    Client(#[from] kube::Error),
    /// A write was refused, or may not have happened.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// A cache did not sync in time.
    #[error("{0}")]
    NotSynced(#[from] NotSynced),
    /// A controller can't be started as it is configured.
    #[error("{0}")]
    Controller(#[from] ControllerError),
    /// Two controllers of one manager have the same name.
    #[error("two controllers are named {0}: give one another name with `.named(..)`")]
    DuplicateController(String),
    /// A custom resource definition was not accepted.
    #[error("the definition {name} is not served: {why}")]
    Definition {
        /// The CRD's name.
        name: String,
        /// Why not.
        why: String,
    },
    /// Signals can't be listened to.
    #[error("can't listen for SIGINT and SIGTERM")]
    Signals(#[source] std::io::Error),
    /// The manager stopped before all was done.
    #[error("stopped before all was done: {0}")]
    Stopped(Stopped),
    /// An error that retrying can't mend.
    #[error("{0}")]
    Terminal(#[from] Terminal),
    /// A file, or a connection of the program's own, failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Something is no JSON, or does not fit into it.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Anything else.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Takes any error, for `.map_err(Error::other)?`.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::Other(error)
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::other(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self::other(text)
    }
}

/// Says why a manager stopped before all was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// Reconciles ran on past the grace period, and were aborted.
    PastGracePeriod(Duration),
    /// A second signal came.
    SecondSignal,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PastGracePeriod(period) => {
                write!(f, "reconciles ran on past the grace period of {period:?}")
            }
            Self::SecondSignal => f.write_str("a second signal came"),
        }
    }
}

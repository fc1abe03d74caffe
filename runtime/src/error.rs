//! What running controllers can fail with: the errors of all stages, composed once.

use std::{fmt, path::PathBuf, time::Duration};

use kube::config::KubeconfigError;

use crate::{
    chain::one_line,
    controller::{ControllerError, Terminal},
    informer::NotSynced,
    leader_election::ElectionError,
    writes::WriteError,
};

/// What watchkeeper can fail with; also fit to be a reconciler's own error type.
///
/// `Debug` writes the error and its causes in a line, which is what a `main` shows that returns one.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No cluster was found to talk to.
    #[error("{problem}")]
    Configuration {
        /// The kubeconfig that can't be used; `None` where there is none.
        kubeconfig: Option<PathBuf>,
        /// What is wrong, in which file, and what to do.
        problem: String,
        /// What kube says of it, where it was kube that refused it.
        cause: Option<Box<KubeconfigError>>,
    },
    /// The client could not be built, or a request of the program's own failed.
    #[error("{}", one_line(.0))]
    Client(#[from] kube::Error),
    /// A write was refused, or may not have happened.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// A cache did not sync in time.
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    /// A controller can't be started as it is configured.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// Leader election can't be held as it is set.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// A task of the program's own failed.
    #[error("task {name}")]
    Task {
        /// The task.
        name: String,
        /// What it failed with.
        #[source]
        source: Box<Error>,
    },
    /// Two controllers of one manager have the same name.
    #[error("two controllers are named {0}: give one another name with `.named(..)`")]
    DuplicateController(String),
    /// Another cluster can't be read from as it is set.
    #[error("cluster {name:?}: {problem}")]
    Cluster {
        /// The cluster, by name.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A custom resource definition was not accepted.
    #[error("the definition {name} can't be installed: {why}")]
    Definition {
        /// The CRD's name.
        name: String,
        /// Why not, and what to do.
        why: String,
        /// What the server said, where it refused it.
        status: Option<Box<kube::core::Status>>,
    },
    /// HTTP can't be served as it is set.
    #[error("HTTP can't be served at {address:?}: {problem}")]
    Http {
        /// Where it was to be served, as it was written.
        address: String,
        /// What is wrong, and what to do.
        problem: String,
        /// What the system said, where it refused it.
        source: Option<std::io::Error>,
    },
    /// Something was written for real before the dry run began.
    #[error("a dry run began only after `{0}` had been sent: call `.dry_run()` before anything is written")]
    WroteBeforeDryRun(String),
    /// Signals can't be listened to.
    #[error("can't listen for SIGINT and SIGTERM")]
    Signals(#[source] std::io::Error),
    /// Reconciles ran on past the grace period, and were aborted.
    #[error(
        "stopped before all was done: reconciles ran on past the grace period of {period:?}, and were aborted: \
         {reconciles}; allow more by `.grace_period(..)`, or bound runs by `.deadline(..)`"
    )]
    PastGracePeriod {
        /// The grace period.
        period: Duration,
        /// Controllers and keys, in one line.
        reconciles: String,
    },
    /// An event handler of an informer ran on past the grace period.
    #[error(
        "stopped before all was done: an event handler of an informer ran on past the grace period of {period:?}"
    )]
    HandlerPastGracePeriod {
        /// The grace period.
        period: Duration,
    },
    /// A second signal came before all was done.
    #[error("stopped before all was done: a second signal came")]
    SecondSignal,
    /// An error that retrying does not repair.
    #[error(transparent)]
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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(self))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workqueue::{ConfigError, InvalidRate};

    #[test]
    fn debug_is_the_chain_each_cause_once_with_the_remedy() {
        let source = ConfigError::Rate(InvalidRate::Zero);
        let error = Error::from(ControllerError::RateLimit { name: "websites".to_owned(), source });
        assert_eq!(
            format!("{error:?}"),
            "controller websites: the rate limit is refused: a rate of zero lets nothing run; \
             leave the rate out to lift it"
        );
        let refused = Error::from(kube::Error::Service("no answer from https://10.0.0.1:6443".into()));
        assert_eq!(format!("{refused:?}"), "no answer from https://10.0.0.1:6443");
    }

    // A reconciler may hand a terminal error through watchkeeper's own.
    #[test]
    fn a_terminal_error_is_found_inside() {
        let terminal = || Terminal::new("it never will");
        assert!(Terminal::is_in(&Error::from(terminal())) && Terminal::is_in(&Error::other(terminal())));
        assert_eq!(format!("{:?}", Error::from(terminal())), "it never will");
    }
}

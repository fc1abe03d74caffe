//! The errors of all stages, in one type.

use std::{fmt, path::PathBuf, time::Duration};

use kube::config::KubeconfigError;

use crate::{
    chain::one_line,
    controller::{ControllerError, Terminal},
    informer::NotSynced,
    leader_election::ElectionError,
    writes::WriteError,
};

/// An error of watchkeeper. A reconciler can use it as its error type, too.
///
/// `Debug` writes the error and its causes in one line, so a `main` that returns it prints that line.
///
/// | Comes from | Means | Do |
/// |---|---|---|
/// | [`Manager::infer`](crate::Manager::infer) | no usable cluster is configured | correct the kubeconfig that it names |
/// | [`Manager::run`](crate::Manager::run) | a setting is refused, or a controller gave up | what the text says |
/// | [`Manager::install_crd`](crate::Manager::install_crd) | the server refuses the CRD | as it says; often a permission |
/// | a reconciler, with this as its error type | a write failed: see [`WriteError`] | nothing: the key is retried |
///
/// ```
/// # async fn name() -> Result<(), watchkeeper::Error> {
/// let manager = watchkeeper::Manager::infer().await?; // returned from `main`, it is printed as one line
/// # drop(manager); Ok(()) }
/// ```
///
/// The book lists [all texts](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/reference/errors.md).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No usable cluster configuration was found.
    #[error("{problem}")]
    Configuration {
        /// The kubeconfig that can't be used; `None` if there is none.
        kubeconfig: Option<PathBuf>,
        /// What is wrong, in which file, and what to do.
        problem: String,
        /// The error of kube, if kube refused it.
        cause: Option<Box<KubeconfigError>>,
    },
    /// The client could not be built, or a request of the program failed.
    #[error("{}", one_line(.0))]
    Client(#[from] kube::Error),
    /// A write was refused, or may not have happened.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// A cache did not sync in time.
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    /// The configuration of a controller is not valid.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The settings of the leader election are not valid.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// A task of the program failed.
    #[error("task {name}")]
    Task {
        /// The task.
        name: String,
        /// Its error.
        #[source]
        source: Box<Error>,
    },
    /// Two controllers of one manager have the same name.
    #[error("two controllers are named {0}: give one another name with `.named(..)`")]
    DuplicateController(String),
    /// The settings of another cluster are not valid.
    #[error("cluster {name:?}: {problem}")]
    Cluster {
        /// The name of the cluster.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A custom resource definition could not be installed.
    #[error("the CRD {name} can't be installed: {why}")]
    Definition {
        /// The CRD's name.
        name: String,
        /// Why not, and what to do.
        why: String,
        /// The answer of the server, if the server refused it.
        status: Option<Box<kube::core::Status>>,
    },
    /// A policy could not be installed.
    #[error("{kind} {name} can't be installed: {why}")]
    Policy {
        /// The kind of the object: a policy or its binding.
        kind: String,
        /// Its name.
        name: String,
        /// Why not, and what to do.
        why: String,
        /// The answer of the server.
        status: Box<kube::core::Status>,
    },
    /// The HTTP server can't start with these settings.
    #[error("HTTP can't be served at {address:?}: {problem}")]
    Http {
        /// The address as it was written.
        address: String,
        /// What is wrong, and what to do.
        problem: String,
        /// The error of the system, if the system refused it.
        source: Option<std::io::Error>,
    },
    /// No manifests can be made of what was chosen; the text says what to do.
    #[error("the manifests can't be made: {0}")]
    Manifests(String),
    /// A real write was sent before the dry run began.
    #[error("a dry run began only after `{0}` had been sent: call `.dry_run()` before anything is written")]
    WroteBeforeDryRun(String),
    /// The program can't listen for signals.
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
    /// An I/O error of the program.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Something is not valid JSON, or can't be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Anything else.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps any error, for `.map_err(Error::other)?`.
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
    use crate::workqueue::InvalidRate;

    #[test]
    fn debug_is_the_chain_each_cause_once_with_the_remedy() {
        let (name, source) = ("websites".to_owned(), InvalidRate::ZERO);
        let error = Error::from(ControllerError::Rate { name, rate: "rate limit", source });
        assert_eq!(
            format!("{error:?}"),
            "controller websites: the rate limit is refused: a rate of zero lets nothing run; \
             leave the rate out to lift it"
        );
        let refused = Error::from(kube::Error::Service("no answer from https://10.0.0.1:6443".into()));
        assert_eq!(format!("{refused:?}"), "no answer from https://10.0.0.1:6443");
    }

    // A reconciler may wrap a terminal error in watchkeeper's error.
    #[test]
    fn a_terminal_error_is_found_inside() {
        let terminal = || Terminal::new("it can never work");
        assert!(Terminal::is_in(&Error::from(terminal())) && Terminal::is_in(&Error::other(terminal())));
        assert_eq!(format!("{:?}", Error::from(terminal())), "it can never work");
    }
}

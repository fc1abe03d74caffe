//! What can go wrong between a request and its last byte.

use std::time::Duration;

use kube::core::Status;

/// Says what kept a list or a watch from being read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListWatchError {
    /// The server answered with an error.
    #[error("the server answered {}: {}", status.code, status.message)]
    Status {
        /// What it said; made up from the HTTP answer where it sent no Status.
        status: Box<Status>,
        /// How long it asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The request could not be sent, or its answer broke off.
    #[error("the connection failed")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer, or no further byte of it, came in time.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// The body ended inside a frame.
    #[error("the stream ended inside an event")]
    CutShort,
    /// The body is not what a list or a watch looks like.
    #[error("the answer can't be read: {0}")]
    Unreadable(String),
    /// A source that is no Kubernetes API server failed in a way of its own.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

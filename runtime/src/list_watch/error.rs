//! What can go wrong between a request and its last byte: with an answer, or with one object of it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::Status;

use crate::{
    object::ObjectKey,
    plain::{plain, said},
};

/// What kept a list or a watch from being read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListWatchError {
    /// The server answered with an error.
    #[error("the server answered {}: {}", status.code, said(&status.message))]
    Status {
        /// What it said; made up from the HTTP answer where it sent no Status.
        status: Box<Status>,
        /// How long it asked to be left alone, in seconds or by a date.
        retry_after: Option<Duration>,
    },
    /// The request could not be sent, or its answer broke off.
    #[error("the connection failed")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer, or no further byte of it, came in time.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// An open watch was silent for so long that it may be dead: it is to be opened again.
    #[error("nothing came for {0:?}")]
    Idle(Duration),
    /// The wall clock ran ahead by this much: the machine was suspended, and an open watch may be dead.
    #[error("the machine seems to have been suspended for {0:?}")]
    Suspended(Duration),
    /// The server ended a watch cleanly within a second, before it had brought anything new.
    #[error("the server closes watches as soon as they are open")]
    ClosedAtOnce,
    /// The body ended inside a frame.
    #[error("the answer ended in the middle")]
    CutShort,
    /// The body is not what a list or a watch looks like.
    #[error("the answer can't be read: {}", plain(.0))]
    Unreadable(String),
    /// A watch delivered something that is not an event of its kind; it was skipped, and the watch continues.
    #[error("skipped {}", plain(.0))]
    Unexpected(String),
    /// One object, or the rest of the answer, is larger than the limit.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How large it may be.
        limit: usize,
    },
    /// Watches that were open bring nothing, although lists show changes: something on the way holds them back.
    ///
    /// Found after watches in a row that ended in silence; over once a watch brings something.
    #[error("open watches bring nothing, although lists show changes")]
    HeldBack,
    /// A list went on, page after page, without an end: its continue tokens lead nowhere.
    #[error("the list did not end within {pages} pages")]
    Endless {
        /// How many pages were read.
        pages: u32,
    },
    /// A cache shows something else than a list at the same version: a defect, of the runtime or of the server.
    ///
    /// Found only where [`consistency_check`](crate::reflector::ReflectorConfig::consistency_check) is set.
    #[error(
        "the cache differs from a list at the same version, which is a defect: {count} objects, among them {named}"
    )]
    Inconsistent {
        /// How many objects differ.
        count: usize,
        /// Some of them: key, version shown, version listed.
        named: String,
    },
    /// The code that lists or watches panicked: a source, a hook, a schedule, or what the objects are written to.
    #[error("the code that fetches it panicked (the panic's own message says where)")]
    Panicked,
    /// The namespace is invalid; no request was sent.
    #[error(
        "{0:?} is not a namespace: its name is 1 to 63 of a-z, 0-9 and '-', and begins and ends with a letter or a digit"
    )]
    NoNamespace(String),
    /// A source that is not a Kubernetes API server failed in a way of its own.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl ListWatchError {
    /// Makes an error of a Status; how long to wait is taken from its details.
    pub fn from_status(status: Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let retry_after = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        Self::Status { status: Box::new(status), retry_after }
    }

    /// Returns the Status that the server answered.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Returns whether the server refused for lack of permission (403).
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(|status| status.code == 403 || status.reason == "Forbidden")
    }

    /// Returns whether the server does not serve what was asked for (404).
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404 || status.reason == "NotFound")
    }
}

/// Who an object is, as far as that could be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// Name and namespace; `None` where not even these could be read.
    ///
    /// A list with such an item infers no deletions, and an event with one asks for a list.
    pub key: Option<ObjectKey>,
    /// The UID.
    pub uid: Option<String>,
    /// The resource version.
    pub resource_version: Option<String>,
    /// When deletion was asked for, as RFC 3339 text.
    pub deletion_timestamp: Option<String>,
    /// The finalizers that hold it.
    pub finalizers: Vec<String>,
    /// The owners.
    pub owners: Vec<OwnerReference>,
}

/// An object that is there but could not be read: a decode error, or a transform that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Who it is, as far as that could be read.
    pub identity: Identity,
    /// Why, with the path inside the object where that is known; never the object's content.
    pub error: String,
}

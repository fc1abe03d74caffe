//! What can go wrong with a write, by what the caller can do about it.

use std::time::Duration;

use kube::core::Status;

/// Says why a write did not happen, or may not have.
///
/// Every variant names the object. None of them holds its content, but for what the server says of a refused value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The object has no name, or no namespace where its kind needs one.
    #[error("{object}: {missing} is missing: set it before writing the object")]
    Unnamed {
        /// Kind and what is known of the name.
        object: String,
        /// What is missing.
        missing: &'static str,
    },
    /// The name, or the namespace, can't stand in a request's path.
    #[error("{object}: a name holds no '/' and no '%', and is neither '.' nor '..': choose another one")]
    Misnamed {
        /// Kind and name.
        object: String,
    },
    /// The object carries no version: nothing tells what a write would overwrite.
    #[error("{object} has no metadata.resourceVersion: pass the object as it was read")]
    Unversioned {
        /// The object.
        object: String,
    },
    /// Kubernetes forbids this owner reference.
    #[error("{object} can't be owned by {owner}: {rule}")]
    ForbiddenOwner {
        /// The child.
        object: String,
        /// The object that was to own it.
        owner: String,
        /// The rule that forbids it.
        rule: &'static str,
    },
    /// The object exists and is not controlled by the reconciled object.
    #[error(
        "{object} exists and is controlled by {controller}, not by {owner}: delete it, choose another name, \
         or take it over with `.adopt()`"
    )]
    NotControlled {
        /// The child.
        object: String,
        /// The object that was to own it.
        owner: String,
        /// Who controls it: kind and name, or `nobody`.
        controller: String,
    },
    /// The object belongs to an earlier object of the same name, which garbage collection has yet to remove.
    #[error("{object} still belongs to an earlier {owner}: waiting for garbage collection")]
    EarlierOwner {
        /// The child.
        object: String,
        /// The object that was to own it.
        owner: String,
    },
    /// The reconciled object is gone, so nothing can be written on its behalf.
    #[error("{object} can't be written: its owner {owner} is deleted")]
    OwnerGone {
        /// The object that was to be written.
        object: String,
        /// The deleted owner.
        owner: String,
    },
    /// The write was computed from a version that is no longer the present one (HTTP 409).
    ///
    /// No failure: the key runs again after the first back-off step, and the attempt is not counted.
    #[error("{object} changed in the meantime")]
    Conflict {
        /// The object.
        object: String,
        /// What the server said.
        #[source]
        cause: Stale,
    },
    /// The server refused the write.
    #[error("{verb} {object}: the server answered {}: {}", status.code, status.message)]
    Refused {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: String,
        /// What the server said.
        status: Box<Status>,
    },
    /// The request could not be sent, or its answer was lost: the write may have happened.
    #[error("{verb} {object}: the connection failed, and the write may or may not have happened")]
    Connection {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer came in time: the write may have happened.
    #[error("{verb} {object}: no answer within {after:?}, and the write may or may not have happened")]
    Deadline {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: String,
        /// The deadline.
        after: Duration,
    },
    /// The object could not be encoded, or the answer not be decoded.
    #[error("{verb} {object}: {problem}")]
    Codec {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: String,
        /// What did not fit, without the content.
        problem: String,
    },
}

/// Says that a write was computed from an old version: what a [`WriteError::Conflict`] has in its chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Stale(String);

impl Stale {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Tells whether an error, or one that caused it, is a conflict.
    pub(crate) fn is_in(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(cause) = next {
            if cause.is::<Self>() {
                return true;
            }
            next = cause.source();
        }
        false
    }
}

impl WriteError {
    /// Makes a conflict about an object.
    pub(crate) fn conflict(object: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Conflict { object: object.into(), cause: Stale::new(message) }
    }

    /// Tells whether the write was computed from an old version: retry on the present one.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Tells whether the server says that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code == 404)
    }
}

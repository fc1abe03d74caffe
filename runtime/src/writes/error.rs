//! What can go wrong with a write, by what the caller can do about it.

use std::time::Duration;

use kube::core::Status;

/// Says why a write did not happen, or may not have.
///
/// Every variant names the object. None of them holds its content, but for what the server says of a refused value.
///
/// Returned from a run, a [`Conflict`](Self::Conflict) or a [`Doubted`](Self::Doubted) is no failure. All others are: the key is retried with
/// growing delay, since rights, definitions and quotas change without the object changing. Whoever knows better
/// wraps them in [`Terminal`](crate::Terminal), or says so in `Reconciler::is_terminal`.
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
    /// The object carries no UID: nothing tells which one is meant.
    #[error("{object} has no metadata.uid: pass the object as it was read")]
    Unidentified {
        /// The object.
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
    /// No failure: the key runs again, uncounted, once its cache shows the change (at the latest after a second; at
    /// least the first back-off step is waited for).
    #[error("{object} changed in the meantime")]
    Conflict {
        /// The object.
        object: String,
        /// What the server said.
        #[source]
        cause: Stale,
    },
    /// The caches that the write was computed from can't be relied on: it was not sent.
    ///
    /// The server lost its history (a backup was restored), or it can't be reached. No failure: the key runs again once
    /// they were compared with what the server has.
    #[error("{object}: not written")]
    Doubted {
        /// The object.
        object: String,
        /// Why the caches are in doubt.
        #[source]
        cause: Stale,
    },
    /// This user may not do that (HTTP 403).
    #[error("{verb} {object}: forbidden; let this user do it (a Role or ClusterRole, and its binding): {}", status.message)]
    Forbidden {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: String,
        /// What the server said.
        status: Box<Status>,
    },
    /// There is no such object, or its kind is not served (HTTP 404).
    #[error("{verb} {object}: not found: {}", status.message)]
    NotFound {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: String,
        /// What the server said.
        status: Box<Status>,
    },
    /// The kind has no status subresource, so that its status can't be patched.
    #[error(
        "{object}: {kind} has no status subresource: give its definition `subresources: {{status: {{}}}}` \
         (`#[kube(status = \"..\")]` on a derived type), and install it"
    )]
    NoStatusSubresource {
        /// The object.
        object: String,
        /// The kind, as `plural.group`.
        kind: String,
    },
    /// The server refuses the object as it was sent (HTTP 422).
    #[error("{verb} {object}: invalid: {}", status.message)]
    Invalid {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: String,
        /// What the server said; its causes name the fields.
        status: Box<Status>,
    },
    /// The server refused the write for another reason.
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

/// Says that a write was computed from an old version: what a [`WriteError::Conflict`] has in its
/// chain, and a [`WriteError::Doubted`].
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

    /// Makes a refusal to write what may be computed from a lost state.
    pub(super) fn doubted(object: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Doubted { object: object.into(), cause: Stale::new(message) }
    }

    /// Tells whether the write was computed from an old version: retry on the present one.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Tells whether the server says that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Sorts a refusal by its code.
    pub(crate) fn refused(verb: &'static str, object: String, status: Status) -> Self {
        let code = status.code;
        let status = Box::new(status);
        match code {
            403 => Self::Forbidden { verb, object, status },
            404 => Self::NotFound { verb, object, status },
            409 => Self::conflict(object, status.message),
            422 => Self::Invalid { verb, object, status },
            _ => Self::Refused { verb, object, status },
        }
    }

    /// Tells whether the write may have happened all the same.
    pub(crate) fn leaves_in_doubt(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Deadline { .. } | Self::Codec { .. } => true,
            Self::Refused { status, .. } => status.code >= 500,
            _ => false,
        }
    }
}

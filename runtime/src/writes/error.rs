//! What can go wrong with a write, by what the caller can do about it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::Status;

use super::refusal::{ForbiddenBy, RetryAfter, Stale, is_of_webhook};
use crate::{
    object::ObjectRef,
    plain::{plain, said},
};

/// Why a write did not happen, or may not have.
///
/// Every variant names the object. None contains the object's content, except the server's message about a refused value.
///
/// [`Conflict`](Self::Conflict), [`AlreadyExists`](Self::AlreadyExists), [`Doubted`](Self::Doubted) and
/// [`Overloaded`](Self::Overloaded) do not count as failures. Any other error is retried with exponential back-off, since
/// permissions, CRDs and quotas change without the object, and never before the server's `Retry-After`. To stop retrying,
/// wrap the error in [`Terminal`](crate::Terminal), or implement `Reconciler::is_terminal`.
///
/// | Variants | Counts as a failure | What to do |
/// |---|---|---|
/// | `Conflict`, `AlreadyExists`, `Doubted`, `Overloaded` | no | nothing: the key runs again |
/// | `NotControlled`, `ManagedByOthers` | yes | another name, or `.adopt()` |
/// | `ForbiddenOwner` | yes | `.unowned()`, and delete it in `cleanup` |
/// | `Unnamed`, `Misnamed`, `Unidentified`, `Unversioned` | yes | correct the program |
/// | all others | yes | what the text says; the key is retried |
///
/// ```
/// use watchkeeper::{Terminal, WriteError};
///
/// /// Stops retrying if the object belongs to somebody else.
/// fn judged(error: WriteError) -> Box<dyn std::error::Error + Send + Sync> {
///     match error {
///         WriteError::NotControlled { .. } => Terminal::new(error).into(),
///         other => other.into(),
///     }
/// }
/// ```
///
/// The book has more: [errors and log lines](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/reference/errors.md).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The object has no name, or no namespace where its kind needs one.
    #[error("{object}: {missing} is missing: set it before writing the object")]
    Unnamed {
        /// Kind and what is known of the name.
        object: Box<ObjectRef>,
        /// What is missing.
        missing: &'static str,
    },
    /// The name, or the namespace, can't stand in a request's path.
    #[error("{object}: this name can't be used: it must not hold '/' or '%', nor be '.' or '..'")]
    Misnamed {
        /// Kind and name.
        object: Box<ObjectRef>,
    },
    /// The object carries no UID: nothing tells which one is meant.
    #[error("{object} has no metadata.uid: pass an object that was read from a cache or the server")]
    Unidentified {
        /// The object.
        object: Box<ObjectRef>,
    },
    /// The object carries no version: nothing tells what a write would overwrite.
    #[error(
        "{object} has no metadata.resourceVersion: pass an object that was read from a cache or the server"
    )]
    Unversioned {
        /// The object.
        object: Box<ObjectRef>,
    },
    /// Kubernetes forbids this owner reference.
    #[error("{object} can't be owned by {owner}: {rule}")]
    ForbiddenOwner {
        /// The child.
        object: Box<ObjectRef>,
        /// The object that was to own it.
        owner: Box<ObjectRef>,
        /// The rule that forbids it.
        rule: &'static str,
    },
    /// The object exists and is not controlled by the reconciled object.
    #[error("{object} exists and is controlled by {}", not_by(controller.as_deref(), owner))]
    NotControlled {
        /// The child.
        object: Box<ObjectRef>,
        /// The object that was to own it.
        owner: Box<ObjectRef>,
        /// Who controls it; `None`: nobody.
        controller: Option<Box<OwnerReference>>,
    },
    /// Others manage fields that were to be applied, and say otherwise of them (HTTP 409).
    ///
    /// Only of what is applied without a controlling owner: the apply of an owned child is forced.
    #[error(
        "{object}: others manage what was to be applied: {}; leave that out, or take it over with `.adopt()`",
        said(&status.message)
    )]
    ManagedByOthers {
        /// The object.
        object: Box<ObjectRef>,
        /// What the server said: who manages which fields.
        status: Box<Status>,
    },
    /// The object belongs to an earlier object of the same name, which garbage collection has yet to remove.
    #[error("{object} still belongs to an earlier {owner}: waiting for garbage collection")]
    EarlierOwner {
        /// The child.
        object: Box<ObjectRef>,
        /// The object that was to own it.
        owner: Box<ObjectRef>,
    },
    /// The reconciled object is gone, so nothing can be written on its behalf.
    #[error("{object} can't be written: its owner {owner} is deleted")]
    OwnerGone {
        /// The object that was to be written.
        object: Box<ObjectRef>,
        /// The deleted owner.
        owner: Box<ObjectRef>,
    },
    /// The write was computed from a version that is no longer the present one (HTTP 409).
    ///
    /// No failure: the key runs again, uncounted, once its cache shows the change (at the latest after a second; at
    /// least the first back-off step is waited for).
    #[error("{object} changed in the meantime")]
    Conflict {
        /// The object.
        object: Box<ObjectRef>,
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
        object: Box<ObjectRef>,
        /// Why the caches are in doubt.
        #[source]
        cause: Stale,
    },
    /// The object that was to be created is there already (HTTP 409).
    ///
    /// As a [`Conflict`](Self::Conflict) no failure: the cache did not show it yet.
    #[error("{object} exists already")]
    AlreadyExists {
        /// The object.
        object: Box<ObjectRef>,
        /// What the server said.
        #[source]
        cause: Stale,
    },
    /// This user may not do that, or nobody may (HTTP 403).
    #[error("{verb} {object}: forbidden{by}: {}", said(&status.message))]
    Forbidden {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: Box<ObjectRef>,
        /// Who refused it.
        by: ForbiddenBy,
        /// What the server said.
        status: Box<Status>,
    },
    /// There is no such object, or its kind is not served (HTTP 404).
    #[error("{verb} {object}: not found{}: {}", crd_hint(status), said(&status.message))]
    NotFound {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: Box<ObjectRef>,
        /// What the server said.
        status: Box<Status>,
    },
    /// The kind has no status subresource, so that its status can't be patched.
    #[error(
        "{object}: {} has no status subresource: give its CRD `subresources: {{status: {{}}}}` \
         (`#[kube(status = \"..\")]` on a derived type), and install it", object.kind
    )]
    NoStatusSubresource {
        /// The object.
        object: Box<ObjectRef>,
    },
    /// The server took the status, and did not store all of it: its CRD does not have these fields.
    ///
    /// The known fields are stored. Returned from a run this is a failure; ignore it if your program writes fields that an
    /// older CRD lacks on purpose.
    #[error(
        "{object}: the server dropped {}: the CRD of {} has no such field; install the CRD that belongs to \
         this program", plain(&fields.join(", ")), object.kind
    )]
    NotStored {
        /// The object.
        object: Box<ObjectRef>,
        /// What was sent and is not there, as paths: `status.conditions[0].reason`.
        fields: Vec<String>,
    },
    /// The server refuses the object as it was sent (HTTP 422).
    #[error("{verb} {object}: invalid: {}", said(&status.message))]
    Invalid {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: Box<ObjectRef>,
        /// What the server said; its causes name the fields.
        status: Box<Status>,
    },
    /// The server refused the write for another reason, or an admission webhook did with 404 or 409.
    #[error("{verb} {object}: the server answered {}: {}{}", status.code, said(&status.message), credentials_hint(status))]
    Refused {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: Box<ObjectRef>,
        /// What the server said.
        status: Box<Status>,
        /// When it wants to be asked again, where it says so: the key is not retried before.
        #[source]
        retry_after: Option<RetryAfter>,
    },
    /// Nothing was sent: two writes in a row were refused with 429 or 503 and a Retry-After, which is not over yet.
    ///
    /// No controller of the manager writes before that. No failure: the key runs again then, uncounted.
    #[error("{verb} {object}: not sent: the server is overloaded, and asked not to be written to")]
    Overloaded {
        /// What was to be asked for.
        verb: &'static str,
        /// The object.
        object: Box<ObjectRef>,
        /// What the server asked for, of whichever request.
        #[source]
        retry_after: RetryAfter,
    },
    /// The request could not be sent, or its answer was lost: the write may have happened.
    #[error("{verb} {object}: the connection failed, and the write may or may not have happened")]
    Connection {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: Box<ObjectRef>,
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
        object: Box<ObjectRef>,
        /// The deadline.
        after: Duration,
    },
    /// The object could not be encoded, or the answer not be decoded.
    #[error("{verb} {object}: {}", plain(problem))]
    Codec {
        /// What was asked for.
        verb: &'static str,
        /// The object.
        object: Box<ObjectRef>,
        /// What did not fit, without the content.
        problem: String,
    },
}

fn is_managed_by_others(status: &Status) -> bool {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    causes.iter().any(|cause| cause.reason == "FieldManagerConflict")
}

/// Says who controls an object, and what to do. Kubernetes allows one controller: only an object without one can be adopted.
fn not_by(controller: Option<&OwnerReference>, owner: &ObjectRef) -> String {
    match controller {
        None => {
            format!("nobody, not by {owner}: delete it, choose another name, or take it over with `.adopt()`")
        }
        Some(OwnerReference { kind, name, .. }) => {
            format!("{} {}, not by {owner}: delete it, or choose another name", plain(kind), plain(name))
        }
    }
}

/// Reads after "not found": a server that does not know the kind says nothing of objects.
fn crd_hint(status: &Status) -> &'static str {
    match status.message.contains("could not find the requested resource")
        || status.message.contains("page not found")
    {
        true => ", the kind is not served; install its CRD",
        false => "",
    }
}

fn credentials_hint(status: &Status) -> &'static str {
    if status.code == 401 { "; renew the token or certificate" } else { "" }
}

impl WriteError {
    /// Makes a conflict that was found without an answer of the server.
    pub(crate) fn conflict(object: &ObjectRef, message: impl Into<String>) -> Self {
        Self::Conflict { object: Box::new(object.clone()), cause: Stale::new(message) }
    }

    /// Makes a refusal to write what may be computed from a lost state.
    pub(super) fn doubted(object: &ObjectRef, message: impl Into<String>) -> Self {
        Self::Doubted { object: Box::new(object.clone()), cause: Stale::new(message) }
    }

    /// Returns whether the write was computed from an old view: retry on the present one.
    ///
    /// True of [`Conflict`](Self::Conflict) and [`AlreadyExists`](Self::AlreadyExists).
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::AlreadyExists { .. })
    }

    /// Returns whether the server says that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Returns what the server said, where it refused the write.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Forbidden { status, .. }
            | Self::NotFound { status, .. }
            | Self::Invalid { status, .. }
            | Self::ManagedByOthers { status, .. }
            | Self::Refused { status, .. } => Some(status),
            Self::Conflict { cause, .. } | Self::AlreadyExists { cause, .. } => cause.status(),
            _ => None,
        }
    }

    /// Returns when the server wants to be asked again, where it says so.
    pub fn retry_after(&self) -> Option<RetryAfter> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Overloaded { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// Sorts a refusal by its code.
    pub(crate) fn refused(
        verb: &'static str,
        object: Box<ObjectRef>,
        status: Status,
        retry_after: Option<RetryAfter>,
    ) -> Self {
        let code = status.code;
        let status = Box::new(status);
        match code {
            // A webhook's 404 or 409 says nothing about the object: it neither is gone nor has changed.
            404 | 409 if is_of_webhook(&status) => Self::Refused { verb, object, status, retry_after },
            403 => Self::Forbidden { verb, object, by: ForbiddenBy::of(&status), status },
            404 => Self::NotFound { verb, object, status },
            409 if status.reason == "AlreadyExists" => {
                Self::AlreadyExists { object, cause: Stale::said(status) }
            }
            409 if is_managed_by_others(&status) => Self::ManagedByOthers { object, status },
            409 => Self::Conflict { object, cause: Stale::said(status) },
            422 => Self::Invalid { verb, object, status },
            _ => Self::Refused { verb, object, status, retry_after },
        }
    }

    /// Returns whether the write may have happened all the same.
    pub(crate) fn leaves_in_doubt(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Deadline { .. } | Self::Codec { .. } => true,
            Self::Refused { status, .. } => status.code >= 500,
            _ => false,
        }
    }
}

//! The input of an apply or an update, and the reasons to refuse an apply.

use serde_json::Value;

use super::conflict::{self, Conflict};
use crate::schema::Schema;

/// What to do if another manager owns a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// The apply fails with a conflict.
    Refuse,
    /// The field changes its owner.
    Take,
}

/// The input of an apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApplyInput<'a> {
    /// The live object; `None` if the apply creates it.
    pub(crate) live: Option<&'a Value>,
    /// The body of the request.
    pub(crate) applied: &'a Value,
    /// The field manager.
    pub(crate) manager: &'a str,
    /// What to do about conflicts.
    pub(crate) force: Force,
    /// The subresource that is applied to.
    pub(crate) subresource: Option<&'a str>,
    /// The group and version of the request, such as `apps/v1`.
    pub(crate) api_version: &'a str,
    /// The kind's schema at that version.
    pub(crate) schema: &'a Schema,
    /// The top-level fields that this request cannot change, such as `status`; they are neither owned nor merged.
    pub(crate) ignored: &'a [&'a str],
    /// The time of the request, RFC 3339 in seconds.
    pub(crate) now: &'a str,
}

/// The input for tracking a create or an update.
#[derive(Debug)]
pub(crate) struct UpdateInput<'a> {
    /// The object before; `None` if it is created.
    pub(crate) live: Option<&'a Value>,
    /// The object after; its `managedFields` are those that the client sent, and become those to store.
    pub(crate) new: &'a mut Value,
    /// The field manager.
    pub(crate) manager: &'a str,
    /// The subresource that is written.
    pub(crate) subresource: Option<&'a str>,
    /// The group and version of the request, such as `apps/v1`.
    pub(crate) api_version: &'a str,
    /// The kind's schema at that version.
    pub(crate) schema: &'a Schema,
    /// The top-level fields that this request cannot change, such as `status`.
    pub(crate) ignored: &'a [&'a str],
    /// The time of the request, RFC 3339 in seconds.
    pub(crate) now: &'a str,
}

/// The reason for refusing an apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// Other managers own fields that would change: 409, a cause each.
    #[error("{}", conflict::message(.0))]
    Conflicts(Vec<Conflict>),
    /// The body does not fit the schema: 500 without a reason.
    #[error("failed to create typed patch object ({object}): {detail}")]
    NotTyped {
        /// Shows namespace, name and kind.
        object: String,
        /// Describes the mismatch and its place.
        detail: String,
    },
    /// The body has `managedFields`: 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
}

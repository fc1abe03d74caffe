//! What an apply or an update is made from, and why an apply is refused.

use serde_json::Value;

use super::conflict::{self, Conflict};
use crate::schema::Schema;

/// What happens when another manager owns a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// The apply fails with a conflict.
    Refuse,
    /// The field is taken over.
    Take,
}

/// What an apply is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApplyInput<'a> {
    /// The object as it is; none: the apply creates it.
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

/// What a create or update is tracked by.
#[derive(Debug)]
pub(crate) struct UpdateInput<'a> {
    /// The object as it was; none: it is created.
    pub(crate) live: Option<&'a Value>,
    /// The object as it shall be; its `managedFields` are what the client sent, and become what is to be stored.
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

/// Why an apply was refused.
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
        /// Says what does not fit, and where.
        detail: String,
    },
    /// The body has `managedFields`: 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsGiven,
}

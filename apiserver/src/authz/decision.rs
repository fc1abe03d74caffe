//! The outcome of an authorization.

/// Whether a user may; the text is the reason, and may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A rule allows it.
    Allowed(String),
    /// No rule allows it.
    NoOpinion(String),
}

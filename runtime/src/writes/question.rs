//! What the follow-up task asks the server.

use super::request::Target;
use crate::object::ObjectKey;

/// A write that may or may not have happened, since its reply was lost.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) key: ObjectKey,
    pub(super) target: Target,
}

/// What is asked beside the runs.
#[derive(Debug)]
pub(super) enum Question {
    /// What became of a write.
    After(Lost),
    /// Whether caches show what the server has.
    IsCurrent(Target),
}

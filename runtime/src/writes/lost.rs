//! A write whose reply was lost.

use super::request::Target;
use crate::object::ObjectKey;

/// A write that may or may not have happened.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) key: ObjectKey,
    pub(super) target: Target,
}

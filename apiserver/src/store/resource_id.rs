//! Names the resources that are stored together.

use std::sync::Arc;

/// Names a resource across its versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ResourceId {
    /// The group, empty for core.
    pub(crate) group: Arc<str>,
    /// The plural.
    pub(crate) plural: Arc<str>,
}

impl ResourceId {
    /// Names a resource.
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self { group: group.into(), plural: plural.into() }
    }
}

//! The admission webhooks of a kind: its validators, or its defaulters.

use std::sync::Arc;

use super::{admit::Admit, calls::Calls};
use crate::object::Kind;

/// The path of conversions.
pub(crate) const CONVERSION_PATH: &str = "/convert";

/// The subresource that webhooks may decide about.
pub(super) const STATUS: &str = "status";

/// Whether a webhook may change objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Purpose {
    Defaults,
    Validates,
}

impl Purpose {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Defaults => "defaults",
            Self::Validates => "validates",
        }
    }
}

/// One admission webhook: all validators, or all defaulters, of a kind.
pub(super) struct AdmissionHook {
    pub(super) purpose: Purpose,
    pub(super) kind: Kind,
    pub(super) calls: Calls,
    pub(super) handlers: Vec<Arc<dyn Admit>>,
}

impl AdmissionHook {
    /// Returns its name in a configuration, which has at least three parts.
    pub(super) fn name(&self) -> String {
        let Kind { group, plural, .. } = &self.kind;
        let group = if group.is_empty() { "core.k8s.io" } else { group };
        match group.contains('.') {
            true => format!("{}.{plural}.{group}", self.purpose.as_str()),
            false => format!("{}.{plural}.{group}.k8s.io", self.purpose.as_str()),
        }
    }

    pub(super) fn path(&self) -> String {
        // Without a version: an older or later release is asked at the same path.
        let Kind { group, plural, .. } = &self.kind;
        let group = if group.is_empty() { "core" } else { group };
        format!("/{}/{group}/{plural}", self.purpose.as_str())
    }
}

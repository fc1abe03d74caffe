//! The parts of a pod that its containers refer to or inherit.

use std::collections::BTreeSet;

use super::place::{Findings, Place};

/// The path of a pod's specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// In a pod.
    Pod,
    /// In another kind's template.
    Template,
}

/// The names that containers can refer to.
pub(super) struct Around<'v> {
    /// The names of the volumes that are right.
    pub(super) volumes: BTreeSet<&'v str>,
    /// How long a pod may take to end, in seconds.
    pub(super) grace: i64,
    /// The names of the pod's resource claims.
    pub(super) claims: BTreeSet<&'v str>,
    /// The path of the specification.
    pub(super) within: Within,
}

/// Checks a seccomp profile.
pub(super) fn profile(place: &Place<'_, '_>, faults: &mut Findings) {
    if !place.is_set() {
        return;
    }
    let (kind, file) = (place.at("type"), place.at("localhostProfile"));
    match kind.text() {
        "" => kind.required(faults, "type is required when seccompProfile is set"),
        _ => kind.one_of(faults, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
    match (kind.text() == "Localhost", file.is_set()) {
        (true, false) => file.required(faults, "must be set when seccomp type is Localhost"),
        (false, true) => file.invalid(faults, "can only be set when seccomp type is Localhost"),
        _ => {}
    }
}

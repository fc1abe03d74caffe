//! What is logged once about a controller's writes.

use std::collections::HashSet;

use super::{owner::OwnerRole, request::Target, rights::Use};
use crate::object::Kind;

/// What was logged.
#[derive(Debug, Default)]
pub(super) struct WriteWarnings {
    /// Kinds that are applied although no cache shows them.
    unwatched: HashSet<Kind>,
    /// Uses that are not declared.
    undeclared: HashSet<(Kind, Use)>,
}

impl WriteWarnings {
    /// Says what will not happen to objects of a kind that no cache shows.
    pub(super) fn unwatched(&mut self, target: &Target, ownership: OwnerRole) {
        if !self.unwatched.insert(target.kind.clone()) {
            return;
        }
        let kind = &target.kind.kind;
        if ownership != OwnerRole::Controls {
            tracing::info!(
                object = %target,
                "the controller applies a {kind} that it does not watch: edits and deletions by others stay unnoticed, \
                 and every reconcile sends the {kind} again; add `.watches::<{kind}>(..)` if it is to be kept right",
            );
            return;
        }
        tracing::warn!(
            object = %target,
            "the controller applies a {kind} that it does not watch: edits and deletions by others stay unnoticed, and \
             every reconcile sends the {kind} again; add `.owns::<{kind}>()`",
        );
    }

    /// Says which use is missing in the manager's rules.
    pub(super) fn undeclared(&mut self, kind: &Kind, lacking: Use) {
        if self.undeclared.insert((kind.clone(), lacking)) {
            let kind = &kind.kind;
            tracing::debug!(
                "what the controller does with {kind} is not declared, and missing in the manager's rules: add \
                 `.uses::<{kind}>(Use::{lacking:?})`"
            );
        }
    }
}

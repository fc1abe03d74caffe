//! The reconciled object as an owner, and what it is to the objects that it writes.

use super::request::Target;
use crate::object::{Kind, ObjectKey, Scope};

/// The reconciled object, as its children's owner.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    /// Empty once the object is gone.
    pub(crate) uid: String,
}

impl Owner {
    /// Names the owner in an error.
    pub(crate) fn named(&self) -> Box<Target> {
        Box::new(Target { kind: self.kind.clone(), key: self.key.clone() })
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.kind.scope == Scope::Cluster
    }
}

/// How the reconciled object is to own what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerRole {
    /// It alone controls it.
    Controls,
    /// It is one of its owners.
    Shares,
    /// It does not own it.
    None,
}

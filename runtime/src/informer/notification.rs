//! One call of a handler.

use super::change::{AddOrigin, Gone};
use crate::{
    object::{Object, ObjectKey},
    store::CachedObject,
};

/// A call of a handler for one object; old and new are the same in a resync.
#[derive(Debug)]
pub(super) enum Notification<K> {
    Add(CachedObject<K>, AddOrigin),
    Update { old: CachedObject<K>, new: CachedObject<K> },
    Delete(Box<Gone<K>>),
}

impl<K> Notification<K> {
    /// Returns whose it is.
    pub(super) fn key(&self) -> &ObjectKey {
        match self {
            Self::Add(held, _) | Self::Update { new: held, .. } => held.key(),
            Self::Delete(gone) => gone.key(),
        }
    }

    pub(super) fn is_deletion(&self) -> bool {
        matches!(self, Self::Delete(_))
    }

    /// Returns whether it is a deletion that keeps the last state.
    pub(super) fn is_full_deletion(&self) -> bool {
        matches!(self, Self::Delete(gone) if gone.cached().is_some())
    }

    /// Takes the state that it shows as the earlier one.
    pub(super) fn into_earlier(self) -> Option<CachedObject<K>> {
        match self {
            Self::Update { old, .. } => Some(old),
            Self::Add(..) | Self::Delete(_) => None,
        }
    }

    /// Brings a live object's notification up to date.
    pub(super) fn renew(&mut self, object: CachedObject<K>) {
        match self {
            Self::Add(held, _) | Self::Update { new: held, .. } => *held = object,
            Self::Delete(_) => {}
        }
    }
}

impl<K: Object> Notification<K> {
    /// Shows an object again.
    pub(super) fn again(object: CachedObject<K>) -> Self {
        Self::Update { old: object.clone(), new: object }
    }
}

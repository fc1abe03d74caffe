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
    Update {
        old: CachedObject<K>,
        new: CachedObject<K>,
    },
    Delete(Box<Gone<K>>),
    /// The deletion of an object that the handler was never shown.
    DeleteUnseen(Box<Gone<K>>),
}

impl<K> Notification<K> {
    /// Returns whose it is.
    pub(super) fn key(&self) -> &ObjectKey {
        match self {
            Self::Add(held, _) | Self::Update { new: held, .. } => held.key(),
            Self::Delete(gone) | Self::DeleteUnseen(gone) => gone.key(),
        }
    }

    /// Returns what is gone, if it is a deletion.
    pub(super) fn gone(&self) -> Option<&Gone<K>> {
        match self {
            Self::Delete(gone) | Self::DeleteUnseen(gone) => Some(gone),
            Self::Add(..) | Self::Update { .. } => None,
        }
    }

    pub(super) fn is_deletion(&self) -> bool {
        self.gone().is_some()
    }

    /// Returns whether it is a deletion that keeps the last state.
    pub(super) fn is_full_deletion(&self) -> bool {
        self.gone().is_some_and(|gone| gone.cached().is_some())
    }

    /// Brings a live object's notification up to date.
    pub(super) fn renew(&mut self, object: CachedObject<K>) {
        match self {
            Self::Add(held, _) | Self::Update { new: held, .. } => *held = object,
            Self::Delete(_) | Self::DeleteUnseen(_) => {}
        }
    }
}

impl<K: Object> Notification<K> {
    /// Shows an object again.
    pub(super) fn again(object: CachedObject<K>) -> Self {
        Self::Update { old: object.clone(), new: object }
    }
}

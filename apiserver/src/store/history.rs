//! The changes of a resource that are remembered, oldest first, and how much memory they take.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use super::change::Change;

/// Changes, oldest first. Reads as a `VecDeque`; what changes it keeps the count of bytes.
#[derive(Debug, Default)]
pub(super) struct History {
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
}

impl History {
    /// Returns the length of the changed objects together, in bytes of JSON.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push_back(&mut self, change: Arc<Change>) {
        self.bytes += change.object.length();
        self.changes.push_back(change);
    }

    pub(super) fn pop_front(&mut self) -> Option<Arc<Change>> {
        let change = self.changes.pop_front()?;
        self.bytes -= change.object.length();
        Some(change)
    }

    pub(super) fn pop_back(&mut self) -> Option<Arc<Change>> {
        let change = self.changes.pop_back()?;
        self.bytes -= change.object.length();
        Some(change)
    }
}

impl Deref for History {
    type Target = VecDeque<Arc<Change>>;

    fn deref(&self) -> &Self::Target {
        &self.changes
    }
}

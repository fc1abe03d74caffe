//! Objects that could not be read and can be read again: whoever was owed a run gets it then.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    informer::Change,
    object::{Object, ObjectKey},
};

/// Whether a change is the first readable state of an object after an unreadable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Previous {
    Readable,
    Unreadable,
}

/// Knows which objects of one cache can't be read, from its changes.
///
/// A change to a state that can be read again counts as foreign and passes every predicate: the runs that met the
/// unreadable state did nothing, and what they were to do is still to be done.
#[derive(Debug, Default)]
pub(crate) struct UnreadableObjects {
    /// Those that an informer reported; an object of a compact cache knows for itself.
    unreadable: Mutex<HashSet<ObjectKey>>,
}

impl UnreadableObjects {
    /// Takes note of a change; to be called once for each, in order.
    pub(crate) fn note<K: Object>(&self, change: &Change<K>) -> Previous {
        let was_unreadable = match change {
            Change::Unreadable { unreadable, .. } => {
                let key = unreadable.identity.key.clone();
                self.known().extend(key);
                false
            }
            Change::Updated { old, new, .. } => self.forget(new.key()) || old.unreadable().is_some(),
            Change::Added { object, .. } => self.forget(object.key()),
            Change::Deleted { gone, .. } => {
                self.forget(gone.key());
                false
            }
            Change::Unchanged { .. } => false,
        };
        if was_unreadable { Previous::Unreadable } else { Previous::Readable }
    }

    /// Takes note of many changes that are looked at no further.
    pub(crate) fn note_all<'c, K: Object>(&self, changes: impl Iterator<Item = &'c Change<K>>) {
        if !self.known().is_empty() {
            changes.for_each(|change| {
                self.note(change);
            });
        }
    }

    fn forget(&self, key: &ObjectKey) -> bool {
        let mut known = self.known();
        !known.is_empty() && known.remove(key)
    }

    fn known(&self) -> MutexGuard<'_, HashSet<ObjectKey>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What is known of the objects that feed a controller and that can't be read or mapped.

use std::collections::hash_map::Entry;

use foldhash::{HashMap, fast::RandomState};
use indexmap::IndexSet;

use crate::{
    informer::Change,
    object::{Object, ObjectKey},
};

/// Names one observer that feeds a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FeedId(usize);

/// The objects of all feeds, as far as anything is known of them.
#[derive(Debug, Default)]
pub(crate) struct FeedObjects {
    objects: HashMap<(FeedId, ObjectKey), FeedObject>,
    feeds: usize,
}

/// One object that a feed watches.
#[derive(Debug, Default)]
struct FeedObject {
    /// Whether its latest state can't be read. An object of a compact cache knows that itself.
    is_unreadable: bool,
    /// The keys that it concerned before it could not be read or mapped. Its deletion concerns the same keys.
    ///
    /// A typed cache keeps the last state that could be read; a compact one does not.
    related: Vec<ObjectKey>,
}

impl FeedObject {
    fn is_empty(&self) -> bool {
        !self.is_unreadable && self.related.is_empty()
    }
}

impl FeedObjects {
    /// Names another feed.
    pub(crate) fn add_feed(&mut self) -> FeedId {
        self.feeds += 1;
        FeedId(self.feeds)
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
    }

    /// Takes a change; to be called once for each, in order.
    ///
    /// Returns whether it is the first readable state after an unreadable one. Such a change counts as foreign and
    /// passes every predicate: the runs that met the unreadable state did nothing, and their work is still to be done.
    pub(super) fn observe<K: Object>(&mut self, feed: FeedId, change: &Change<K>) -> bool {
        match change {
            Change::Unreadable { unreadable, .. } => {
                if let Some(key) = &unreadable.identity.key {
                    self.objects.entry((feed, key.clone())).or_default().is_unreadable = true;
                }
                false
            }
            Change::Updated { old, new, .. } => {
                self.take_unreadable(feed, new.key()) || old.unreadable().is_some()
            }
            Change::Added { object, .. } => self.take_unreadable(feed, object.key()),
            Change::Deleted { gone, .. } => {
                self.take_unreadable(feed, gone.key());
                false
            }
            Change::Unchanged { .. } => false,
        }
    }

    fn take_unreadable(&mut self, feed: FeedId, object: &ObjectKey) -> bool {
        self.take(feed, object, |known| std::mem::take(&mut known.is_unreadable))
    }

    /// Keeps the keys that an object concerned before a state that can't be read or mapped. Returns all that are kept.
    pub(crate) fn keep_related(
        &mut self,
        feed: FeedId,
        object: &ObjectKey,
        keys: Vec<ObjectKey>,
    ) -> Vec<ObjectKey> {
        let mut related: IndexSet<_, RandomState> = keys.into_iter().collect();
        related.extend(self.take_related(feed, object));
        let related: Vec<_> = related.into_iter().collect();
        if !related.is_empty() {
            self.objects.entry((feed, object.clone())).or_default().related.clone_from(&related);
        }
        related
    }

    /// Removes and returns the keys that are kept of an object.
    pub(crate) fn take_related(&mut self, feed: FeedId, object: &ObjectKey) -> Vec<ObjectKey> {
        self.take(feed, object, |known| std::mem::take(&mut known.related))
    }

    fn take<T: Default>(
        &mut self,
        feed: FeedId,
        object: &ObjectKey,
        take: impl FnOnce(&mut FeedObject) -> T,
    ) -> T {
        if self.objects.is_empty() {
            return T::default();
        }
        let Entry::Occupied(mut entry) = self.objects.entry((feed, object.clone())) else {
            return T::default();
        };
        let taken = take(entry.get_mut());
        if entry.get().is_empty() {
            entry.remove();
        }
        taken
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }
}

//! What is known of the objects that feed a controller and that can't be read or mapped.

use foldhash::{HashMap, HashSet, fast::RandomState};
use indexmap::IndexSet;

use crate::{informer::CacheChange, object::ObjectKey};

/// Names one observer that feeds a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FeedId(usize);

/// The objects of all feeds, as far as anything is known of them.
#[derive(Debug, Default)]
pub(crate) struct FeedObjects {
    /// Those whose latest state can't be read. An object of a compact cache knows that itself.
    unreadable: HashSet<(FeedId, ObjectKey)>,
    /// The keys that objects concerned before they could not be read or mapped. Their deletion concerns the same keys.
    ///
    /// A typed cache keeps the last state that could be read; a compact one does not.
    related: HashMap<(FeedId, ObjectKey), Vec<ObjectKey>>,
    feeds: usize,
}

impl FeedObjects {
    /// Names another feed.
    pub(crate) fn add_feed(&mut self) -> FeedId {
        self.feeds += 1;
        FeedId(self.feeds)
    }

    pub(super) fn clear(&mut self) {
        self.unreadable.clear();
        self.related.clear();
    }

    /// Takes a change; to be called once for each, in order.
    ///
    /// Returns whether it is the first readable state after an unreadable one. Such a change counts as foreign and
    /// passes every predicate: the runs that met the unreadable state did nothing, and their work is still to be done.
    pub(super) fn observe(&mut self, feed: FeedId, change: &CacheChange) -> bool {
        let Some(key) = change.key() else { return false };
        if let CacheChange::Unreadable { .. } = change {
            self.unreadable.insert((feed, key.clone()));
            return false;
        }
        let mut was_unreadable =
            || !self.unreadable.is_empty() && self.unreadable.remove(&(feed, key.clone()));
        match change {
            CacheChange::Added { .. } => was_unreadable(),
            CacheChange::Updated { old, .. } => was_unreadable() || old.unreadable().is_some(),
            CacheChange::Deleted { .. } => {
                was_unreadable();
                false
            }
            CacheChange::Unchanged { .. } | CacheChange::Unreadable { .. } => false,
        }
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
            self.related.insert((feed, object.clone()), related.clone());
        }
        related
    }

    /// Removes and returns the keys that are kept of an object.
    pub(crate) fn take_related(&mut self, feed: FeedId, object: &ObjectKey) -> Vec<ObjectKey> {
        match self.related.is_empty() {
            true => Vec::new(),
            false => self.related.remove(&(feed, object.clone())).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl FeedObjects {
        pub(in crate::keys) fn len(&self) -> usize {
            self.unreadable.len() + self.related.len()
        }
    }
}

//! The keys of a first list, made once and shared by all controllers that wait for their caches.

use std::{fmt, hash::Hash, sync::Arc};

use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// Keys in order, each once.
pub(crate) struct KeyList<K> {
    keys: IndexSet<K, RandomState>,
}

impl<K: Eq + Hash> KeyList<K> {
    /// Keeps keys in order, and the first of equal ones.
    pub(crate) fn new(keys: impl IntoIterator<Item = K>) -> Self {
        Self { keys: keys.into_iter().collect() }
    }

    /// Returns the keys in order.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &K> {
        self.keys.iter()
    }
}

impl<K> fmt::Debug for KeyList<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyList").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// Keys that wait in shared lists, in order.
pub(crate) struct ListedKeys<K>(Vec<Arc<KeyList<K>>>);

impl<K: Eq + Hash> ListedKeys<K> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds the keys of a list.
    pub(crate) fn push(&mut self, list: Arc<KeyList<K>>) {
        self.0.push(list);
    }

    /// Returns whether a key is in one of the lists.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.iter().any(|list| list.keys.contains(key))
    }

    /// Returns the keys of all lists.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().flat_map(|list| list.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_the_order_and_each_key_once() {
        assert!(KeyList::new([3, 1, 2, 1, 3]).keys().eq(&[3, 1, 2]));
        assert_eq!(KeyList::<u8>::new([]).keys().len(), 0);
    }
}

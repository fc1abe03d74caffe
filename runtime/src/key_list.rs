//! A list of keys that is made once, and that many go through without a copy.

use std::{fmt, hash::BuildHasher, hash::Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Keys in order, each once, and where each stands.
///
/// Made once for a list and shared by all who queue it: what each of them holds is how far it has come.
pub(crate) struct KeyList<K> {
    keys: Box<[K]>,
    /// Places by key.
    places: HashTable<u32>,
    hasher: RandomState,
}

impl<K: Eq + Hash> KeyList<K> {
    /// Takes keys in order; of equal ones the first.
    ///
    /// # Panics
    /// With four thousand million keys.
    pub(crate) fn new(keys: impl IntoIterator<Item = K>) -> Self {
        let keys = keys.into_iter();
        let mut kept: Vec<K> = Vec::with_capacity(keys.size_hint().0);
        let mut places = HashTable::<u32>::with_capacity(keys.size_hint().0);
        let hasher = RandomState::default();
        for key in keys {
            let hash = hasher.hash_one(&key);
            if places.find(hash, |place| kept[*place as usize] == key).is_none() {
                let place = u32::try_from(kept.len()).expect("fewer keys than a u32 can number");
                places.insert_unique(hash, place, |place| hasher.hash_one(&kept[*place as usize]));
                kept.push(key);
            }
        }
        Self { keys: kept.into(), places, hasher }
    }

    /// Shows the keys in order.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Tells where a key stands.
    pub(crate) fn place(&self, key: &K) -> Option<usize> {
        let found = self.places.find(self.hasher.hash_one(key), |place| self.keys[*place as usize] == *key);
        found.map(|place| *place as usize)
    }
}

impl<K> fmt::Debug for KeyList<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyList").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_keeps_the_order_and_each_key_once() {
        let list = KeyList::new([3, 1, 2, 1, 3]);
        assert_eq!(list.keys(), [3, 1, 2]);
        assert_eq!([3, 1, 2, 4].map(|key| list.place(&key)), [Some(0), Some(1), Some(2), None]);
        assert_eq!(KeyList::<u8>::new([]).place(&1), None);
    }
}

//! Keys that wait in a list which many share: the list is made once, and each who goes through it holds how far it is.
//!
//! A list is an `indexmap::IndexSet` (2.14.2). Beside a hash table of positions it costs 13 bytes a key more (52 in place
//! of 39, for 50,000 keys), 15 % more instructions to make and 7 % more to look up, and no code of our own.

use std::{collections::VecDeque, fmt, hash::Hash, sync::Arc};

use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// Keys in order, each once.
pub(crate) struct KeyList<K> {
    keys: IndexSet<K, RandomState>,
}

impl<K: Eq + Hash> KeyList<K> {
    /// Takes keys in order; of equal ones the first.
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

/// Keys that wait in shared lists, first come first; a mark goes with each list.
///
/// A key that waits here costs its owner one bit. Of a key that several lists hold, the first one counts.
pub(crate) struct ListedKeys<K, M> {
    lists: VecDeque<Progress<K, M>>,
    left: usize,
}

/// How far a list has been gone through.
struct Progress<K, M> {
    list: Arc<KeyList<K>>,
    next: usize,
    /// A bit for each position: set for keys that do not wait here any more.
    gone: Box<[u64]>,
    left: usize,
    mark: M,
}

impl<K: Eq + Hash, M: Copy> Progress<K, M> {
    fn is_gone(&self, position: usize) -> bool {
        self.gone[position / 64] >> (position % 64) & 1 == 1
    }

    fn leave_out(&mut self, position: usize) {
        self.gone[position / 64] |= 1 << (position % 64);
        self.left -= 1;
    }

    /// Finds the position at which a key still waits.
    fn find(&self, key: &K) -> Option<usize> {
        self.list.keys.get_index_of(key).filter(|position| !self.is_gone(*position))
    }
}

impl<K: Clone + Eq + Hash, M: Copy> ListedKeys<K, M> {
    pub(crate) const fn new() -> Self {
        Self { lists: VecDeque::new(), left: 0 }
    }

    /// Counts the keys that wait.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.left
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Counts the lists in which any wait.
    pub(crate) fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Adds the keys of a list that are wanted and do not wait yet. Returns how many these are.
    pub(crate) fn push(&mut self, list: Arc<KeyList<K>>, mark: M, wanted: impl Fn(&K) -> bool) -> usize {
        let len = list.keys.len();
        let gone = vec![0; len.div_ceil(64)].into();
        let mut progress = Progress { list, next: 0, gone, left: len, mark };
        for position in 0..len {
            let key = &progress.list.keys[position];
            if !wanted(key) || self.mark(key).is_some() {
                progress.leave_out(position);
            }
        }
        let added = progress.left;
        if added > 0 {
            self.left += added;
            self.lists.push_back(progress);
        }
        added
    }

    /// Returns the mark of the list in which a key waits, if it does.
    pub(crate) fn mark(&self, key: &K) -> Option<M> {
        self.lists.iter().find(|progress| progress.find(key).is_some()).map(|progress| progress.mark)
    }

    /// Returns the mark of the first list.
    #[inline]
    pub(crate) fn first_mark(&self) -> Option<M> {
        self.lists.front().map(|progress| progress.mark)
    }

    /// Takes a key out, wherever it waits.
    pub(crate) fn remove(&mut self, key: &K) -> Option<M> {
        let found = |(at, progress): (usize, &Progress<K, M>)| Some((at, progress.find(key)?));
        let (at, position) = self.lists.iter().enumerate().find_map(found)?;
        let mark = self.lists[at].mark;
        self.leave_out(at, position);
        Some(mark)
    }

    /// Takes out the first key of the first list.
    pub(crate) fn pop(&mut self) -> Option<(K, M)> {
        let progress = self.lists.front_mut()?;
        let mut positions = progress.next..progress.list.keys.len();
        let position = positions.find(|position| !progress.is_gone(*position))?;
        progress.next = position + 1;
        let taken = (progress.list.keys[position].clone(), progress.mark);
        self.leave_out(0, position);
        Some(taken)
    }

    /// Walks all keys, with the mark of their list.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, M)> {
        self.lists.iter().flat_map(|progress| {
            let positions = progress.next..progress.list.keys.len();
            let waiting = positions.filter(|position| !progress.is_gone(*position));
            waiting.map(|position| (&progress.list.keys[position], progress.mark))
        })
    }

    /// Takes out the lists, whole: for another that is to go through them.
    pub(crate) fn into_lists(self) -> impl Iterator<Item = Arc<KeyList<K>>> {
        self.lists.into_iter().map(|progress| progress.list)
    }

    fn leave_out(&mut self, at: usize, position: usize) {
        self.lists[at].leave_out(position);
        self.left -= 1;
        if self.lists[at].left == 0 {
            self.lists.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(keys: &[u8]) -> Arc<KeyList<u8>> {
        Arc::new(KeyList::new(keys.iter().copied()))
    }

    #[test]
    fn a_list_keeps_the_order_and_each_key_once() {
        assert!(KeyList::new([3, 1, 2, 1, 3]).keys().eq(&[3, 1, 2]));
        assert_eq!(KeyList::<u8>::new([]).keys().len(), 0);
    }

    #[test]
    fn keys_leave_in_order_each_once_and_out_of_turn_when_they_are_taken_out() {
        let mut listed = ListedKeys::new();
        assert_eq!(listed.push(list(&[3, 1, 2, 4]), 'a', |key| *key != 4), 3);
        assert_eq!(listed.push(list(&[2, 5]), 'b', |_| true), 1, "the first list counts");
        assert_eq!((listed.len(), listed.lists(), listed.first_mark()), (4, 2, Some('a')));
        assert_eq!([4, 2, 5].map(|key| listed.mark(&key)), [None, Some('a'), Some('b')]);
        assert_eq!((listed.remove(&1), listed.remove(&1)), (Some('a'), None));
        assert_eq!((listed.pop(), listed.pop()), (Some((3, 'a')), Some((2, 'a'))));
        assert!(listed.iter().eq([(&5, 'b')]));
        assert_eq!((listed.lists(), listed.pop(), listed.pop()), (1, Some((5, 'b')), None));
        assert!(listed.is_empty());
    }
}

//! A hash table copied on write: clones share everything, a write copies one path.
//!
//! Two levels of pointers lead to small leaves; both levels widen with the size, so that a leaf holds four to
//! sixteen entries and a write copies little more than the square root of the whole. Up to sixteen entries there
//! is one leaf and no level. Like a raw table it knows no keys: callers bring the hash and say what is equal.

use std::{
    hash::{BuildHasher, Hash},
    sync::Arc,
};

/// Most entries an average leaf holds before the table widens.
const LEAF: usize = 16;

type Leaf<T> = Vec<(u64, T)>;
type Branch<T> = Arc<[Arc<Leaf<T>>]>;

/// Maps hashes to entries; a clone costs one reference.
pub(super) struct CowMap<T> {
    len: usize,
    table: Table<T>,
}

enum Table<T> {
    Flat(Arc<Leaf<T>>),
    Wide { bits: u32, branches: Arc<[Branch<T>]> },
}

/// How far a walk through a table has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walk {
    leaf: usize,
    entry: usize,
}

/// Hashes the same way in every process: the order of a list depends on its keys alone.
pub(super) fn hash_of(key: &(impl Hash + ?Sized)) -> u64 {
    foldhash::quality::FixedState::default().hash_one(key)
}

impl<T> CowMap<T> {
    /// Starts with one empty leaf.
    pub(super) fn new() -> Self {
        Self { len: 0, table: Table::Flat(Arc::default()) }
    }

    /// Counts the entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Finds the entry with this hash that `same` recognises.
    pub(super) fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&T> {
        self.leaf(hash).iter().find(|(held, entry)| *held == hash && same(entry)).map(|(_, entry)| entry)
    }

    /// Shows all entries, in the order of their hashes' leaves.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let (flat, wide) = match &self.table {
            Table::Flat(leaf) => (Some(leaf), None),
            Table::Wide { branches, .. } => (None, Some(branches)),
        };
        let leaves = wide.into_iter().flat_map(|branches| branches.iter().flat_map(|branch| branch.iter()));
        flat.into_iter().chain(leaves).flat_map(|leaf| leaf.iter().map(|(_, entry)| entry))
    }

    /// Goes on to the next entry, in the order of [`iter`](Self::iter).
    pub(super) fn walk(&self, walk: &mut Walk) -> Option<&T> {
        loop {
            let leaf = match &self.table {
                Table::Flat(leaf) => Some(leaf).filter(|_| walk.leaf == 0)?,
                Table::Wide { bits, branches } => {
                    &branches.get(walk.leaf >> bits)?[walk.leaf & ((1 << bits) - 1)]
                }
            };
            if let Some((_, entry)) = leaf.get(walk.entry) {
                walk.entry += 1;
                return Some(entry);
            }
            *walk = Walk { leaf: walk.leaf + 1, entry: 0 };
        }
    }

    fn leaf(&self, hash: u64) -> &Leaf<T> {
        match &self.table {
            Table::Flat(leaf) => leaf,
            Table::Wide { bits, branches } => {
                let (branch, leaf) = place(hash, *bits);
                &branches[branch][leaf]
            }
        }
    }
}

impl<T: Clone> CowMap<T> {
    /// Puts an entry in, in the place of one that `same` recognises, which is returned.
    pub(super) fn insert(&mut self, hash: u64, same: impl Fn(&T) -> bool, entry: T) -> Option<T> {
        let leaf = self.leaf_mut(hash);
        if let Some((_, held)) = leaf.iter_mut().find(|(held, entry)| *held == hash && same(entry)) {
            return Some(std::mem::replace(held, entry));
        }
        leaf.push((hash, entry));
        self.len += 1;
        let bits = self.bits();
        if self.len > LEAF << (2 * bits) {
            self.rebuild(bits + 1);
        }
        None
    }

    /// Takes out the entry that `same` recognises.
    pub(super) fn remove(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.leaf(hash).iter().position(|(held, entry)| *held == hash && same(entry))?;
        let (_, entry) = self.leaf_mut(hash).swap_remove(at);
        self.len -= 1;
        let bits = self.bits();
        if bits > 0 && self.len < 1 << (2 * bits) {
            self.rebuild(bits - 1);
        }
        Some(entry)
    }

    /// Finds an entry to change in place.
    pub(super) fn find_mut(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&mut T> {
        let at = self.leaf(hash).iter().position(|(held, entry)| *held == hash && same(entry))?;
        Some(&mut self.leaf_mut(hash)[at].1)
    }

    fn bits(&self) -> u32 {
        match self.table {
            Table::Flat(_) => 0,
            Table::Wide { bits, .. } => bits,
        }
    }

    fn leaf_mut(&mut self, hash: u64) -> &mut Leaf<T> {
        match &mut self.table {
            Table::Flat(leaf) => Arc::make_mut(leaf),
            Table::Wide { bits, branches } => {
                let (branch, leaf) = place(hash, *bits);
                let branch = Arc::make_mut(&mut Arc::make_mut(branches)[branch]);
                Arc::make_mut(&mut branch[leaf])
            }
        }
    }

    fn rebuild(&mut self, bits: u32) {
        let width = 1 << bits;
        let mut leaves: Vec<Vec<Leaf<T>>> = vec![vec![Vec::new(); width]; width];
        for (hash, entry) in self.hashed() {
            let (branch, leaf) = place(*hash, bits);
            leaves[branch][leaf].push((*hash, entry.clone()));
        }
        self.table = match bits {
            0 => Table::Flat(Arc::new(leaves.pop().and_then(|mut branch| branch.pop()).unwrap_or_default())),
            _ => Table::Wide {
                bits,
                branches: leaves
                    .into_iter()
                    .map(|branch| branch.into_iter().map(Arc::new).collect())
                    .collect(),
            },
        };
    }

    fn hashed(&self) -> Vec<&(u64, T)> {
        match &self.table {
            Table::Flat(leaf) => leaf.iter().collect(),
            Table::Wide { branches, .. } => {
                branches.iter().flat_map(|branch| branch.iter()).flat_map(|leaf| leaf.iter()).collect()
            }
        }
    }
}

/// Reads the first bits of a hash as the branch, the next as the leaf.
fn place(hash: u64, bits: u32) -> (usize, usize) {
    if bits == 0 {
        return (0, 0);
    }
    let mask = (1 << bits) - 1;
    ((hash >> (64 - bits)) as usize, ((hash >> (64 - 2 * bits)) & mask) as usize)
}

impl<T> Clone for CowMap<T> {
    fn clone(&self) -> Self {
        let table = match &self.table {
            Table::Flat(leaf) => Table::Flat(leaf.clone()),
            Table::Wide { bits, branches } => Table::Wide { bits: *bits, branches: branches.clone() },
        };
        Self { len: self.len, table }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(map: &mut CowMap<u64>, n: u64) -> Option<u64> {
        map.insert(hash_of(&n), |held| *held == n, n)
    }

    fn take(map: &mut CowMap<u64>, n: u64) -> Option<u64> {
        map.remove(hash_of(&n), |held| *held == n)
    }

    #[test]
    fn widens_and_narrows_without_losing_an_entry() {
        let mut map = CowMap::new();
        for n in 0..5_000 {
            assert_eq!(put(&mut map, n), None);
            assert_eq!(put(&mut map, n), Some(n));
        }
        assert_eq!(map.bits(), 5);
        for n in 0..5_000 {
            assert_eq!(map.find(hash_of(&n), |held| *held == n), Some(&n));
        }
        for n in 10..5_000 {
            assert_eq!(take(&mut map, n), Some(n));
            assert_eq!(take(&mut map, n), None);
        }
        assert_eq!((map.bits(), map.len()), (1, 10));
        let mut left: Vec<_> = map.iter().copied().collect();
        left.sort_unstable();
        assert_eq!(left, (0..10).collect::<Vec<_>>());
        (0..10).for_each(|n| assert_eq!(take(&mut map, n), Some(n)));
        assert!(map.is_empty() && map.bits() == 0);
    }

    #[test]
    fn a_walk_meets_every_entry_once() {
        let mut map = CowMap::new();
        for n in 0..5_000 {
            if [0, 1, 16, 17, 300, 4_999].contains(&n) {
                let mut walk = Walk::default();
                let walked: Vec<_> = std::iter::from_fn(|| map.walk(&mut walk)).collect();
                assert!(map.iter().eq(walked));
            }
            put(&mut map, n);
        }
    }

    // S7
    #[test]
    fn a_clone_does_not_change_with_the_original() {
        let mut map = CowMap::new();
        for n in 0..100 {
            put(&mut map, n);
        }
        let before = map.clone();
        for n in 0..50 {
            put(&mut map, 100 + n);
            take(&mut map, n);
        }
        assert_eq!(before.len(), 100);
        assert_eq!(before.iter().count(), 100);
        assert!((0..100).all(|n| before.find(hash_of(&n), |held| *held == n).is_some()));
    }

    #[test]
    fn equal_hashes_are_told_apart() {
        let mut map = CowMap::new();
        for n in 0..40_u64 {
            map.insert(7, |held| *held == n, n);
        }
        assert_eq!(map.len(), 40);
        assert!((0..40).all(|n| map.find(7, |held| *held == n) == Some(&n)));
    }
}

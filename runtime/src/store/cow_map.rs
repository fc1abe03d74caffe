//! A hash table copied on write: clones share everything, a write copies one path.
//!
//! It takes less memory and looks entries up faster than the persistent maps of other crates.
//!
//! Three levels of branches lead to small leaves, each of them one allocation. All levels widen with the size, so that a
//! leaf holds four to eight entries on average, and a write copies little more than the cube root of the whole. Up to
//! sixteen entries there is one leaf and no level. Like a raw table it knows no keys: callers bring the hash and say
//! what is equal.

use std::{
    hash::{BuildHasher, Hash},
    slice,
    sync::Arc,
};

use foldhash::{SharedSeed, quality::SeedableRandomState};

/// Most entries of a table that is one leaf.
const ALONE: usize = 16;
/// Most entries that an average leaf holds before the table widens.
const MOST: usize = 8;
/// Fewest entries that an average leaf holds before the table narrows.
const LEAST: usize = 2;

/// Maps hashes to entries; a clone costs one reference.
#[derive(Clone)]
pub(super) struct CowMap<T> {
    len: usize,
    table: CowTable<T>,
}

#[derive(Clone)]
enum CowTable<T> {
    Flat(Leaf<T>),
    Wide { bits: u32, root: Branch<Branch<Branch<Leaf<T>>>> },
}

type Branch<B> = Arc<[B]>;
/// Holds no `None` between two calls; one stands where an entry was moved away.
type Leaf<T> = Arc<[Option<(u64, T)>]>;

/// How the tables of one store hash; the order of a list follows it.
///
/// Users who may create objects choose names, labels and index values. So the hash differs in each process, and users
/// can't choose names that collide. With a seed, two runs are the same.
#[derive(Clone, Debug)]
pub(super) struct Hashing(SeedableRandomState);

impl Hashing {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self(match seed {
            Some(seed) => SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            None => SeedableRandomState::random(),
        })
    }

    pub(super) fn of(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.0.hash_one(key)
    }
}

impl<T> CowMap<T> {
    /// Starts with one empty leaf.
    pub(super) fn new() -> Self {
        Self { len: 0, table: CowTable::Flat(Arc::new([])) }
    }

    /// Counts the entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Finds the entry with this hash that `same` recognises.
    pub(super) fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&T> {
        let leaf = match &self.table {
            CowTable::Flat(leaf) => leaf,
            CowTable::Wide { bits, root } => {
                let [first, second, third] = path(hash, *bits);
                &root[first][second][third]
            }
        };
        leaf.iter().flatten().find(|(held, entry)| *held == hash && same(entry)).map(|(_, entry)| entry)
    }

    /// Shows all entries, in the order of their hashes.
    #[inline]
    pub(super) fn iter(&self) -> CowIter<'_, T> {
        match &self.table {
            CowTable::Flat(leaf) => CowIter { leaf: leaf.iter(), ..CowIter::over_nothing() },
            CowTable::Wide { root, .. } => CowIter { firsts: root.iter(), ..CowIter::over_nothing() },
        }
    }
}

impl<T: Clone> CowMap<T> {
    /// Puts an entry in, in the place of one that `same` recognises, which is returned.
    pub(super) fn insert(&mut self, hash: u64, same: impl Fn(&T) -> bool, entry: T) -> Option<T> {
        let (leaf, found) = self.slot_mut(hash, same);
        if let Some(at) = found {
            let (_, held) = Arc::make_mut(leaf)[at].as_mut()?;
            return Some(std::mem::replace(held, entry));
        }
        #[cfg(test)]
        crate::counted::count(leaf.len());
        // By hash: so the order does not depend on what came and went before.
        let at = leaf.partition_point(|slot| slot.as_ref().is_some_and(|(held, _)| *held <= hash));
        let new = Some((hash, entry));
        *leaf = match Arc::get_mut(leaf) {
            Some(own) => {
                let (before, behind) = own.split_at_mut(at);
                let behind = behind.iter_mut().map(Option::take);
                before.iter_mut().map(Option::take).chain([new]).chain(behind).collect()
            }
            None => leaf[..at].iter().cloned().chain([new]).chain(leaf[at..].iter().cloned()).collect(),
        };
        self.len += 1;
        let (bits, most) = match self.table {
            CowTable::Flat(_) => (0, ALONE),
            CowTable::Wide { bits, .. } => (bits, MOST << bits),
        };
        if self.len > most {
            self.rebuild(if bits == 0 { 3 } else { bits + 1 });
        }
        None
    }

    /// Takes out the entry that `same` recognises.
    pub(super) fn remove(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<T> {
        self.find(hash, &same)?;
        let (leaf, found) = self.slot_mut(hash, same);
        let at = found?;
        #[cfg(test)]
        crate::counted::count(leaf.len());
        let old = leaf[at].clone();
        *leaf = leaf[..at].iter().chain(&leaf[at + 1..]).cloned().collect();
        self.len -= 1;
        match self.table {
            CowTable::Wide { .. } if self.len <= ALONE / 2 => self.rebuild(0),
            CowTable::Wide { bits, .. } if bits > 3 && self.len < LEAST << bits => self.rebuild(bits - 1),
            _ => {}
        }
        old.map(|(_, entry)| entry)
    }

    /// Finds an entry to change in place.
    pub(super) fn find_mut(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> Option<&mut T> {
        let (leaf, found) = self.slot_mut(hash, same);
        Arc::make_mut(leaf)[found?].as_mut().map(|(_, entry)| entry)
    }

    /// Returns the leaf that a hash leads to, and where in it the entry is.
    fn slot_mut(&mut self, hash: u64, same: impl Fn(&T) -> bool) -> (&mut Leaf<T>, Option<usize>) {
        let leaf = match &mut self.table {
            CowTable::Flat(leaf) => leaf,
            CowTable::Wide { bits, root } => {
                let [first, second, third] = path(hash, *bits);
                let branch = Arc::make_mut(&mut Arc::make_mut(root)[first]);
                &mut Arc::make_mut(&mut branch[second])[third]
            }
        };
        let is_same =
            |slot: &Option<(u64, T)>| slot.as_ref().is_some_and(|(held, entry)| *held == hash && same(entry));
        let found = leaf.iter().position(is_same);
        (leaf, found)
    }

    /// Rebuilds the table, so that entries that are read together are close in memory.
    ///
    /// Leaf by leaf, since leaves stand in the order of their hashes: each is cut in two, or two are joined. Entries that no
    /// other table shares are moved, and not looked at.
    fn rebuild(&mut self, bits: u32) {
        #[cfg(test)]
        crate::counted::count(self.len);
        let mut regrown = Regrown { bits, leaves: Vec::with_capacity(1 << bits), entries: Vec::new() };
        match &mut self.table {
            CowTable::Flat(leaf) => regrown.take(leaf, 1 << bits),
            CowTable::Wide { bits: before, root } => {
                let mut taken = 0_u64;
                let seconds = Arc::make_mut(root).iter_mut();
                let thirds = seconds.flat_map(|second| Arc::make_mut(second).iter_mut());
                for leaf in thirds.flat_map(|third| Arc::make_mut(third).iter_mut()) {
                    taken += 1;
                    regrown.take(leaf, (taken << bits) >> *before);
                }
            }
        }
        let [first, second, third] = widths(bits);
        let mut leaves = regrown.leaves.into_iter();
        self.table = match bits {
            0 => CowTable::Flat(leaves.next().unwrap_or_default()),
            _ => {
                let mut third = || leaves.by_ref().take(1 << third).collect::<Branch<_>>();
                let mut second = || (0..1 << second).map(|_| third()).collect::<Branch<_>>();
                CowTable::Wide { bits, root: (0..1 << first).map(|_| second()).collect() }
            }
        };
    }
}

/// Leaves of another width, in order.
struct Regrown<T> {
    bits: u32,
    leaves: Vec<Leaf<T>>,
    /// What has been taken, but is in no leaf yet.
    entries: Vec<Option<(u64, T)>>,
}

impl<T: Clone> Regrown<T> {
    /// Takes a leaf's entries; whatever comes later belongs to the leaf of this number or to one behind it.
    fn take(&mut self, leaf: &mut Leaf<T>, next: u64) {
        match Arc::get_mut(leaf) {
            Some(own) => self.entries.extend(own.iter_mut().map(Option::take)),
            None => self.entries.extend(leaf.iter().cloned()),
        }
        let bits = self.bits;
        let leaf_of = |slot: &Option<(u64, T)>| match slot {
            Some((hash, _)) if bits > 0 => hash >> (u64::BITS - bits),
            _ => 0,
        };
        for at in self.leaves.len() as u64..next {
            let count = self.entries.partition_point(|slot| leaf_of(slot) <= at);
            self.leaves.push(self.entries.drain(..count).collect());
        }
    }
}

/// Shares the bits of a hash that count among the levels.
fn widths(bits: u32) -> [u32; 3] {
    [bits.div_ceil(3), (bits + 1) / 3, bits / 3]
}

/// Reads the first bits of a hash as a way through the levels.
fn path(hash: u64, bits: u32) -> [usize; 3] {
    let [first, second, third] = widths(bits);
    let digits = |skip: u32, width: u32| ((hash << skip) >> (u64::BITS - width)) as usize;
    [digits(0, first), digits(first, second), digits(first + second, third)]
}

/// Walks a table.
pub(super) struct CowIter<'m, T> {
    firsts: slice::Iter<'m, Branch<Branch<Leaf<T>>>>,
    seconds: slice::Iter<'m, Branch<Leaf<T>>>,
    thirds: slice::Iter<'m, Leaf<T>>,
    leaf: slice::Iter<'m, Option<(u64, T)>>,
}

impl<'m, T> CowIter<'m, T> {
    /// Walks nothing.
    pub(super) fn over_nothing() -> Self {
        Self { firsts: [].iter(), seconds: [].iter(), thirds: [].iter(), leaf: [].iter() }
    }

    fn next_leaf(&mut self) -> Option<&'m Leaf<T>> {
        loop {
            if let Some(leaf) = self.thirds.next() {
                return Some(leaf);
            }
            match self.seconds.next() {
                Some(branch) => self.thirds = branch.iter(),
                None => self.seconds = self.firsts.next()?.iter(),
            }
        }
    }
}

impl<'m, T> Iterator for CowIter<'m, T> {
    type Item = &'m T;

    fn next(&mut self) -> Option<&'m T> {
        loop {
            if let Some(slot) = self.leaf.next() {
                return slot.as_ref().map(|(_, entry)| entry);
            }
            self.leaf = self.next_leaf()?.iter();
        }
    }

    /// Walks in plain loops, which touch the memory of many entries at once.
    #[inline]
    fn fold<B, F: FnMut(B, &'m T) -> B>(self, init: B, mut f: F) -> B {
        let seconds = self.seconds.chain(self.firsts.flat_map(|branch| branch.iter()));
        let leaves = self.thirds.chain(seconds.flat_map(|branch| branch.iter()));
        let slots = self.leaf.chain(leaves.flat_map(|leaf| leaf.iter()));
        slots.flatten().fold(init, |folded, (_, entry)| f(folded, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(key: &impl Hash) -> u64 {
        Hashing::new(Some(1)).of(key)
    }

    #[test]
    fn hashes_differ_from_store_to_store_unless_a_seed_decides_them() {
        let of = |seed| (0..4_u64).map(|n| Hashing::new(seed).of(&n)).collect::<Vec<_>>();
        assert_ne!(of(None), of(None));
        assert_eq!(of(Some(7)), of(Some(7)));
        assert_ne!(of(Some(7)), of(Some(8)));
    }

    fn put(map: &mut CowMap<u64>, n: u64) -> Option<u64> {
        map.insert(hash_of(&n), |held| *held == n, n)
    }

    fn take(map: &mut CowMap<u64>, n: u64) -> Option<u64> {
        map.remove(hash_of(&n), |held| *held == n)
    }

    fn is_one_leaf(map: &CowMap<u64>) -> bool {
        matches!(map.table, CowTable::Flat(_))
    }

    #[test]
    fn grows_and_shrinks_without_losing_an_entry() {
        let mut map = CowMap::new();
        for n in 0..5_000 {
            assert_eq!(put(&mut map, n), None);
            assert_eq!(put(&mut map, n), Some(n));
        }
        assert_eq!(map.iter().count(), 5_000);
        for n in 0..5_000 {
            assert_eq!(map.find(hash_of(&n), |held| *held == n), Some(&n));
        }
        for n in 10..5_000 {
            assert_eq!(take(&mut map, n), Some(n));
            assert_eq!(take(&mut map, n), None);
        }
        assert_eq!(map.len(), 10);
        let mut left: Vec<_> = map.iter().copied().collect();
        left.sort_unstable();
        assert_eq!(left, (0..10).collect::<Vec<_>>());
        (0..10).for_each(|n| assert_eq!(take(&mut map, n), Some(n)));
        assert!(map.is_empty() && is_one_leaf(&map));
    }

    #[test]
    fn an_entry_is_changed_in_its_place() {
        let mut map = CowMap::new();
        for n in 0..1_000_u64 {
            map.insert(hash_of(&n), |(held, _)| *held == n, (n, 0));
        }
        let before = map.clone();
        for n in 0..1_000 {
            map.find_mut(hash_of(&n), |(held, _)| *held == n).unwrap().1 = n;
        }
        assert!(map.find_mut(hash_of(&1_000_u64), |(held, _)| *held == 1_000).is_none());
        assert!(map.iter().all(|(n, changed)| n == changed));
        assert!(before.iter().all(|(_, changed)| *changed == 0));
    }

    // S13
    #[test]
    fn entries_come_in_one_order_whatever_came_and_went_before() {
        for size in [3, 16, 17, 1_000] {
            let (mut straight, mut roundabout) = (CowMap::new(), CowMap::new());
            for n in 0..size {
                put(&mut straight, n);
            }
            for n in (0..4 * size).rev() {
                put(&mut roundabout, n);
            }
            for n in 0..size {
                take(&mut roundabout, n);
            }
            for n in (0..size).rev() {
                put(&mut roundabout, n);
            }
            for n in size..4 * size {
                take(&mut roundabout, n);
            }
            assert!(straight.iter().eq(roundabout.iter()), "{size}");
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
        assert!((0..40).all(|n| map.remove(7, |held| *held == n) == Some(n)));
        assert!(map.is_empty() && is_one_leaf(&map));
    }
}

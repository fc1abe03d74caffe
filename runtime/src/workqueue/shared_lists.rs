//! Keys that are ready because a list lists them: of each list, how far the queue has come.

use std::collections::VecDeque;
use std::sync::Arc;

use super::clock::At;
use super::entry::QueueKey;
use crate::key_list::KeyList;

/// Most lists at once: each has to be asked about every key that the queue does not know.
pub(super) const MOST: usize = 4;

/// When something lined up, counted in lists: what lined up earlier has a lower or an equal number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival(u16);

impl Arrival {
    /// Whether what arrived then stands behind a list of that number.
    #[inline]
    pub(super) const fn is_behind(self, list: Self) -> bool {
        // numbers start over; nothing stays in line for 32,768 lists
        (self.0.wrapping_sub(list.0) as i16) > 0
    }
}

/// A list whose keys are ready, at low priority.
struct ListCursor<K> {
    list: Arc<KeyList<K>>,
    next: usize,
    /// A bit for each place: set for those that do not stand here any more.
    removed: Box<[u64]>,
    left: usize,
    arrival: Arrival,
    since: At,
}

impl<K: QueueKey> ListCursor<K> {
    fn is_removed(&self, place: usize) -> bool {
        self.removed[place / 64] >> (place % 64) & 1 == 1
    }

    fn mark_removed(&mut self, place: usize) {
        self.removed[place / 64] |= 1 << (place % 64);
        self.left -= 1;
    }

    /// Finds the place at which a key still stands.
    fn place(&self, key: &K) -> Option<usize> {
        self.list.place(key).filter(|place| !self.is_removed(*place))
    }

    fn first(&self) -> Option<usize> {
        (self.next..self.list.keys().len()).find(|place| !self.is_removed(*place))
    }
}

/// The lists that a queue goes through, first come first.
///
/// A key that stands here has no entry: that is what a list saves.
pub(super) struct SharedLists<K> {
    lines: VecDeque<ListCursor<K>>,
    left: usize,
    now: Arrival,
}

/// Whether another list is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    ForOneMore,
    None,
}

impl<K: QueueKey> SharedLists<K> {
    pub(super) const fn new() -> Self {
        Self { lines: VecDeque::new(), left: 0, now: Arrival(0) }
    }

    /// Counts the keys that stand here.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.left
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.left == 0
    }

    #[cfg(test)]
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn room(&self) -> Room {
        if self.lines.len() < MOST { Room::ForOneMore } else { Room::None }
    }

    /// Tells how what lines up now compares with lists.
    #[inline]
    pub(super) const fn now(&self) -> Arrival {
        self.now
    }

    /// Tells when the first list came.
    #[inline]
    pub(super) fn first_arrival(&self) -> Option<Arrival> {
        self.lines.front().map(|line| line.arrival)
    }

    /// ReadyQueue up the keys of a list that are wanted, and stand on no other. Answers how many these are.
    pub(super) fn push(&mut self, list: Arc<KeyList<K>>, wanted: impl Fn(&K) -> bool, since: At) -> usize {
        let places = list.keys().len();
        let removed = vec![0; places.div_ceil(64)].into();
        let mut line = ListCursor { list, next: 0, removed, left: places, arrival: self.now, since };
        for place in 0..places {
            let key = &line.list.keys()[place];
            if !wanted(key) || self.since(key).is_some() {
                line.mark_removed(place);
            }
        }
        let left = line.left;
        if left > 0 {
            self.left += left;
            self.lines.push_back(line);
            self.now = Arrival(self.now.0.wrapping_add(1));
        }
        left
    }

    /// Tells since when a key stands here, if it does.
    pub(super) fn since(&self, key: &K) -> Option<At> {
        self.lines.iter().find(|line| line.place(key).is_some()).map(|line| line.since)
    }

    /// Takes a key out, wherever it stands. Answers since when it did.
    pub(super) fn remove(&mut self, key: &K) -> Option<At> {
        let found = |(at, line): (usize, &ListCursor<K>)| Some((at, line.place(key)?));
        let (at, place) = self.lines.iter().enumerate().find_map(found)?;
        let line = &mut self.lines[at];
        line.mark_removed(place);
        let since = line.since;
        self.shrink(at);
        Some(since)
    }

    /// Takes out the first key of the first list, and since when it stood there.
    pub(super) fn pop(&mut self) -> Option<(K, At)> {
        let line = self.lines.front_mut()?;
        let place = line.first()?;
        let taken = (line.list.keys()[place].clone(), line.since);
        line.mark_removed(place);
        line.next = place + 1;
        self.shrink(0);
        Some(taken)
    }

    pub(super) fn clear(&mut self) {
        *self = Self { now: self.now, ..Self::new() };
    }

    /// Walks all keys, with since when they stand here.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, At)> {
        self.lines.iter().flat_map(|line| {
            let places = line.next..line.list.keys().len();
            let there = places.filter(|place| !line.is_removed(*place));
            there.map(|place| (&line.list.keys()[place], line.since))
        })
    }

    /// Counts one key less, and lets go of a list that is through.
    fn shrink(&mut self, at: usize) {
        self.left -= 1;
        if self.lines[at].left == 0 {
            self.lines.remove(at);
        }
    }
}

//! The lines of keys that are ready: one for each priority, and one across all by arrival.

use super::entry::Entry;
use super::list::List;
use super::priority::Priority;
use super::shared_lists::Arrival;
use super::slab::{Id, Slab};

/// One grant of so many goes to whoever has waited longest.
const AGED: u8 = 8;

/// Stands for an entry's place in the line of its priority, or of those that await what it awaits.
#[derive(Debug)]
pub(super) enum InLine {}

/// Stands for an entry's place among all that are ready.
#[derive(Debug)]
pub(super) enum ByArrival {}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    Of(Id),
    /// Of the first that a list lists.
    OfList,
}

/// The keys that are ready, each with an entry.
#[derive(Debug)]
pub(super) struct ReadyQueue {
    bands: [List<InLine>; Priority::ALL.len()],
    all: List<ByArrival>,
    /// Grants since the last that went by arrival.
    grants: u8,
}

impl ReadyQueue {
    pub(super) const fn new() -> Self {
        Self { bands: [const { List::new() }; 3], all: List::new(), grants: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len_of(&self, priority: Priority) -> usize {
        self.bands[priority.rank()].len()
    }

    /// Walks the line of a priority.
    pub(super) fn line<'a, K>(
        &self,
        priority: Priority,
        slab: &'a Slab<Entry<K>>,
    ) -> impl Iterator<Item = &'a Entry<K>> {
        self.bands[priority.rank()].iter(slab)
    }

    /// ReadyQueue an entry up at the back of its priority's line.
    #[inline]
    pub(super) fn push<K>(&mut self, slab: &mut Slab<Entry<K>>, id: Id, now: Arrival) {
        slab[id].arrival = now;
        self.bands[slab[id].priority.rank()].push_back(slab, id);
        self.all.push_back(slab, id);
    }

    /// Takes the one whose turn it is, unless that is one of a list that came then.
    #[inline]
    pub(super) fn pop<K>(&mut self, slab: &mut Slab<Entry<K>>, list: Option<Arrival>) -> Option<Pick> {
        if self.is_empty() {
            return list.map(|_| self.grant(Pick::OfList));
        }
        let by_arrival = self.grants + 1 == AGED;
        let id = match by_arrival {
            true => self.all.first()?,
            false => self.bands.iter().find_map(List::first)?,
        };
        let entry = &slab[id];
        let yields = by_arrival || entry.priority == Priority::Low;
        if list.is_some_and(|list| yields && entry.arrival.is_behind(list)) {
            return Some(self.grant(Pick::OfList));
        }
        self.remove(slab, id);
        Some(self.grant(Pick::Of(id)))
    }

    fn grant(&mut self, turn: Pick) -> Pick {
        self.grants = (self.grants + 1) % AGED;
        turn
    }

    #[inline]
    pub(super) fn remove<K>(&mut self, slab: &mut Slab<Entry<K>>, id: Id) {
        self.bands[slab[id].priority.rank()].remove(slab, id);
        self.all.remove(slab, id);
    }

    /// Moves an entry to the back of a higher line; how long it has waited still counts.
    pub(super) fn raise<K>(&mut self, slab: &mut Slab<Entry<K>>, id: Id, priority: Priority) {
        self.bands[slab[id].priority.rank()].remove(slab, id);
        slab[id].priority = priority;
        self.bands[priority.rank()].push_back(slab, id);
    }
}

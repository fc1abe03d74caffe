//! The lines of keys that are ready: one for each priority, and one across all by arrival.

use super::entry::Entry;
use super::list::List;
use super::priority::Priority;
use super::slab::{Id, Slab};

/// One grant of so many goes to whoever has waited longest.
const AGED: u8 = 8;

/// Stands for an entry's place in the line of its priority, or of those that await what it awaits.
#[derive(Debug)]
pub(super) enum InLine {}

/// Stands for an entry's place among all that are ready.
#[derive(Debug)]
pub(super) enum ByArrival {}

/// The keys that are ready.
#[derive(Debug)]
pub(super) struct Lines {
    bands: [List<InLine>; Priority::ALL.len()],
    all: List<ByArrival>,
    /// Grants since the last that went by arrival.
    grants: u8,
}

impl Lines {
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

    /// Walks all entries, line by line.
    pub(super) fn iter<'a, K>(&self, slab: &'a Slab<Entry<K>>) -> impl Iterator<Item = &'a Entry<K>> {
        self.bands.iter().flat_map(|band| band.iter(slab))
    }

    /// Lines an entry up at the back of its priority's line.
    #[inline]
    pub(super) fn push<K>(&mut self, slab: &mut Slab<Entry<K>>, id: Id) {
        self.bands[slab[id].priority.rank()].push_back(slab, id);
        self.all.push_back(slab, id);
    }

    /// Takes the one whose turn it is.
    #[inline]
    pub(super) fn pop<K>(&mut self, slab: &mut Slab<Entry<K>>) -> Option<Id> {
        let longest = self.all.first()?;
        self.grants += 1;
        let id = if self.grants == AGED {
            self.grants = 0;
            longest
        } else {
            self.bands.iter().find_map(List::first)?
        };
        self.remove(slab, id);
        Some(id)
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

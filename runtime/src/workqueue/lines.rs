//! Lines of keys, first in, first out.

use std::collections::VecDeque;

use super::entries::{Entries, Id, KEPT_WHEN_EMPTY, KeyEntry, QueueKey, Ticket};
use super::types::Priority;

/// Keys in the order in which they came.
///
/// A key that leaves out of turn leaves a void ticket, which is skipped. At most about half of the tickets are void.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The keys of this priority, if the line has one. A key that was raised since is in another line.
    priority: Option<Priority>,
    tickets: VecDeque<Ticket>,
    /// Counts the tickets that are not void.
    valid: usize,
}

/// This many void tickets are always allowed.
const SLACK: usize = 64;

impl Line {
    pub(super) fn len(&self) -> usize {
        self.valid
    }

    pub(super) fn is_empty(&self) -> bool {
        self.valid == 0
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.tickets.capacity()
    }

    /// Adds an entry at the back, with a new ticket.
    #[inline]
    pub(super) fn join<K: QueueKey>(&mut self, entries: &mut Entries<K>, id: Id) {
        let ticket = entries.issue(id);
        self.push(entries, ticket);
    }

    #[inline]
    fn push<K: QueueKey>(&mut self, entries: &Entries<K>, ticket: Ticket) {
        if self.tickets.len() > 2 * self.valid + SLACK {
            let priority = self.priority;
            self.tickets.retain(|ticket| valid(entries, priority, *ticket).is_some());
        }
        self.tickets.push_back(ticket);
        self.valid += 1;
    }

    /// Takes the first entry.
    #[inline]
    pub(super) fn pop<K: QueueKey>(&mut self, entries: &Entries<K>) -> Option<Id> {
        if self.is_empty() {
            return None;
        }
        let tickets = std::iter::from_fn(|| self.tickets.pop_front());
        let first = { tickets }.find(|ticket| valid(entries, self.priority, *ticket).is_some());
        self.leave();
        first.map(|ticket| ticket.id)
    }

    /// Counts one entry less: it leaves, and its ticket is void from now on.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.valid -= 1;
        if self.valid == 0 {
            self.tickets.clear();
            if self.tickets.capacity() > KEPT_WHEN_EMPTY {
                self.tickets = VecDeque::new();
            }
        }
    }

    /// Returns the entries, in order.
    pub(super) fn iter<'a, K: QueueKey>(
        &'a self,
        entries: &'a Entries<K>,
    ) -> impl Iterator<Item = &'a KeyEntry<K>> {
        self.tickets.iter().filter_map(|ticket| valid(entries, self.priority, *ticket))
    }
}

/// Returns the entry of a ticket in the line of a priority, unless the ticket is void there.
#[inline]
fn valid<K: QueueKey>(
    entries: &Entries<K>,
    priority: Option<Priority>,
    ticket: Ticket,
) -> Option<&KeyEntry<K>> {
    entries.of(ticket).filter(|entry| priority.is_none_or(|priority| priority == entry.priority))
}

/// One grant in this many goes to the key that has waited longest.
const AGED: u8 = 8;

/// The keys that are ready.
#[derive(Debug)]
pub(super) struct ReadyLines {
    by_priority: [Line; Priority::ALL.len()],
    /// All of them, in the order in which they became ready.
    by_age: Line,
    /// Counts the grants since the last one by age.
    grants: u8,
}

impl ReadyLines {
    pub(super) fn new() -> Self {
        let line = |priority| Line { priority: Some(priority), ..Line::default() };
        Self { by_priority: Priority::ALL.map(line), by_age: Line::default(), grants: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(super) fn len_by_rank(&self) -> [usize; Priority::ALL.len()] {
        [0, 1, 2].map(|rank: usize| self.by_priority[rank].len())
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let lines = self.by_priority.iter().chain([&self.by_age]);
        lines.map(Line::capacity).max().unwrap_or_default()
    }

    /// Returns the entries, the highest priority first and each line in order.
    pub(super) fn iter<'a, K: QueueKey>(
        &'a self,
        entries: &'a Entries<K>,
    ) -> impl Iterator<Item = &'a KeyEntry<K>> {
        self.by_priority.iter().flat_map(|line| line.iter(entries))
    }

    /// Returns the entry that has waited longest.
    pub(super) fn oldest<'a, K: QueueKey>(&'a self, entries: &'a Entries<K>) -> Option<&'a KeyEntry<K>> {
        self.by_age.iter(entries).next()
    }

    /// Adds an entry at the back of the line of its priority.
    #[inline]
    pub(super) fn join<K: QueueKey>(&mut self, entries: &mut Entries<K>, id: Id) {
        let ticket = entries.issue(id);
        self.by_priority[entries[id].priority.rank()].push(entries, ticket);
        self.by_age.push(entries, ticket);
    }

    /// Moves an entry to the back of a higher line. How long it has waited still counts.
    pub(super) fn raise<K: QueueKey>(&mut self, entries: &mut Entries<K>, id: Id, priority: Priority) {
        self.by_priority[entries[id].priority.rank()].leave();
        entries[id].priority = priority;
        let ticket = Ticket { number: entries[id].number, id };
        self.by_priority[priority.rank()].push(entries, ticket);
    }

    /// Counts one entry less of a priority: it leaves, and its ticket is void from now on.
    pub(super) fn leave(&mut self, priority: Priority) {
        self.by_priority[priority.rank()].leave();
        self.by_age.leave();
    }

    /// Takes the entry whose turn it is.
    #[inline]
    pub(super) fn pop<K: QueueKey>(&mut self, entries: &Entries<K>) -> Option<Id> {
        let Self { by_priority, by_age, grants } = self;
        let id = if *grants + 1 == AGED {
            let id = by_age.pop(entries)?;
            by_priority[entries[id].priority.rank()].leave();
            id
        } else {
            let id = by_priority.iter_mut().find_map(|line| line.pop(entries))?;
            by_age.leave();
            id
        };
        *grants = (*grants + 1) % AGED;
        Some(id)
    }
}

//! Lines of keys, first in, first out.

use std::collections::VecDeque;

use super::entries::{Entries, Id, KEPT_WHEN_EMPTY, KeyEntry, QueueKey, Ticket};
use super::types::Priority;

/// Keys in the order in which they came.
///
/// A key that leaves out of turn leaves a void ticket, which is skipped. At most about half of the tickets are void.
#[derive(Debug, Default)]
pub(super) struct Line {
    tickets: VecDeque<Ticket>,
    /// Counts the tickets that are not void.
    valid: usize,
}

/// So many void tickets are always allowed.
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

    /// Adds a ticket at the back.
    #[inline]
    pub(super) fn push(&mut self, ticket: Ticket, is_valid: impl Fn(Ticket) -> bool) {
        if self.tickets.len() > 2 * self.valid + SLACK {
            self.tickets.retain(|ticket| is_valid(*ticket));
        }
        self.tickets.push_back(ticket);
        self.valid += 1;
    }

    /// Takes the first valid ticket.
    #[inline]
    pub(super) fn pop(&mut self, is_valid: impl Fn(Ticket) -> bool) -> Option<Ticket> {
        if self.is_empty() {
            return None;
        }
        let first = std::iter::from_fn(|| self.tickets.pop_front()).find(|ticket| is_valid(*ticket));
        self.leave();
        first
    }

    /// Counts one valid ticket less: its key leaves, and the ticket is void from now on.
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

    /// Returns the entries of the valid tickets, in order.
    pub(super) fn iter<'a, K: QueueKey>(
        &'a self,
        entries: &'a Entries<K>,
    ) -> impl Iterator<Item = &'a KeyEntry<K>> {
        self.tickets.iter().filter_map(|ticket| entries.of(*ticket))
    }
}

/// One grant in this many goes to the key that has waited longest.
const AGED: u8 = 8;

/// The keys that are ready.
#[derive(Debug, Default)]
pub(super) struct ReadyLines {
    by_priority: [Line; Priority::ALL.len()],
    /// All of them, in the order in which they became ready.
    by_age: Line,
    /// Counts the grants since the last one by age.
    grants: u8,
}

impl ReadyLines {
    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(super) fn len_at(&self, priority: Priority) -> usize {
        self.by_priority[priority.rank()].len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let lines = self.by_priority.iter().chain([&self.by_age]);
        lines.map(Line::capacity).max().unwrap_or_default()
    }

    /// Returns the entries of a priority, in order.
    pub(super) fn iter<'a, K: QueueKey>(
        &'a self,
        priority: Priority,
        entries: &'a Entries<K>,
    ) -> impl Iterator<Item = &'a KeyEntry<K>> {
        // The line of a lower priority still holds the tickets of keys that were raised since.
        self.by_priority[priority.rank()].iter(entries).filter(move |entry| entry.priority == priority)
    }

    /// Returns the entry that has waited longest.
    pub(super) fn oldest<'a, K: QueueKey>(&'a self, entries: &'a Entries<K>) -> Option<&'a KeyEntry<K>> {
        self.by_age.iter(entries).next()
    }

    /// Adds an entry at the back of the line of its priority.
    #[inline]
    pub(super) fn push<K: QueueKey>(&mut self, entries: &mut Entries<K>, id: Id) {
        let ticket = entries.issue(id);
        self.push_to_line(entries, ticket);
        self.by_age.push(ticket, |ticket| entries.of(ticket).is_some());
    }

    #[inline]
    fn push_to_line<K: QueueKey>(&mut self, entries: &Entries<K>, ticket: Ticket) {
        let priority = entries[ticket.id].priority;
        self.by_priority[priority.rank()].push(ticket, is_valid_at(entries, priority));
    }

    /// Moves an entry to the back of a higher line. How long it has waited still counts.
    pub(super) fn raise<K: QueueKey>(&mut self, entries: &mut Entries<K>, id: Id, priority: Priority) {
        self.by_priority[entries[id].priority.rank()].leave();
        entries[id].priority = priority;
        self.push_to_line(entries, Ticket { number: entries[id].number, id });
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
        let ticket = if *grants + 1 == AGED {
            let ticket = by_age.pop(|ticket| entries.of(ticket).is_some())?;
            by_priority[entries[ticket.id].priority.rank()].leave();
            ticket
        } else {
            let first = |priority: Priority| by_priority[priority.rank()].pop(is_valid_at(entries, priority));
            let ticket = Priority::ALL.into_iter().find_map(first)?;
            by_age.leave();
            ticket
        };
        *grants = (*grants + 1) % AGED;
        Some(ticket.id)
    }
}

/// Says whether the key of a ticket is still in the line of this priority.
fn is_valid_at<K: QueueKey>(entries: &Entries<K>, priority: Priority) -> impl Fn(Ticket) -> bool {
    move |ticket| entries.of(ticket).is_some_and(|entry| entry.priority == priority)
}

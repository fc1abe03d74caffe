//! Lines of keys, first in, first out.

use std::collections::VecDeque;

use super::clock::At;
use super::entries::{Entries, Id, KEPT_WHEN_EMPTY, KeyEntry, QueueKey, Ticket};
use super::types::Priority;

/// Keys in the order in which they came.
///
/// A key that leaves out of turn leaves a void ticket, which is skipped. At most about half of the tickets are void.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) tickets: VecDeque<Ticket>,
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

    /// Adds an entry at the back, with a new ticket.
    #[inline]
    pub(super) fn join<K: QueueKey>(&mut self, entries: &mut Entries<K>, id: Id) {
        if self.tickets.len() > 2 * self.valid + SLACK {
            self.tickets.retain(|ticket| entries.of(*ticket).is_some());
        }
        self.tickets.push_back(entries.issue(id));
        self.valid += 1;
    }

    /// Returns the ticket of the first entry.
    #[inline]
    fn first<K: QueueKey>(&mut self, entries: &Entries<K>) -> Option<Ticket> {
        while let Some(first) = self.tickets.front().copied() {
            if entries.of(first).is_some() {
                return Some(first);
            }
            self.tickets.pop_front();
        }
        None
    }

    /// Takes the first entry.
    #[inline]
    pub(super) fn pop<K: QueueKey>(&mut self, entries: &Entries<K>) -> Option<Id> {
        while let Some(first) = self.tickets.pop_front() {
            if entries.of(first).is_some() {
                self.leave();
                return Some(first.id);
            }
        }
        None
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
        self.tickets.iter().filter_map(|ticket| entries.of(*ticket))
    }
}

/// One grant in this many goes to the key that has waited longest in its line.
const AGED: u8 = 8;

/// The keys that are ready: a line for each priority, the highest first.
#[derive(Debug, Default)]
pub(super) struct ReadyLines {
    pub(super) lines: [Line; Priority::ALL.len()],
    /// Counts the grants since the last one by age.
    grants: u8,
}

impl ReadyLines {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.lines.iter().map(Line::len).sum()
    }

    /// Returns the entries, the highest priority first and each line in order.
    pub(super) fn iter<'a, K: QueueKey>(
        &'a self,
        entries: &'a Entries<K>,
    ) -> impl Iterator<Item = &'a KeyEntry<K>> {
        self.lines.iter().flat_map(|line| line.iter(entries))
    }

    /// Returns the line of a priority.
    #[inline]
    pub(super) fn line(&mut self, priority: Priority) -> &mut Line {
        &mut self.lines[priority.rank()]
    }

    /// Takes the entry whose turn it is: of the highest priority, or now and then the one that has waited longest.
    #[inline]
    pub(super) fn pop<K: QueueKey>(&mut self, entries: &Entries<K>) -> Option<Id> {
        let Self { lines, grants } = self;
        *grants = (*grants + 1) % AGED;
        if *grants > 0 {
            return lines.iter_mut().find_map(|line| line.pop(entries));
        }
        let ages = lines.each_mut().map(|line| Some(entries.age(line.first(entries)?)));
        let oldest = lines.iter_mut().zip(ages).max_by_key(|(_, age)| *age);
        oldest.and_then(|(line, _)| line.pop(entries))
    }

    /// Returns since when the key has been ready that has waited longest in its line.
    pub(super) fn since<K: QueueKey>(&self, entries: &Entries<K>) -> At {
        let firsts = self.lines.iter().filter_map(|line| line.iter(entries).next());
        firsts.map(|entry| entry.at).min().unwrap_or(At::NEVER)
    }
}

//! The pending calls of a handler in order, and where each key waits.

use std::{collections::BTreeMap, hash::BuildHasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use tokio::time::Instant;

use super::notification::Notification;
use crate::object::{Object, ObjectKey};

/// How much room an empty queue keeps.
const ROOM: usize = 256;

/// Numbers what waits; numbers grow.
pub(super) struct NotificationQueue<K> {
    /// What waits, and since when.
    waiting: BTreeMap<u64, (Notification<K>, Instant)>,
    /// The number of what comes next.
    next: u64,
    /// The hash of each key that waits, and its number.
    numbers: HashTable<(u64, u64)>,
    hasher: RandomState,
}

impl<K: Object> NotificationQueue<K> {
    pub(super) fn new() -> Self {
        Self { waiting: BTreeMap::new(), next: 0, numbers: HashTable::new(), hasher: RandomState::default() }
    }

    /// Puts one at the end.
    pub(super) fn append(&mut self, notification: Notification<K>, now: Instant) {
        let hash = self.hasher.hash_one(notification.key());
        self.numbers.insert_unique(hash, (hash, self.next), |(hash, _)| *hash);
        self.waiting.insert(self.next, (notification, now));
        self.next += 1;
    }

    /// Takes the first.
    pub(super) fn pop(&mut self) -> Option<Notification<K>> {
        let (number, _) = self.waiting.first_key_value()?;
        self.take(*number)
    }

    /// Takes one out of turn.
    pub(super) fn take(&mut self, number: u64) -> Option<Notification<K>> {
        let (notification, _) = self.waiting.remove(&number)?;
        let hash = self.hasher.hash_one(notification.key());
        if let Ok(place) = self.numbers.find_entry(hash, |(_, found)| *found == number) {
            place.remove();
        }
        if self.waiting.is_empty() && self.numbers.capacity() > ROOM {
            self.numbers = HashTable::new();
        }
        Some(notification)
    }

    /// Finds the numbers of all that waits for a key.
    pub(super) fn numbers(&self, key: &ObjectKey) -> impl Iterator<Item = u64> {
        let same = self.numbers.iter_hash(self.hasher.hash_one(key)).map(|(_, number)| *number);
        same.filter(move |number| self.get(*number).is_some_and(|notification| notification.key() == key))
    }

    /// Returns the keys of all that waits.
    pub(super) fn keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.waiting.values().map(|(notification, _)| notification.key().clone())
    }

    pub(super) fn get(&self, number: u64) -> Option<&Notification<K>> {
        self.waiting.get(&number).map(|(notification, _)| notification)
    }

    /// Finds one to change what it says about its key.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Notification<K>> {
        self.waiting.get_mut(&number).map(|(notification, _)| notification)
    }

    /// Returns the number of the first that waits; of what comes next, if nothing does.
    pub(super) fn start(&self) -> u64 {
        self.waiting.first_key_value().map_or(self.next, |(number, _)| *number)
    }

    /// Returns the number of what comes next.
    pub(super) fn end(&self) -> u64 {
        self.next
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns since when the first has waited.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.values().next().map(|(_, since)| *since)
    }
}

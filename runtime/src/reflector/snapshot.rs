//! Folds the initial events of a streaming list into what a list would have held.

use std::{collections::HashMap, time::Duration};

use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::{
    list_watch::{InitialEventsMark, Item, WatchEvent},
    object::{Object, ObjectKey},
};

/// How long a streaming list may bring nothing new before its end is taken for lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What a streaming list has brought so far.
#[derive(Debug)]
pub(super) struct Snapshot<K> {
    /// In the order of arrival; deletions leave holes.
    items: Vec<Option<Item<K>>>,
    places: HashMap<ObjectKey, usize, RandomState>,
    /// When the last object that was new to this stream came, or the stream was opened.
    grown: Instant,
    /// When the first event came that belongs to no list.
    disturbed: Option<Instant>,
}

impl<K: Object> Snapshot<K> {
    pub(super) fn new(now: Instant) -> Self {
        Self { items: Vec::new(), places: HashMap::default(), grown: now, disturbed: None }
    }

    /// Takes an event; returns the version of the list if it is the one that ends it.
    ///
    /// An object without a readable key is kept beside the others.
    pub(super) fn take(&mut self, event: WatchEvent<K>, now: Instant) -> Option<String> {
        match event {
            WatchEvent::Bookmark { resource_version, initial_events: InitialEventsMark::End } => {
                return Some(resource_version);
            }
            WatchEvent::Added(item) => match self.put(item) {
                Novelty::New => self.grown = now,
                Novelty::Known => self.disturb(now),
            },
            WatchEvent::Modified(item) => {
                self.put(item);
                self.disturb(now);
            }
            WatchEvent::Deleted(item) => {
                if let Some(place) = item.key().and_then(|key| self.places.remove(&key)) {
                    self.items[place] = None;
                }
                self.disturb(now);
            }
            WatchEvent::Bookmark { .. } | WatchEvent::Unexpected(_) | WatchEvent::Error(_) => {
                self.disturb(now);
            }
        }
        None
    }

    fn disturb(&mut self, now: Instant) {
        self.disturbed.get_or_insert(now);
    }

    /// Returns when the end of the list is overdue.
    pub(super) fn overdue(&self) -> Instant {
        self.disturbed.map_or(self.grown, |disturbed| disturbed.min(self.grown)) + PATIENCE
    }

    /// Returns what a list would have held.
    pub(super) fn into_items(self) -> Vec<Item<K>> {
        self.items.into_iter().flatten().collect()
    }

    fn put(&mut self, item: Item<K>) -> Novelty {
        let Some(key) = item.key() else {
            self.items.push(Some(item));
            return Novelty::New;
        };
        match self.places.get(&key) {
            Some(place) => {
                self.items[*place] = Some(item);
                Novelty::Known
            }
            None => {
                self.places.insert(key, self.items.len());
                self.items.push(Some(item));
                Novelty::New
            }
        }
    }
}

enum Novelty {
    New,
    Known,
}

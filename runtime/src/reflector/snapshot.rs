//! Folds the initial events of a streaming list into what a list would have held.

use std::{collections::HashMap, time::Duration};

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::sink::{Epoch, List, ReflectorStore};
use crate::{
    list_watch::{InitialEventsMark, Item, WatchEvent},
    object::{Object, ObjectKey},
};

/// How long a streaming list may bring nothing new before its end is taken for lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What a streaming list has brought so far, without what the store holds already.
#[derive(Debug)]
pub(super) struct Snapshot<K> {
    /// In the order of arrival; deletions leave holes.
    items: Vec<Option<Item<K>>>,
    places: HashMap<ObjectKey, Place, RandomState>,
    /// When the last object that was new to this stream came, or the stream was opened.
    grown: Instant,
    /// When the first event came that belongs to no list.
    disturbed: Option<Instant>,
}

/// Where the state of a key is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Among the items.
    At(usize),
    /// In the store.
    Held,
}

impl<K: Object> Snapshot<K> {
    pub(super) fn new(now: Instant) -> Self {
        Self { items: Vec::new(), places: HashMap::default(), grown: now, disturbed: None }
    }

    /// Takes an event; returns the version of the list if it is the one that ends it.
    ///
    /// An object without a readable key is kept apart from the others.
    pub(super) fn take(
        &mut self,
        event: WatchEvent<K>,
        now: Instant,
        store: &impl ReflectorStore<K>,
    ) -> Option<String> {
        match event {
            WatchEvent::Bookmark { resource_version, initial_events: InitialEventsMark::End } => {
                return Some(resource_version);
            }
            WatchEvent::Added(item) => match self.put(item, store) {
                Novelty::New => self.grown = now,
                Novelty::Known => self.disturb(now),
            },
            WatchEvent::Modified(item) => {
                self.put(item, store);
                self.disturb(now);
            }
            WatchEvent::Deleted(item) => {
                if let Some(Place::At(at)) = item.key().and_then(|key| self.places.remove(&key)) {
                    self.items[at] = None;
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
    pub(super) fn into_list(self, version: &str, epoch: Epoch) -> List<K> {
        let unchanged = self.places.into_iter().filter(|(_, place)| matches!(place, Place::Held));
        let mut unchanged: Vec<ObjectKey> = unchanged.map(|(key, _)| key).collect();
        // In an order that no seed decides: a new epoch tells of them in turn.
        unchanged.sort_unstable();
        let mut items = Vec::with_capacity(self.items.len());
        items.extend(self.items.into_iter().flatten());
        List { unchanged, items, resource_version: version.to_owned(), epoch }
    }

    fn put(&mut self, item: Item<K>, store: &impl ReflectorStore<K>) -> Novelty {
        if let Some(key) = store.unchanged(&item) {
            return match self.places.insert(key, Place::Held) {
                Some(Place::At(at)) => {
                    self.items[at] = None;
                    Novelty::Known
                }
                Some(Place::Held) => Novelty::Known,
                None => Novelty::New,
            };
        }
        let Some(key) = item.key() else {
            self.items.push(Some(item));
            return Novelty::New;
        };
        let before = self.places.get(&key).copied();
        if let Some(Place::At(at)) = before {
            self.items[at] = Some(item);
            return Novelty::Known;
        }
        self.places.insert(key, Place::At(self.items.len()));
        self.items.push(Some(item));
        if before.is_some() { Novelty::Known } else { Novelty::New }
    }
}

enum Novelty {
    New,
    Known,
}

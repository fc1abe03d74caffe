//! Folds the initial events of a streaming list into what a list would have held.

use std::{collections::HashMap, time::Duration};

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::sink::{Epoch, List, ReflectorStore};
use crate::{
    list_watch::{FetchedItem, InitialEventsMark, WatchEvent},
    object::{Object, ObjectKey},
};

/// If a streaming list brings nothing new for this time, its end counts as lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The objects that a streaming list has brought, without those that the store holds already.
#[derive(Debug)]
pub(super) struct InitialObjects<K> {
    /// In the order of arrival; deletions leave holes.
    items: Vec<Option<FetchedItem<K>>>,
    places: HashMap<ObjectKey, SnapshotPlace, RandomState>,
    /// When the last object that was new to this stream came, or the stream was opened.
    grown: Instant,
    /// When the first event came that belongs to no list.
    disturbed: Option<Instant>,
}

/// Where the object of a key is.
#[derive(Clone, Copy, Debug)]
enum SnapshotPlace {
    /// Among the items.
    At(usize),
    /// In the store.
    Held,
}

impl<K: Object> InitialObjects<K> {
    pub(super) fn new(now: Instant) -> Self {
        Self { items: Vec::new(), places: HashMap::default(), grown: now, disturbed: None }
    }

    /// Takes an event; returns the version of the list if it is the one that ends it.
    ///
    /// An object without a readable key is kept as well.
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
                true => self.grown = now,
                false => self.disturb(now),
            },
            WatchEvent::Modified(item) => {
                self.put(item, store);
                self.disturb(now);
            }
            WatchEvent::Deleted(item) => {
                if let Some(SnapshotPlace::At(at)) = item.key().and_then(|key| self.places.remove(&key)) {
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
        let unchanged = self.places.into_iter().filter(|(_, place)| matches!(place, SnapshotPlace::Held));
        let mut unchanged: Vec<ObjectKey> = unchanged.map(|(key, _)| key).collect();
        // Sorted, because the order of a hash map differs from run to run.
        unchanged.sort_unstable();
        let mut items = Vec::with_capacity(self.items.len());
        items.extend(self.items.into_iter().flatten());
        List { unchanged, items, resource_version: version.to_owned(), epoch }
    }

    /// Keeps an item; returns whether its key is new.
    fn put(&mut self, item: FetchedItem<K>, store: &impl ReflectorStore<K>) -> bool {
        if let Some(key) = store.unchanged(&item) {
            return match self.places.insert(key, SnapshotPlace::Held) {
                Some(SnapshotPlace::At(at)) => {
                    self.items[at] = None;
                    false
                }
                Some(SnapshotPlace::Held) => false,
                None => true,
            };
        }
        let Some(key) = item.key() else {
            self.items.push(Some(item));
            return true;
        };
        let before = self.places.get(&key).copied();
        if let Some(SnapshotPlace::At(at)) = before {
            self.items[at] = Some(item);
            return false;
        }
        self.places.insert(key, SnapshotPlace::At(self.items.len()));
        self.items.push(Some(item));
        before.is_none()
    }
}

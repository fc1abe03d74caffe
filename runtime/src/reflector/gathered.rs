//! Gathers a list that is under way, in pages or as initial events, without what the store holds already.

use std::{cmp::Ordering, time::Duration};

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use tokio::{task::coop::consume_budget, time::Instant};

use super::{
    sink::{AnyStore, Epoch, List},
    state::compared,
};
use crate::{
    list_watch::{AnyItem, InitialEventsMark, WatchEvent},
    object::{AnyObject, ObjectKey},
};

/// If a streaming list brings nothing new for this time, its end counts as lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What a list has brought so far, in the order of arrival.
#[derive(Debug)]
pub(super) struct Gathered {
    /// `None` for what the store holds already.
    objects: IndexMap<ObjectKey, Option<AnyItem>, RandomState>,
    /// Those without a readable key.
    nameless: Vec<AnyItem>,
    /// The version from which a watch brings all that pages may have missed; `None` before the first page.
    pub(super) version: Option<String>,
    /// When the last initial event came that brought an object, or this was made.
    grown: Instant,
    /// When the first event came that belongs to no list.
    disturbed: Option<Instant>,
}

impl Gathered {
    pub(super) fn new() -> Self {
        let (objects, nameless) = (IndexMap::default(), Vec::new());
        Self { objects, nameless, version: None, grown: Instant::now(), disturbed: None }
    }

    /// Adds a page: its items, and the version that it shows.
    ///
    /// Not every source reads all pages at one version. The list counts as of the lowest, which is the first unless the
    /// source went back: what changed between two pages comes again by the watch.
    pub(super) async fn add_page(&mut self, items: Vec<AnyItem>, version: String, store: &AnyStore) {
        let lowest = self.version.get_or_insert_with(|| version.clone());
        if compared(&version, Some(lowest)).is_some_and(Ordering::is_lt) {
            *lowest = version;
        }
        for item in items {
            self.put(item, store);
            // Others may run meanwhile.
            consume_budget().await;
        }
    }

    /// Adds an initial event; returns the version of the list if it is the one that ends it.
    pub(super) fn add_event(
        &mut self,
        event: WatchEvent<dyn AnyObject>,
        now: Instant,
        store: &AnyStore,
    ) -> Option<String> {
        match event {
            WatchEvent::Bookmark { resource_version, initial_events: InitialEventsMark::End } => {
                return Some(resource_version);
            }
            WatchEvent::Added(item) => {
                if self.put(item, store) {
                    self.grown = now;
                    return None;
                }
            }
            WatchEvent::Modified(item) => {
                self.put(item, store);
            }
            WatchEvent::Dropped(_) => {
                self.grown = now;
                return None;
            }
            WatchEvent::Deleted(item) => drop(item.key().and_then(|key| self.objects.shift_remove(&key))),
            WatchEvent::Bookmark { .. } | WatchEvent::Unexpected(_) | WatchEvent::Error(_) => {}
        }
        self.disturbed.get_or_insert(now);
        None
    }

    /// Returns when the end of the initial events is overdue.
    pub(super) fn overdue(&self) -> Instant {
        self.disturbed.map_or(self.grown, |disturbed| disturbed.min(self.grown)) + PATIENCE
    }

    /// Returns all that was gathered as one list.
    pub(super) fn into_list(self, version: String, epoch: Epoch) -> List<dyn AnyObject> {
        let mut list = List::new(Vec::with_capacity(self.objects.len()), version, epoch);
        for (key, item) in self.objects {
            match item {
                Some(item) => list.items.push(item),
                None => list.unchanged.push(key),
            }
        }
        list.items.extend(self.nameless);
        list
    }

    /// Keeps an item; returns whether it is new.
    fn put(&mut self, item: AnyItem, store: &AnyStore) -> bool {
        let (key, item) = match (store.unchanged(&item), item.key()) {
            (Some(key), _) => (key, None),
            (None, Some(key)) => (key, Some(item)),
            (None, None) => {
                self.nameless.push(item);
                return true;
            }
        };
        self.objects.insert(key, item).is_none()
    }
}

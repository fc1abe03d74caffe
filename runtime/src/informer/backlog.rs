//! What one handler has yet to hear, folded per object.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use super::change::{AddOrigin, Gone};
use crate::{
    object::{Object, ObjectKey},
    store::Held,
};

/// Most deletions that wait with their object's last state; later ones keep key, UID and owners.
const FULL_DELETIONS: usize = 10_000;

/// One call of a handler.
#[derive(Debug)]
pub(super) enum Notification<K> {
    Add(Held<K>, AddOrigin),
    Update { old: Held<K>, new: Held<K> },
    Delete(Gone<K>),
}

/// Holds at most one notification a live object, and one a deleted one, in the order of their first.
///
/// Add and update fold to an add, updates to one with the oldest old state, anything and a delete to the delete.
/// A delete is never swallowed, and the add of a successor stays apart from it.
pub(super) struct Backlog<K> {
    entries: BTreeMap<u64, Waiting<K>>,
    places: HashMap<ObjectKey, Places, foldhash::fast::FixedState>,
    next: u64,
    full_deletions: usize,
    /// The first number behind the initial content, once that is in.
    mark: Option<u64>,
}

struct Waiting<K> {
    key: ObjectKey,
    notification: Notification<K>,
    since: Instant,
}

/// Where a key's notifications stand.
#[derive(Default)]
struct Places {
    live: Option<u64>,
    deletes: Vec<u64>,
}

impl<K: Object> Backlog<K> {
    pub(super) fn new() -> Self {
        Self { entries: BTreeMap::new(), places: HashMap::default(), next: 0, full_deletions: 0, mark: None }
    }

    /// Adds a notification, or folds it into what waits.
    pub(super) fn push(&mut self, key: &ObjectKey, notification: Notification<K>, now: Instant) {
        match notification {
            Notification::Delete(gone) => self.push_delete(key, gone, now),
            Notification::Add(object, origin) => match self.live(key) {
                Some(live) => live.renew(object),
                None => self.append_live(key, Notification::Add(object, origin), now),
            },
            Notification::Update { old, new } => match self.live(key) {
                Some(live) => live.renew(new),
                None => self.append_live(key, Notification::Update { old, new }, now),
            },
        }
    }

    /// Takes what has waited longest.
    pub(super) fn pop(&mut self) -> Option<Notification<K>> {
        let (number, Waiting { key, notification, .. }) = self.entries.pop_first()?;
        if let Some(places) = self.places.get_mut(&key) {
            places.live = places.live.filter(|live| *live != number);
            places.deletes.retain(|delete| *delete != number);
            if places.live.is_none() && places.deletes.is_empty() {
                self.places.remove(&key);
            }
        }
        self.full_deletions -= usize::from(is_full_deletion(&notification));
        Some(notification)
    }

    /// Says that what has been pushed so far is the initial content.
    pub(super) fn mark_initial(&mut self) {
        self.mark.get_or_insert(self.next);
    }

    /// Tells whether nothing of the initial content waits any more.
    pub(super) fn initial_is_out(&self) -> bool {
        let first = self.entries.first_key_value().map(|(number, _)| *number);
        self.mark.is_some_and(|mark| first.is_none_or(|first| first >= mark))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Tells since when the oldest has waited.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(_, waiting)| waiting.since)
    }

    fn live(&mut self, key: &ObjectKey) -> Option<&mut Notification<K>> {
        let number = self.places.get(key)?.live?;
        self.entries.get_mut(&number).map(|waiting| &mut waiting.notification)
    }

    fn append_live(&mut self, key: &ObjectKey, notification: Notification<K>, now: Instant) {
        let number = self.append(key, notification, now);
        self.places.entry(key.clone()).or_default().live = Some(number);
    }

    fn append(&mut self, key: &ObjectKey, notification: Notification<K>, now: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, Waiting { key: key.clone(), notification, since: now });
        number
    }

    fn push_delete(&mut self, key: &ObjectKey, gone: Gone<K>, now: Instant) {
        let places = self.places.entry(key.clone()).or_default();
        let live = places.live.take();
        let told = |number: &&u64| match self.entries.get(number).map(|waiting| &waiting.notification) {
            Some(Notification::Delete(held)) => held.uid() == gone.uid(),
            _ => false,
        };
        let told = places.deletes.iter().find(told).copied();
        // Where the object's own notification stands, else where its earlier deletion does.
        let Some(number) = live.or(told) else {
            let notification = self.slimmed(gone);
            let number = self.append(key, notification, now);
            self.places.entry(key.clone()).or_default().deletes.push(number);
            return;
        };
        places.deletes.retain(|held| Some(*held) != told);
        places.deletes.push(number);
        if let Some(old) = told.filter(|told| *told != number).and_then(|told| self.entries.remove(&told)) {
            self.full_deletions -= usize::from(is_full_deletion(&old.notification));
        }
        let before = self.entries.get(&number).is_some_and(|waiting| is_full_deletion(&waiting.notification));
        self.full_deletions -= usize::from(before);
        let notification = self.slimmed(gone);
        if let Some(waiting) = self.entries.get_mut(&number) {
            waiting.notification = notification;
        }
    }

    /// Counts a deletion in; past the limit it keeps no more than names.
    fn slimmed(&mut self, gone: Gone<K>) -> Notification<K> {
        let gone = if self.full_deletions < FULL_DELETIONS { gone } else { gone.slim() };
        let notification = Notification::Delete(gone);
        self.full_deletions += usize::from(is_full_deletion(&notification));
        notification
    }
}

impl<K> Notification<K> {
    /// Brings a live object's notification up to date.
    fn renew(&mut self, object: Held<K>) {
        match self {
            Self::Add(held, _) | Self::Update { new: held, .. } => *held = object,
            Self::Delete(_) => {}
        }
    }
}

fn is_full_deletion<K>(notification: &Notification<K>) -> bool {
    matches!(notification, Notification::Delete(Gone::Final(_) | Gone::Inferred(_)))
}

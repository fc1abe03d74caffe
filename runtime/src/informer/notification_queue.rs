//! The pending calls of a handler in order, and the place of each key.

use std::{collections::VecDeque, hash::BuildHasher, sync::Arc};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use tokio::time::Instant;

use super::{change::AddOrigin, notification::Notification};
use crate::{
    object::{Object, ObjectKey},
    store::CachedObject,
};

/// How many slots are searched one by one; longer lines have an index.
const SHORT: usize = 8;

/// How much room an empty line keeps.
const ROOM: usize = 256;

/// Numbers what waits; what is taken out of turn leaves a hole, and holes are closed once they are the most.
///
/// Many additions may stand in it as one, shared with other handlers. They are in no index: when it is an object's
/// turn, what came for it meanwhile is folded in. So they come before all that was appended later.
pub(super) struct NotificationQueue<K> {
    /// Each with its number; numbers grow.
    slots: VecDeque<(u64, Slot<K>)>,
    /// The number of the next slot.
    next: u64,
    holes: usize,
    /// Where keys stand, as long as the line is not short.
    places: Option<HashTable<Place>>,
    hasher: RandomState,
    /// How many calls are waited for.
    waiting: usize,
    /// The number of the last slot with many additions.
    last_adds: Option<u64>,
}

enum Slot<K> {
    One(Notification<K>, Instant),
    Adds(Box<Adds<K>>),
    Hole,
}

struct Adds<K> {
    objects: Arc<[CachedObject<K>]>,
    told: usize,
    origin: AddOrigin,
    since: Instant,
}

struct Place {
    hash: u64,
    number: u64,
}

impl Place {
    fn of<K>(hasher: &RandomState, notification: &Notification<K>, number: u64) -> Self {
        Self { hash: hasher.hash_one(notification.key()), number }
    }

    fn put_into(self, places: &mut HashTable<Self>) {
        places.insert_unique(self.hash, self, |place| place.hash);
    }
}

impl<K: Object> NotificationQueue<K> {
    pub(super) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            next: 0,
            holes: 0,
            places: None,
            hasher: RandomState::default(),
            waiting: 0,
            last_adds: None,
        }
    }

    /// Puts one at the end.
    pub(super) fn append(&mut self, notification: Notification<K>, now: Instant) {
        let number = self.next;
        if let Some(places) = &mut self.places {
            Place::of(&self.hasher, &notification, number).put_into(places);
        }
        self.push(Slot::One(notification, now));
        self.waiting += 1;
        if self.places.is_none() && self.slots.len() > SHORT {
            #[cfg(test)]
            crate::counted::count(self.slots.len());
            let mut places = HashTable::new();
            let waiting =
                self.ones().map(|(number, notification)| Place::of(&self.hasher, notification, number));
            waiting.for_each(|place| place.put_into(&mut places));
            self.places = Some(places);
        }
    }

    /// Puts many additions at the end; nothing waits for their keys but deletions of others that bore the names.
    pub(super) fn append_adds(&mut self, objects: Arc<[CachedObject<K>]>, origin: AddOrigin, now: Instant) {
        if objects.is_empty() {
            return;
        }
        self.waiting += objects.len();
        self.last_adds = Some(self.next);
        self.push(Slot::Adds(Box::new(Adds { objects, told: 0, origin, since: now })));
    }

    fn push(&mut self, slot: Slot<K>) {
        self.slots.push_back((self.next, slot));
        self.next += 1;
    }

    /// Takes the first.
    pub(super) fn pop(&mut self) -> Option<Notification<K>> {
        let next = loop {
            #[cfg(test)]
            crate::counted::count(1);
            match self.slots.front_mut()? {
                (number, Slot::One(..)) => {
                    let number = *number;
                    break self.take(number);
                }
                (_, Slot::Adds(adds)) => {
                    let (object, origin) = (adds.objects.get(adds.told).cloned(), adds.origin);
                    adds.told += 1;
                    self.waiting -= 1;
                    if let Some(add) = object.and_then(|object| self.folded(object, origin)) {
                        break Some(add);
                    }
                }
                (_, Slot::Hole) => {}
            }
            self.trim();
        };
        self.trim();
        next
    }

    /// Says what an addition has become by what came later.
    fn folded(&mut self, object: CachedObject<K>, origin: AddOrigin) -> Option<Notification<K>> {
        let later: Vec<u64> = self.numbers(object.key()).collect();
        if later.iter().filter_map(|number| self.get(*number)).any(Notification::is_deletion) {
            return None;
        }
        let newer = later.first().and_then(|number| self.take(*number));
        let object = match newer {
            Some(Notification::Add(newer, _) | Notification::Update { new: newer, .. }) => newer,
            Some(Notification::Delete(_) | Notification::DeleteUnseen(_)) | None => object,
        };
        Some(Notification::Add(object, origin))
    }

    /// Takes one out of turn.
    pub(super) fn take(&mut self, number: u64) -> Option<Notification<K>> {
        let at = self.index_of(number)?;
        let (_, slot) = &mut self.slots[at];
        if !matches!(slot, Slot::One(..)) {
            return None;
        }
        let Slot::One(notification, _) = std::mem::replace(slot, Slot::Hole) else { return None };
        self.holes += 1;
        if let Some(places) = &mut self.places
            && let Ok(place) =
                places.find_entry(self.hasher.hash_one(notification.key()), |place| place.number == number)
        {
            place.remove();
        }
        self.waiting -= 1;
        if self.holes > SHORT && self.holes > self.slots.len() / 2 {
            #[cfg(test)]
            crate::counted::count(self.slots.len());
            self.slots.retain(|(_, slot)| !matches!(slot, Slot::Hole));
            self.slots.shrink_to(self.slots.len().max(ROOM));
            self.holes = 0;
        }
        Some(notification)
    }

    /// Finds a slot: as far from the first as its number says, or before that where holes were closed.
    fn index_of(&self, number: u64) -> Option<usize> {
        let (first, _) = self.slots.front()?;
        let at = usize::try_from(number.checked_sub(*first)?).ok()?;
        match self.slots.get(at) {
            Some((there, _)) if *there == number => Some(at),
            _ => self.slots.binary_search_by_key(&number, |(there, _)| *there).ok(),
        }
    }

    /// Shows all that waits by itself, with its number.
    fn ones(&self) -> impl Iterator<Item = (u64, &Notification<K>)> {
        self.slots.iter().filter_map(|(number, slot)| match slot {
            Slot::One(notification, _) => Some((*number, notification)),
            Slot::Adds(_) | Slot::Hole => None,
        })
    }

    /// Finds the numbers of all that waits for a key by itself.
    pub(super) fn numbers(&self, key: &ObjectKey) -> impl Iterator<Item = u64> {
        let found = self.places.as_ref().map(|places| places.iter_hash(self.hasher.hash_one(key)));
        let all = found.is_none().then(|| self.ones().map(|(number, _)| number));
        let indexed = found.into_iter().flatten().map(|place| place.number);
        let numbers = all.into_iter().flatten().chain(indexed);
        numbers.filter(move |number| {
            #[cfg(test)]
            crate::counted::count(1);
            self.get(*number).is_some_and(|notification| notification.key() == key)
        })
    }

    /// Shows the keys of all that waits by itself.
    pub(super) fn keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.ones().map(|(_, notification)| notification.key().clone())
    }

    pub(super) fn get(&self, number: u64) -> Option<&Notification<K>> {
        match &self.slots[self.index_of(number)?].1 {
            Slot::One(notification, _) => Some(notification),
            Slot::Adds(_) | Slot::Hole => None,
        }
    }

    /// Finds one to change what it says about its key.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Notification<K>> {
        let at = self.index_of(number)?;
        match &mut self.slots[at].1 {
            Slot::One(notification, _) => Some(notification),
            Slot::Adds(_) | Slot::Hole => None,
        }
    }

    /// Drops what was handed out, and memory that is no longer needed.
    fn trim(&mut self) {
        loop {
            match self.slots.front() {
                Some((_, Slot::Hole)) => self.holes -= 1,
                Some((_, Slot::Adds(adds))) if adds.told == adds.objects.len() => {}
                Some((_, Slot::One(..) | Slot::Adds(_))) => return,
                None => break,
            }
            self.slots.pop_front();
        }
        self.places = None;
        if self.slots.capacity() > ROOM {
            self.slots.shrink_to(ROOM);
        }
    }

    /// Returns the number of the first that waits; of what comes next, if nothing does.
    pub(super) fn start(&self) -> u64 {
        self.slots.front().map_or(self.next, |(number, _)| *number)
    }

    /// Returns the number of what comes next.
    pub(super) fn end(&self) -> u64 {
        self.next
    }

    /// Counts what is held in memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns the number of the last slot with many additions, if any of them waits.
    pub(super) fn last_adds(&self) -> Option<u64> {
        self.last_adds.filter(|number| *number >= self.start())
    }

    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Returns since when the first has waited.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.slots.iter().find_map(|(_, slot)| match slot {
            Slot::One(_, since) => Some(*since),
            Slot::Adds(adds) => Some(adds.since),
            Slot::Hole => None,
        })
    }
}

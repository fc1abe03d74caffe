//! What the queue remembers of each key, where to find it, and the lines of those that are ready.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::clock::At;
use super::delay::Scheduled;
use super::slab::{Id, Linked, Links, List, Slab};
use super::types::Priority;

/// What a key must be: cheap to clone, hashable, free to travel.
pub trait QueueKey: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> QueueKey for K {}

/// Where a key stands. It is in one place at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: remembered for its failures alone, or about to move.
    Idle,
    /// Nowhere, and only a real change moves it.
    Terminal,
    /// In the delay heap.
    Delayed,
    /// A retry whose back-off is over, waiting for a token.
    AwaitsToken,
    /// In line for a worker.
    Ready,
    /// With a worker.
    InFlight(Meanwhile),
    /// In the delay heap until its hold is over, whatever else is said of it.
    Held,
}

/// What asked for the run that is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cause {
    /// A change, a touch or a timer.
    #[default]
    Plain,
    /// A failure: pays for a retry token.
    Failure,
    /// Nothing, after a terminal failure.
    Terminal,
}

/// What came while the key was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    Nothing,
    Touched,
    Added,
}

#[derive(Debug)]
pub(super) struct Entry<K> {
    pub(super) key: K,
    /// Most keys have none: it is worth an allocation of its own.
    setback: Option<Box<Setback>>,
    /// Not before this: the merged timer. In flight: a timer asked for meanwhile, or never.
    pub(super) delay: At,
    /// Since when it is ready, or in flight; never if no times are kept.
    pub(super) since: At,
    /// In the delay heap: `before` is its node there.
    in_line: Links,
    /// Among all that are ready, or among those in flight.
    by_arrival: Links,
    hash: Hash32,
    /// When it lined up, as it compares with lists.
    pub(super) arrival: Arrival,
    pub(super) place: Place,
    /// The highest that was asked for the next run.
    pub(super) priority: Priority,
}

/// What failures and holds leave with a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setback {
    /// Not ready before this: the back-off.
    pub(super) gate: At,
    /// What a real change lowers the gate to.
    pub(super) floor: At,
    /// Not handed out before this, whatever else is said; start unless held.
    pub(super) held: At,
    pub(super) failures: u32,
    /// How many runs in a row ended as retries that count for nothing.
    pub(super) uncounted: u8,
    pub(super) cause: Cause,
    /// Whether a hold interrupts its wait for a worker, which goes on afterwards.
    pub(super) interrupted: bool,
}

impl Setback {
    const NOTHING: Self = Self {
        gate: At::START,
        floor: At::START,
        held: At::START,
        failures: 0,
        uncounted: 0,
        cause: Cause::Plain,
        interrupted: false,
    };
}

impl<K> Entry<K> {
    fn new(key: K, hash: Hash32) -> Self {
        Self {
            key,
            setback: None,
            delay: At::NEVER,
            since: At::NEVER,
            in_line: Links::ALONE,
            by_arrival: Links::ALONE,
            hash,
            arrival: Arrival::default(),
            place: Place::Idle,
            priority: Priority::Low,
        }
    }

    /// Returns what failures and holds left with the key, if anything.
    #[inline]
    pub(super) fn setback(&self) -> &Setback {
        self.setback.as_deref().unwrap_or(&Setback::NOTHING)
    }

    /// Returns it to be changed for the worse.
    pub(super) fn set_back(&mut self) -> &mut Setback {
        self.setback.get_or_insert_with(|| Box::new(Setback::NOTHING))
    }

    /// Changes it for the better, where there is any; it is gone once nothing is left of it.
    #[inline]
    pub(super) fn relieve(&mut self, relieve: impl FnOnce(&mut Setback)) {
        if let Some(setback) = &mut self.setback {
            relieve(setback);
            if **setback == Setback::NOTHING {
                self.setback = None;
            }
        }
    }

    /// Forgets all that asked for the run that starts now, or for none.
    #[inline]
    pub(super) fn clear_schedule(&mut self) {
        self.delay = At::NEVER;
        self.priority = Priority::Low;
        self.relieve(|setback| {
            (setback.gate, setback.floor, setback.cause) = (At::START, At::START, Cause::Plain);
        });
    }

    /// Forgets a terminal failure, unless a timer is to run the key anyway.
    pub(super) fn clear_schedule_unless_asked(&mut self) {
        if self.delay == At::NEVER {
            self.clear_schedule();
        }
    }

    /// Takes note of a real change: no delay, and the floor instead of the back-off.
    pub(super) fn expedite(&mut self) {
        self.delay = At::START;
        self.relieve(|setback| {
            setback.gate = setback.gate.min(setback.floor);
            setback.cause = Cause::Plain;
        });
    }

    /// Takes note of a success: no failures, no back-off.
    #[inline]
    pub(super) fn succeed(&mut self) {
        self.relieve(|setback| {
            setback.failures = 0;
            (setback.gate, setback.floor, setback.cause) = (At::START, At::START, Cause::Plain);
        });
    }

    /// Takes note that the key is to run at once, whatever else was said.
    pub(super) fn skip_backoff(&mut self) {
        self.delay = At::START;
        self.relieve(|setback| (setback.gate, setback.cause) = (At::START, Cause::Plain));
    }

    /// Takes note that the hold is over.
    pub(super) fn let_go(&mut self) {
        self.relieve(|setback| setback.held = At::START);
    }

    /// Takes note that the key lines up. Answers whether it goes on with a wait that a hold interrupted.
    #[inline]
    pub(super) fn resume_wait(&mut self) -> bool {
        let interrupted = self.setback().interrupted;
        self.relieve(|setback| setback.interrupted = false);
        interrupted
    }

    /// Returns when the key is ready: the later of delay and back-off.
    #[inline]
    pub(super) fn due(&self) -> At {
        self.delay.max(self.setback().gate)
    }
}

impl<K> Scheduled for Entry<K> {
    #[inline]
    fn node(&self) -> u32 {
        self.in_line.before
    }

    #[inline]
    fn node_mut(&mut self) -> &mut u32 {
        &mut self.in_line.before
    }
}

impl<K> Linked<InLine> for Entry<K> {
    #[inline]
    fn links(&self) -> Links {
        self.in_line
    }

    #[inline]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.in_line
    }
}

impl<K> Linked<ByArrival> for Entry<K> {
    #[inline]
    fn links(&self) -> Links {
        self.by_arrival
    }

    #[inline]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.by_arrival
    }
}

/// As much of a hash as is worth its memory in each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hash32(u32);

impl Hash32 {
    #[inline]
    const fn of(hash: u64) -> Self {
        Self((hash ^ (hash >> 32)) as u32)
    }

    /// The table's hash: it looks at both ends.
    #[inline]
    const fn spread(self) -> u64 {
        (self.0 as u64) << 32 | self.0 as u64
    }
}

/// All known keys, each held once: entries in a slab, found through a table of their numbers.
pub(super) struct Entries<K> {
    pub(super) slab: Slab<Entry<K>>,
    table: HashTable<Id>,
    hasher: RandomState,
}

impl<K: QueueKey> Entries<K> {
    pub(super) fn new() -> Self {
        Self { slab: Slab::new(), table: HashTable::new(), hasher: RandomState::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slab.capacity().max(self.table.capacity())
    }

    pub(super) fn find(&self, key: &K) -> Option<Id> {
        let hash = Hash32::of(self.hasher.hash_one(key));
        self.table
            .find(hash.spread(), |id| self.slab[*id].hash == hash && self.slab[*id].key == *key)
            .copied()
    }

    #[inline]
    pub(super) fn find_or_insert(&mut self, key: K) -> Id {
        let Self { slab, table, hasher } = self;
        let hash = Hash32::of(hasher.hash_one(&key));
        if let Some(id) = table.find(hash.spread(), |id| slab[*id].hash == hash && slab[*id].key == key) {
            return *id;
        }
        let id = slab.insert(Entry::new(key, hash));
        table.insert_unique(hash.spread(), id, |id| slab[*id].hash.spread());
        id
    }

    #[inline]
    pub(super) fn remove(&mut self, id: Id) {
        if let Ok(found) = self.table.find_entry(self.slab[id].hash.spread(), |known| *known == id) {
            found.remove();
        }
        drop(self.slab.remove(id));
        if self.slab.len() == 0 && self.table.capacity() > KEPT_WHEN_EMPTY {
            self.table = HashTable::new();
        }
    }
}

/// Once empty, a table that grew past this gives its memory back.
const KEPT_WHEN_EMPTY: usize = 2048;

/// Stands for an entry's place in the line of its priority, or of those that await what it awaits.
#[derive(Debug)]
pub(super) enum InLine {}

/// Stands for an entry's place among all that are ready.
#[derive(Debug)]
pub(super) enum ByArrival {}

/// When something lined up, counted in lists: what lined up earlier has a lower or an equal number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival(u16);

impl Arrival {
    /// Returns when what lines up after one more list does so.
    pub(super) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether what arrived then stands behind a list of that number.
    #[inline]
    pub(super) const fn is_behind(self, list: Self) -> bool {
        // numbers start over; nothing stays in line for 32,768 lists
        (self.0.wrapping_sub(list.0) as i16) > 0
    }
}

/// One grant of so many goes to whoever has waited longest.
const AGED: u8 = 8;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    Of(Id),
    /// The first key of a shared list.
    OfList,
}

/// The keys that are ready, each with an entry.
#[derive(Debug)]
pub(super) struct ReadyQueue {
    bands: [List<InLine>; Priority::ALL.len()],
    all: List<ByArrival>,
    /// Grants since the last that went by arrival.
    grants: u8,
}

impl ReadyQueue {
    pub(super) const fn new() -> Self {
        Self { bands: [const { List::new() }; 3], all: List::new(), grants: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len_of(&self, priority: Priority) -> usize {
        self.bands[priority.rank()].len()
    }

    /// Walks the line of a priority.
    pub(super) fn line<'a, K>(
        &self,
        priority: Priority,
        slab: &'a Slab<Entry<K>>,
    ) -> impl Iterator<Item = &'a Entry<K>> {
        self.bands[priority.rank()].iter(slab)
    }

    /// ReadyQueue an entry up at the back of its priority's line.
    #[inline]
    pub(super) fn push<K>(&mut self, slab: &mut Slab<Entry<K>>, id: Id, now: Arrival) {
        slab[id].arrival = now;
        self.bands[slab[id].priority.rank()].push_back(slab, id);
        self.all.push_back(slab, id);
    }

    /// Takes the one whose turn it is, unless that is one of a list that came then.
    #[inline]
    pub(super) fn pop<K>(&mut self, slab: &mut Slab<Entry<K>>, list: Option<Arrival>) -> Option<Pick> {
        if self.is_empty() {
            return list.map(|_| self.grant(Pick::OfList));
        }
        let by_arrival = self.grants + 1 == AGED;
        let id = match by_arrival {
            true => self.all.first()?,
            false => self.bands.iter().find_map(List::first)?,
        };
        let entry = &slab[id];
        let yields = by_arrival || entry.priority == Priority::Low;
        if list.is_some_and(|list| yields && entry.arrival.is_behind(list)) {
            return Some(self.grant(Pick::OfList));
        }
        self.remove(slab, id);
        Some(self.grant(Pick::Of(id)))
    }

    fn grant(&mut self, turn: Pick) -> Pick {
        self.grants = (self.grants + 1) % AGED;
        turn
    }

    #[inline]
    pub(super) fn remove<K>(&mut self, slab: &mut Slab<Entry<K>>, id: Id) {
        self.bands[slab[id].priority.rank()].remove(slab, id);
        self.all.remove(slab, id);
    }

    /// Moves an entry to the back of a higher line; how long it has waited still counts.
    pub(super) fn raise<K>(&mut self, slab: &mut Slab<Entry<K>>, id: Id, priority: Priority) {
        self.bands[slab[id].priority.rank()].remove(slab, id);
        slab[id].priority = priority;
        self.bands[priority.rank()].push_back(slab, id);
    }
}

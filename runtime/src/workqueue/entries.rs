//! What the queue remembers of each key, and where to find it.

use std::hash::{BuildHasher, Hash};
use std::ops::{Index, IndexMut};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use slab::Slab;

use super::clock::At;
use super::types::Priority;

/// What a key must be: cheap to clone, hashable, and free to move between threads.
pub trait QueueKey: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> QueueKey for K {}

/// Where a key is. It is in one place at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryPlace {
    /// In no line: remembered only for its failures, or about to move.
    Idle,
    /// Among the timers.
    Waits(EntryWait),
    /// A retry whose back-off is over. It waits for a token.
    AwaitsToken,
    /// In line for a worker.
    Ready,
    /// With a worker.
    InFlight(Meanwhile),
}

/// Why a key is among the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryWait {
    /// Its delay or its back-off is not over.
    Delayed,
    /// Its hold is not over, whatever else is asked for it.
    Held,
    /// It failed terminally. Only a real change moves it.
    Terminal,
}

impl EntryWait {
    /// How many there are.
    pub(super) const COUNT: usize = 3;
}

/// What asked for the next run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunCause {
    /// A change, a touch or a timer.
    #[default]
    Plain,
    /// A failure: the run pays for a retry token.
    Failure,
    /// Nothing, after a terminal failure.
    Terminal,
}

/// What was asked for while the key was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meanwhile {
    Nothing,
    Touched,
    Added,
}

#[derive(Debug)]
pub(super) struct KeyEntry<K> {
    pub(super) key: K,
    /// Most keys have none, so it has an allocation of its own.
    setback: Option<Box<Setback>>,
    /// The merged timer: not ready before this. In flight: a timer that was asked for meanwhile, or never.
    pub(super) delay: At,
    /// Ready or in flight: since when, or never if no times are kept. Delayed or held: until when.
    pub(super) at: At,
    /// The number of its [`Ticket`].
    pub(super) number: u32,
    pub(super) place: EntryPlace,
    /// The highest priority that was asked for the next run.
    pub(super) priority: Priority,
}

/// What failures and holds leave with a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setback {
    /// The back-off: not ready before this.
    pub(super) gate: At,
    /// What a real change lowers the gate to.
    pub(super) floor: At,
    /// Not handed out before this, whatever else is asked for; start unless held.
    pub(super) held: At,
    pub(super) failures: u32,
    /// How many runs in a row ended as retries that do not count.
    pub(super) uncounted: u8,
    pub(super) cause: RunCause,
}

impl Setback {
    const NOTHING: Self = Self {
        gate: At::START,
        floor: At::START,
        held: At::START,
        failures: 0,
        uncounted: 0,
        cause: RunCause::Plain,
    };

    /// Forgets the back-off, but not the failures.
    pub(super) fn end_backoff(&mut self) {
        (self.gate, self.floor, self.cause) = (At::START, At::START, RunCause::Plain);
    }
}

impl<K> KeyEntry<K> {
    fn new(key: K) -> Self {
        Self {
            key,
            setback: None,
            delay: At::NEVER,
            at: At::NEVER,
            number: NO_NUMBER,
            place: EntryPlace::Idle,
            priority: Priority::Low,
        }
    }

    /// Returns what failures and holds left with the key, if anything.
    #[inline]
    pub(super) fn setback(&self) -> &Setback {
        self.setback.as_deref().unwrap_or(&Setback::NOTHING)
    }

    /// Returns it for a change that adds something.
    pub(super) fn set_back(&mut self) -> &mut Setback {
        self.setback.get_or_insert_with(|| Box::new(Setback::NOTHING))
    }

    /// Changes it, if there is any, and frees it once nothing is left in it.
    #[inline]
    pub(super) fn relieve(&mut self, relieve: impl FnOnce(&mut Setback)) {
        if let Some(setback) = &mut self.setback {
            relieve(setback);
            if **setback == Setback::NOTHING {
                self.setback = None;
            }
        }
    }

    /// Forgets what asked for the run that starts now, or that does not come.
    #[inline]
    pub(super) fn clear_schedule(&mut self) {
        self.delay = At::NEVER;
        self.priority = Priority::Low;
        self.relieve(Setback::end_backoff);
    }

    /// Records a real change: no delay, and the floor instead of the back-off.
    #[inline]
    pub(super) fn expedite(&mut self) {
        self.delay = At::START;
        self.relieve(|setback| {
            setback.gate = setback.gate.min(setback.floor);
            setback.cause = RunCause::Plain;
        });
    }

    /// Records a success: no failures, no back-off.
    #[inline]
    pub(super) fn succeed(&mut self) {
        self.relieve(|setback| {
            setback.end_backoff();
            setback.failures = 0;
        });
    }

    /// Records that the key is to run at once, without delay and back-off.
    pub(super) fn skip_backoff(&mut self) {
        self.delay = At::START;
        self.relieve(Setback::end_backoff);
    }

    /// Records that the hold is over.
    #[inline]
    pub(super) fn let_go(&mut self) {
        self.relieve(|setback| setback.held = At::START);
    }

    /// Says whether the key failed terminally, and nothing has asked for a run since.
    pub(super) fn is_terminal(&self) -> bool {
        self.delay == At::NEVER && self.setback().cause == RunCause::Terminal
    }

    /// Returns what the key waits for and until when; `None` if nothing is to happen to it.
    ///
    /// A key that something asks for waits for the latest of its delay, its back-off and its hold.
    #[inline]
    pub(super) fn wait(&self) -> Option<(EntryWait, At)> {
        let Setback { gate, held, .. } = *self.setback();
        match self.delay {
            At::NEVER if held > At::START => Some((EntryWait::Held, held)),
            At::NEVER => self.is_terminal().then_some((EntryWait::Terminal, At::NEVER)),
            delay if held > delay.max(gate) => Some((EntryWait::Held, held)),
            delay => Some((EntryWait::Delayed, delay.max(gate))),
        }
    }
}

/// The place of an entry in [`Entries`]. Places are used again.
pub(super) type Id = u32;

/// Orders a key among others. Each has a number of its own: a ticket whose key has another number by now is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) number: u32,
    pub(super) id: Id,
}

/// No ticket has this number.
pub(super) const NO_NUMBER: u32 = 0;

/// All known keys, each held once, in a slab. A table finds them by key.
pub(super) struct Entries<K> {
    pub(super) slab: Slab<KeyEntry<K>>,
    pub(super) table: HashTable<Id>,
    hasher: RandomState,
    last_number: u32,
}

impl<K: QueueKey> Entries<K> {
    pub(super) fn new() -> Self {
        Self {
            slab: Slab::new(),
            table: HashTable::new(),
            hasher: RandomState::default(),
            last_number: NO_NUMBER,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn find(&self, key: &K) -> Option<Id> {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |id| self[*id].key == *key).copied()
    }

    /// Finds or makes the entry of a key; a new one is shown to a function.
    pub(super) fn find_or_insert(&mut self, key: K, new: impl FnOnce(Id, &K)) -> Id {
        let Self { slab, table, hasher, .. } = self;
        let hash = hasher.hash_one(&key);
        let is_key = |id: &Id| slab[*id as usize].key == key;
        match table.entry(hash, is_key, |id| hasher.hash_one(&slab[*id as usize].key)) {
            TableEntry::Occupied(known) => *known.get(),
            TableEntry::Vacant(vacant) => {
                let id = slab.vacant_key() as Id;
                new(id, &key);
                slab.insert(KeyEntry::new(key));
                vacant.insert(id);
                id
            }
        }
    }

    pub(super) fn remove(&mut self, id: Id) {
        let entry = self.slab.remove(id as usize);
        if let Ok(known) = self.table.find_entry(self.hasher.hash_one(&entry.key), |known| *known == id) {
            known.remove();
        }
        if self.slab.is_empty() && self.slab.capacity() > KEPT_WHEN_EMPTY {
            (self.slab, self.table) = (Slab::new(), HashTable::new());
        }
    }

    /// Gives an entry a new ticket, and voids the one it had.
    #[inline]
    pub(super) fn issue(&mut self, id: Id) -> Ticket {
        self.last_number = self.last_number.wrapping_add(1).max(NO_NUMBER + 1);
        self[id].number = self.last_number;
        Ticket { number: self.last_number, id }
    }

    /// Returns how many tickets were issued after this one.
    #[inline]
    pub(super) fn age(&self, ticket: Ticket) -> u32 {
        self.last_number.wrapping_sub(ticket.number)
    }

    /// Returns the entry of a ticket, unless the ticket is void.
    #[inline]
    pub(super) fn of(&self, ticket: Ticket) -> Option<&KeyEntry<K>> {
        self.slab.get(ticket.id as usize).filter(|entry| entry.number == ticket.number)
    }
}

impl<K> Index<Id> for Entries<K> {
    type Output = KeyEntry<K>;

    #[inline]
    fn index(&self, id: Id) -> &KeyEntry<K> {
        &self.slab[id as usize]
    }
}

impl<K> IndexMut<Id> for Entries<K> {
    #[inline]
    fn index_mut(&mut self, id: Id) -> &mut KeyEntry<K> {
        &mut self.slab[id as usize]
    }
}

/// Once empty, a collection that grew past this gives its memory back.
pub(super) const KEPT_WHEN_EMPTY: usize = 1024;

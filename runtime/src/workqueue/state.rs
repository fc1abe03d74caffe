//! What the queue decides: pure, with the time passed in.

use std::sync::Arc;
use std::time::Duration;

mod moves;
mod reads;

use super::clock::{At, Clock};
use super::delay::DelayHeap;
use super::entries::{
    Arrival, ByArrival, Cause, Entries, Entry, InLine, Meanwhile, Pick, Place, QueueKey, ReadyQueue, Setback,
};
use super::rate_limit::{Bucket, Taken};
use super::rate_limiter::RateLimiter;
use super::slab::{Id, List};
use super::stats::Stats;
use super::types::{ConfigError, DEFAULT_FLOOR, Outcome, Priority, WorkQueueConfig};
use crate::key_list::{KeyList, ListedKeys};

/// Most shared lists at once: each has to be asked about every key that the queue does not know.
pub(super) const MOST_LISTS: usize = 4;

/// What the queue notes of a shared list whose keys are ready, at low priority.
#[derive(Clone, Copy, Debug)]
struct ListMark {
    /// Since when its keys are ready.
    since: At,
    arrival: Arrival,
}

/// A key that was handed out.
#[derive(Debug)]
pub(super) struct Grant<K> {
    pub(super) id: Id,
    pub(super) key: K,
    pub(super) attempt: u32,
    pub(super) priority: Priority,
    pub(super) stood: Stood,
    /// When it was handed out; never where no times are kept.
    pub(super) at: At,
    /// Whether a token of the rate is set aside for it, to be paid by its start.
    pub(super) is_unpaid: bool,
}

/// Which key was handed out: the rest of its [`Grant`] can be read while it is in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) id: Id,
    priority: Priority,
    stood: Stood,
    at: At,
}

/// Where a key stood before it was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stood {
    InLine,
    /// In a shared list, and nothing else was said of it.
    OnList,
}

/// What there is for a worker.
#[derive(Debug)]
pub(super) enum Next {
    Run(Turn),
    /// Nothing yet: [`State::due`] says until when.
    Wait,
    /// Nothing any more.
    Ended,
}

/// When the token of a run is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pays {
    AtHandOut,
    /// By who takes the key: once its run starts, or never.
    AtStart,
}

/// Whether the queue takes keys, and what it still hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    /// Refuses keys, hands out what is ready.
    Draining,
    /// Refuses keys, hands out nothing.
    Discarding,
}

/// The one authority on every key's state.
///
/// Every known key stands in one [`Place`] at a time.
pub(super) struct State<K> {
    entries: Entries<K>,
    ready: ReadyQueue,
    /// What is ready without an entry.
    listed: ListedKeys<K, ListMark>,
    /// When what lines up now does so, as it compares with lists.
    arrival: Arrival,
    awaiting_token: List<InLine>,
    /// Those in flight, which stand in no line.
    flights: List<ByArrival>,
    /// Those that ended terminally.
    terminal: List<InLine>,
    delayed: DelayHeap,
    rate: Option<Bucket>,
    /// When the rate is paid.
    pays: Pays,
    retry_rate: Option<Bucket>,
    backoff: Arc<dyn RateLimiter>,
    /// What the limiter asks for a first failure, once it was asked.
    first_step: Option<Duration>,
    floor: Duration,
    mode: Mode,
    /// How many of the heap's are held.
    held: usize,
    /// Of those in flight: how many run again, as far as is known.
    again: usize,
    stats: Stats,
}

impl<K: QueueKey> State<K> {
    pub(super) fn new(config: WorkQueueConfig) -> Result<Self, ConfigError> {
        let mut state = Self::unlimited(config.backoff);
        state.floor = config.floor;
        state.rate = config.rate.map(Bucket::new).transpose().map_err(ConfigError::Rate)?;
        state.retry_rate = config.retry_rate.map(Bucket::new).transpose().map_err(ConfigError::RetryRate)?;
        Ok(state)
    }

    /// A state without rates, of which nothing can be refused.
    pub(super) fn unlimited(backoff: Arc<dyn RateLimiter>) -> Self {
        Self {
            entries: Entries::new(),
            ready: ReadyQueue::new(),
            listed: ListedKeys::new(),
            arrival: Arrival::default(),
            awaiting_token: List::new(),
            flights: List::new(),
            terminal: List::new(),
            delayed: DelayHeap::default(),
            rate: None,
            pays: Pays::AtHandOut,
            retry_rate: None,
            backoff,
            first_step: None,
            floor: DEFAULT_FLOOR,
            mode: Mode::Open,
            held: 0,
            again: 0,
            stats: Stats::default(),
        }
    }

    // ---- what callers ask for ----

    /// Something really changed.
    #[inline]
    pub(super) fn add(&mut self, key: K, priority: Priority, clock: &impl Clock) {
        if self.stays_listed(&key, priority, clock) {
            return;
        }
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        let entry = &mut self.entries.slab[id];
        match entry.place {
            Place::Ready => {}
            Place::InFlight(_) => self.mark(id, Meanwhile::Added),
            Place::Idle => self.line_up(id, clock),
            Place::Held => entry.expedite(),
            Place::Terminal | Place::Delayed | Place::AwaitsToken => {
                entry.expedite();
                self.settle(id, clock);
            }
        }
    }

    /// Nothing changed, but an idle key is to run.
    pub(super) fn touch(&mut self, key: K, priority: Priority, clock: &impl Clock) {
        if self.stays_listed(&key, priority, clock) {
            return;
        }
        let Some(id) = self.admit(key, clock) else { return };
        match self.standing(id, clock) {
            Place::Idle | Place::Ready => self.raise(id, priority),
            // a timer that was asked for meanwhile is not shortened
            Place::InFlight(_) if self.entries.slab[id].delay == At::NEVER => {
                self.raise(id, priority);
                self.mark(id, Meanwhile::Touched);
            }
            _ => return,
        }
        match self.entries.slab[id].place {
            Place::Idle => self.line_up(id, clock),
            Place::Held => self.entries.slab[id].delay = At::START,
            _ => {}
        }
    }

    /// The key is to run after a delay, at the latest.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, priority: Priority, clock: &impl Clock) {
        if self.stays_listed(&key, priority, clock) {
            return;
        }
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        let standing = self.standing(id, clock);
        // what is due already keeps its turn
        if matches!(standing, Place::Ready | Place::AwaitsToken) {
            return;
        }
        let entry = &mut self.entries.slab[id];
        if standing == Place::Terminal {
            entry.relieve(|setback| setback.gate = setback.floor);
        }
        entry.delay = entry.delay.min(clock.now().after(delay));
        self.settle_unless_away(id, clock);
    }

    /// The key failed once more, and is to run when its back-off is over.
    pub(super) fn add_rate_limited(&mut self, key: K, priority: Priority, clock: &impl Clock) {
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        self.stats.retries += 1;
        let standing = self.standing(id, clock);
        if standing == Place::Ready {
            let failures = &mut self.entries.slab[id].set_back().failures;
            *failures = failures.saturating_add(1);
            return;
        }
        if standing == Place::Terminal {
            self.entries.slab[id].relieve(|setback| setback.gate = At::START);
        }
        let until = self.fail(id, Duration::ZERO, clock);
        let entry = &mut self.entries.slab[id];
        entry.delay = entry.delay.min(until);
        self.settle_unless_away(id, clock);
    }

    /// Clears a key's failures. What is scheduled stays so.
    pub(super) fn forget(&mut self, key: &K) {
        let Some(id) = self.entries.find(key) else { return };
        let entry = &mut self.entries.slab[id];
        entry.relieve(|setback| setback.failures = 0);
        match entry.place {
            Place::Idle | Place::Terminal => {
                self.leave(id);
                self.entries.remove(id);
            }
            Place::Held if entry.setback().cause == Cause::Terminal => entry.clear_schedule_unless_asked(),
            _ => {}
        }
    }

    /// Refuses keys from now on; drops what is not ready.
    pub(super) fn shut_down(&mut self, clock: &impl Clock) {
        if self.mode == Mode::Open {
            self.promote(clock);
            self.mode = Mode::Draining;
            self.drop_entries(|place| matches!(place, Place::Delayed | Place::AwaitsToken | Place::Held));
        }
    }

    /// Refuses keys from now on; drops all that is not in flight.
    pub(super) fn discard(&mut self) {
        self.mode = Mode::Discarding;
        self.drop_entries(|place| !matches!(place, Place::InFlight(_)));
        self.listed = ListedKeys::new();
    }

    /// Takes keys again, as if none had been known; buckets are as empty as they were left.
    pub(super) fn reopen(&mut self) {
        self.drop_entries(|place| !matches!(place, Place::InFlight(_)));
        self.mode = Mode::Open;
    }

    // ---- what workers take and bring back ----

    /// Hands out the next key, if one is ready and the rate has a token for it.
    #[inline]
    pub(super) fn take(&mut self, clock: &impl Clock) -> Next {
        self.promote(clock);
        if self.ready() == 0 {
            return if self.ended() { Next::Ended } else { Next::Wait };
        }
        let token = self.rate.as_mut().map(|rate| match self.pays {
            Pays::AtHandOut => rate.take(clock.now()),
            Pays::AtStart => rate.reserve(clock.now()),
        });
        if token == Some(Taken::No) {
            return Next::Wait;
        }
        let list = self.first_list();
        let turn = self.ready.pop(&mut self.entries.slab, list);
        let (id, stood) = match turn {
            Some(Pick::Of(id)) => (Some(id), Stood::InLine),
            Some(Pick::OfList) => (self.pop_listed(), Stood::OnList),
            None => (None, Stood::InLine),
        };
        let Some(id) = id else { return Next::Wait };
        self.flights.push_back(&mut self.entries.slab, id);
        let entry = &mut self.entries.slab[id];
        let priority = entry.priority;
        entry.clear_schedule();
        entry.place = Place::InFlight(Meanwhile::Nothing);
        let at = self.stats.handed_out(entry.since, clock);
        entry.since = at;
        Next::Run(Turn { id, priority, stood, at })
    }

    /// Returns all that is to be said of a key that was just handed out.
    #[inline]
    pub(super) fn grant(&self, Turn { id, priority, stood, at }: Turn) -> Grant<K> {
        let entry = &self.entries.slab[id];
        let attempt = entry.setback().failures.saturating_add(1);
        let is_unpaid = self.pays_at_start();
        Grant { id, key: entry.key.clone(), attempt, priority, stood, at, is_unpaid }
    }
}

impl<K: QueueKey> State<K> {
    /// Leaves it to those who take keys to pay the rate, by each start.
    pub(super) fn pay_at_start(&mut self) {
        self.pays = Pays::AtStart;
    }

    pub(super) fn pays_at_start(&self) -> bool {
        self.pays == Pays::AtStart && self.rate.is_some()
    }

    /// Changes what is set aside, paid and claimed of the rate, if there is one.
    pub(super) fn rate_mut(&mut self) -> Option<&mut Bucket> {
        self.rate.as_mut()
    }

    /// Sets a token of the rate aside for a run that claims one; `None` if no start is to come any more.
    pub(super) fn grant_claim(&mut self, now: At) -> Option<Result<(), At>> {
        match (self.mode, self.rate.as_mut()) {
            (Mode::Discarding, _) => None,
            (_, Some(rate)) => Some(rate.grant(now)),
            (_, None) => Some(Ok(())),
        }
    }
}

impl<K: QueueKey> State<K> {
    /// Something may have changed of all these: as if each was added in turn, at low priority.
    pub(super) fn add_list(&mut self, list: &Arc<KeyList<K>>, clock: &impl Clock) {
        if self.mode != Mode::Open {
            return;
        }
        self.promote(clock);
        if self.listed.lists() == MOST_LISTS {
            return list.keys().for_each(|key| self.add(key.clone(), Priority::Low, clock));
        }
        // What is known already has a place of its own, which this may change.
        let known: Vec<&K> = match self.entries.len() {
            0 => Vec::new(),
            _ => list.keys().filter(|key| self.entries.find(key).is_some()).collect(),
        };
        let Self { entries, listed, stats, arrival, .. } = self;
        let unknown = |key: &K| known.is_empty() || entries.find(key).is_none();
        let mark = ListMark { since: stats.now(clock), arrival: *arrival };
        let added = listed.push(list.clone(), mark, unknown);
        if added > 0 {
            *arrival = arrival.next();
        }
        stats.adds += added as u64;
        known.into_iter().for_each(|key| self.add(key.clone(), Priority::Low, clock));
    }

    /// Whether a key stands on a list, and what is asked at this priority is to leave it there.
    #[inline]
    pub(super) fn stays_listed(&mut self, key: &K, priority: Priority, clock: &impl Clock) -> bool {
        let stays = priority == Priority::Low && !self.listed.is_empty() && self.listed.mark(key).is_some();
        if stays && self.mode == Mode::Open {
            self.promote(clock);
        }
        stays
    }

    /// Finds the entry of a key, making one where it stands on a list: it then stands at the back of its line.
    #[inline]
    pub(super) fn find(&mut self, key: &K) -> Option<Id> {
        self.entries.find(key).or_else(|| (!self.listed.is_empty()).then(|| self.unlist(key)).flatten())
    }

    /// Gives a key of a list an entry and a place of its own. Kept out of line: lists are soon through.
    #[inline(never)]
    fn unlist(&mut self, key: &K) -> Option<Id> {
        let ListMark { since, .. } = self.listed.remove(key)?;
        let id = self.stand_ready(key.clone(), since);
        self.ready.push(&mut self.entries.slab, id, self.arrival);
        Some(id)
    }

    /// Gives the first key of the lists an entry: it is handed out now.
    pub(super) fn pop_listed(&mut self) -> Option<Id> {
        let (key, ListMark { since, .. }) = self.listed.pop()?;
        Some(self.stand_ready(key, since))
    }

    /// Returns when the first list that waits was added.
    #[inline]
    fn first_list(&self) -> Option<Arrival> {
        self.listed.first_mark().map(|mark| mark.arrival)
    }

    fn stand_ready(&mut self, key: K, since: At) -> Id {
        let id = self.entries.find_or_insert(key);
        let entry = &mut self.entries.slab[id];
        entry.place = Place::Ready;
        entry.since = since;
        id
    }
}

//! What the queue decides: pure, with the time passed in.

use std::sync::Arc;
use std::time::Duration;

use super::clock::{At, Clock};
use super::config::{ConfigError, DEFAULT_FLOOR, WorkQueueConfig};
use super::delay::DelayHeap;
use super::entry::{Cause, Entries, Entry, Meanwhile, Place, QueueKey};
use super::list::List;
use super::outcome::Outcome;
use super::rate_limit::{Bucket, Taken};
use super::rate_limiter::RateLimiter;
use super::slab::Id;

/// A key that was handed out.
#[derive(Debug)]
pub(super) struct Grant<K> {
    pub(super) id: Id,
    pub(super) key: K,
    pub(super) attempt: u32,
}

/// What there is for a worker.
#[derive(Debug)]
pub(super) enum Next<K> {
    Run(Grant<K>),
    /// Nothing yet: [`State::due`] says until when.
    Wait,
    /// Nothing any more.
    Ended,
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
/// The line of ready keys is one band; further bands, by priority, would stand beside it.
pub(super) struct State<K> {
    entries: Entries<K>,
    ready: List,
    awaiting_token: List,
    delayed: DelayHeap,
    rate: Option<Bucket>,
    retry_rate: Option<Bucket>,
    backoff: Arc<dyn RateLimiter>,
    floor: Duration,
    mode: Mode,
    in_flight: usize,
    /// Of those in flight: how many run again, as far as is known.
    again: usize,
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
            ready: List::new(),
            awaiting_token: List::new(),
            delayed: DelayHeap::default(),
            rate: None,
            retry_rate: None,
            backoff,
            floor: DEFAULT_FLOOR,
            mode: Mode::Open,
            in_flight: 0,
            again: 0,
        }
    }

    // ---- what callers say of a key ----

    /// Something really changed.
    #[inline]
    pub(super) fn add(&mut self, key: K, clock: &impl Clock) {
        let Some(id) = self.admit(key, clock) else { return };
        let entry = &mut self.entries.slab[id];
        match entry.place {
            Place::Ready => {}
            Place::InFlight => self.mark(id, Meanwhile::Added),
            Place::Idle => self.line_up(id),
            Place::Terminal | Place::Delayed | Place::AwaitsToken => {
                entry.hurry();
                self.settle(id, clock);
            }
        }
    }

    /// Nothing changed, but an idle key is to run.
    pub(super) fn touch(&mut self, key: K, clock: &impl Clock) {
        let Some(id) = self.admit(key, clock) else { return };
        match self.entries.slab[id].place {
            Place::Idle => self.line_up(id),
            // a timer that was asked for meanwhile is not shortened
            Place::InFlight if self.entries.slab[id].delay == At::NEVER => self.mark(id, Meanwhile::Touched),
            _ => {}
        }
    }

    /// The key is to run after a delay, at the latest.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, clock: &impl Clock) {
        let Some(id) = self.admit(key, clock) else { return };
        let entry = &mut self.entries.slab[id];
        // what is due already keeps its turn
        if matches!(entry.place, Place::Ready | Place::AwaitsToken) {
            return;
        }
        if entry.place == Place::Terminal {
            entry.gate = entry.floor;
        }
        entry.delay = entry.delay.min(clock.now().after(delay));
        self.settle_unless_in_flight(id, clock);
    }

    /// The key failed once more, and is to run when its back-off is over.
    pub(super) fn add_rate_limited(&mut self, key: K, clock: &impl Clock) {
        let Some(id) = self.admit(key, clock) else { return };
        let place = self.entries.slab[id].place;
        if place == Place::Ready {
            let failures = &mut self.entries.slab[id].failures;
            *failures = failures.saturating_add(1);
            return;
        }
        if place == Place::Terminal {
            self.entries.slab[id].gate = At::START;
        }
        let until = self.fail(id, Duration::ZERO, clock);
        let entry = &mut self.entries.slab[id];
        entry.delay = entry.delay.min(until);
        self.settle_unless_in_flight(id, clock);
    }

    /// Clears a key's failures. What is scheduled stays so.
    pub(super) fn forget(&mut self, key: &K) {
        let Some(id) = self.entries.find(key) else { return };
        let entry = &mut self.entries.slab[id];
        entry.failures = 0;
        if matches!(entry.place, Place::Idle | Place::Terminal) {
            self.entries.remove(id);
        }
    }

    /// Refuses keys from now on; drops what is not ready.
    pub(super) fn shut_down(&mut self, clock: &impl Clock) {
        if self.mode == Mode::Open {
            self.promote(clock);
            self.mode = Mode::Draining;
            self.drop_all(|place| matches!(place, Place::Delayed | Place::AwaitsToken));
        }
    }

    /// Refuses keys from now on; drops all that is not in flight.
    pub(super) fn discard(&mut self) {
        self.mode = Mode::Discarding;
        self.drop_all(|place| place != Place::InFlight);
    }

    // ---- what workers take and bring back ----

    /// Hands out the next key, if one is ready and the rate has a token for it.
    #[inline]
    pub(super) fn take(&mut self, clock: &impl Clock) -> Next<K> {
        self.promote(clock);
        if self.ready.is_empty() {
            return if self.ended() { Next::Ended } else { Next::Wait };
        }
        let now = clock.now();
        if self.rate.as_mut().is_some_and(|rate| rate.take(now) == Taken::No) {
            return Next::Wait;
        }
        let Some(id) = self.ready.pop_front(&mut self.entries.slab) else { return Next::Wait };
        let entry = &mut self.entries.slab[id];
        entry.clear_schedule();
        entry.place = Place::InFlight;
        entry.started = now;
        self.in_flight += 1;
        Next::Run(Grant { id, key: entry.key.clone(), attempt: entry.failures.saturating_add(1) })
    }

    /// Ends a run.
    #[inline]
    pub(super) fn finish(&mut self, id: Id, outcome: Outcome, clock: &impl Clock) {
        self.promote(clock);
        let entry = &mut self.entries.slab[id];
        let meanwhile = std::mem::replace(&mut entry.meanwhile, Meanwhile::Nothing);
        entry.place = Place::Idle;
        self.in_flight -= 1;
        self.again -= usize::from(meanwhile != Meanwhile::Nothing);
        self.conclude(id, outcome, clock);
        let entry = &mut self.entries.slab[id];
        match meanwhile {
            Meanwhile::Added => entry.hurry(),
            Meanwhile::Touched if matches!(outcome, Outcome::Done | Outcome::Forget) => {
                entry.delay = At::START
            }
            _ => {}
        }
        let owed = meanwhile != Meanwhile::Nothing || outcome == Outcome::PutBack;
        if self.may_schedule(id, owed, clock) { self.settle(id, clock) } else { self.rest(id, outcome) }
    }

    // ---- what the shell and curious callers read ----

    /// Tells before when nothing can be handed out: start is now, never is not without a change.
    pub(super) fn due(&self) -> At {
        let first = match &self.retry_rate {
            _ if !self.ready.is_empty() => At::START,
            Some(retry_rate) if !self.awaiting_token.is_empty() => {
                self.delayed.earliest().min(retry_rate.opens())
            }
            _ => self.delayed.earliest(),
        };
        if first >= At::LATEST {
            At::NEVER
        } else {
            first.max(self.rate.as_ref().map_or(At::START, Bucket::opens))
        }
    }

    /// Whether nothing is left to hand out, and nothing will come.
    pub(super) fn ended(&self) -> bool {
        match self.mode {
            Mode::Open => false,
            Mode::Draining => self.ready.is_empty() && self.again == 0,
            Mode::Discarding => true,
        }
    }

    /// Whether all that was accepted before the shutdown is done.
    pub(super) fn drained(&self) -> bool {
        self.mode != Mode::Open && self.ready.is_empty() && self.in_flight == 0
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.mode != Mode::Open
    }

    pub(super) fn entry(&self, key: &K) -> Option<&Entry<K>> {
        self.entries.find(key).map(|id| &self.entries.slab[id])
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    pub(super) fn awaiting_token(&self) -> usize {
        self.awaiting_token.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn known(&self) -> usize {
        self.entries.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity().max(self.delayed.capacity())
    }

    // ---- how keys move ----

    /// Lines up what has fallen due, in the order in which it did.
    #[inline]
    pub(super) fn promote(&mut self, clock: &impl Clock) {
        if self.delayed.is_empty() && self.awaiting_token.is_empty() {
            return;
        }
        let now = clock.now();
        while let Some(id) = self.delayed.pop_due(now) {
            self.entries.slab[id].place = Place::Idle;
            self.line_up_due(id);
        }
        self.serve_retries(now);
    }

    /// Finds or makes the entry, unless the queue is shut down.
    #[inline]
    fn admit(&mut self, key: K, clock: &impl Clock) -> Option<Id> {
        (self.mode == Mode::Open).then(|| {
            self.promote(clock);
            self.entries.find_or_insert(key)
        })
    }

    fn mark(&mut self, id: Id, came: Meanwhile) {
        let meanwhile = &mut self.entries.slab[id].meanwhile;
        match (*meanwhile, came) {
            (Meanwhile::Nothing, _) => {
                self.again += 1;
                *meanwhile = came;
            }
            (Meanwhile::Touched, Meanwhile::Added) => *meanwhile = came,
            _ => {}
        }
    }

    /// Counts a failure and raises the back-off. Answers when that is over.
    fn fail(&mut self, id: Id, at_least: Duration, clock: &impl Clock) -> At {
        let entry = &mut self.entries.slab[id];
        entry.failures = entry.failures.saturating_add(1);
        let wait = self.backoff.delay(entry.failures).max(at_least);
        let now = clock.now();
        entry.gate = entry.gate.max(now.after(wait));
        entry.floor = now.after(wait.min(self.floor));
        entry.cause = Cause::Failure;
        entry.gate
    }

    fn conclude(&mut self, id: Id, outcome: Outcome, clock: &impl Clock) {
        if let Outcome::Retry { at_least } = outcome {
            self.fail(id, at_least, clock);
        } else if outcome == Outcome::Terminal {
            self.fail(id, Duration::ZERO, clock);
        }
        let entry = &mut self.entries.slab[id];
        entry.uncounted = match outcome {
            Outcome::RetryUncounted => entry.uncounted.saturating_add(1),
            _ => 0,
        };
        match outcome {
            Outcome::Done => {}
            Outcome::Forget => entry.succeed(),
            Outcome::RequeueAfter(delay) => {
                entry.succeed();
                entry.delay = entry.delay.min(clock.now().after(delay));
            }
            Outcome::Retry { .. } => entry.delay = At::START,
            Outcome::RetryUncounted => {
                let first = self.backoff.delay(1);
                let step = self.backoff.delay(entry.uncounted.into()).min(self.floor.max(first));
                let now = clock.now();
                entry.gate = now.after(step);
                entry.floor = now.after(first.min(step));
                entry.delay = At::START;
                entry.cause = Cause::Plain;
            }
            // a timer that somebody asked for meanwhile still counts
            Outcome::Terminal => {
                entry.gate = entry.floor;
                entry.cause = Cause::Plain;
            }
            Outcome::PutBack => entry.hurry_past_backoff(),
        }
    }

    /// Whether the key is to run again: something asks for it, and no shutdown forbids it.
    fn may_schedule(&self, id: Id, owed: bool, clock: &impl Clock) -> bool {
        let due = self.entries.slab[id].due();
        match self.mode {
            Mode::Open => due != At::NEVER,
            Mode::Draining => owed && due <= clock.now(),
            Mode::Discarding => false,
        }
    }

    /// Leaves the key alone, remembered only for what must be remembered.
    fn rest(&mut self, id: Id, outcome: Outcome) {
        let entry = &mut self.entries.slab[id];
        entry.delay = At::NEVER;
        match outcome {
            _ if entry.failures == 0 => self.entries.remove(id),
            Outcome::Terminal => entry.place = Place::Terminal,
            _ => entry.clear_schedule(),
        }
    }

    fn settle_unless_in_flight(&mut self, id: Id, clock: &impl Clock) {
        if self.entries.slab[id].place != Place::InFlight {
            self.settle(id, clock);
        }
    }

    /// Puts a key that is to run where it belongs now.
    fn settle(&mut self, id: Id, clock: &impl Clock) {
        let entry = &self.entries.slab[id];
        let (due, place) = (entry.due(), entry.place);
        let now = if due == At::START { due } else { clock.now() };
        if due > now {
            if place != Place::Delayed {
                self.leave(id);
            }
            self.entries.slab[id].place = Place::Delayed;
            self.delayed.schedule(id, due);
        } else {
            self.leave(id);
            self.line_up_due(id);
            self.serve_retries(now);
        }
    }

    fn leave(&mut self, id: Id) {
        let slab = &mut self.entries.slab;
        match std::mem::replace(&mut slab[id].place, Place::Idle) {
            Place::Delayed => {
                self.delayed.remove(id);
            }
            Place::AwaitsToken => self.awaiting_token.remove(slab, id),
            Place::Ready => self.ready.remove(slab, id),
            Place::Idle | Place::Terminal | Place::InFlight => {}
        }
    }

    fn line_up_due(&mut self, id: Id) {
        let entry = &mut self.entries.slab[id];
        if entry.cause == Cause::Failure && self.retry_rate.is_some() {
            entry.place = Place::AwaitsToken;
            self.awaiting_token.push_back(&mut self.entries.slab, id);
        } else {
            self.line_up(id);
        }
    }

    fn line_up(&mut self, id: Id) {
        self.entries.slab[id].place = Place::Ready;
        self.ready.push_back(&mut self.entries.slab, id);
    }

    /// Lines up the retries that there are tokens for, longest due first.
    fn serve_retries(&mut self, now: At) {
        let Some(retry_rate) = &mut self.retry_rate else { return };
        while !self.awaiting_token.is_empty() && retry_rate.take(now) == Taken::Yes {
            let Some(id) = self.awaiting_token.pop_front(&mut self.entries.slab) else { return };
            self.entries.slab[id].place = Place::Ready;
            self.ready.push_back(&mut self.entries.slab, id);
        }
    }

    fn drop_all(&mut self, dropped: impl Fn(Place) -> bool) {
        let ids: Vec<Id> =
            self.entries.slab.ids().filter(|id| dropped(self.entries.slab[*id].place)).collect();
        for id in ids {
            self.leave(id);
            self.entries.remove(id);
        }
    }
}

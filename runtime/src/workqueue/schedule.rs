//! Decides which key runs when: pure, with the time passed in.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{At, TimeSource};
use super::entries::{Entries, EntryPlace, Id, KeyEntry, Meanwhile, QueueKey, RunCause, Setback, Ticket};
use super::lines::{Line, ReadyLines};
use super::rate_limit::Tokens;
use super::rate_limiter::RateLimiter;
use super::stats::QueueStats;
use super::types::{ConfigError, DEFAULT_FLOOR, Depth, Outcome, Priority, WorkQueueConfig};
use crate::users_code::contained;

/// A key that was handed out.
#[derive(Debug)]
pub(super) struct Grant<K> {
    pub(super) id: Id,
    pub(super) key: K,
    pub(super) attempt: u32,
    pub(super) priority: Priority,
    /// When it was handed out; never if no times are kept.
    pub(super) at: At,
    /// Whether a token of the rate is set aside for it, which its start pays.
    pub(super) is_unpaid: bool,
}

/// What a worker that asks for a key gets.
#[derive(Debug)]
pub(super) enum Offer<K> {
    Run(Grant<K>),
    /// Nothing yet: [`Schedule::due`] says until when.
    Wait,
    /// Nothing any more.
    Ended,
}

/// Whether the queue takes keys, and what it still hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueMode {
    Open,
    /// Refuses keys, hands out those that are ready.
    Draining,
    /// Refuses keys, hands out nothing.
    Discarding,
}

/// The one authority on the state of every key.
///
/// Each known key is in one [`EntryPlace`] at a time.
pub(super) struct Schedule<K> {
    entries: Entries<K>,
    ready: ReadyLines,
    awaiting_token: Line,
    in_flight: Line,
    /// The keys that failed terminally.
    terminal: Line,
    /// The keys that are delayed or held, by when that ends; at the same moment in the order in which they came.
    timers: BTreeSet<(At, Ticket)>,
    /// How many of the timers are holds.
    held: usize,
    /// How many of the keys in flight run again, as far as is known.
    again: usize,
    rate: Option<Tokens>,
    /// Whether the taker of a key pays the rate when its run starts. Otherwise the queue pays when it hands the key out.
    is_paid_at_start: bool,
    retry_rate: Option<Tokens>,
    backoff: Arc<dyn RateLimiter>,
    /// What the limiter answered for a first failure, once it was asked.
    first_step: Option<Duration>,
    floor: Duration,
    mode: QueueMode,
    stats: QueueStats,
}

impl<K: QueueKey> Schedule<K> {
    pub(super) fn new(config: WorkQueueConfig) -> Result<Self, ConfigError> {
        let mut schedule = Self::unlimited(config.backoff);
        schedule.floor = config.floor;
        schedule.rate = config.rate.map(Tokens::new).transpose().map_err(ConfigError::Rate)?;
        schedule.retry_rate =
            config.retry_rate.map(Tokens::new).transpose().map_err(ConfigError::RetryRate)?;
        Ok(schedule)
    }

    /// A schedule without rates, which cannot be refused.
    pub(super) fn unlimited(backoff: Arc<dyn RateLimiter>) -> Self {
        Self {
            entries: Entries::new(),
            ready: ReadyLines::new(),
            awaiting_token: Line::default(),
            in_flight: Line::default(),
            terminal: Line::default(),
            timers: BTreeSet::new(),
            held: 0,
            again: 0,
            rate: None,
            is_paid_at_start: false,
            retry_rate: None,
            backoff,
            first_step: None,
            floor: DEFAULT_FLOOR,
            mode: QueueMode::Open,
            stats: QueueStats::default(),
        }
    }

    // ---- what callers ask for ----

    /// Something really changed.
    #[inline]
    pub(super) fn add(&mut self, key: K, priority: Priority, clock: &impl TimeSource) {
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        let entry = &mut self.entries[id];
        match entry.place {
            EntryPlace::Ready => {}
            EntryPlace::InFlight(_) => self.mark(id, Meanwhile::Added),
            EntryPlace::Idle => self.line_up(id, clock),
            EntryPlace::Held => entry.expedite(),
            EntryPlace::Terminal | EntryPlace::Delayed | EntryPlace::AwaitsToken => {
                entry.expedite();
                self.settle(id, clock);
            }
        }
    }

    /// Nothing changed, but an idle key is to run.
    pub(super) fn touch(&mut self, key: K, priority: Priority, clock: &impl TimeSource) {
        let Some(id) = self.admit(key, clock) else { return };
        match self.place_unless_held(id, clock) {
            EntryPlace::Idle | EntryPlace::Ready => self.raise(id, priority),
            // A timer that was asked for meanwhile is not shortened.
            EntryPlace::InFlight(_) if self.entries[id].delay == At::NEVER => {
                self.raise(id, priority);
                self.mark(id, Meanwhile::Touched);
            }
            _ => return,
        }
        match self.entries[id].place {
            EntryPlace::Idle => self.line_up(id, clock),
            EntryPlace::Held => self.entries[id].delay = At::START,
            _ => {}
        }
    }

    /// The key is to run after a delay, at the latest.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, priority: Priority, clock: &impl TimeSource) {
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        let place = self.place_unless_held(id, clock);
        // A key that is due already keeps its turn.
        if matches!(place, EntryPlace::Ready | EntryPlace::AwaitsToken) {
            return;
        }
        let entry = &mut self.entries[id];
        if place == EntryPlace::Terminal {
            entry.relieve(|setback| setback.gate = setback.floor);
        }
        entry.delay = entry.delay.min(clock.now().after(delay));
        self.settle_unless_away(id, clock);
    }

    /// The key failed once more, and is to run when its back-off is over.
    pub(super) fn add_rate_limited(&mut self, key: K, priority: Priority, clock: &impl TimeSource) {
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        self.stats.retries += 1;
        let place = self.place_unless_held(id, clock);
        if place == EntryPlace::Ready {
            let failures = &mut self.entries[id].set_back().failures;
            *failures = failures.saturating_add(1);
            return;
        }
        if place == EntryPlace::Terminal {
            self.entries[id].relieve(|setback| setback.gate = At::START);
        }
        let until = self.fail(id, Duration::ZERO, clock);
        let entry = &mut self.entries[id];
        entry.delay = entry.delay.min(until);
        self.settle_unless_away(id, clock);
    }

    /// Clears the failures of a key. What is scheduled stays so.
    pub(super) fn forget(&mut self, key: &K) {
        let Some(id) = self.entries.find(key) else { return };
        let entry = &mut self.entries[id];
        entry.relieve(|setback| setback.failures = 0);
        match entry.place {
            EntryPlace::Idle | EntryPlace::Terminal => self.remove(id),
            EntryPlace::Held if entry.setback().cause == RunCause::Terminal => {
                entry.clear_schedule_unless_asked();
            }
            _ => {}
        }
    }

    /// Keeps a key from workers until it is released, or for `at_most`. After a shutdown a key that waits is dropped.
    pub(super) fn hold(&mut self, key: &K, at_most: Duration, clock: &impl TimeSource) {
        self.promote(clock);
        let found = match self.mode {
            QueueMode::Open => self.admit(key.clone(), clock),
            QueueMode::Draining | QueueMode::Discarding => self.entries.find(key),
        };
        let Some(id) = found else { return };
        let until = clock.now().after(at_most);
        let entry = &mut self.entries[id];
        entry.set_back().held = until;
        match entry.place {
            EntryPlace::InFlight(_) => return,
            // A retry that has its token does not pay a second one.
            EntryPlace::Ready => {
                let since = entry.at;
                entry.skip_backoff();
                entry.set_back().interrupted = Some(since);
            }
            _ => {}
        }
        match self.mode {
            QueueMode::Open => self.wait_until(id, EntryPlace::Held, until),
            QueueMode::Draining | QueueMode::Discarding => self.remove(id),
        }
    }

    /// Ends the hold of a key. It goes on with what was asked for meanwhile, at the back of its line.
    pub(super) fn release(&mut self, key: &K, clock: &impl TimeSource) {
        self.promote(clock);
        let Some(id) = self.entries.find(key) else { return };
        let entry = &mut self.entries[id];
        entry.let_go();
        if entry.place == EntryPlace::Held {
            let now = clock.now();
            self.leave(id);
            self.resume(id, now);
            self.serve_retries(now);
        }
    }

    /// Refuses keys from now on, and drops those that are not ready.
    pub(super) fn shut_down(&mut self, clock: &impl TimeSource) {
        if self.mode == QueueMode::Open {
            self.promote(clock);
            self.mode = QueueMode::Draining;
            let waits = [EntryPlace::Delayed, EntryPlace::AwaitsToken, EntryPlace::Held];
            self.drop_entries(|place| waits.contains(&place));
        }
    }

    /// Refuses keys from now on, and drops all that are not in flight.
    pub(super) fn discard(&mut self) {
        self.mode = QueueMode::Discarding;
        self.drop_entries(|place| !matches!(place, EntryPlace::InFlight(_)));
    }

    /// Takes keys again, as if none had been known. The rates go on as they are.
    pub(super) fn reopen(&mut self) {
        self.drop_entries(|place| !matches!(place, EntryPlace::InFlight(_)));
        self.mode = QueueMode::Open;
    }

    /// Counts from now on how long things take.
    pub(super) fn keep_times(&mut self) {
        self.stats.keep_times();
    }

    // ---- what workers take and bring back ----

    /// Hands out the next key, if one is ready and the rate has a token for it.
    #[inline]
    pub(super) fn take(&mut self, clock: &impl TimeSource) -> Offer<K> {
        self.promote(clock);
        if self.ready() == 0 {
            return if self.has_ended() { Offer::Ended } else { Offer::Wait };
        }
        if let Some(rate) = &mut self.rate {
            let now = clock.now();
            if !(if self.is_paid_at_start { rate.reserve(now) } else { rate.take(now) }) {
                return Offer::Wait;
            }
        }
        let Some(id) = self.ready.pop(&self.entries) else { return Offer::Wait };
        self.in_flight.join(&mut self.entries, id);
        let entry = &mut self.entries[id];
        let priority = entry.priority;
        entry.clear_schedule();
        entry.place = EntryPlace::InFlight(Meanwhile::Nothing);
        entry.at = self.stats.handed_out(entry.at, clock);
        Offer::Run(Grant {
            id,
            key: entry.key.clone(),
            attempt: entry.setback().failures.saturating_add(1),
            priority,
            at: entry.at,
            is_unpaid: self.is_paid_at_start && self.rate.is_some(),
        })
    }

    /// Ends a run. If the outcome asks for another one, that has `priority` at least.
    #[inline]
    pub(super) fn finish(&mut self, id: Id, outcome: Outcome, priority: Priority, clock: &impl TimeSource) {
        self.promote(clock);
        let entry = &self.entries[id];
        let EntryPlace::InFlight(meanwhile) = entry.place else { return };
        self.stats.ended(entry.at, clock);
        self.leave(id);
        let is_asked = meanwhile != Meanwhile::Nothing;
        self.again -= usize::from(is_asked);
        self.conclude(id, outcome, clock);
        if outcome.asks_again() {
            self.raise(id, priority);
        }
        let entry = &mut self.entries[id];
        match meanwhile {
            Meanwhile::Added => entry.expedite(),
            Meanwhile::Touched if matches!(outcome, Outcome::Done | Outcome::Forget) => {
                entry.delay = At::START;
            }
            _ => {}
        }
        match self.stays_held(id, clock) {
            true if self.mode == QueueMode::Open => {
                self.wait_until(id, EntryPlace::Held, self.entries[id].setback().held);
            }
            false if self.may_schedule(id, is_asked, clock) => self.settle(id, clock),
            _ => self.rest(id),
        }
    }

    /// Records what the outcome of a run says.
    fn conclude(&mut self, id: Id, outcome: Outcome, clock: &impl TimeSource) {
        if outcome == Outcome::RetryUncounted {
            let setback = self.entries[id].set_back();
            setback.uncounted = setback.uncounted.saturating_add(1);
        } else {
            self.entries[id].relieve(|setback| setback.uncounted = 0);
        }
        match outcome {
            Outcome::Done => {}
            Outcome::Forget => self.entries[id].succeed(),
            Outcome::RequeueAfter(delay) => {
                let entry = &mut self.entries[id];
                entry.succeed();
                entry.delay = entry.delay.min(clock.now().after(delay));
            }
            Outcome::Retry { at_least } => {
                self.stats.retries += 1;
                self.fail(id, at_least, clock);
                self.entries[id].delay = At::START;
            }
            Outcome::RetryUncounted => {
                self.stats.retries += 1;
                self.back_off_uncounted(id, clock);
            }
            // A timer that was asked for meanwhile still counts.
            Outcome::Terminal => {
                self.fail(id, Duration::ZERO, clock);
                let setback = self.entries[id].set_back();
                setback.gate = setback.floor;
                setback.cause = RunCause::Terminal;
            }
            Outcome::PutBack => self.entries[id].skip_backoff(),
        }
    }

    /// Sets the back-off of a retry that does not count: several in a row take further steps, up to the floor.
    fn back_off_uncounted(&mut self, id: Id, clock: &impl TimeSource) {
        let first = self.first_step.unwrap_or_else(|| self.ask(1));
        self.first_step = Some(first);
        let uncounted = self.entries[id].setback().uncounted.into();
        let step = if uncounted == 1 { first } else { self.ask(uncounted) };
        let step = step.min(self.floor.max(first));
        let (now, entry) = (clock.now(), &mut self.entries[id]);
        entry.delay = At::START;
        let setback = entry.set_back();
        setback.gate = now.after(step);
        setback.floor = now.after(first.min(step));
        setback.cause = RunCause::Plain;
    }

    /// Says whether the key is to run again: something asks for it, and no shutdown forbids it.
    fn may_schedule(&self, id: Id, is_asked: bool, clock: &impl TimeSource) -> bool {
        let due = self.entries[id].due();
        match self.mode {
            QueueMode::Open => due != At::NEVER,
            QueueMode::Draining => is_asked && due <= clock.now(),
            QueueMode::Discarding => false,
        }
    }

    // ---- the rate of all grants ----

    /// Leaves it to the taker of a key to pay the rate, when its run starts.
    pub(super) fn pay_at_start(&mut self) {
        self.is_paid_at_start = true;
    }

    /// Says whether each start pays for itself.
    pub(super) fn has_paid_starts(&self) -> bool {
        self.is_paid_at_start && self.rate.is_some()
    }

    /// Returns the rate of all grants, if there is one.
    pub(super) fn rate_mut(&mut self) -> Option<&mut Tokens> {
        self.rate.as_mut()
    }

    /// Sets a token of the rate aside for a run that claims one; `None` if no run may start any more.
    pub(super) fn grant_claim(&mut self, now: At) -> Option<Result<(), At>> {
        match (self.mode, self.rate.as_mut()) {
            (QueueMode::Discarding, _) => None,
            (_, Some(rate)) => Some(rate.grant(now)),
            (_, None) => Some(Ok(())),
        }
    }

    // ---- how keys move from place to place ----

    /// Finds or makes the entry of a key, unless the queue is shut down.
    #[inline]
    fn admit(&mut self, key: K, clock: &impl TimeSource) -> Option<Id> {
        (self.mode == QueueMode::Open).then(|| {
            self.promote(clock);
            self.entries.find_or_insert(key)
        })
    }

    /// Lines up the keys that have fallen due, in the order in which they did.
    #[inline]
    pub(super) fn promote(&mut self, clock: &impl TimeSource) {
        if !self.timers.is_empty() || !self.awaiting_token.is_empty() {
            self.promote_until(clock.now());
        }
    }

    fn promote_until(&mut self, now: At) {
        while let Some((due, Ticket { id, .. })) = self.timers.first().copied()
            && due <= now
        {
            let was_held = self.entries[id].place == EntryPlace::Held;
            self.leave(id);
            if was_held {
                self.resume(id, now);
            } else {
                self.line_up_due(id, &now);
            }
        }
        self.serve_retries(now);
    }

    /// Lines up the retries that there are tokens for, the longest due first.
    fn serve_retries(&mut self, now: At) {
        while !self.awaiting_token.is_empty()
            && self.retry_rate.as_mut().is_some_and(|rate| rate.take(now))
            && let Some(id) = self.awaiting_token.pop(&self.entries)
        {
            self.line_up(id, &now);
        }
    }

    fn settle_unless_away(&mut self, id: Id, clock: &impl TimeSource) {
        if !matches!(self.entries[id].place, EntryPlace::InFlight(_) | EntryPlace::Held) {
            self.settle(id, clock);
        }
    }

    /// Puts a key that is to run where it belongs now.
    fn settle(&mut self, id: Id, clock: &impl TimeSource) {
        let due = self.entries[id].due();
        let now = if due == At::START { due } else { clock.now() };
        if due > now {
            self.wait_until(id, EntryPlace::Delayed, due);
        } else {
            self.leave(id);
            self.line_up_due(id, clock);
            self.serve_retries(now);
        }
    }

    /// Lets a key wait, delayed or held. One that waits so already, and for as long, keeps its turn.
    fn wait_until(&mut self, id: Id, place: EntryPlace, until: At) {
        let entry = &self.entries[id];
        if entry.place == place && entry.at == until {
            return;
        }
        self.leave(id);
        let ticket = self.entries.issue(id);
        let entry = &mut self.entries[id];
        (entry.place, entry.at) = (place, until);
        self.held += usize::from(place == EntryPlace::Held);
        self.timers.insert((until, ticket));
    }

    /// Takes a key out of the place where it is.
    fn leave(&mut self, id: Id) {
        let entry = &mut self.entries[id];
        let ticket = Ticket { number: entry.number, id };
        match std::mem::replace(&mut entry.place, EntryPlace::Idle) {
            place @ (EntryPlace::Delayed | EntryPlace::Held) => {
                self.timers.remove(&(entry.at, ticket));
                self.held -= usize::from(place == EntryPlace::Held);
            }
            EntryPlace::AwaitsToken => self.awaiting_token.leave(),
            EntryPlace::Ready => self.ready.leave(entry.priority),
            EntryPlace::Terminal => self.terminal.leave(),
            EntryPlace::InFlight(_) => self.in_flight.leave(),
            EntryPlace::Idle => {}
        }
        self.entries.void(id);
    }

    /// Lines up a key that is due, for a worker or for a token.
    fn line_up_due(&mut self, id: Id, clock: &impl TimeSource) {
        let entry = &mut self.entries[id];
        if entry.setback().cause == RunCause::Failure && self.retry_rate.is_some() {
            entry.place = EntryPlace::AwaitsToken;
            self.awaiting_token.join(&mut self.entries, id);
        } else {
            self.line_up(id, clock);
        }
    }

    #[inline]
    fn line_up(&mut self, id: Id, clock: &impl TimeSource) {
        let entry = &mut self.entries[id];
        entry.place = EntryPlace::Ready;
        // A wait that a hold interrupted goes on, and is counted once.
        entry.at = match entry.resume_wait() {
            Some(since) => since,
            None => self.stats.became_ready(clock),
        };
        self.ready.join(&mut self.entries, id);
    }

    /// Records the priority that is asked for the next run. A key that is ready moves to the back of its new line.
    #[inline]
    fn raise(&mut self, id: Id, priority: Priority) {
        let entry = &mut self.entries[id];
        match entry.place {
            _ if priority <= entry.priority => {}
            EntryPlace::Ready => self.ready.raise(&mut self.entries, id, priority),
            _ => entry.priority = priority,
        }
    }

    /// Records that something was asked for a key in flight.
    fn mark(&mut self, id: Id, came: Meanwhile) {
        let EntryPlace::InFlight(meanwhile) = &mut self.entries[id].place else { return };
        match (*meanwhile, came) {
            (Meanwhile::Nothing, _) => {
                self.again += 1;
                *meanwhile = came;
            }
            (Meanwhile::Touched, Meanwhile::Added) => *meanwhile = came,
            _ => {}
        }
    }

    /// Asks the limiter for a wait. If it panics the wait is the floor, so that the key is not lost.
    fn ask(&self, failures: u32) -> Duration {
        contained(|| self.backoff.delay(failures)).unwrap_or(self.floor)
    }

    /// Counts a failure and raises the back-off. Returns when that is over.
    fn fail(&mut self, id: Id, at_least: Duration, clock: &impl TimeSource) -> At {
        let failures = self.entries[id].setback().failures.saturating_add(1);
        let (wait, now) = (self.ask(failures).max(at_least), clock.now());
        let setback = self.entries[id].set_back();
        setback.failures = failures;
        setback.gate = setback.gate.max(now.after(wait));
        setback.floor = now.after(wait.min(self.floor));
        setback.cause = RunCause::Failure;
        setback.gate
    }

    /// Returns where a key would be if it was not held.
    fn place_unless_held(&self, id: Id, clock: &impl TimeSource) -> EntryPlace {
        let entry = &self.entries[id];
        match (entry.place, entry.setback().cause) {
            (EntryPlace::Held, cause) if entry.delay != At::NEVER => match cause {
                _ if entry.due() > clock.now() => EntryPlace::Delayed,
                RunCause::Failure if self.retry_rate.is_some() => EntryPlace::AwaitsToken,
                _ => EntryPlace::Ready,
            },
            (EntryPlace::Held, RunCause::Terminal) => EntryPlace::Terminal,
            (EntryPlace::Held, _) => EntryPlace::Idle,
            (place, _) => place,
        }
    }

    /// Ends the hold of a key that is idle now.
    fn resume(&mut self, id: Id, now: At) {
        let entry = &mut self.entries[id];
        entry.let_go();
        match entry.due() {
            _ if entry.delay == At::NEVER => self.rest(id),
            due if due > now => self.wait_until(id, EntryPlace::Delayed, due),
            _ => self.line_up_due(id, &now),
        }
    }

    /// Says whether a key is held beyond now. A hold that is over is forgotten.
    fn stays_held(&mut self, id: Id, clock: &impl TimeSource) -> bool {
        let entry = &mut self.entries[id];
        if entry.setback().held == At::START {
            return false;
        }
        if entry.setback().held <= clock.now() {
            entry.let_go();
        }
        entry.setback().held != At::START
    }

    /// Leaves an idle key alone, and forgets it unless it failed.
    fn rest(&mut self, id: Id) {
        let entry = &mut self.entries[id];
        entry.delay = At::NEVER;
        entry.priority = Priority::Low;
        let Setback { cause, failures, .. } = *entry.setback();
        match cause {
            _ if failures == 0 => self.entries.remove(id),
            RunCause::Terminal => {
                entry.place = EntryPlace::Terminal;
                self.terminal.join(&mut self.entries, id);
            }
            _ => entry.clear_schedule(),
        }
    }

    fn remove(&mut self, id: Id) {
        self.leave(id);
        self.entries.remove(id);
    }

    fn drop_entries(&mut self, is_dropped: impl Fn(EntryPlace) -> bool) {
        self.entries.ids_in(is_dropped).into_iter().for_each(|id| self.remove(id));
    }

    // ---- what is read ----

    /// Returns the moment before which nothing can be handed out. Start means now, never means not without a change.
    pub(super) fn due(&self) -> At {
        let timer = self.timers.first().map_or(At::NEVER, |(due, _)| *due);
        let first = match &self.retry_rate {
            _ if self.ready() > 0 => At::START,
            Some(retry_rate) if !self.awaiting_token.is_empty() => timer.min(retry_rate.opens()),
            _ => timer,
        };
        if first >= At::LATEST {
            At::NEVER
        } else {
            first.max(self.rate.as_ref().map_or(At::START, Tokens::opens))
        }
    }

    /// Says whether nothing is left to hand out, and nothing will come.
    pub(super) fn has_ended(&self) -> bool {
        match self.mode {
            QueueMode::Open => false,
            QueueMode::Draining => self.ready() == 0 && self.again == 0,
            QueueMode::Discarding => true,
        }
    }

    /// Says whether all that was accepted before the shutdown is done.
    pub(super) fn is_drained(&self) -> bool {
        self.mode != QueueMode::Open && self.ready() == 0 && self.in_flight.is_empty()
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.mode != QueueMode::Open
    }

    pub(super) fn entry(&self, key: &K) -> Option<&KeyEntry<K>> {
        self.entries.find(key).map(|id| &self.entries[id])
    }

    #[inline]
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns how many keys are where.
    pub(super) fn depth(&self) -> Depth {
        Depth {
            ready: self.ready(),
            ready_by_rank: self.ready.len_by_rank(),
            delayed: self.timers.len() - self.held,
            held: self.held,
            awaiting_retry_token: self.awaiting_token.len(),
            in_flight: self.in_flight.len(),
            awaiting_change: self.terminal.len(),
            known: self.entries.len(),
        }
    }

    /// Returns the entries in flight.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = &KeyEntry<K>> {
        self.in_flight.iter(&self.entries)
    }

    /// Returns the entries that are ready, the highest priority first and each line in order.
    pub(super) fn in_line(&self) -> impl Iterator<Item = &KeyEntry<K>> {
        self.ready.iter(&self.entries)
    }

    /// Returns the entry that has been ready for longest.
    pub(super) fn oldest(&self) -> Option<&KeyEntry<K>> {
        self.ready.oldest(&self.entries)
    }

    /// Returns the retries that await a token.
    pub(super) fn awaiting_token(&self) -> impl Iterator<Item = &KeyEntry<K>> {
        self.awaiting_token.iter(&self.entries)
    }

    /// Returns the entries that are delayed or held, the soonest first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &KeyEntry<K>> {
        self.timers.iter().map(|(_, ticket)| &self.entries[ticket.id])
    }

    /// Returns the entries that failed terminally.
    pub(super) fn awaiting_change(&self) -> impl Iterator<Item = &KeyEntry<K>> {
        self.terminal.iter(&self.entries)
    }

    /// Returns what was counted so far.
    pub(super) fn stats(&self) -> &QueueStats {
        &self.stats
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let lines = [&self.awaiting_token, &self.in_flight, &self.terminal];
        let lines = lines.into_iter().map(Line::capacity);
        lines.chain([self.entries.capacity(), self.ready.capacity()]).max().unwrap_or_default()
    }
}

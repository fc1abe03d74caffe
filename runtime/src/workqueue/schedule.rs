//! Decides which key runs when: pure, with the time passed in.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{At, TimeSource};
use super::entries::{
    Entries, EntryPlace, EntryWait, Id, KeyEntry, Meanwhile, NO_NUMBER, QueueKey, RunCause, Ticket,
};
use super::lines::{Line, ReadyLines};
use super::rate_limit::{InvalidRate, RateLimit, Tokens};
use super::rate_limiter::RateLimiter;
use super::stats::QueueStats;
use super::tenants::{ReadyKeys, TenantOf};
use super::types::{DEFAULT_FLOOR, Depth, Outcome, Priority, WorkQueueConfig};
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
    /// Nothing before this time; never means not without a change.
    Wait(At),
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
    pub(super) entries: Entries<K>,
    pub(super) ready: ReadyKeys<K>,
    pub(super) awaiting_token: Line,
    pub(super) in_flight: Line,
    /// The keys that wait, by when that ends; at the same moment in the order in which they came.
    timers: BTreeSet<(At, Ticket)>,
    /// How many of the timers are of each kind.
    waiting: [usize; EntryWait::COUNT],
    /// The rate of all grants. The taker of a key pays it when its run starts.
    pub(super) rate: Option<Tokens>,
    /// A worker came for a key that is ready, and the rate had no token.
    awaits_token: bool,
    retry_rate: Option<Tokens>,
    backoff: Arc<dyn RateLimiter>,
    /// What the limiter answered for a first failure, once it was asked.
    first_step: Option<Duration>,
    floor: Duration,
    mode: QueueMode,
    pub(super) stats: QueueStats,
}

impl<K: QueueKey> Schedule<K> {
    pub(super) fn new(config: WorkQueueConfig) -> Result<Self, InvalidRate> {
        let tokens = |limit: Option<RateLimit>| limit.map(Tokens::new).transpose();
        let rate = tokens(config.rate)?;
        let retry_rate = tokens(config.retry_rate).map_err(InvalidRate::of_retries)?;
        Ok(Self { rate, retry_rate, floor: config.floor, ..Self::unlimited(config.backoff) })
    }

    /// A schedule without rates, which cannot be refused.
    pub(super) fn unlimited(backoff: Arc<dyn RateLimiter>) -> Self {
        Self {
            entries: Entries::new(),
            ready: ReadyKeys::Together(ReadyLines::default()),
            awaiting_token: Line::default(),
            in_flight: Line::default(),
            timers: BTreeSet::new(),
            waiting: [0; EntryWait::COUNT],
            rate: None,
            awaits_token: false,
            retry_rate: None,
            backoff,
            first_step: None,
            floor: DEFAULT_FLOOR,
            mode: QueueMode::Open,
            stats: QueueStats::default(),
        }
    }

    /// Shares grants out between the tenants that a function names. It has no keys yet.
    pub(super) fn with_tenants(self, of: TenantOf<K>) -> Self {
        Self { ready: ReadyKeys::shared(of), ..self }
    }

    /// Keeps to a part of the rates from now on: others have the rest.
    pub(super) fn share_rates(&mut self, part: u32, of: u32, clock: &impl TimeSource) {
        for rate in self.rate.iter_mut().chain(&mut self.retry_rate) {
            rate.share(part, of, clock.now());
        }
    }

    // ---- what callers ask for ----

    /// Something really changed.
    #[inline]
    pub(super) fn add(&mut self, key: K, priority: Priority, clock: &impl TimeSource) {
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        match self.entries[id].place {
            EntryPlace::Ready => {}
            EntryPlace::InFlight(_) => self.mark(id, Meanwhile::Added),
            _ => {
                self.entries[id].expedite();
                self.settle(id, clock);
            }
        }
    }

    /// Nothing changed, but an idle key is to run.
    pub(super) fn touch(&mut self, key: K, priority: Priority, clock: &impl TimeSource) {
        let Some(id) = self.admit(key, clock) else { return };
        let entry = &mut self.entries[id];
        match entry.place {
            EntryPlace::Ready => self.raise(id, priority),
            // A timer that was asked for meanwhile is not shortened, and a terminal failure stays one.
            _ if entry.delay != At::NEVER || entry.is_terminal() => {}
            EntryPlace::InFlight(_) => {
                self.raise(id, priority);
                self.mark(id, Meanwhile::Touched);
            }
            _ => {
                entry.delay = At::START;
                self.raise(id, priority);
                self.settle(id, clock);
            }
        }
    }

    /// The key is to run after a delay, at the latest. One that is due already keeps its turn.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, priority: Priority, clock: &impl TimeSource) {
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        let entry = &mut self.entries[id];
        if !matches!(entry.place, EntryPlace::Ready | EntryPlace::AwaitsToken) {
            entry.delay = entry.delay.min(clock.now().after(delay));
            self.settle(id, clock);
        }
    }

    /// The key failed once more, and is to run when its back-off is over. One that is ready keeps its turn.
    pub(super) fn add_rate_limited(&mut self, key: K, priority: Priority, clock: &impl TimeSource) {
        let Some(id) = self.admit(key, clock) else { return };
        self.raise(id, priority);
        self.stats.retries += 1;
        if self.entries[id].place == EntryPlace::Ready {
            let failures = &mut self.entries[id].set_back().failures;
            *failures = failures.saturating_add(1);
            return;
        }
        let until = self.fail(id, Duration::ZERO, clock);
        let entry = &mut self.entries[id];
        entry.delay = entry.delay.min(until);
        self.settle(id, clock);
    }

    /// Clears the failures of a key. What is scheduled stays so.
    pub(super) fn forget(&mut self, key: &K) {
        let Some(id) = self.entries.find(key) else { return };
        let entry = &mut self.entries[id];
        match entry.is_terminal() {
            true => entry.succeed(),
            false => entry.relieve(|setback| setback.failures = 0),
        }
        if matches!(entry.place, EntryPlace::Idle | EntryPlace::Waits(EntryWait::Terminal)) {
            self.remove(id);
        }
    }

    /// Keeps a key from workers until it is released, or for `at_most`. After a shutdown a key that waits is dropped.
    pub(super) fn hold(&mut self, key: &K, at_most: Duration, clock: &impl TimeSource) {
        let Some(id) = self.admit(key.clone(), clock).or_else(|| self.entries.find(key)) else { return };
        let entry = &mut self.entries[id];
        entry.set_back().held = clock.now().after(at_most);
        match entry.place {
            EntryPlace::InFlight(_) => return,
            _ if self.mode != QueueMode::Open => return self.remove(id),
            // A retry that has its token does not pay a second one.
            EntryPlace::Ready => entry.skip_backoff(),
            _ => {}
        }
        self.settle(id, clock);
    }

    /// Ends the hold of a key. It goes on with what was asked for meanwhile, at the back of its line.
    pub(super) fn release(&mut self, key: &K, clock: &impl TimeSource) {
        self.promote(clock);
        let Some(id) = self.entries.find(key) else { return };
        self.entries[id].let_go();
        if let EntryPlace::Waits(_) = self.entries[id].place {
            self.settle(id, clock);
        }
    }

    /// Refuses keys from now on, and drops those that are not ready.
    pub(super) fn shut_down(&mut self, clock: &impl TimeSource) {
        if self.mode == QueueMode::Open {
            self.promote(clock);
            self.mode = QueueMode::Draining;
            self.drop_entries(|place| match place {
                EntryPlace::Waits(wait) => wait != EntryWait::Terminal,
                place => place == EntryPlace::AwaitsToken,
            });
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

    // ---- what workers take and bring back ----

    /// Hands out the next key, if one is ready and the rate has a token for it. So many workers could take one.
    #[inline]
    pub(super) fn take(&mut self, clock: &impl TimeSource, idle: usize) -> Offer<K> {
        self.promote(clock);
        if self.ready() == 0 {
            return if self.has_ended() { Offer::Ended } else { Offer::Wait(self.due()) };
        }
        if self.rate.as_mut().is_some_and(|rate| !rate.reserve(clock.now())) {
            self.awaits_token = true;
            return Offer::Wait(self.due());
        }
        let awaited_token = std::mem::take(&mut self.awaits_token);
        let workers = awaited_token.then(|| idle.saturating_add(self.in_flight.len()));
        let Some(id) = self.ready.pop(&self.entries, workers) else { return Offer::Wait(self.due()) };
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
            is_unpaid: self.rate.is_some(),
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
        self.conclude(id, outcome, clock);
        if !matches!(outcome, Outcome::Done | Outcome::Forget | Outcome::Terminal) {
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
        let may_run = match self.mode {
            QueueMode::Open => true,
            QueueMode::Draining => is_asked && entry.wait().is_some_and(|(_, until)| until <= clock.now()),
            QueueMode::Discarding => false,
        };
        if !may_run {
            entry.delay = At::NEVER;
            entry.let_go();
        }
        self.settle(id, clock);
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
        // A limiter that all keys share may ask for a long wait now, and for a short one later.
        let first = self.first_step.unwrap_or_else(|| self.ask(1).min(self.floor));
        self.first_step = Some(first);
        let uncounted = self.entries[id].setback().uncounted.into();
        let step = if uncounted == 1 { first } else { self.ask(uncounted) };
        let step = step.min(self.floor);
        let (now, entry) = (clock.now(), &mut self.entries[id]);
        entry.delay = At::START;
        let setback = entry.set_back();
        setback.gate = now.after(step);
        setback.floor = now.after(first.min(step));
        setback.cause = RunCause::Plain;
    }

    // ---- the rate of all grants ----

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
            self.entries.find_or_insert(key, |id, key| self.ready.enter(id, key))
        })
    }

    /// Lines up the keys that have fallen due, in the order in which they did.
    #[inline]
    pub(super) fn promote(&mut self, clock: &impl TimeSource) {
        if self.first_timer() >= At::LATEST && self.awaiting_token.is_empty() {
            return;
        }
        let now = clock.now();
        while let Some((due, Ticket { id, .. })) = self.timers.first().copied()
            && due <= now
        {
            self.leave(id);
            self.settle(id, &now);
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

    /// Puts a key where it belongs now. One in flight stays there.
    #[inline]
    fn settle(&mut self, id: Id, clock: &impl TimeSource) {
        let entry = &mut self.entries[id];
        if let EntryPlace::InFlight(_) = entry.place {
            return;
        }
        if entry.setback().held != At::START && entry.setback().held <= clock.now() {
            entry.let_go();
        }
        match entry.wait() {
            Some((wait, until)) if until > At::START && until > clock.now() => {
                self.wait_until(id, wait, until);
            }
            Some(_) => {
                self.leave(id);
                let entry = &mut self.entries[id];
                if entry.setback().cause == RunCause::Failure && self.retry_rate.is_some() {
                    entry.place = EntryPlace::AwaitsToken;
                    self.awaiting_token.join(&mut self.entries, id);
                    self.serve_retries(clock.now());
                } else {
                    self.line_up(id, clock);
                }
            }
            None => self.rest(id),
        }
    }

    /// Lets a key wait. One that waits already, and for as long, keeps its turn.
    fn wait_until(&mut self, id: Id, wait: EntryWait, until: At) {
        let entry = &mut self.entries[id];
        if entry.delay == At::NEVER {
            entry.priority = Priority::Low;
        }
        if (entry.place, entry.at) == (EntryPlace::Waits(wait), until) {
            return;
        }
        self.leave(id);
        let ticket = self.entries.issue(id);
        let entry = &mut self.entries[id];
        (entry.place, entry.at) = (EntryPlace::Waits(wait), until);
        self.waiting[wait as usize] += 1;
        self.timers.insert((until, ticket));
    }

    /// Takes a key out of the place where it is.
    fn leave(&mut self, id: Id) {
        let entry = &mut self.entries[id];
        let ticket = Ticket { number: entry.number, id };
        match std::mem::replace(&mut entry.place, EntryPlace::Idle) {
            EntryPlace::Waits(wait) => {
                self.timers.remove(&(entry.at, ticket));
                self.waiting[wait as usize] -= 1;
            }
            EntryPlace::AwaitsToken => self.awaiting_token.leave(),
            EntryPlace::Ready => self.ready.leave(id, entry.priority),
            EntryPlace::InFlight(_) => {
                self.in_flight.leave();
                self.ready.ended(id);
            }
            EntryPlace::Idle => {}
        }
        self.entries[id].number = NO_NUMBER;
    }

    /// Lines up a key for a worker; notes since when it waits, if times are kept.
    #[inline]
    fn line_up(&mut self, id: Id, clock: &impl TimeSource) {
        self.stats.adds += 1;
        let entry = &mut self.entries[id];
        entry.place = EntryPlace::Ready;
        entry.at = if self.stats.times.is_some() { clock.now() } else { At::NEVER };
        self.ready.join(&mut self.entries, id);
    }

    /// Records the priority that is asked for the next run. A key that is ready moves to the back of its new line.
    #[inline]
    fn raise(&mut self, id: Id, priority: Priority) {
        let entry = &mut self.entries[id];
        let before = entry.priority;
        entry.priority = before.max(priority);
        if priority > before && entry.place == EntryPlace::Ready {
            self.ready.leave(id, before);
            self.ready.join(&mut self.entries, id);
        }
    }

    /// Records that something was asked for a key in flight.
    fn mark(&mut self, id: Id, came: Meanwhile) {
        let EntryPlace::InFlight(meanwhile) = &mut self.entries[id].place else { return };
        *meanwhile = (*meanwhile).max(came);
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

    /// Leaves a key alone that nothing is to happen to, and forgets it unless it failed.
    fn rest(&mut self, id: Id) {
        self.leave(id);
        match self.entries[id].setback().failures {
            0 => self.forget_entry(id),
            _ => self.entries[id].clear_schedule(),
        }
    }

    fn remove(&mut self, id: Id) {
        self.leave(id);
        self.forget_entry(id);
    }

    fn forget_entry(&mut self, id: Id) {
        self.ready.exit(id);
        self.entries.remove(id);
    }

    fn drop_entries(&mut self, is_dropped: impl Fn(EntryPlace) -> bool) {
        let dropped = self.entries.slab.iter().filter(|(_, entry)| is_dropped(entry.place));
        let dropped: Vec<_> = dropped.map(|(id, _)| id as Id).collect();
        dropped.into_iter().for_each(|id| self.remove(id));
    }

    // ---- what is read ----

    /// Returns from when on a key can be handed out. Never means not without a change.
    pub(super) fn due(&self) -> At {
        let first = match &self.retry_rate {
            _ if self.ready() > 0 => At::START,
            Some(retry_rate) if !self.awaiting_token.is_empty() => self.first_timer().min(retry_rate.opens()),
            _ => self.first_timer(),
        };
        if first >= At::LATEST {
            At::NEVER
        } else {
            first.max(self.rate.as_ref().map_or(At::START, Tokens::opens))
        }
    }

    #[inline]
    fn first_timer(&self) -> At {
        self.timers.first().map_or(At::NEVER, |(due, _)| *due)
    }

    /// Says whether nothing is left to hand out, and nothing will come.
    pub(super) fn has_ended(&self) -> bool {
        let is_asked = |entry: &KeyEntry<K>| {
            matches!(entry.place, EntryPlace::InFlight(Meanwhile::Touched | Meanwhile::Added))
        };
        match self.mode {
            QueueMode::Open => false,
            QueueMode::Draining => self.ready() == 0 && !self.in_flight.iter(&self.entries).any(is_asked),
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
            ready_by_rank: self.ready.by_rank(),
            delayed: self.waiting[EntryWait::Delayed as usize],
            held: self.waiting[EntryWait::Held as usize],
            awaiting_retry_token: self.awaiting_token.len(),
            in_flight: self.in_flight.len(),
            awaiting_change: self.waiting[EntryWait::Terminal as usize],
            known: self.entries.len(),
        }
    }

    /// Returns the entries that wait, the soonest first. At last come those that failed terminally.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &KeyEntry<K>> {
        self.timers.iter().map(|(_, ticket)| &self.entries[ticket.id])
    }

    /// Returns the entries that failed terminally.
    pub(super) fn awaiting_change(&self) -> impl Iterator<Item = &KeyEntry<K>> {
        let first = (At::NEVER, Ticket { number: 0, id: 0 });
        self.timers.range(first..).map(|(_, ticket)| &self.entries[ticket.id])
    }
}

//! How keys move from place to place: lined up, held, handed back.

use super::*;
use crate::users_code::contained;

/// So many leave the heap one by one, or a sixteenth of it; of more, all at once.
const FEW: usize = 64;

impl<K: QueueKey> State<K> {
    /// Lines up what has fallen due, in the order in which it did.
    #[inline]
    pub(in crate::workqueue) fn promote(&mut self, clock: &impl Clock) {
        if !self.delayed.is_empty() || !self.awaiting_token.is_empty() {
            self.promote_until(clock.now());
        }
    }

    /// Kept out of line: mostly nothing waits, and what asks stays short.
    #[inline(never)]
    fn promote_until(&mut self, now: At) {
        for _ in 0..FEW.max(self.delayed.len() / 16) {
            let Some(id) = self.delayed.pop_due(&mut self.entries.slab, now) else { break };
            self.fall_due(id, now);
        }
        if self.delayed.earliest() <= now {
            for id in self.delayed.take_due(&mut self.entries.slab, now) {
                self.fall_due(id, now);
            }
        }
        self.serve_retries(now);
    }

    /// Lines up a key that left the heap, or ends its hold.
    fn fall_due(&mut self, id: Id, now: At) {
        match std::mem::replace(&mut self.entries.slab[id].place, Place::Idle) {
            Place::Held => {
                self.held -= 1;
                self.resume(id, now);
            }
            _ => self.line_up_due(id, &now),
        }
    }

    /// Finds or makes the entry, unless the queue is shut down.
    #[inline]
    pub(super) fn admit(&mut self, key: K, clock: &impl Clock) -> Option<Id> {
        (self.mode == Mode::Open).then(|| {
            self.promote(clock);
            match self.listed.is_empty() {
                true => self.entries.find_or_insert(key),
                false => self.find(&key).unwrap_or_else(|| self.entries.find_or_insert(key)),
            }
        })
    }

    pub(super) fn mark(&mut self, id: Id, came: Meanwhile) {
        let Place::InFlight(meanwhile) = &mut self.entries.slab[id].place else { return };
        match (*meanwhile, came) {
            (Meanwhile::Nothing, _) => {
                self.again += 1;
                *meanwhile = came;
            }
            (Meanwhile::Touched, Meanwhile::Added) => *meanwhile = came,
            _ => {}
        }
    }

    /// Asks the limiter; one that panics gets the floor, as the key must not be lost with it.
    pub(super) fn ask(&self, failures: u32) -> Duration {
        contained(|| self.backoff.delay(failures)).unwrap_or(self.floor)
    }

    /// Counts a failure and raises the back-off. Answers when that is over.
    pub(super) fn fail(&mut self, id: Id, at_least: Duration, clock: &impl Clock) -> At {
        let setback = self.entries.slab[id].set_back();
        setback.failures = setback.failures.saturating_add(1);
        let failures = setback.failures;
        let wait = self.ask(failures).max(at_least);
        let setback = self.entries.slab[id].set_back();
        let now = clock.now();
        setback.gate = setback.gate.max(now.after(wait));
        setback.floor = now.after(wait.min(self.floor));
        setback.cause = Cause::Failure;
        setback.gate
    }

    pub(super) fn settle_unless_away(&mut self, id: Id, clock: &impl Clock) {
        if !matches!(self.entries.slab[id].place, Place::InFlight(_) | Place::Held) {
            self.settle(id, clock);
        }
    }

    /// Puts a key that is to run where it belongs now.
    pub(super) fn settle(&mut self, id: Id, clock: &impl Clock) {
        let entry = &self.entries.slab[id];
        let (due, place) = (entry.due(), entry.place);
        let now = if due == At::START { due } else { clock.now() };
        if due > now {
            if place != Place::Delayed {
                self.leave(id);
            }
            self.put_off(id, due);
        } else {
            self.leave(id);
            self.line_up_due(id, clock);
            self.serve_retries(now);
        }
    }

    pub(super) fn leave(&mut self, id: Id) {
        let slab = &mut self.entries.slab;
        match std::mem::replace(&mut slab[id].place, Place::Idle) {
            Place::Delayed => {
                self.delayed.remove(slab, id);
            }
            Place::Held => {
                self.delayed.remove(slab, id);
                self.held -= 1;
            }
            Place::AwaitsToken => self.awaiting_token.remove(slab, id),
            Place::Ready => self.ready.remove(slab, id),
            Place::Terminal => self.terminal.remove(slab, id),
            Place::Idle | Place::InFlight(_) => {}
        }
    }

    /// Lets a key that stands nowhere, or is delayed already, wait until it is due.
    pub(super) fn put_off(&mut self, id: Id, due: At) {
        self.entries.slab[id].place = Place::Delayed;
        self.delayed.schedule(&mut self.entries.slab, id, due);
    }

    pub(super) fn line_up_due(&mut self, id: Id, clock: &impl Clock) {
        let entry = &mut self.entries.slab[id];
        if entry.setback().cause == Cause::Failure && self.retry_rate.is_some() {
            entry.place = Place::AwaitsToken;
            self.awaiting_token.push_back(&mut self.entries.slab, id);
        } else {
            self.line_up(id, clock);
        }
    }

    pub(super) fn line_up(&mut self, id: Id, clock: &impl Clock) {
        let Self { entries, ready, arrival, stats, .. } = self;
        let entry = &mut entries.slab[id];
        entry.place = Place::Ready;
        // a wait that a hold interrupted goes on, and is counted once
        if !entry.resume_wait() {
            entry.since = stats.lined_up(clock);
        }
        ready.push(&mut entries.slab, id, *arrival);
    }

    /// Notes the priority that is asked for the next run.
    #[inline]
    pub(super) fn raise(&mut self, id: Id, priority: Priority) {
        let entry = &mut self.entries.slab[id];
        match entry.place {
            _ if priority <= entry.priority => {}
            Place::Ready => self.ready.raise(&mut self.entries.slab, id, priority),
            _ => entry.priority = priority,
        }
    }

    /// Lines up the retries that there are tokens for, longest due first.
    pub(super) fn serve_retries(&mut self, now: At) {
        while !self.awaiting_token.is_empty()
            && self.retry_rate.as_mut().is_some_and(|rate| rate.take(now) == Taken::Yes)
        {
            let Some(id) = self.awaiting_token.pop_front(&mut self.entries.slab) else { return };
            self.line_up(id, &now);
        }
    }

    pub(super) fn drop_entries(&mut self, dropped: impl Fn(Place) -> bool) {
        let ids: Vec<Id> =
            self.entries.slab.ids().filter(|id| dropped(self.entries.slab[*id].place)).collect();
        for id in ids {
            self.leave(id);
            self.entries.remove(id);
        }
    }
}

impl<K: QueueKey> State<K> {
    /// Keeps a key from workers until it is released, or for so long. Once shut down, what waits is dropped.
    pub(in crate::workqueue) fn hold(&mut self, key: &K, at_most: Duration, clock: &impl Clock) {
        self.promote(clock);
        let found = match self.mode {
            Mode::Open => self.admit(key.clone(), clock),
            Mode::Draining | Mode::Discarding => self.find(key),
        };
        let Some(id) = found else { return };
        let entry = &mut self.entries.slab[id];
        entry.set_back().held = clock.now().after(at_most);
        match entry.place {
            Place::InFlight(_) => return,
            // a retry that has its token pays no second one
            Place::Ready => {
                entry.skip_backoff();
                entry.set_back().interrupted = true;
            }
            _ => {}
        }
        self.leave(id);
        match self.mode {
            Mode::Open => self.park(id),
            Mode::Draining | Mode::Discarding => self.entries.remove(id),
        }
    }

    /// Ends the hold of a key: it goes on with what was asked for meanwhile, at the back of its line.
    pub(in crate::workqueue) fn release(&mut self, key: &K, clock: &impl Clock) {
        self.promote(clock);
        let Some(id) = self.entries.find(key) else { return };
        let entry = &mut self.entries.slab[id];
        entry.let_go();
        if entry.place == Place::Held {
            let now = clock.now();
            self.leave(id);
            self.resume(id, now);
            self.serve_retries(now);
        }
    }

    /// Returns where a key would stand were it not held.
    pub(super) fn standing(&self, id: Id, clock: &impl Clock) -> Place {
        let entry = &self.entries.slab[id];
        match entry.place {
            Place::Held if entry.delay != At::NEVER => match entry.setback().cause {
                _ if entry.due() > clock.now() => Place::Delayed,
                Cause::Failure if self.retry_rate.is_some() => Place::AwaitsToken,
                _ => Place::Ready,
            },
            Place::Held if entry.setback().cause == Cause::Terminal => Place::Terminal,
            Place::Held => Place::Idle,
            place => place,
        }
    }

    /// Puts a key that stands nowhere among those that are held.
    pub(super) fn park(&mut self, id: Id) {
        let entry = &mut self.entries.slab[id];
        entry.place = Place::Held;
        self.held += 1;
        let until = entry.setback().held;
        self.delayed.schedule(&mut self.entries.slab, id, until);
    }

    /// Ends the hold of a key that left the others that are held.
    pub(super) fn resume(&mut self, id: Id, now: At) {
        let entry = &mut self.entries.slab[id];
        entry.let_go();
        match entry.due() {
            _ if entry.delay == At::NEVER => self.rest(id),
            due if due > now => self.put_off(id, due),
            _ => self.line_up_due(id, &now),
        }
    }

    /// Whether a key is held beyond now; a hold that is over is forgotten.
    pub(super) fn stays_held(&mut self, id: Id, clock: &impl Clock) -> bool {
        let entry = &mut self.entries.slab[id];
        if entry.setback().held == At::START {
            return false;
        }
        if entry.setback().held <= clock.now() {
            entry.let_go();
        }
        entry.setback().held != At::START
    }
}

impl<K: QueueKey> State<K> {
    /// Ends a run.
    #[inline]
    ///
    /// A run that is to follow for its outcome has `priority` at least.
    pub(in crate::workqueue) fn finish(
        &mut self,
        id: Id,
        outcome: Outcome,
        priority: Priority,
        clock: &impl Clock,
    ) {
        self.promote(clock);
        self.flights.remove(&mut self.entries.slab, id);
        let entry = &mut self.entries.slab[id];
        entry.since = self.stats.ended(entry.since, clock);
        let meanwhile = match std::mem::replace(&mut entry.place, Place::Idle) {
            Place::InFlight(meanwhile) => meanwhile,
            _ => Meanwhile::Nothing,
        };
        self.again -= usize::from(meanwhile != Meanwhile::Nothing);
        self.conclude(id, outcome, clock);
        if outcome.asks_again() {
            self.raise(id, priority);
        }
        let entry = &mut self.entries.slab[id];
        match meanwhile {
            Meanwhile::Added => entry.expedite(),
            Meanwhile::Touched if matches!(outcome, Outcome::Done | Outcome::Forget) => {
                entry.delay = At::START
            }
            _ => {}
        }
        let owed = meanwhile != Meanwhile::Nothing;
        match self.stays_held(id, clock) {
            true if self.mode == Mode::Open => self.park(id),
            false if self.may_schedule(id, owed, clock) => self.settle(id, clock),
            _ => self.rest(id),
        }
    }

    fn conclude(&mut self, id: Id, outcome: Outcome, clock: &impl Clock) {
        if matches!(outcome, Outcome::Retry { .. } | Outcome::RetryUncounted) {
            self.stats.retries += 1;
        }
        if let Outcome::Retry { at_least } = outcome {
            self.fail(id, at_least, clock);
        } else if outcome == Outcome::Terminal {
            self.fail(id, Duration::ZERO, clock);
        }
        let entry = &mut self.entries.slab[id];
        match outcome {
            Outcome::RetryUncounted => {
                let setback = entry.set_back();
                setback.uncounted = setback.uncounted.saturating_add(1);
            }
            _ => entry.relieve(|setback| setback.uncounted = 0),
        }
        match outcome {
            Outcome::Done => {}
            Outcome::Forget => entry.succeed(),
            Outcome::RequeueAfter(delay) => {
                entry.succeed();
                entry.delay = entry.delay.min(clock.now().after(delay));
            }
            Outcome::Retry { .. } => entry.delay = At::START,
            Outcome::RetryUncounted => {
                let uncounted = entry.setback().uncounted.into();
                let first = self.first_step.unwrap_or_else(|| self.ask(1));
                self.first_step = Some(first);
                let step = if uncounted == 1 { first } else { self.ask(uncounted) };
                let step = step.min(self.floor.max(first));
                let entry = &mut self.entries.slab[id];
                let now = clock.now();
                entry.delay = At::START;
                let setback = entry.set_back();
                setback.gate = now.after(step);
                setback.floor = now.after(first.min(step));
                setback.cause = Cause::Plain;
            }
            // a timer that somebody asked for meanwhile still counts
            Outcome::Terminal => {
                let setback = entry.set_back();
                setback.gate = setback.floor;
                setback.cause = Cause::Terminal;
            }
            Outcome::PutBack => entry.skip_backoff(),
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
    pub(super) fn rest(&mut self, id: Id) {
        let entry = &mut self.entries.slab[id];
        entry.delay = At::NEVER;
        entry.priority = Priority::Low;
        let Setback { cause, failures, .. } = *entry.setback();
        match cause {
            _ if failures == 0 => self.entries.remove(id),
            Cause::Terminal => {
                entry.place = Place::Terminal;
                self.terminal.push_back(&mut self.entries.slab, id);
            }
            _ => entry.clear_schedule(),
        }
    }
}

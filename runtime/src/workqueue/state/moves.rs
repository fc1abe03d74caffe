//! How keys move from place to place.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// So many leave the heap one by one, or a sixteenth of it; of more, all at once.
const FEW: usize = 64;

impl<K: QueueKey> State<K> {
    /// ReadyQueue up what has fallen due, in the order in which it did.
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
            let Some(id) = self.delayed.pop_due(now) else { break };
            self.fall_due(id, now);
        }
        if self.delayed.earliest() <= now {
            for id in self.delayed.take_due(now) {
                self.fall_due(id, now);
            }
        }
        self.serve_retries(now);
    }

    /// ReadyQueue up a key that left the heap, or ends its hold.
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
            match self.lists.is_empty() {
                true => self.entries.find_or_insert(key),
                false => self.find(&key).unwrap_or_else(|| self.entries.find_or_insert(key)),
            }
        })
    }

    pub(super) fn mark(&mut self, id: Id, came: Meanwhile) {
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

    /// Asks the limiter; one that panics gets the floor, as the key must not be lost with it.
    pub(super) fn ask(&self, failures: u32) -> Duration {
        catch_unwind(AssertUnwindSafe(|| self.backoff.delay(failures))).unwrap_or(self.floor)
    }

    /// Counts a failure and raises the back-off. Answers when that is over.
    pub(super) fn fail(&mut self, id: Id, at_least: Duration, clock: &impl Clock) -> At {
        let entry = &mut self.entries.slab[id];
        entry.failures = entry.failures.saturating_add(1);
        let failures = entry.failures;
        let wait = self.ask(failures).max(at_least);
        let entry = &mut self.entries.slab[id];
        let now = clock.now();
        entry.gate = entry.gate.max(now.after(wait));
        entry.floor = now.after(wait.min(self.floor));
        entry.cause = Cause::Failure;
        entry.gate
    }

    pub(super) fn settle_unless_away(&mut self, id: Id, clock: &impl Clock) {
        if !matches!(self.entries.slab[id].place, Place::InFlight | Place::Held) {
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
                self.delayed.remove(id);
            }
            Place::Held => {
                self.delayed.remove(id);
                self.held -= 1;
            }
            Place::AwaitsToken => self.awaiting_token.remove(slab, id),
            Place::Ready => self.ready.remove(slab, id),
            Place::Terminal => self.terminal.remove(slab, id),
            Place::Idle | Place::InFlight => {}
        }
    }

    /// Lets a key that stands nowhere, or is delayed already, wait until it is due.
    pub(super) fn put_off(&mut self, id: Id, due: At) {
        self.entries.slab[id].place = Place::Delayed;
        self.delayed.schedule(id, due);
    }

    pub(super) fn line_up_due(&mut self, id: Id, clock: &impl Clock) {
        let entry = &mut self.entries.slab[id];
        if entry.cause == Cause::Failure && self.retry_rate.is_some() {
            entry.place = Place::AwaitsToken;
            self.awaiting_token.push_back(&mut self.entries.slab, id);
        } else {
            self.line_up(id, clock);
        }
    }

    pub(super) fn line_up(&mut self, id: Id, clock: &impl Clock) {
        let Self { entries, ready, lists, stats, .. } = self;
        let entry = &mut entries.slab[id];
        entry.place = Place::Ready;
        // a wait that a hold interrupted goes on, and is counted once
        if !entry.waits {
            entry.waits = true;
            entry.since = stats.lined_up(clock);
        }
        ready.push(&mut entries.slab, id, lists.now());
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

    /// ReadyQueue up the retries that there are tokens for, longest due first.
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

//! How a run ends, and what becomes of its key.

use super::*;

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
        let meanwhile = std::mem::replace(&mut entry.meanwhile, Meanwhile::Nothing);
        entry.place = Place::Idle;
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
                let uncounted = entry.uncounted.into();
                let first = self.first_step.unwrap_or_else(|| self.ask(1));
                self.first_step = Some(first);
                let step = if uncounted == 1 { first } else { self.ask(uncounted) };
                let step = step.min(self.floor.max(first));
                let entry = &mut self.entries.slab[id];
                let now = clock.now();
                entry.gate = now.after(step);
                entry.floor = now.after(first.min(step));
                entry.delay = At::START;
                entry.cause = Cause::Plain;
            }
            // a timer that somebody asked for meanwhile still counts
            Outcome::Terminal => {
                entry.gate = entry.floor;
                entry.cause = Cause::Terminal;
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
        match entry.cause {
            _ if entry.failures == 0 => self.entries.remove(id),
            Cause::Terminal => {
                entry.place = Place::Terminal;
                self.terminal.push_back(&mut self.entries.slab, id);
            }
            _ => entry.clear_schedule(),
        }
    }
}

//! What the queue counts, as plain numbers under the lock that it holds anyway.

use super::clock::{At, Clock};
use crate::metrics::Durations;

/// What happened since the queue was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Stats {
    /// Keys lined up for a worker.
    pub(super) adds: u64,
    /// Runs asked for by a failure, or instead of one.
    pub(super) retries: u64,
    /// Counted once somebody reads them: the looks at the clock are most of what they cost.
    times: Option<Box<Times>>,
}

/// How long things took.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// How long keys were ready before they were handed out.
    pub(super) waits: Durations,
    /// How long they were in flight.
    pub(super) runs: Durations,
}

impl Stats {
    /// Counts times from now on.
    pub(super) fn keep_times(&mut self) {
        self.times.get_or_insert_default();
    }

    #[inline]
    pub(super) fn keeps_times(&self) -> bool {
        self.times.is_some()
    }

    /// Returns the times so far.
    pub(super) fn times(&self) -> Times {
        self.times.as_deref().cloned().unwrap_or_default()
    }

    /// Returns the time, if times are kept; never otherwise.
    #[inline]
    pub(super) fn now(&self, clock: &impl Clock) -> At {
        if self.times.is_some() { clock.now() } else { At::NEVER }
    }

    /// Counts a key that begins to wait for a worker. Answers since when it does.
    #[inline]
    pub(super) fn lined_up(&mut self, clock: &impl Clock) -> At {
        self.adds += 1;
        self.now(clock)
    }

    /// Counts the wait of a key that a worker takes. Answers since when it is in flight.
    #[inline]
    pub(super) fn handed_out(&mut self, since: At, clock: &impl Clock) -> At {
        let Some(times) = &mut self.times else { return At::NEVER };
        let now = clock.now();
        observe(&mut times.waits, since, now);
        now
    }

    /// Counts the run that ends. Answers never: the key is neither ready nor in flight.
    #[inline]
    pub(super) fn ended(&mut self, since: At, clock: &impl Clock) -> At {
        if let Some(times) = &mut self.times {
            observe(&mut times.runs, since, clock.now());
        }
        At::NEVER
    }
}

/// Counts a time that began when times were kept already.
fn observe(durations: &mut Durations, since: At, now: At) {
    if since != At::NEVER {
        durations.observe(now.since(since));
    }
}

//! What the queue counts, as plain numbers under its lock.

use super::clock::{At, TimeSource};
use crate::metrics::Durations;

/// What happened since the queue was made.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueStats {
    /// Keys that became ready.
    pub(super) adds: u64,
    /// Runs asked for by a failure, or instead of one.
    pub(super) retries: u64,
    /// Kept only if they are reported: reading the clock is most of what they cost.
    pub(super) times: Option<Box<QueueTimes>>,
}

/// How long things took.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueTimes {
    /// How long keys were ready before they were handed out.
    pub(super) waits: Durations,
    /// How long they were in flight.
    pub(super) runs: Durations,
}

impl QueueStats {
    /// Counts the wait of a key that a worker takes, unless it began before times were kept. Returns since when it is in
    /// flight, or never.
    #[inline]
    pub(super) fn handed_out(&mut self, since: At, clock: &impl TimeSource) -> At {
        let Some(times) = &mut self.times else { return At::NEVER };
        let now = clock.now();
        if since != At::NEVER {
            times.waits.observe(now.since(since));
        }
        now
    }

    /// Counts the run that ends.
    #[inline]
    pub(super) fn ended(&mut self, since: At, clock: &impl TimeSource) {
        if let Some(times) = &mut self.times
            && since != At::NEVER
        {
            times.runs.observe(clock.now().since(since));
        }
    }
}

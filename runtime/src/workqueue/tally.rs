//! What the queue counts, as plain numbers under the lock that it holds anyway.

use std::time::Duration;

use crate::metrics::Durations;

/// What happened since the queue was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Keys lined up for a worker.
    pub(super) adds: u64,
    /// Runs asked for by a failure, or instead of one.
    pub(super) retries: u64,
    /// Counted once somebody reads them: a look at the clock for each run is most of what they cost.
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

impl Tally {
    /// Counts times from now on.
    pub(super) fn keep_times(&mut self) {
        self.times.get_or_insert_default();
    }

    /// Tells the times so far.
    pub(super) fn times(&self) -> Times {
        self.times.as_deref().cloned().unwrap_or_default()
    }

    #[inline]
    pub(super) fn waited(&mut self, time: impl FnOnce() -> Duration) {
        if let Some(times) = &mut self.times {
            times.waits.observe(time());
        }
    }

    #[inline]
    pub(super) fn ran(&mut self, time: impl FnOnce() -> Duration) {
        if let Some(times) = &mut self.times {
            times.runs.observe(time());
        }
    }
}

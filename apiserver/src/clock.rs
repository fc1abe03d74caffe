//! The clock: tokio's time on top of a moment, so paused tests choose both.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time: an origin plus what tokio's clock has moved since.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    origin: Timestamp,
    started: Instant,
}

impl Clock {
    /// Starts a clock that shows `origin` now.
    pub(crate) fn starting_at(origin: Timestamp) -> Self {
        Self { origin, started: Instant::now() }
    }

    /// Starts a clock that shows the machine's time, for servers that other machines' clients use.
    pub(crate) fn wall() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// Gives the present moment.
    pub(crate) fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::ZERO);
        self.origin.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// Writes the present moment with whole seconds, as metadata has it.
    pub(crate) fn seconds(&self) -> String {
        seconds_text(self.now())
    }
}

/// Writes a moment with whole seconds.
pub(crate) fn seconds_text(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Default for Clock {
    /// Starts at the first second of 2026: equal runs give equal times.
    fn default() -> Self {
        Self::starting_at(Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH))
    }
}

//! The clock: tokio's time on top of a moment, so paused tests choose both.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the server's time: an origin, what tokio's clock has moved since, and a skew.
///
/// A clone is the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: Timestamp,
    started: Instant,
    /// In milliseconds.
    skew: Arc<AtomicI64>,
}

impl Clock {
    /// Starts a clock that shows `origin` now.
    pub(crate) fn starting_at(origin: Timestamp) -> Self {
        Self { origin, started: Instant::now(), skew: Arc::default() }
    }

    /// Starts a clock that shows the machine's time, for servers that other machines' clients use.
    pub(crate) fn wall() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// Returns the present moment, skew included.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::ZERO);
        let skew = SignedDuration::from_millis(self.skew.load(Ordering::Relaxed));
        self.origin.saturating_add(passed).and_then(|now| now.saturating_add(skew)).unwrap_or(Timestamp::MAX)
    }

    /// Makes the clock wrong by so much from now on, to the millisecond; the last call counts, zero ends it.
    ///
    /// It shows in what the server writes: times of creation and deletion, of conditions and of managed fields.
    /// A client does not compare these with its own clock, but for ages it shows to people.
    pub fn skew(&self, by: SignedDuration) {
        let millis =
            i64::try_from(by.as_millis()).unwrap_or(if by.is_negative() { i64::MIN } else { i64::MAX });
        self.skew.store(millis, Ordering::Relaxed);
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

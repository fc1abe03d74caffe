//! The clock: tokio's time on top of a moment, so paused tests choose both.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

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
pub fn seconds_text(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Default for Clock {
    /// Starts at the second that it is: what a client compares with its own clock is as old as it should be.
    ///
    /// A clock that started within a second would turn to the next one at another moment in each run.
    fn default() -> Self {
        Self::starting_at(Timestamp::from_second(system_now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH))
    }
}

/// Reads the machine's clock, moved by as much as tokio's clock is off the real one: so a client's clock follows paused
/// time too.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the seam: it alone may see real time, to follow a paused clock"
)]
fn system_now() -> Timestamp {
    let (wall, real) = (std::time::SystemTime::now(), std::time::Instant::now());
    let followed = Instant::now().into_std();
    let moved = match followed.checked_duration_since(real) {
        Some(ahead) => wall.checked_add(ahead),
        None => wall.checked_sub(real.duration_since(followed)),
    };
    Timestamp::try_from(moved.unwrap_or(wall)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Waits until a second of the machine's clock begins: what is done from then on falls into the same seconds each time.
pub async fn begin_of_second() {
    let passed = u64::try_from(system_now().subsec_nanosecond()).unwrap_or_default();
    // A millisecond more, by which the clocks may be off each other.
    tokio::time::sleep(Duration::from_nanos(1_001_000_000 - passed)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds by which a clock is ahead of the machine's.
    fn ahead(clock: &Clock) -> f64 {
        clock.now().duration_since(Timestamp::now()).as_secs_f64()
    }

    // A65
    #[tokio::test(start_paused = true)]
    async fn a_server_begins_at_the_time_of_the_machine_and_goes_on_with_tokios() {
        let early = Clock::default();
        assert!(ahead(&early).abs() < 5.0, "{}", ahead(&early));
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!((ahead(&early) - 3_600.0).abs() < 5.0, "{}", ahead(&early));
        let late = Clock::default();
        assert!((ahead(&late) - 3_600.0).abs() < 5.0, "a server that starts later: {}", ahead(&late));
    }

    // A65
    #[tokio::test(start_paused = true)]
    async fn a_clock_begins_with_a_whole_second() {
        assert_eq!(Clock::default().now().subsec_nanosecond(), 0);
        begin_of_second().await;
        let passed = system_now().subsec_nanosecond();
        assert!(passed < 100_000_000, "{passed}");
    }
}

//! The one clock that server and measured process share: the machine's wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the wall time, in nanoseconds.
pub(crate) fn wall_nanos() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "two processes measure one event")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Returns how many microseconds have passed since a wall time.
pub(crate) fn micros_since(nanos: u64) -> f64 {
    wall_nanos().saturating_sub(nanos) as f64 / 1_000.0
}

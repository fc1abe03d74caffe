//! The one place that reads the wall clock, and what its lead over the monotonic clock tells.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

/// Tells the time of day.
///
/// By default the system's; where tokio's clock is paused, it stands still and moves with that one. Only what
/// people read, or what must outlast a suspended machine, belongs on it: durations are measured on tokio's clock.
#[derive(Clone, Default)]
pub struct WallClock {
    reading: Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>,
}

impl WallClock {
    /// Reads the system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// Takes a function for the clock: a test's, mostly.
    pub fn custom(reading: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { reading: Some(Arc::new(reading)) }
    }

    /// Tells the time of day.
    pub fn now(&self) -> SystemTime {
        match &self.reading {
            Some(reading) => reading(),
            None => system_now(),
        }
    }

    /// Reads it and the monotonic clock.
    pub(crate) fn read(&self) -> Reading {
        Reading { monotonic: Instant::now(), wall: self.now() }
    }
}

/// What both clocks show at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) monotonic: Instant,
    pub(crate) wall: SystemTime,
}

impl Reading {
    /// Returns the wall time in microseconds since 1970.
    pub(crate) fn unix_micros(&self) -> i64 {
        let passed = self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(passed.as_micros()).unwrap_or(i64::MAX)
    }
}

/// Measures the time since a moment by whichever clock says more: one of them may have stood still.
///
/// The monotonic clock stands still while a machine is suspended. A wall clock that was set back begins anew from
/// there, so that it still shows a suspension that comes later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    from: Reading,
    before: Duration,
}

impl Since {
    pub(crate) fn start(from: Reading) -> Self {
        Self { from, before: Duration::ZERO }
    }

    pub(crate) fn measure(&mut self, now: Reading) -> Duration {
        let monotonic = now.monotonic.saturating_duration_since(self.from.monotonic);
        let wall = now.wall.duration_since(self.from.wall).unwrap_or_default();
        let passed = self.before.saturating_add(monotonic.max(wall));
        if wall + SET_BACK < monotonic {
            *self = Self { from: now, before: passed };
        }
        passed
    }
}

/// By how much a wall clock must be behind to have been set back.
const SET_BACK: Duration = Duration::from_millis(500);

/// Reads the system's clock, moved by as much as tokio's clock is off the real one.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the seam: it alone may see real time, to follow a paused clock"
)]
fn system_now() -> SystemTime {
    let (wall, real) = (SystemTime::now(), std::time::Instant::now());
    let followed = Instant::now().into_std();
    match followed.checked_duration_since(real) {
        Some(ahead) => wall + ahead,
        None => wall - real.duration_since(followed),
    }
}

/// Returns the time after a wait; one that leads beyond the end of time is thirty years long.
pub(crate) fn after(from: Instant, wait: Duration) -> Instant {
    const LONG: Duration = Duration::from_secs(30 * 365 * 86_400);
    from.checked_add(wait).or_else(|| from.checked_add(LONG)).unwrap_or(from)
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.reading.is_some() { "WallClock::custom" } else { "WallClock::system" })
    }
}

/// Measures by how much the wall clock runs ahead of the monotonic one, which stops while a machine is suspended.
#[derive(Debug)]
pub(crate) struct Lead {
    clock: WallClock,
    wall: SystemTime,
    monotonic: Instant,
}

impl Lead {
    /// Starts to measure.
    pub(crate) fn start(clock: WallClock) -> Self {
        Self { wall: clock.now(), monotonic: Instant::now(), clock }
    }

    /// Returns the lead since the start; a clock that was set back starts the measuring anew.
    pub(crate) fn measure(&mut self) -> Duration {
        let (wall, monotonic) = (self.clock.now(), Instant::now());
        let passed = wall.duration_since(self.wall).unwrap_or_default();
        match passed.checked_sub(monotonic - self.monotonic) {
            Some(lead) => lead,
            None => {
                (self.wall, self.monotonic) = (wall, monotonic);
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::{advance, sleep};

    use super::*;

    const ABOUT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn the_system_clock_follows_a_paused_one() {
        let clock = WallClock::system();
        let begun = clock.now();
        sleep(Duration::from_secs(1_000)).await;
        let passed = clock.now().duration_since(begun).unwrap();
        assert!(passed.abs_diff(Duration::from_secs(1_000)) < ABOUT, "{passed:?}");
    }

    // L5
    #[test]
    fn time_since_a_moment_is_what_the_clock_that_ran_on_shows() {
        let start = Reading { monotonic: Instant::now(), wall: SystemTime::UNIX_EPOCH + 9_000 * ABOUT };
        let at = |monotonic: u64, wall: i64| {
            let ahead = Duration::from_secs(wall.unsigned_abs());
            let wall = if wall < 0 { start.wall - ahead } else { start.wall + ahead };
            Reading { monotonic: start.monotonic + Duration::from_secs(monotonic), wall }
        };
        let measured = |readings: &[Reading]| {
            let mut since = Since::start(start);
            readings.iter().map(|now| since.measure(*now).as_secs()).last().unwrap()
        };
        assert_eq!(measured(&[at(3, 3)]), 3);
        assert_eq!(measured(&[at(1, 3_600)]), 3_600, "suspended, or set forward");
        assert_eq!(measured(&[at(7, -600)]), 7, "set back");
        assert_eq!(measured(&[at(1, -600), at(2, -300)]), 301, "set back, then suspended");
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_wall_clock_that_runs_ahead_leads() {
        let wall = Arc::new(Mutex::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000)));
        let read = wall.clone();
        let mut lead = Lead::start(WallClock::custom(move || *read.lock().unwrap()));
        *wall.lock().unwrap() += Duration::from_secs(40);
        advance(Duration::from_secs(10)).await;
        assert_eq!(lead.measure(), Duration::from_secs(30));
        *wall.lock().unwrap() -= Duration::from_secs(500);
        assert_eq!(lead.measure(), Duration::ZERO);
        // Set back once, it still shows what comes later.
        *wall.lock().unwrap() += Duration::from_secs(60);
        assert_eq!(lead.measure(), Duration::from_secs(60));
    }
}

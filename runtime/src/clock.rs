//! The one place that reads the wall clock, and compares it with the monotonic clock.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, sleep_until};

/// Returns the time of day.
///
/// The default is the system's clock. If tokio's clock is paused, this one moves with it. Use it only for times that
/// people read, and for times that must survive a suspended machine. Measure durations on tokio's clock.
#[derive(Clone, Default)]
#[doc(hidden)]
pub struct WallClock {
    reading: Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>,
}

impl WallClock {
    /// Reads the system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// Uses a function as the clock, mostly in tests.
    pub fn custom(reading: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { reading: Some(Arc::new(reading)) }
    }

    /// Returns the time of day.
    pub fn now(&self) -> SystemTime {
        match &self.reading {
            Some(reading) => reading(),
            None => system_now(),
        }
    }

    /// Reads this clock and the monotonic one.
    pub(crate) fn read(&self) -> ClockReading {
        ClockReading { monotonic: Instant::now(), wall: self.now() }
    }
}

/// The times of both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) monotonic: Instant,
    pub(crate) wall: SystemTime,
}

impl ClockReading {
    /// Returns the wall time in microseconds since 1970.
    pub(crate) fn unix_micros(&self) -> i64 {
        let passed = self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(passed.as_micros()).unwrap_or(i64::MAX)
    }
}

/// Measures the time since a moment by the clock that shows more, since one of them may have stopped.
///
/// The monotonic clock stops while a machine is suspended. If the wall clock was set back, the measurement starts again
/// from there, so that it still shows a later suspension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    from: ClockReading,
    before: Duration,
}

impl Since {
    pub(crate) fn start(from: ClockReading) -> Self {
        Self { from, before: Duration::ZERO }
    }

    pub(crate) fn measure(&mut self, now: ClockReading) -> Duration {
        let monotonic = now.monotonic.saturating_duration_since(self.from.monotonic);
        let wall = now.wall.duration_since(self.from.wall).unwrap_or_default();
        let passed = self.before.saturating_add(monotonic.max(wall));
        if wall + SET_BACK < monotonic {
            *self = Self { from: now, before: passed };
        }
        passed
    }
}

/// A wall clock that falls behind by more than this was set back.
const SET_BACK: Duration = Duration::from_millis(500);

/// Reads the system's clock, shifted by the difference between tokio's clock and the real one.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the only place that may read real time, to follow a paused clock"
)]
fn system_now() -> SystemTime {
    let (wall, real) = (SystemTime::now(), std::time::Instant::now());
    let followed = Instant::now().into_std();
    match followed.checked_duration_since(real) {
        Some(ahead) => wall + ahead,
        None => wall - real.duration_since(followed),
    }
}

/// A moment, for people and programs.
///
/// It is measured on tokio's clock and shown as the time of day in UTC, to the second: `2026-11-22T05:40:01Z`. If the
/// machine's date is changed, the shown time changes too; the measured moment does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Instant);

impl Moment {
    /// Returns the current moment.
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// Returns the moment on tokio's clock.
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Returns the moment as time of day.
    pub fn time(self) -> SystemTime {
        let (wall, now) = (system_now(), Instant::now());
        let shown = match self.0.checked_duration_since(now) {
            Some(ahead) => wall.checked_add(ahead),
            None => wall.checked_sub(now.duration_since(self.0)),
        };
        shown.unwrap_or(wall)
    }

    /// Returns how long ago it was; zero if it is still to come.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Returns how long it is until then; zero if it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

impl From<Instant> for Moment {
    fn from(instant: Instant) -> Self {
        Self(instant)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::try_from(self.time()) {
            Ok(time) => write!(f, "{time:.0}"),
            // Beyond the year 9999.
            Err(_) => f.write_str("never"),
        }
    }
}

/// Serialized as it is displayed.
impl serde::Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns a duration as text for people, in two units at most: `40ms`, `3.2s`, `2m 5s`, `3d 4h`.
pub(crate) fn readable(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let (secs, millis) = (duration.as_secs(), duration.subsec_millis());
    match secs {
        _ if duration.is_zero() => "0s".to_owned(),
        0 if millis == 0 => "less than 1ms".to_owned(),
        0 => format!("{millis}ms"),
        1..10 if millis >= 100 => format!("{secs}.{}s", millis / 100),
        1..60 => format!("{secs}s"),
        _ => {
            let at = UNITS.iter().position(|(unit, _)| secs >= *unit).unwrap_or(3);
            let ((unit, name), (part, part_name)) = (UNITS[at], UNITS[(at + 1).min(3)]);
            match secs % unit / part {
                0 => format!("{}{name}", secs / unit),
                rest => format!("{}{name} {rest}{part_name}", secs / unit),
            }
        }
    }
}

/// Returns the time after a wait. A wait that is too long for the clock becomes thirty years.
pub(crate) fn after(from: Instant, wait: Duration) -> Instant {
    const LONG: Duration = Duration::from_secs(30 * 365 * 86_400);
    from.checked_add(wait).or_else(|| from.checked_add(LONG)).unwrap_or(from)
}

/// Waits until a time; for ever if there is none.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.reading.is_some() { "WallClock::custom" } else { "WallClock::system" })
    }
}

/// Measures how far the wall clock is ahead of the monotonic one, which stops while a machine is suspended.
#[derive(Debug)]
pub(crate) struct Lead {
    clock: WallClock,
    from: ClockReading,
}

impl Lead {
    /// Starts the measurement.
    pub(crate) fn start(clock: WallClock) -> Self {
        Self { from: clock.read(), clock }
    }

    /// Returns the lead since the start. If the clock was set back, the measurement starts again.
    pub(crate) fn measure(&mut self) -> Duration {
        let now = self.clock.read();
        let passed = now.wall.duration_since(self.from.wall).unwrap_or_default();
        let lead = passed.checked_sub(now.monotonic - self.from.monotonic);
        if lead.is_none() {
            self.from = now;
        }
        lead.unwrap_or_default()
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
        let start = ClockReading { monotonic: Instant::now(), wall: SystemTime::UNIX_EPOCH + 9_000 * ABOUT };
        let at = |monotonic: u64, wall: i64| {
            let ahead = Duration::from_secs(wall.unsigned_abs());
            let wall = if wall < 0 { start.wall - ahead } else { start.wall + ahead };
            ClockReading { monotonic: start.monotonic + Duration::from_secs(monotonic), wall }
        };
        let measured = |readings: &[ClockReading]| {
            let mut since = Since::start(start);
            readings.iter().map(|now| since.measure(*now).as_secs()).last().unwrap()
        };
        assert_eq!(measured(&[at(3, 3)]), 3);
        assert_eq!(measured(&[at(1, 3_600)]), 3_600, "suspended, or set forward");
        assert_eq!(measured(&[at(7, -600)]), 7, "set back");
        assert_eq!(measured(&[at(1, -600), at(2, -300)]), 301, "set back, then suspended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_shown_as_time_of_day() {
        let begun = WallClock::system().now();
        let moment = Moment::from(Instant::now() + Duration::from_secs(3_600));
        let ahead = moment.time().duration_since(begun).unwrap();
        assert!(ahead.abs_diff(Duration::from_secs(3_600)) < ABOUT, "{ahead:?}");
        let shown = moment.to_string();
        assert!(shown.len() == 20 && shown.ends_with('Z'), "{shown}");
        assert_eq!(shown.parse::<jiff::Timestamp>().unwrap().as_second(), {
            jiff::Timestamp::try_from(moment.time()).unwrap().as_second()
        });
        assert_eq!((moment.left(), moment.elapsed()), (Duration::from_secs(3_600), Duration::ZERO));
        advance(Duration::from_secs(3_640)).await;
        assert_eq!((moment.left(), moment.elapsed()), (Duration::ZERO, Duration::from_secs(40)));
        let shown = Moment::from(after(Instant::now(), Duration::MAX)).to_string();
        assert!(shown.starts_with("20"), "thirty years: {shown}");
    }

    #[test]
    fn durations_are_written_in_two_units_at_most() {
        let written = [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(1), "less than 1ms"),
            (Duration::from_micros(40_900), "40ms"),
            (Duration::from_millis(1_000), "1s"),
            (Duration::from_millis(3_250), "3.2s"),
            (Duration::from_millis(59_999), "59s"),
            (Duration::from_secs(60), "1m"),
            (Duration::from_secs(125), "2m 5s"),
            (Duration::from_secs(3_600), "1h"),
            (Duration::from_secs(3_601), "1h"),
            (Duration::from_secs(11_400), "3h 10m"),
            (Duration::from_secs(3 * 86_400 + 4 * 3_600), "3d 4h"),
            (Duration::MAX, "213503982334601d 7h"),
        ];
        for (duration, text) in written {
            assert_eq!(readable(duration), text, "{duration:?}");
        }
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
        // After it was set back once, it still shows a later lead.
        *wall.lock().unwrap() += Duration::from_secs(60);
        assert_eq!(lead.measure(), Duration::from_secs(60));
    }
}

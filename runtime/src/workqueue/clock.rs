//! Time as the pure parts see it: nanoseconds since the queue was made.

use std::time::Duration;

use tokio::time::Instant;

/// A moment, counted from when the queue was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(u64);

impl At {
    pub(super) const START: Self = Self(0);
    /// Later than all else: no time was asked for.
    pub(super) const NEVER: Self = Self(u64::MAX);
    /// Too late for a timer (584 years). It was asked for, but no timer is armed for it.
    pub(super) const LATEST: Self = Self(u64::MAX - 1);

    pub(super) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(super) const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since an earlier moment, or zero if that moment is later.
    pub(super) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Adds a delay. The result is [`At::LATEST`] at most.
    pub(super) fn after(self, delay: Duration) -> Self {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos)).min(Self::LATEST)
    }
}

/// Where an operation reads the time, if it needs it.
///
/// To read the clock costs about as much as the rest of an operation, and most operations do not need it.
pub(super) trait TimeSource {
    fn now(&self) -> At;
}

/// A moment that is known already. Tests pass it too.
impl TimeSource for At {
    #[inline]
    fn now(&self) -> At {
        *self
    }
}

/// The tokio clock, counted from one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockOrigin(Instant);

impl ClockOrigin {
    pub(super) fn starting_now() -> Self {
        Self(Instant::now())
    }

    /// Translates from tokio's clock.
    pub(super) fn at(self, instant: Instant) -> At {
        At::START.after(instant.duration_since(self.0))
    }

    /// Translates to tokio's clock. A moment that it cannot represent becomes one in thirty years.
    pub(super) fn instant(self, at: At) -> Instant {
        const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 86_400);
        self.0.checked_add(Duration::from_nanos(at.nanos())).unwrap_or_else(|| self.0 + THIRTY_YEARS)
    }

    /// Translates to tokio's clock, unless no time was kept.
    pub(super) fn known_instant(self, at: At) -> Option<Instant> {
        (at != At::NEVER).then(|| self.instant(at))
    }
}

impl TimeSource for ClockOrigin {
    #[inline]
    fn now(&self) -> At {
        self.at(Instant::now())
    }
}

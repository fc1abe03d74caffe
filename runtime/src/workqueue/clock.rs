//! Time as the pure parts see it: nanoseconds since the queue was made.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// A moment, counted from the queue's making.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(u64);

impl At {
    pub(super) const START: Self = Self(0);
    /// Later than all else: nothing was asked for.
    pub(super) const NEVER: Self = Self(u64::MAX);
    /// What is too late for a timer (584 years): asked for, but no timer is armed for it.
    pub(super) const LATEST: Self = Self(u64::MAX - 1);

    pub(super) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(super) const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns how long it is since an earlier moment; nothing if that is later.
    pub(super) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Adds, and never overflows: it ends at [`At::LATEST`].
    pub(super) fn after(self, delay: Duration) -> Self {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos)).min(Self::LATEST)
    }
}

/// Tells the time to a state machine, if it asks.
pub(super) trait Clock {
    fn now(&self) -> At;
}

/// A time that stands still: what tests pass in.
impl Clock for At {
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

    /// Translates back to tokio's clock; a moment too far to tell becomes the epoch's thirtieth year.
    pub(super) fn instant(self, at: At) -> Instant {
        const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 86_400);
        self.0.checked_add(Duration::from_nanos(at.nanos())).unwrap_or_else(|| self.0 + THIRTY_YEARS)
    }
}

impl Clock for ClockOrigin {
    #[inline]
    fn now(&self) -> At {
        self.at(Instant::now())
    }
}

/// The time of one operation: read when first asked for, and the same from then on.
///
/// Reading the clock costs as much as the rest of an operation: most do not ask, and none pays twice.
#[derive(Debug)]
pub(super) struct LazyNow {
    origin: ClockOrigin,
    read: Cell<Option<At>>,
}

impl LazyNow {
    #[inline]
    pub(super) const fn of(origin: ClockOrigin) -> Self {
        Self { origin, read: Cell::new(None) }
    }

    /// The time of an operation at a moment that is known, if it is.
    #[inline]
    pub(super) const fn known(origin: ClockOrigin, at: Option<At>) -> Self {
        Self { origin, read: Cell::new(at) }
    }
}

impl Clock for LazyNow {
    #[inline]
    fn now(&self) -> At {
        self.read.get().unwrap_or_else(|| {
            let now = self.origin.now();
            self.read.set(Some(now));
            now
        })
    }
}

//! What debug pages, metrics and tests read of the queue.

use tokio::time::Instant;

use super::clock::{At, ClockOrigin};
use super::entries::{Entry, Place, QueueKey};
use super::state::State;
use super::types::Priority;

/// Where a key stands, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// Neither queued nor in flight.
    Idle,
    /// In line for a worker.
    Queued {
        /// In which line.
        priority: Priority,
        /// Since when, if the queue [keeps times](super::WorkQueue::keep_times).
        since: Option<Instant>,
    },
    /// Waits for its timer.
    Delayed {
        /// When it is ready.
        until: Instant,
    },
    /// Waits after failures.
    BackingOff {
        /// When it is ready.
        until: Instant,
        /// Failures in a row.
        failures: u32,
    },
    /// Its back-off is over; it waits for a token of the retry rate.
    AwaitsRetryToken {
        /// Failures in a row.
        failures: u32,
    },
    /// Ended terminally: waits for a real change.
    AwaitsChange {
        /// Failures in a row.
        failures: u32,
    },
    /// Kept from workers, whatever is asked for it.
    Held {
        /// When it is let go at the latest.
        until: Instant,
    },
    /// With a worker.
    InFlight {
        /// When the run started, if the queue [keeps times](super::WorkQueue::keep_times).
        since: Option<Instant>,
        /// Which run in a row this is without a success before it; the first is 1.
        attempt: u32,
    },
}

impl KeyState {
    pub(super) fn of<K>(entry: &Entry<K>, origin: ClockOrigin) -> Self {
        let failures = entry.setback().failures;
        let since = || told(entry.since, origin);
        match entry.place {
            Place::Idle => Self::Idle,
            Place::Ready => Self::Queued { priority: entry.priority, since: since() },
            Place::Delayed if failures > 0 && entry.setback().gate >= entry.delay => {
                Self::BackingOff { until: origin.instant(entry.setback().gate), failures }
            }
            Place::Delayed => Self::Delayed { until: origin.instant(entry.due()) },
            Place::AwaitsToken => Self::AwaitsRetryToken { failures },
            Place::Terminal => Self::AwaitsChange { failures },
            Place::Held => Self::Held { until: origin.instant(entry.setback().held) },
            Place::InFlight(_) => Self::InFlight { since: since(), attempt: failures.saturating_add(1) },
        }
    }

    /// Where a key stands that a list lists since then.
    pub(super) fn listed(since: At, origin: ClockOrigin) -> Self {
        Self::Queued { priority: Priority::Low, since: told(since, origin) }
    }
}

fn told(since: At, origin: ClockOrigin) -> Option<Instant> {
    (since != At::NEVER).then(|| origin.instant(since))
}

/// How many keys stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// In line for a worker.
    pub ready: usize,
    /// Waiting for a timer or a back-off.
    pub delayed: usize,
    /// Held, whether or not there is something to run.
    pub held: usize,
    /// Retries that wait for a token of the retry rate.
    pub awaiting_retry_token: usize,
    /// With a worker.
    pub in_flight: usize,
    /// Ended terminally, waiting for a change.
    pub awaiting_change: usize,
    /// Of those that are ready: by priority.
    pub(super) ready_by_rank: [usize; Priority::ALL.len()],
    /// All of these, and those remembered for their failures.
    pub known: usize,
}

impl Depth {
    pub(super) fn of<K: QueueKey>(state: &State<K>) -> Self {
        Self {
            ready: state.ready(),
            ready_by_rank: Priority::ALL.map(|priority| state.ready_at(priority)),
            delayed: state.delayed(),
            held: state.held(),
            awaiting_retry_token: state.awaiting_token(),
            in_flight: state.in_flight(),
            awaiting_change: state.terminal(),
            known: state.known(),
        }
    }

    /// Counts those of a priority that are in line for a worker.
    pub const fn ready_at(&self, priority: Priority) -> usize {
        self.ready_by_rank[priority.rank()]
    }
}

/// Keys by where they stand, at most so many of each; for debug pages.
#[derive(Clone, Debug)]
pub(crate) struct Standing<K> {
    pub(crate) depth: Depth,
    /// Since when the oldest has been ready, if the queue keeps times.
    pub(crate) oldest: Option<Instant>,
    /// In the order of [`Snapshot::keys`].
    pub(crate) keys: Vec<(K, KeyState)>,
    /// How many back off, of those with a timer that were looked at.
    pub(crate) backing_off: usize,
}

/// A moment of a queue, as far as was asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// How many keys stand where.
    pub depth: Depth,
    /// Where keys stand: first those in flight; then those that are ready, highest priority first,
    /// each line in its order; retries that await a token; those that wait or are held, roughly the soonest first; those
    /// that ended terminally.
    pub keys: Vec<(K, KeyState)>,
}

impl<K> Snapshot<K> {
    /// Counts the keys that were left out, as more are known than were asked for.
    pub const fn left_out(&self) -> usize {
        self.depth.known.saturating_sub(self.keys.len())
    }
}

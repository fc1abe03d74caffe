//! What debug pages, metrics and tests read of the queue.

use tokio::time::Instant;

use super::clock::ClockOrigin;
use super::entries::{EntryPlace, KeyEntry};
use super::types::Priority;

/// Where a key is, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// Neither queued nor in flight.
    Idle,
    /// In line for a worker.
    Queued {
        /// Its priority.
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
    /// Failed terminally: waits for a real change.
    AwaitsChange {
        /// Failures in a row.
        failures: u32,
    },
    /// Kept from workers, whatever is asked for it.
    Held {
        /// When it is released at the latest.
        until: Instant,
    },
    /// With a worker.
    InFlight {
        /// When the run started, if the queue [keeps times](super::WorkQueue::keep_times).
        since: Option<Instant>,
        /// The number of this run since the last success; the first is 1.
        attempt: u32,
    },
}

impl KeyState {
    pub(super) fn of<K>(entry: &KeyEntry<K>, origin: ClockOrigin) -> Self {
        let failures = entry.setback().failures;
        let (since, until) = (|| origin.known_instant(entry.at), || origin.instant(entry.at));
        match entry.place {
            EntryPlace::Idle => Self::Idle,
            EntryPlace::Ready => Self::Queued { priority: entry.priority, since: since() },
            EntryPlace::Delayed if failures > 0 && entry.setback().gate >= entry.delay => {
                Self::BackingOff { until: until(), failures }
            }
            EntryPlace::Delayed => Self::Delayed { until: until() },
            EntryPlace::AwaitsToken => Self::AwaitsRetryToken { failures },
            EntryPlace::Terminal => Self::AwaitsChange { failures },
            EntryPlace::Held => Self::Held { until: until() },
            EntryPlace::InFlight(_) => Self::InFlight { since: since(), attempt: failures.saturating_add(1) },
        }
    }
}

/// How many keys are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// In line for a worker.
    pub ready: usize,
    /// Waiting for a timer or a back-off.
    pub delayed: usize,
    /// Held, whether or not a run was asked for.
    pub held: usize,
    /// Retries that wait for a token of the retry rate.
    pub awaiting_retry_token: usize,
    /// With a worker.
    pub in_flight: usize,
    /// Failed terminally, waiting for a change.
    pub awaiting_change: usize,
    /// The keys that are ready, by the rank of their priority.
    pub(super) ready_by_rank: [usize; Priority::ALL.len()],
    /// All of these, and those remembered for their failures.
    pub known: usize,
}

impl Depth {
    /// Returns how many keys of a priority are in line for a worker.
    pub const fn ready_at(&self, priority: Priority) -> usize {
        self.ready_by_rank[priority.rank()]
    }
}

/// Keys by where they are, a bounded number from each place; for debug pages.
#[derive(Clone, Debug)]
pub(crate) struct Standing<K> {
    pub(crate) depth: Depth,
    /// Since when the oldest key has been ready, if the queue keeps times.
    pub(crate) oldest: Option<Instant>,
    /// In the order of [`QueueSnapshot::keys`].
    pub(crate) keys: Vec<(K, KeyState)>,
    /// How many keys back off, among those with a timer that were looked at.
    pub(crate) backing_off: usize,
}

/// The keys of a queue at one moment, up to the number that was asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueSnapshot<K> {
    /// How many keys are where.
    pub depth: Depth,
    /// Where keys are. First come those in flight, then those that are ready, the highest priority first and each line
    /// in its order, then retries that await a token, then those that wait or are held, the soonest first, and at last
    /// those that failed terminally.
    pub keys: Vec<(K, KeyState)>,
}

impl<K> QueueSnapshot<K> {
    /// Returns how many keys were left out because more are known than were asked for.
    pub const fn left_out(&self) -> usize {
        self.depth.known.saturating_sub(self.keys.len())
    }
}

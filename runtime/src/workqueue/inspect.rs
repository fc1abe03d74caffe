//! What debug pages, metrics and tests read of the queue.

use std::time::Duration;

use tokio::time::Instant;

use super::clock::{At, ClockOrigin};
use super::entries::{EntryPlace, KeyEntry, QueueKey};
use super::schedule::Schedule;
use super::types::{Depth, Priority};
use crate::metrics::QueueReport;

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

/// How many keys with a timer one look at a queue takes in, since workers wait meanwhile.
const LOOKED_AT: usize = 20_000;

/// Returns up to `at_most` keys.
pub(super) fn snapshot<K: QueueKey>(
    schedule: &Schedule<K>,
    origin: ClockOrigin,
    at_most: usize,
) -> QueueSnapshot<K> {
    let due = schedule.in_flight().chain(schedule.in_line()).chain(schedule.awaiting_token());
    let all = due.chain(schedule.waiting()).chain(schedule.awaiting_change());
    let keys = all.take(at_most).map(|entry| (entry.key.clone(), KeyState::of(entry, origin)));
    QueueSnapshot { depth: schedule.depth(), keys: keys.collect() }
}

/// Returns up to `each` keys of each place. Among those with a timer it looks at a bounded number.
pub(super) fn standing<K: QueueKey>(schedule: &Schedule<K>, origin: ClockOrigin, each: usize) -> Standing<K> {
    let shown = |entry: &KeyEntry<K>| (entry.key.clone(), KeyState::of(entry, origin));
    let due = schedule.in_flight().take(each).chain(schedule.in_line().take(each));
    let mut keys: Vec<_> = due.chain(schedule.awaiting_token().take(each)).map(shown).collect();
    let (mut backing_off, mut delayed, mut held) = (0, 0, 0);
    for entry in schedule.waiting().take(LOOKED_AT) {
        let count = match KeyState::of(entry, origin) {
            KeyState::BackingOff { .. } => &mut backing_off,
            KeyState::Held { .. } => &mut held,
            _ => &mut delayed,
        };
        *count += 1;
        if *count <= each {
            keys.push(shown(entry));
        }
    }
    keys.extend(schedule.awaiting_change().take(each).map(shown));
    let oldest = schedule.oldest().and_then(|entry| origin.known_instant(entry.at));
    Standing { depth: schedule.depth(), oldest, keys, backing_off }
}

/// Returns what metrics report.
pub(super) fn report<K: QueueKey>(schedule: &Schedule<K>, now: At) -> QueueReport {
    let (depth, stats) = (schedule.depth(), schedule.stats());
    let times = stats.times();
    let runs = || schedule.in_flight().map(|entry| now.since(entry.at));
    QueueReport {
        depth: Priority::ALL.map(|priority| (priority.as_str(), depth.ready_at(priority))),
        waiting: [
            ("delayed", depth.delayed),
            ("held", depth.held),
            ("awaits_retry_token", depth.awaiting_retry_token),
            ("awaits_change", depth.awaiting_change),
        ],
        in_flight: depth.in_flight,
        adds: stats.adds,
        retries: stats.retries,
        waits: times.waits,
        runs: times.runs,
        unfinished: runs().fold(Duration::ZERO, Duration::saturating_add),
        longest: runs().max().unwrap_or_default(),
    }
}

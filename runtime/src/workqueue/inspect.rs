//! What debug pages, metrics and tests read of the queue.

use std::time::Duration;

use tokio::time::Instant;

use super::clock::{At, ClockOrigin};
use super::entries::{EntryPlace, EntryWait, KeyEntry, QueueKey, Setback};
use super::schedule::Schedule;
use super::stats::QueueTimes;
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
        let Setback { failures, gate, .. } = *entry.setback();
        let (since, until) = (|| origin.known_instant(entry.at), || origin.instant(entry.at));
        match entry.place {
            EntryPlace::Idle => Self::Idle,
            EntryPlace::Ready => Self::Queued { priority: entry.priority, since: since() },
            EntryPlace::Waits(EntryWait::Delayed) if failures > 0 && gate >= entry.delay => {
                Self::BackingOff { until: until(), failures }
            }
            EntryPlace::Waits(EntryWait::Delayed) => Self::Delayed { until: until() },
            EntryPlace::Waits(EntryWait::Held) => Self::Held { until: until() },
            EntryPlace::Waits(EntryWait::Terminal) => Self::AwaitsChange { failures },
            EntryPlace::AwaitsToken => Self::AwaitsRetryToken { failures },
            EntryPlace::InFlight(_) => Self::InFlight { since: since(), attempt: failures.saturating_add(1) },
        }
    }
}

/// Where the keys of a queue are at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueSnapshot<K> {
    /// How many keys are where.
    pub depth: Depth,
    /// Since when a key has been ready that has waited longest in its line, if the queue keeps times.
    pub oldest: Option<Instant>,
    /// Where keys are. First come those in flight, then those that are ready, the highest priority first and each line
    /// in its order, then retries that await a token, then those that wait or are held, the soonest first, and at last
    /// those that failed terminally.
    pub keys: Vec<(K, KeyState)>,
    /// How many keys back off, among those with a timer that were looked at.
    pub backing_off: usize,
}

impl<K> QueueSnapshot<K> {
    /// Returns how many keys were left out because more are known than were asked for.
    pub const fn left_out(&self) -> usize {
        self.depth.known.saturating_sub(self.keys.len())
    }
}

/// How many keys with a timer one look at a queue takes in, since workers wait meanwhile.
const LOOKED_AT: usize = 20_000;

/// Returns up to `each` keys of each place. Among those with a timer it looks at a bounded number.
pub(super) fn snapshot<K: QueueKey>(
    schedule: &Schedule<K>,
    origin: ClockOrigin,
    each: usize,
) -> QueueSnapshot<K> {
    let shown = |entry: &KeyEntry<K>| (entry.key.clone(), KeyState::of(entry, origin));
    let entries = &schedule.entries;
    let due = schedule.in_flight.iter(entries).take(each).chain(schedule.ready.iter(entries).take(each));
    let mut keys: Vec<_> = due.chain(schedule.awaiting_token.iter(entries).take(each)).map(shown).collect();
    let (mut backing_off, mut delayed, mut held) = (0, 0, 0);
    for (key, state) in schedule.waiting().take(LOOKED_AT).map(shown) {
        let count = match state {
            KeyState::BackingOff { .. } => &mut backing_off,
            KeyState::Held { .. } => &mut held,
            KeyState::Delayed { .. } => &mut delayed,
            _ => break,
        };
        *count += 1;
        if *count <= each {
            keys.push((key, state));
        }
    }
    keys.extend(schedule.awaiting_change().take(each).map(shown));
    let oldest = origin.known_instant(schedule.ready.since(entries));
    QueueSnapshot { depth: schedule.depth(), oldest, keys, backing_off }
}

/// Returns what metrics report.
pub(super) fn report<K: QueueKey>(schedule: &Schedule<K>, now: At) -> QueueReport {
    let (depth, stats) = (schedule.depth(), &schedule.stats);
    let QueueTimes { waits, runs: ended } = stats.times.as_deref().cloned().unwrap_or_default();
    let runs = || schedule.in_flight.iter(&schedule.entries).map(|entry| now.since(entry.at));
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
        waits,
        runs: ended,
        unfinished: runs().fold(Duration::ZERO, Duration::saturating_add),
        longest: runs().max().unwrap_or_default(),
    }
}

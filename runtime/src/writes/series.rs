//! Which events are sent, and when: identical ones fold into a series, and one object has a bounded share.
//!
//! Pure: takes events and a time, and says what to send. An event is sent at once. When it happens again, its series
//! is brought up to date: ten seconds later at first, then after twice as long each time, up to half an hour. A series
//! is forgotten twenty minutes after its last event, which is longer than a key that fails waits by default.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{child::UniqueObject, event::Event};
use crate::object::is_domain;

/// How many series are remembered; more are dropped while none of them can be spared.
const MOST: usize = 4_096;
/// After how long a series is brought up to date for the first time, and at most.
const WAITS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1_800)];
/// How long a series goes on without an event.
const IDLE: Duration = Duration::from_secs(1_200);
/// How many events of one object are sent at once, and how long one more takes.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// An event of an object: what makes two events identical.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EventKey {
    pub(super) regarding: Arc<UniqueObject>,
    pub(super) event: Event,
}

/// Whether the server has an event already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnServer {
    No,
    /// The reply was lost.
    Maybe,
    Yes,
}

/// An event and how often it happened.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// The name of the event on the server.
    pub(super) name: String,
    pub(super) on_server: OnServer,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    last_at: Instant,
    /// The trace of the last that has one.
    pub(super) trace_id: Option<Arc<str>>,
    pub(super) count: u32,
    /// How many of them the server knows of.
    sent: u32,
    /// When it is brought up to date next, if it happens again; and how long after that once more.
    next: Instant,
    wait: Duration,
    /// Series that are due at one time are sent in the order in which they became so.
    order: u64,
}

impl Series {
    fn is_complete(&self) -> bool {
        self.on_server == OnServer::Yes && self.sent == self.count
    }

    /// Returns when it is to be sent, or is over.
    fn due(&self) -> Instant {
        if self.is_complete() { self.last_at + IDLE } else { self.next }
    }
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Its series is to be sent.
    ToSend,
    /// Its series is to be sent already.
    Folded,
    /// Too many others wait, or its object has had its share.
    Dropped,
}

/// The series of one controller.
#[derive(Debug)]
pub(super) struct SeriesCache {
    series: HashMap<Arc<EventKey>, Series>,
    /// When the share of an object is whole again; those whose share is whole are left out.
    whole_at: HashMap<Arc<UniqueObject>, Instant>,
    order: u64,
    names: SmallRng,
}

impl SeriesCache {
    /// Starts without any; what tells the names of events apart is drawn by a seed.
    pub(super) fn new(seed: u64) -> Self {
        let names = SmallRng::seed_from_u64(seed);
        Self { series: HashMap::new(), whole_at: HashMap::new(), order: 0, names }
    }

    /// Takes an event.
    pub(super) fn note(
        &mut self,
        key: EventKey,
        now: Instant,
        wall: Timestamp,
        trace_id: Option<&Arc<str>>,
    ) -> Recorded {
        self.order += 1;
        if let Some(series) = self.series.get_mut(&key) {
            let was_complete = series.is_complete();
            if was_complete {
                (series.order, series.next) = (self.order, series.next.max(now));
            }
            series.count = series.count.saturating_add(1);
            (series.last, series.last_at) = (wall, now);
            series.trace_id = trace_id.or(series.trace_id.as_ref()).cloned();
            return if was_complete { Recorded::ToSend } else { Recorded::Folded };
        }
        if !self.has_share(&key.regarding, now) || !self.has_room() {
            return Recorded::Dropped;
        }
        let whole_at = self.whole_at.entry(key.regarding.clone()).or_insert(now);
        *whole_at = (*whole_at).max(now) + REFILL;
        let [wait, _] = WAITS;
        let series = Series {
            name: self.name_for(&key),
            on_server: OnServer::No,
            first: wall,
            last: wall,
            last_at: now,
            trace_id: trace_id.cloned(),
            count: 1,
            sent: 0,
            next: now,
            wait,
            order: self.order,
        };
        self.series.insert(Arc::new(key), series);
        Recorded::ToSend
    }

    /// Returns when there is something to send or to forget next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.series.values().map(Series::due).min()
    }

    /// Returns what is to be sent next, by now or at all.
    ///
    /// Until one of the methods below says what became of it, its reply counts as lost.
    pub(super) fn take(&mut self, now: Option<Instant>) -> Option<(Arc<EventKey>, Series)> {
        let is_due = |series: &Series| now.is_none_or(|now| series.next <= now);
        let unsent = self.series.iter_mut().filter(|(_, series)| !series.is_complete() && is_due(series));
        let Some((key, series)) = unsent.min_by_key(|(_, series)| (series.next, series.order)) else {
            self.forget_what_is_over(now?);
            return None;
        };
        let taken = (key.clone(), series.clone());
        if series.on_server == OnServer::No {
            series.on_server = OnServer::Maybe;
        }
        Some(taken)
    }

    fn forget_what_is_over(&mut self, now: Instant) {
        self.series.retain(|_, series| !series.is_complete() || series.due() > now);
        self.whole_at.retain(|_, whole_at| *whole_at > now);
    }

    /// The server has this many.
    pub(super) fn sent(&mut self, key: &EventKey, count: u32, now: Instant) {
        let Some(series) = self.series.get_mut(key) else { return };
        if series.sent > 0 {
            let [_, longest] = WAITS;
            series.wait = (series.wait * 2).min(longest);
        }
        (series.on_server, series.sent, series.next) = (OnServer::Yes, count, now + series.wait);
    }

    /// It was not sent: it is sent again.
    pub(super) fn put_back(&mut self, key: &EventKey, on_server: OnServer) {
        if let Some(series) = self.series.get_mut(key) {
            series.on_server = on_server;
        }
    }

    /// Somebody else's event has its name: it is sent under another one.
    pub(super) fn rename(&mut self, key: &EventKey) {
        let name = self.name_for(key);
        if let Some(series) = self.series.get_mut(key) {
            (series.name, series.on_server) = (name, OnServer::No);
        }
    }

    /// The server will not have it.
    pub(super) fn refused(&mut self, key: &EventKey) {
        self.series.remove(key);
    }

    /// Names an event after its object, as everybody does.
    fn name_for(&mut self, key: &EventKey) -> String {
        let name = key.regarding.key.name();
        // A name holds 253 characters, and each of its parts ends with a letter or a digit.
        let part = name.get(..name.len().min(236)).unwrap_or_default();
        let part = part.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
        let random = format!("{:016x}", self.names.random::<u64>());
        // Names of roles may contain more than the name of an event may.
        if is_domain(part) { format!("{part}.{random}") } else { random }
    }

    /// Returns whether an object has some of its share of events left.
    fn has_share(&self, regarding: &UniqueObject, now: Instant) -> bool {
        let whole_at = self.whole_at.get(regarding).copied().unwrap_or(now);
        whole_at.saturating_duration_since(now) <= REFILL * (BURST - 1)
    }

    /// Makes room, if need be, by forgetting the series that is over soonest; what is to be sent stays.
    fn has_room(&mut self) -> bool {
        if self.series.len() < MOST {
            return true;
        }
        let complete = self.series.iter().filter(|(_, series)| series.is_complete());
        let over = complete.min_by_key(|(_, series)| series.due()).map(|(key, _)| key.clone());
        over.is_some_and(|key| self.series.remove(&key).is_some())
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;

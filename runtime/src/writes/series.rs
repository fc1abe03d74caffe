//! Which events are key, and when: identical ones fold into a series, and one object has a bounded share.
//!
//! Pure: takes events and a time, and says what to send. An event is key at once. When it happens again, its series
//! is brought up to date: ten seconds later at first, then after twice as long each time, up to half an hour. A series
//! is forgotten twenty minutes after its last event, which is longer than a key that fails waits by default.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::event::{Event, Referred};

/// How many series are remembered; more are dropped while none of them can be spared.
const MOST: usize = 4_096;
/// After how long a series is brought up to date for the first time, and at most.
const WAITS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1_800)];
/// How long a series goes on without an event.
const IDLE: Duration = Duration::from_secs(1_200);
/// How many events of one object are key at once, and how long one more takes.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// An event of an object: what makes two events identical.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EventKey {
    pub(super) regarding: Arc<Referred>,
    pub(super) event: Event,
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// It will be key.
    New,
    /// It belongs to a series.
    Folded,
    /// Too many others wait, or its object has had its share.
    Dropped,
}

/// What is to be sent.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) key: Arc<EventKey>,
    /// The name of the event on the server.
    pub(super) name: String,
    pub(super) on_server: OnServer,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
    /// The trace of the last that has one.
    pub(super) trace_id: Option<Arc<str>>,
}

/// Whether the server has an event already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnServer {
    No,
    /// The reply was lost.
    Maybe,
    Yes,
}

#[derive(Debug)]
struct Series {
    name: String,
    on_server: OnServer,
    first: Timestamp,
    last: Timestamp,
    last_at: Instant,
    trace_id: Option<Arc<str>>,
    count: u32,
    /// How many of them the server knows of.
    sent: u32,
    sent_at: Instant,
    /// How long after that it is brought up to date again.
    wait: Duration,
    place: SeriesPlace,
}

/// A time, and a number that tells those of the same time apart.
type Due = (Instant, u64);

/// Where a series stands.
#[derive(Clone, Copy, Debug)]
enum SeriesPlace {
    /// It is to be sent then.
    ToSend(Due),
    /// It is being sent.
    InFlight,
    /// The server knows all of it. It is over then.
    Complete(Due),
}

/// The series of one controller.
#[derive(Debug)]
pub(super) struct SeriesCache {
    series: HashMap<Arc<EventKey>, Series>,
    to_send: BTreeMap<Due, Arc<EventKey>>,
    complete: BTreeMap<Due, Arc<EventKey>>,
    spam_filter: SpamFilter,
    entries: u64,
    names: SmallRng,
}

impl SeriesCache {
    /// Starts without any; what tells the names of events apart is drawn by a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            series: HashMap::new(),
            to_send: BTreeMap::new(),
            complete: BTreeMap::new(),
            spam_filter: SpamFilter::default(),
            entries: 0,
            names: SmallRng::seed_from_u64(seed),
        }
    }

    /// Takes note of an event.
    pub(super) fn note(
        &mut self,
        key: EventKey,
        now: Instant,
        wall: Timestamp,
        trace_id: Option<&Arc<str>>,
    ) -> Recorded {
        if let Some((key, series)) = self.series.get_key_value(&key) {
            let (key, due) = (key.clone(), (series.sent_at + series.wait).max(now));
            let series = self.series.get_mut(&key).expect("it was just found");
            series.count = series.count.saturating_add(1);
            (series.last, series.last_at) = (wall, now);
            if trace_id.is_some() {
                series.trace_id = trace_id.cloned();
            }
            if matches!(series.place, SeriesPlace::Complete(_)) {
                self.put(&key, |entry| SeriesPlace::ToSend((due, entry)));
            }
            return Recorded::Folded;
        }
        if !self.spam_filter.has_left(&key.regarding, now) || !self.has_room() {
            return Recorded::Dropped;
        }
        self.spam_filter.take(&key.regarding, now);
        let key = Arc::new(key);
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
            sent_at: now,
            wait,
            place: SeriesPlace::InFlight,
        };
        self.series.insert(key.clone(), series);
        self.put(&key, |entry| SeriesPlace::ToSend((now, entry)));
        Recorded::New
    }

    /// Returns when there is something to send or to forget next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let first = |places: &BTreeMap<Due, _>| places.first_key_value().map(|((at, _), _)| *at);
        first(&self.to_send).into_iter().chain(first(&self.complete)).min()
    }

    /// Takes out what is to be sent by now; it is under way until one of the methods below says what became of it.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Outgoing> {
        self.forget_what_is_over(now);
        let (&(due, _), _) = self.to_send.first_key_value()?;
        if due <= now { self.take_unsent() } else { None }
    }

    /// Takes out what is to be sent next, due or not: before the end.
    pub(super) fn take_unsent(&mut self) -> Option<Outgoing> {
        let (_, key) = self.to_send.pop_first()?;
        let series = self.series.get_mut(&key)?;
        series.place = SeriesPlace::InFlight;
        let &mut Series { ref name, ref trace_id, on_server, first, last, count, .. } = series;
        let (name, trace_id) = (name.clone(), trace_id.clone());
        Some(Outgoing { key, name, on_server, first, last, count, trace_id })
    }

    /// The server has this many.
    pub(super) fn sent(&mut self, key: &Arc<EventKey>, count: u32, now: Instant) {
        let Some(series) = self.series.get_mut(key) else { return };
        if series.sent > 0 {
            let [_, longest] = WAITS;
            series.wait = (series.wait * 2).min(longest);
        }
        (series.on_server, series.sent, series.sent_at) = (OnServer::Yes, count, now);
        let (again, over) = (now + series.wait, series.last_at + IDLE);
        match series.count > count {
            true => self.put(key, |entry| SeriesPlace::ToSend((again, entry))),
            false => self.put(key, |entry| SeriesPlace::Complete((over, entry))),
        }
    }

    /// It was not sent: it is sent again.
    pub(super) fn put_back(&mut self, key: &Arc<EventKey>, on_server: OnServer, now: Instant) {
        if let Some(series) = self.series.get_mut(key) {
            series.on_server = on_server;
        }
        self.put(key, |entry| SeriesPlace::ToSend((now, entry)));
    }

    /// Somebody else's event has its name: it is sent under another one.
    pub(super) fn rename(&mut self, key: &Arc<EventKey>, now: Instant) {
        let name = self.name_for(key);
        if let Some(series) = self.series.get_mut(key) {
            series.name = name;
        }
        self.put_back(key, OnServer::No, now);
    }

    /// The server will not have it.
    pub(super) fn refused(&mut self, key: &Arc<EventKey>) {
        self.series.remove(key);
    }

    /// Names an event after its object, as everybody does.
    fn name_for(&mut self, key: &EventKey) -> String {
        let name = key.regarding.key.name();
        // A name holds 253 characters, and each of its parts ends with a letter or a digit.
        let part = name.get(..name.len().min(236)).unwrap_or_default();
        let part = part.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
        format!("{part}.{:016x}", self.names.random::<u64>())
    }

    fn put(&mut self, key: &Arc<EventKey>, place: impl FnOnce(u64) -> SeriesPlace) {
        let Some(series) = self.series.get_mut(key) else { return };
        match series.place {
            SeriesPlace::ToSend(due) => drop(self.to_send.remove(&due)),
            SeriesPlace::Complete(due) => drop(self.complete.remove(&due)),
            SeriesPlace::InFlight => {}
        }
        self.entries += 1;
        series.place = place(self.entries);
        match series.place {
            SeriesPlace::ToSend(due) => drop(self.to_send.insert(due, key.clone())),
            SeriesPlace::Complete(due) => drop(self.complete.insert(due, key.clone())),
            SeriesPlace::InFlight => {}
        }
    }

    fn forget_what_is_over(&mut self, now: Instant) {
        while let Some(first) = self.complete.first_entry().filter(|first| first.key().0 <= now) {
            self.series.remove(&first.remove());
        }
        if self.series.is_empty() {
            self.spam_filter.prune(now);
        }
    }

    /// Makes room, if need be, by forgetting the series that is over soonest; what is to be sent stays.
    fn has_room(&mut self) -> bool {
        if self.series.len() < MOST {
            return true;
        }
        let spared = self.complete.pop_first();
        spared.is_some_and(|(_, key)| self.series.remove(&key).is_some())
    }
}

/// What is left of each object's share of events.
#[derive(Debug, Default)]
struct SpamFilter {
    /// When it is whole again; those that are whole are left out.
    whole_at: HashMap<Arc<Referred>, Instant>,
    /// At how many the whole ones are looked for.
    prune_at: usize,
}

impl SpamFilter {
    fn has_left(&self, regarding: &Referred, now: Instant) -> bool {
        let whole_at = self.whole_at.get(regarding).copied().unwrap_or(now);
        whole_at.saturating_duration_since(now) <= REFILL * (BURST - 1)
    }

    fn take(&mut self, regarding: &Arc<Referred>, now: Instant) {
        if self.whole_at.len() >= self.prune_at {
            self.prune(now);
            self.prune_at = MOST.max(2 * self.whole_at.len());
        }
        let whole_at = self.whole_at.entry(regarding.clone()).or_insert(now);
        *whole_at = (*whole_at).max(now) + REFILL;
    }

    fn prune(&mut self, now: Instant) {
        self.whole_at.retain(|_, whole_at| *whole_at > now);
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;

//! What keys wait for after their writes, until the caches show them: a pure state machine.
//!
//! A key that wrote is parked until the cache of each kind it wrote shows as much, or until a deadline that runs
//! only while the kind's watch is open. What a cache shows is asked for through [`Caches`]; the time is passed in.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

pub(crate) use super::expectation::{CachedState, Expectation};
use super::{awaited::Awaited, own_writes::SourceId};
use crate::object::{ObjectKey, Version};

/// How long a key waits while the watch is open.
pub(crate) const WHILE_OPEN: Duration = Duration::from_secs(5);
/// How long it waits in an outage.
pub(crate) const IN_OUTAGE: Duration = Duration::from_secs(300);
/// How long it waits for the change that one of its writes met.
pub(crate) const FOR_STRANGER: Duration = Duration::from_secs(1);
/// How soon a watch that opens or shuts is noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Says whether a kind's watch is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    Open,
    Closed,
}

/// The caches, as far as waiting needs them.
pub(crate) trait Caches {
    fn cached(&self, source: SourceId, object: &ObjectKey) -> CachedState;
    fn watch_state(&self, source: SourceId) -> WatchState;
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// It waits from now on.
    Waits,
    /// It waits for nothing any more.
    Released,
    /// Nothing changed.
    Unchanged,
}

/// A wait that ended without what it waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overdue<Key> {
    pub(crate) key: Key,
    pub(crate) object: ObjectKey,
    pub(crate) expectation: Expectation,
    pub(crate) waited: Duration,
}

/// How long a watch has been open and shut, in all.
#[derive(Clone, Copy, Debug, Default)]
struct Elapsed {
    open: Duration,
    shut: Duration,
}

#[derive(Debug)]
struct Clock {
    watch_state: WatchState,
    since: Instant,
    before: Elapsed,
}

impl Clock {
    fn elapsed(&self, now: Instant) -> Elapsed {
        let (Elapsed { open, shut }, more) = (self.before, now - self.since);
        match self.watch_state {
            WatchState::Open => Elapsed { open: open + more, shut },
            WatchState::Closed => Elapsed { open, shut: shut + more },
        }
    }

    fn notice(&mut self, watch_state: WatchState, now: Instant) {
        *self = Self { watch_state, since: now, before: self.elapsed(now) };
    }
}

#[derive(Debug)]
struct Wait {
    source: SourceId,
    object: ObjectKey,
    expectation: Expectation,
    since: Instant,
    /// The source's clock when the wait began.
    began: Elapsed,
}

impl Wait {
    /// Tells until when it may last if the watch stays as it is.
    fn due(&self, clock: &Clock, now: Instant) -> Instant {
        let elapsed = clock.elapsed(now);
        let left = match (&self.expectation, clock.watch_state) {
            (Expectation::NewerThan(_), _) => return self.since + FOR_STRANGER,
            _ if elapsed.shut - self.began.shut >= IN_OUTAGE => Duration::ZERO,
            (_, WatchState::Open) => WHILE_OPEN.saturating_sub(elapsed.open - self.began.open),
            _ if elapsed.open - self.began.open >= WHILE_OPEN => Duration::ZERO,
            (_, WatchState::Closed) => IN_OUTAGE.saturating_sub(elapsed.shut - self.began.shut),
        };
        now + left
    }
}

/// Keys that wait for their own writes.
///
/// A batch of changes costs in proportion to what it brought: who waits is found by the versions that it reached, and
/// by the objects that it changed.
#[derive(Debug)]
pub(crate) struct PendingWrites<Key> {
    waiting: HashMap<Key, Vec<Wait>>,
    /// Who waits for a version, and of which object.
    by_version: Awaited<(Key, ObjectKey)>,
    /// Who waits for something of an object.
    by_object: HashMap<(SourceId, ObjectKey), BTreeSet<Key>>,
    /// The objects among these that changed since the last progress of their source.
    changed: HashMap<SourceId, HashSet<ObjectKey>>,
    delivered: HashMap<SourceId, Version>,
    /// Clocks of the sources that somebody waits for.
    clocks: HashMap<SourceId, Clock>,
}

impl<Key> Default for PendingWrites<Key> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            by_version: Awaited::default(),
            by_object: HashMap::new(),
            changed: HashMap::new(),
            delivered: HashMap::new(),
            clocks: HashMap::new(),
        }
    }
}

impl<Key: Clone + Eq + Hash + Ord> PendingWrites<Key> {
    /// Learns what a key's write makes it wait for; replaces what it waited for of that object.
    pub(crate) fn wrote(
        &mut self,
        key: &Key,
        (source, object): (SourceId, &ObjectKey),
        expectation: Expectation,
        now: Instant,
        caches: &impl Caches,
    ) -> Transition {
        let before = self.has_pending(key);
        let met = expectation.is_met(self.delivered.get(&source).copied(), || caches.cached(source, object));
        self.drop_waits(key, |wait| wait.source == source && wait.object == *object);
        if !met {
            let clock = self.clocks.entry(source).or_insert_with(|| Clock {
                watch_state: caches.watch_state(source),
                since: now,
                before: Elapsed::default(),
            });
            clock.notice(caches.watch_state(source), now);
            let wait =
                Wait { source, object: object.clone(), expectation, since: now, began: clock.elapsed(now) };
            self.enlist(key, &wait);
            self.waiting.entry(key.clone()).or_default().push(wait);
        }
        self.drop_clocks();
        match (before, self.has_pending(key)) {
            (false, true) => Transition::Waits,
            (true, false) => Transition::Released,
            _ => Transition::Unchanged,
        }
    }

    /// Learns what the server says of an object that a reply was lost about; no news to who waits no longer.
    pub(crate) fn answered(
        &mut self,
        key: &Key,
        place: (SourceId, &ObjectKey),
        expectation: Expectation,
        now: Instant,
        caches: &impl Caches,
    ) -> Transition {
        match self.awaits_reply(key, place.1) {
            true => self.wrote(key, place, expectation, now, caches),
            false => Transition::Unchanged,
        }
    }

    /// Tells whether a key still waits for what the server says of an object.
    pub(crate) fn awaits_reply(&self, key: &Key, object: &ObjectKey) -> bool {
        let asked = |wait: &Wait| wait.expectation == Expectation::ReplyLost && wait.object == *object;
        self.waiting.get(key).is_some_and(|waits| waits.iter().any(asked))
    }

    /// Learns that a cache shows another state of an object.
    pub(crate) fn changed(&mut self, source: SourceId, object: &ObjectKey) {
        if !self.by_object.is_empty() && self.by_object.contains_key(&(source, object.clone())) {
            self.changed.entry(source).or_default().insert(object.clone());
        }
    }

    /// Learns how far a source has been brought by changes; returns the keys that wait for nothing any more.
    pub(crate) fn progressed(
        &mut self,
        source: SourceId,
        version: Option<Version>,
        caches: &impl Caches,
    ) -> Vec<Key> {
        let delivered = self.deliver(source, version);
        let mut concerned = BTreeSet::new();
        if let Some(version) = delivered {
            concerned.extend(self.by_version.take_up_to(source, version).into_iter().map(|(key, _)| key));
        }
        for object in self.changed.remove(&source).unwrap_or_default() {
            concerned.extend(self.by_object.get(&(source, object)).into_iter().flatten().cloned());
        }
        self.settle(source, delivered, concerned, caches)
    }

    /// Learns that a list has replaced what a source shows; returns the keys that wait for nothing any more.
    pub(crate) fn replaced(
        &mut self,
        source: SourceId,
        version: Option<Version>,
        caches: &impl Caches,
    ) -> Vec<Key> {
        let delivered = self.deliver(source, version);
        self.changed.remove(&source);
        let all = self.waiting.keys().cloned().collect();
        self.settle(source, delivered, all, caches)
    }

    /// Tells how far a source has been brought.
    pub(crate) fn delivered(&self, source: SourceId) -> Option<Version> {
        self.delivered.get(&source).copied()
    }

    /// Learns that a source's versions start anew; returns the keys that wait for nothing any more.
    pub(crate) fn new_epoch(&mut self, source: SourceId, version: Option<Version>) -> Vec<Key> {
        self.delivered.remove(&source);
        self.deliver(source, version);
        self.changed.remove(&source);
        let all = self.waiting.keys().cloned().collect();
        self.drop_all(all, |wait| wait.source == source)
    }

    fn deliver(&mut self, source: SourceId, version: Option<Version>) -> Option<Version> {
        let delivered = self.delivered.get(&source).copied().max(version)?;
        self.delivered.insert(source, delivered);
        Some(delivered)
    }

    fn settle(
        &mut self,
        source: SourceId,
        delivered: Option<Version>,
        concerned: BTreeSet<Key>,
        caches: &impl Caches,
    ) -> Vec<Key> {
        self.drop_all(concerned, |wait| {
            wait.source == source
                && wait.expectation.is_met(delivered, || caches.cached(source, &wait.object))
        })
    }

    /// Gives up what is overdue; returns it, and the keys that wait for nothing any more.
    pub(crate) fn tick(&mut self, now: Instant, caches: &impl Caches) -> (Vec<Overdue<Key>>, Vec<Key>) {
        for (source, clock) in &mut self.clocks {
            clock.notice(caches.watch_state(*source), now);
        }
        let mut overdue = Vec::new();
        for (key, waits) in &self.waiting {
            let late = waits.iter().filter(|wait| self.clocks[&wait.source].is_over(wait, now));
            overdue.extend(late.map(|wait| Overdue {
                key: key.clone(),
                object: wait.object.clone(),
                expectation: wait.expectation.clone(),
                waited: now - wait.since,
            }));
        }
        let late = overdue.iter().map(|overdue: &Overdue<Key>| overdue.key.clone()).collect();
        let clocks = std::mem::take(&mut self.clocks);
        let released = self.drop_all(late, |wait| clocks[&wait.source].is_over(wait, now));
        self.clocks = clocks;
        self.drop_clocks();
        (overdue, released)
    }

    /// Tells when to [`tick`](Self::tick) next; `None` while nobody waits.
    pub(crate) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let waits = self.waiting.values().flatten();
        let due = waits.map(|wait| wait.due(&self.clocks[&wait.source], now)).min()?;
        Some(due.min(now + NOTICED_WITHIN))
    }

    pub(crate) fn has_pending(&self, key: &Key) -> bool {
        self.waiting.contains_key(key)
    }

    /// Drops some of what a key waits for.
    fn drop_waits(&mut self, key: &Key, gone: impl Fn(&Wait) -> bool) {
        let Some(waits) = self.waiting.get_mut(key) else { return };
        let (dropped, kept): (Vec<_>, Vec<_>) = std::mem::take(waits).into_iter().partition(gone);
        match kept.is_empty() {
            true => drop(self.waiting.remove(key)),
            false => *waits = kept,
        }
        dropped.iter().for_each(|wait| self.strike(key, wait));
    }

    /// Drops some of what these keys wait for; returns those that wait for nothing any more.
    fn drop_all(&mut self, keys: BTreeSet<Key>, gone: impl Fn(&Wait) -> bool) -> Vec<Key> {
        let waited = keys.into_iter().filter(|key| self.has_pending(key)).collect::<Vec<_>>();
        waited.iter().for_each(|key| self.drop_waits(key, &gone));
        let released: Vec<_> = waited.into_iter().filter(|key| !self.has_pending(key)).collect();
        if !released.is_empty() {
            self.drop_clocks();
        }
        released
    }

    fn enlist(&mut self, key: &Key, wait: &Wait) {
        if let Some(version) = wait.expectation.version() {
            self.by_version.insert(wait.source, version, (key.clone(), wait.object.clone()));
        }
        let of = (wait.source, wait.object.clone());
        self.by_object.entry(of).or_default().insert(key.clone());
    }

    fn strike(&mut self, key: &Key, wait: &Wait) {
        if let Some(version) = wait.expectation.version() {
            self.by_version.remove(wait.source, version, &(key.clone(), wait.object.clone()));
        }
        let of = (wait.source, wait.object.clone());
        if let Some(all) = self.by_object.get_mut(&of) {
            all.remove(key);
            if all.is_empty() {
                self.by_object.remove(&of);
            }
        }
    }

    /// A clock that nobody reads stops.
    fn drop_clocks(&mut self) {
        if self.waiting.is_empty() {
            self.clocks.clear();
        }
    }
}

impl Clock {
    fn is_over(&self, wait: &Wait, now: Instant) -> bool {
        wait.due(self, now) <= now
    }
}

#[cfg(test)]
#[path = "pending_writes_tests.rs"]
mod tests;

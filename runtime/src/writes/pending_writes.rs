//! What keys wait for after their writes, until the caches show them.
//!
//! A key that wrote waits until the cache of each kind it wrote shows as much, or until a deadline that runs only
//! while the kind's watch is open. What a cache shows is asked for through [`Caches`]; the time is passed in.

use std::{hash::Hash, time::Duration};

use tokio::time::Instant;

use super::{
    expectation::Expectation,
    record::{Clock, IN_OUTAGE, WHILE_OPEN, Wait},
    records::{Caches, WriteRecords},
    source::SourceId,
};
use crate::object::ObjectKey;

/// Past every deadline of a key that waits: what ends the wait in any case.
pub(super) const AT_MOST: Duration =
    IN_OUTAGE.saturating_add(WHILE_OPEN).saturating_add(Duration::from_secs(5));
/// How soon a watch that opens or closes is noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

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

impl<Key: Clone + Eq + Hash + Ord> WriteRecords<Key> {
    /// Learns what a key's write makes it wait for; replaces what it waited for of that object.
    pub(crate) fn expect(
        &mut self,
        key: &Key,
        (source, object): (SourceId, &ObjectKey),
        expectation: Expectation,
        now: Instant,
        caches: &impl Caches,
    ) -> Transition {
        let before = self.has_pending(key);
        let met = expectation.is_met(self.delivered(source), || caches.cached(source, object));
        self.drop_waits(key, |wait| wait.source == source && wait.object == *object, &mut Vec::new());
        if !met {
            let watch_state = caches.watch_state(source);
            let state = self.sources.entry(source).or_default();
            let clock = state.clock.get_or_insert_with(|| Clock::start(watch_state, now));
            clock.notice(watch_state, now);
            let began = clock.elapsed(now);
            self.wait(key, Wait { source, object: object.clone(), expectation, since: now, began });
        }
        self.prune(key);
        self.stop_clocks();
        match (before, self.has_pending(key)) {
            (false, true) => Transition::Waits,
            (true, false) => Transition::Released,
            _ => Transition::Unchanged,
        }
    }

    fn wait(&mut self, key: &Key, wait: Wait) {
        if let Some((source, version)) = wait.awaits() {
            self.by_version.insert(source, version, key.clone());
        }
        self.by_object.entry((wait.source, wait.object.clone())).or_default().insert(key.clone());
        self.by_key.entry(key.clone()).or_default().waits.push(wait);
    }

    /// Takes the server's state of an object for which a reply was lost; a key that no longer waits ignores it.
    pub(crate) fn reply_found(
        &mut self,
        key: &Key,
        place: (SourceId, &ObjectKey),
        expectation: Expectation,
        now: Instant,
        caches: &impl Caches,
    ) -> Transition {
        match self.awaits_reply(key, place.1) {
            true => self.expect(key, place, expectation, now, caches),
            false => Transition::Unchanged,
        }
    }

    /// Whether a key still waits for what the server says of an object.
    pub(crate) fn awaits_reply(&self, key: &Key, object: &ObjectKey) -> bool {
        let asked = |wait: &Wait| wait.expectation == Expectation::ReplyLost && wait.object == *object;
        self.by_key.get(key).is_some_and(|record| record.waits.iter().any(asked))
    }

    /// Whether a key waits for its own writes.
    pub(crate) fn has_pending(&self, key: &Key) -> bool {
        self.by_key.get(key).is_some_and(|record| !record.waits.is_empty())
    }

    /// Names the keys that wait for their own writes.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Key> {
        self.by_key.iter().filter(|(_, record)| !record.waits.is_empty()).map(|(key, _)| key)
    }

    /// Gives up what is overdue; returns it, and the keys that wait for nothing any more.
    pub(crate) fn tick(&mut self, now: Instant, caches: &impl Caches) -> (Vec<Overdue<Key>>, Vec<Key>) {
        for (source, state) in &mut self.sources {
            if let Some(clock) = &mut state.clock {
                clock.notice(caches.watch_state(*source), now);
            }
        }
        let late = self.waits().filter(|(_, wait)| self.due(wait, now).is_some_and(|due| due <= now));
        let (mut overdue, mut over) = (Vec::new(), Vec::new());
        for (key, Wait { source, object, expectation, since, .. }) in late {
            over.push((key.clone(), *source, object.clone()));
            let (object, expectation) = (object.clone(), expectation.clone());
            overdue.push(Overdue { key: key.clone(), object, expectation, waited: now - *since });
        }
        let mut released = Vec::new();
        for (key, source, object) in over {
            self.drop_waits(&key, |wait| wait.source == source && wait.object == object, &mut released);
            self.prune(&key);
        }
        self.stop_clocks();
        (overdue, released)
    }

    /// Returns when to [`tick`](Self::tick) next; `None` while nobody waits.
    pub(crate) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let due = self.waits().filter_map(|(_, wait)| self.due(wait, now)).min()?;
        Some(due.min(now + NOTICED_WITHIN))
    }

    fn waits(&self) -> impl Iterator<Item = (&Key, &Wait)> {
        self.by_key.iter().flat_map(|(key, record)| record.waits.iter().map(move |wait| (key, wait)))
    }

    fn due(&self, wait: &Wait, now: Instant) -> Option<Instant> {
        let clock = self.sources.get(&wait.source)?.clock.as_ref()?;
        Some(wait.due(clock, now))
    }
}

#[cfg(test)]
#[path = "pending_writes_tests.rs"]
mod tests;

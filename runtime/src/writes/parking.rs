//! What keys wait for after their writes, until the caches show them: a pure state machine.
//!
//! A key that wrote is parked until the cache of each kind it wrote shows as much, or until a deadline that runs
//! only while the kind's watch is open. What a cache shows is asked for through [`Caches`]; the time is passed in.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::time::Instant;

use super::own_writes::SourceId;
use crate::object::{ObjectKey, Version};

/// How long a key waits while the watch is open.
pub(crate) const WHILE_OPEN: Duration = Duration::from_secs(5);
/// How long it waits in an outage.
pub(crate) const IN_OUTAGE: Duration = Duration::from_secs(300);
/// How long it waits for the change that one of its writes met.
pub(crate) const FOR_STRANGER: Duration = Duration::from_secs(1);
/// How soon a watch that opens or shuts is noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// What a cache is to show before the key runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// This version of the object, or a later one.
    Reached(Version),
    /// That the object of this UID is gone.
    Gone { uid: String },
    /// That it is gone, or marked as deleted: at this version.
    Marked { uid: String, version: Version },
    /// That it is gone, or without the finalizer (the answer to such a patch has no new version).
    Released { uid: String, finalizer: String },
    /// That there is no such object.
    Absent,
    /// A later version than this, which a stranger made; or that the object is gone.
    Past(Version),
    /// Whatever the server will say: the reply to the write was lost.
    Asked,
}

/// What a cache shows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Absent,
    /// It can't say: the object is unreadable.
    Unknown,
    Shown {
        uid: String,
        version: Option<Version>,
        finalizers: Vec<String>,
    },
}

/// Says whether a kind's watch is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    Open,
    Shut,
}

/// The caches, as far as waiting needs them.
pub(crate) trait Caches {
    fn sight(&self, source: SourceId, object: &ObjectKey) -> Sight;
    fn watching(&self, source: SourceId) -> Watching;
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It waits from now on.
    Parked,
    /// It waits for nothing any more.
    Released,
    /// Nothing changed.
    Same,
}

/// A wait that ended without what it waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overdue<Key> {
    pub(crate) key: Key,
    pub(crate) object: ObjectKey,
    pub(crate) goal: Goal,
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
    watching: Watching,
    since: Instant,
    before: Elapsed,
}

impl Clock {
    fn elapsed(&self, now: Instant) -> Elapsed {
        let (Elapsed { open, shut }, more) = (self.before, now - self.since);
        match self.watching {
            Watching::Open => Elapsed { open: open + more, shut },
            Watching::Shut => Elapsed { open, shut: shut + more },
        }
    }

    fn notice(&mut self, watching: Watching, now: Instant) {
        *self = Self { watching, since: now, before: self.elapsed(now) };
    }
}

#[derive(Debug)]
struct Wait {
    source: SourceId,
    object: ObjectKey,
    goal: Goal,
    since: Instant,
    /// The source's clock when the wait began.
    began: Elapsed,
}

impl Wait {
    /// Tells until when it may last if the watch stays as it is.
    fn due(&self, clock: &Clock, now: Instant) -> Instant {
        let elapsed = clock.elapsed(now);
        let left = match (&self.goal, clock.watching) {
            (Goal::Past(_), _) => return self.since + FOR_STRANGER,
            _ if elapsed.shut - self.began.shut >= IN_OUTAGE => Duration::ZERO,
            (_, Watching::Open) => WHILE_OPEN.saturating_sub(elapsed.open - self.began.open),
            _ if elapsed.open - self.began.open >= WHILE_OPEN => Duration::ZERO,
            (_, Watching::Shut) => IN_OUTAGE.saturating_sub(elapsed.shut - self.began.shut),
        };
        now + left
    }
}

/// Keys that wait for their own writes.
#[derive(Debug)]
pub(crate) struct Parking<Key> {
    parked: HashMap<Key, Vec<Wait>>,
    delivered: HashMap<SourceId, Version>,
    /// Clocks of the sources that somebody waits for.
    clocks: HashMap<SourceId, Clock>,
}

impl<Key> Default for Parking<Key> {
    fn default() -> Self {
        Self { parked: HashMap::new(), delivered: HashMap::new(), clocks: HashMap::new() }
    }
}

impl<Key: Clone + Eq + Hash> Parking<Key> {
    /// Learns what a key's write makes it wait for; replaces what it waited for of that object.
    pub(crate) fn wrote(
        &mut self,
        key: &Key,
        (source, object): (SourceId, &ObjectKey),
        goal: Goal,
        now: Instant,
        caches: &impl Caches,
    ) -> Turn {
        let before = self.is_parked(key);
        let met = is_met(&goal, self.delivered.get(&source).copied(), || caches.sight(source, object));
        self.drop_waits(key, |wait| wait.source == source && wait.object == *object);
        if !met {
            let clock = self.clocks.entry(source).or_insert_with(|| Clock {
                watching: caches.watching(source),
                since: now,
                before: Elapsed::default(),
            });
            clock.notice(caches.watching(source), now);
            let wait = Wait { source, object: object.clone(), goal, since: now, began: clock.elapsed(now) };
            self.parked.entry(key.clone()).or_default().push(wait);
        }
        self.drop_clocks();
        match (before, self.is_parked(key)) {
            (false, true) => Turn::Parked,
            (true, false) => Turn::Released,
            _ => Turn::Same,
        }
    }

    /// Learns what the server says of an object that a reply was lost about; no news to who waits no longer.
    pub(crate) fn answered(
        &mut self,
        key: &Key,
        place: (SourceId, &ObjectKey),
        goal: Goal,
        now: Instant,
        caches: &impl Caches,
    ) -> Turn {
        match self.asks(key, place.1) {
            true => self.wrote(key, place, goal, now, caches),
            false => Turn::Same,
        }
    }

    /// Tells whether a key still waits for what the server says of an object.
    pub(crate) fn asks(&self, key: &Key, object: &ObjectKey) -> bool {
        let asked = |wait: &Wait| wait.goal == Goal::Asked && wait.object == *object;
        self.parked.get(key).is_some_and(|waits| waits.iter().any(asked))
    }

    /// Learns how far a source has been brought; returns the keys that wait for nothing any more.
    pub(crate) fn progressed(
        &mut self,
        source: SourceId,
        version: Option<Version>,
        caches: &impl Caches,
    ) -> Vec<Key> {
        let delivered = self.delivered.get(&source).copied().max(version);
        if let Some(version) = delivered {
            self.delivered.insert(source, version);
        }
        self.drop_all(|wait| {
            wait.source == source && is_met(&wait.goal, delivered, || caches.sight(source, &wait.object))
        })
    }

    /// Tells how far a source has been brought.
    pub(crate) fn delivered(&self, source: SourceId) -> Option<Version> {
        self.delivered.get(&source).copied()
    }

    /// Learns that a source's versions start anew; returns the keys that wait for nothing any more.
    pub(crate) fn new_epoch(&mut self, source: SourceId, version: Option<Version>) -> Vec<Key> {
        self.delivered.remove(&source);
        self.delivered.extend(version.map(|version| (source, version)));
        self.drop_all(|wait| wait.source == source)
    }

    /// Gives up what is overdue; returns it, and the keys that wait for nothing any more.
    pub(crate) fn tick(&mut self, now: Instant, caches: &impl Caches) -> (Vec<Overdue<Key>>, Vec<Key>) {
        for (source, clock) in &mut self.clocks {
            clock.notice(caches.watching(*source), now);
        }
        let mut overdue = Vec::new();
        for (key, waits) in &self.parked {
            let late = waits.iter().filter(|wait| self.clocks[&wait.source].is_over(wait, now));
            overdue.extend(late.map(|wait| Overdue {
                key: key.clone(),
                object: wait.object.clone(),
                goal: wait.goal.clone(),
                waited: now - wait.since,
            }));
        }
        let clocks = std::mem::take(&mut self.clocks);
        let released = self.drop_all(|wait| clocks[&wait.source].is_over(wait, now));
        self.clocks = clocks;
        self.drop_clocks();
        (overdue, released)
    }

    /// Tells when to [`tick`](Self::tick) next; `None` while nobody waits.
    pub(crate) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let waits = self.parked.values().flatten();
        let due = waits.map(|wait| wait.due(&self.clocks[&wait.source], now)).min()?;
        Some(due.min(now + NOTICED_WITHIN))
    }

    pub(crate) fn is_parked(&self, key: &Key) -> bool {
        self.parked.contains_key(key)
    }

    fn drop_waits(&mut self, key: &Key, gone: impl Fn(&Wait) -> bool) {
        if let Some(waits) = self.parked.get_mut(key) {
            waits.retain(|wait| !gone(wait));
            if waits.is_empty() {
                self.parked.remove(key);
            }
        }
    }

    fn drop_all(&mut self, gone: impl Fn(&Wait) -> bool) -> Vec<Key> {
        let mut released = Vec::new();
        self.parked.retain(|key, waits| {
            waits.retain(|wait| !gone(wait));
            if waits.is_empty() {
                released.push(key.clone());
            }
            !waits.is_empty()
        });
        if !released.is_empty() {
            self.drop_clocks();
        }
        released
    }

    /// A clock that nobody reads stops.
    fn drop_clocks(&mut self) {
        if self.parked.is_empty() {
            self.clocks.clear();
        }
    }
}

impl Clock {
    fn is_over(&self, wait: &Wait, now: Instant) -> bool {
        wait.due(self, now) <= now
    }
}

fn is_met(goal: &Goal, delivered: Option<Version>, sight: impl FnOnce() -> Sight) -> bool {
    let brought_to = |version: &Version| delivered.is_some_and(|delivered| delivered >= *version);
    match goal {
        Goal::Asked => false,
        Goal::Reached(version) | Goal::Marked { version, .. } if brought_to(version) => true,
        Goal::Reached(version) => sight().is_at_least(*version),
        Goal::Marked { uid, version } => {
            let sight = sight();
            sight.is_at_least(*version) || sight.is_without(uid)
        }
        Goal::Gone { uid } => sight().is_without(uid),
        Goal::Released { uid, finalizer } => match sight() {
            Sight::Shown { uid: shown, finalizers, .. } => shown != *uid || !finalizers.contains(finalizer),
            sight => sight == Sight::Absent,
        },
        Goal::Absent => sight() == Sight::Absent,
        Goal::Past(version) => match sight() {
            Sight::Shown { version: shown, .. } => shown.is_none_or(|shown| shown > *version),
            sight => sight == Sight::Absent,
        },
    }
}

impl Sight {
    fn is_at_least(&self, version: Version) -> bool {
        matches!(self, Self::Shown { version: Some(shown), .. } if *shown >= version)
    }

    fn is_without(&self, uid: &str) -> bool {
        match self {
            Self::Absent => true,
            Self::Unknown => false,
            Self::Shown { uid: shown, .. } => shown != uid,
        }
    }
}

#[cfg(test)]
#[path = "parking_tests.rs"]
mod tests;

//! What the table holds of the sources: how far each has come, and which keys wait for what of it.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::Entry},
    time::Duration,
};

use foldhash::{HashMap, HashSet};
use tokio::time::Instant;

use crate::{
    informer::{Progress, ProgressVia},
    object::{ObjectKey, Version},
};

/// Names one informer among those that feed a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SourceId(pub(crate) usize);

/// The sources of a controller.
///
/// A progress costs in proportion to what it brought: the keys that it concerns are found by the versions that it
/// reached, and by the objects that it changed.
#[derive(Debug, Default)]
pub(super) struct Sources {
    records: HashMap<SourceId, SourceRecord>,
    /// Keys by the versions that settle something of them.
    by_version: BTreeMap<(SourceId, Version), BTreeSet<ObjectKey>>,
    /// Keys by the objects that they wait for.
    by_object: HashMap<(SourceId, ObjectKey), BTreeSet<ObjectKey>>,
}

/// How far a source has come.
#[derive(Debug, Default)]
struct SourceRecord {
    /// The cache shows at least this version.
    delivered: Option<Version>,
    /// The version of the last list that replaced the cache.
    replaced: Option<Version>,
    /// Objects that keys wait for and that changed since the last progress.
    changed: HashSet<ObjectKey>,
    /// Runs while any key waits.
    clock: Option<WatchClock>,
    /// The last event, and the keys that it reached; only of a source that feeds the controller more than once.
    event: Option<(Version, HashSet<ObjectKey>)>,
}

impl Sources {
    /// Returns how far a source has been delivered.
    pub(super) fn delivered(&self, source: SourceId) -> Option<Version> {
        self.records.get(&source)?.delivered
    }

    /// Returns whether a list of a source has passed a version.
    pub(super) fn has_replaced(&self, source: SourceId, version: Version) -> bool {
        self.records.get(&source).is_some_and(|record| record.replaced >= Some(version))
    }

    /// Returns whether the event with this version has not reached a key yet.
    pub(super) fn is_first(&mut self, source: SourceId, version: Version, key: &ObjectKey) -> bool {
        match &mut self.records.entry(source).or_default().event {
            Some((of, reached)) if *of == version => reached.insert(key.clone()),
            event => {
                *event = Some((version, HashSet::from_iter([key.clone()])));
                true
            }
        }
    }

    /// Notes that a cache shows another state of an object.
    pub(super) fn changed(&mut self, source: SourceId, object: &ObjectKey) {
        if !self.by_object.is_empty() && self.by_object.contains_key(&(source, object.clone())) {
            self.records.entry(source).or_default().changed.insert(object.clone());
        }
    }

    /// Takes the progress of a source. Returns the keys that it may settle something of.
    pub(super) fn deliver(&mut self, source: SourceId, progress: Progress) -> BTreeSet<ObjectKey> {
        let record = self.records.entry(source).or_default();
        record.delivered = record.delivered.max(progress.version);
        let (delivered, changed) = (record.delivered, std::mem::take(&mut record.changed));
        let mut concerned = BTreeSet::new();
        if progress.via != ProgressVia::Watch {
            record.replaced = record.replaced.max(progress.version);
            record.event = None;
            concerned.extend(self.waiting().cloned());
        }
        if let Some(delivered) = delivered {
            concerned.append(&mut self.take_up_to(source, delivered));
        }
        for object in changed {
            concerned.extend(self.by_object.get(&(source, object)).into_iter().flatten().cloned());
        }
        concerned
    }

    /// Forgets what is known of a source whose versions start again.
    pub(super) fn begin_epoch(&mut self, source: SourceId, version: Option<Version>) {
        let clock = self.records.remove(&source).and_then(|record| record.clock);
        let record = SourceRecord { delivered: version, replaced: version, clock, ..SourceRecord::default() };
        self.records.insert(source, record);
        self.take_up_to(source, Version(u64::MAX));
    }

    /// Notes that a key waits for a version of a source.
    pub(super) fn await_version(&mut self, source: SourceId, version: Version, key: &ObjectKey) {
        self.by_version.entry((source, version)).or_default().insert(key.clone());
    }

    pub(super) fn end_version(&mut self, source: SourceId, version: Version, key: &ObjectKey) {
        let at = (source, version);
        if let Some(keys) = self.by_version.get_mut(&at) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_version.remove(&at);
            }
        }
    }

    /// Removes and returns the keys that wait for this version of a source, or for an earlier one.
    fn take_up_to(&mut self, source: SourceId, version: Version) -> BTreeSet<ObjectKey> {
        let mut taken = BTreeSet::new();
        let first = (source, Version(0));
        while let Some((at, _)) = self.by_version.range(first..=(source, version)).next() {
            let at = *at;
            taken.extend(self.by_version.remove(&at).into_iter().flatten());
        }
        taken
    }

    /// Notes that a key waits for something of an object. Returns what the source's clock shows.
    pub(super) fn await_object(
        &mut self,
        (source, object): (SourceId, &ObjectKey),
        key: &ObjectKey,
        is_open: bool,
        now: Instant,
    ) -> WatchTimes {
        self.by_object.entry((source, object.clone())).or_default().insert(key.clone());
        let clock = &mut self.records.entry(source).or_default().clock;
        let clock = clock.get_or_insert_with(|| WatchClock::start(is_open, now));
        clock.set(is_open, now);
        clock.elapsed(now)
    }

    pub(super) fn end_object(&mut self, source: SourceId, object: ObjectKey, key: &ObjectKey) {
        if let Entry::Occupied(mut waiting) = self.by_object.entry((source, object)) {
            waiting.get_mut().remove(key);
            if waiting.get().is_empty() {
                waiting.remove();
            }
        }
        if self.by_object.is_empty() {
            self.records.values_mut().for_each(|record| record.clock = None);
        }
    }

    /// Returns the keys that wait for something of an object; a key that waits for several is returned for each.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_object.values().flatten()
    }

    /// Returns the clock of a source that a key waits for.
    pub(super) fn clock(&self, source: SourceId) -> Option<&WatchClock> {
        self.records.get(&source)?.clock.as_ref()
    }

    /// Notes which watches are open.
    pub(super) fn set_clocks(&mut self, is_open: impl Fn(SourceId) -> bool, now: Instant) {
        for (source, record) in &mut self.records {
            if let Some(clock) = &mut record.clock {
                clock.set(is_open(*source), now);
            }
        }
    }

    /// Counts what waits, and what measures for how long.
    #[cfg(test)]
    pub(super) fn waits(&self) -> usize {
        let clocks = self.records.values().filter(|record| record.clock.is_some()).count();
        self.by_version.len() + self.by_object.len() + clocks
    }
}

/// Measures for how long a watch is open and closed.
#[derive(Debug)]
pub(super) struct WatchClock {
    pub(super) is_open: bool,
    since: Instant,
    before: WatchTimes,
}

/// For how long a watch has been open and closed in all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatchTimes {
    pub(super) open: Duration,
    pub(super) closed: Duration,
}

impl WatchClock {
    fn start(is_open: bool, now: Instant) -> Self {
        Self { is_open, since: now, before: WatchTimes::default() }
    }

    pub(super) fn elapsed(&self, now: Instant) -> WatchTimes {
        let (WatchTimes { open, closed }, more) = (self.before, now - self.since);
        match self.is_open {
            true => WatchTimes { open: open + more, closed },
            false => WatchTimes { open, closed: closed + more },
        }
    }

    /// Goes on with a watch that is open or closed from now on.
    fn set(&mut self, is_open: bool, now: Instant) {
        *self = Self { is_open, since: now, before: self.elapsed(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_source_and_by_the_versions_that_it_reaches() {
        let (one, other) = (SourceId(1), SourceId(2));
        let key = |name: &str| ObjectKey::new("shop", name);
        let mut sources = Sources::default();
        for (source, version, name) in
            [(one, 7, "c"), (one, 5, "b"), (one, 5, "a"), (one, 9, "d"), (other, 1, "e")]
        {
            sources.await_version(source, Version(version), &key(name));
        }
        (0..2).for_each(|_| sources.end_version(one, Version(9), &key("d")));
        sources.await_version(one, Version(u64::MAX), &key("last"));
        let mut reaches = |source, version| {
            let progress = Progress { version: Some(Version(version)), via: ProgressVia::Watch };
            sources.deliver(source, progress).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(reaches(one, 6), [key("a"), key("b")]);
        assert_eq!(reaches(one, 6), []);
        assert_eq!(reaches(one, u64::MAX), [key("c"), key("last")]);
        assert_eq!(reaches(other, 1), [key("e")]);
        assert_eq!(sources.waits(), 0);
    }
}

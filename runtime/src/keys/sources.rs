//! What the table holds of the sources: how far each has come, and which keys wait for what of it.

use std::collections::{BTreeMap, BTreeSet, hash_map::Entry};

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
pub(super) struct Sources(HashMap<SourceId, SourceRecord>);

/// How far a source has come, and which keys wait for it.
#[derive(Debug, Default)]
struct SourceRecord {
    /// The cache shows at least this version.
    delivered: Option<Version>,
    /// The version of the last list that replaced the cache.
    replaced: Option<Version>,
    /// Keys by the versions that settle something of them, if nothing else has settled it before.
    by_version: BTreeMap<Version, BTreeSet<ObjectKey>>,
    /// Keys by the objects that they wait for.
    by_object: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Objects that keys wait for and that changed since the last progress.
    changed: HashSet<ObjectKey>,
    /// Since when the watch is open, as far as that was noticed while a key waits.
    open_since: Option<Instant>,
    /// The last event, and the keys that it reached; only of a source that feeds the controller more than once.
    event: Option<(Version, HashSet<ObjectKey>)>,
}

impl Sources {
    /// Returns how far a source has been delivered.
    pub(super) fn delivered(&self, source: SourceId) -> Option<Version> {
        self.0.get(&source)?.delivered
    }

    /// Returns whether a list of a source has passed a version.
    pub(super) fn has_replaced(&self, source: SourceId, version: Version) -> bool {
        self.0.get(&source).is_some_and(|record| record.replaced >= Some(version))
    }

    /// Returns whether the event with this version has not reached a key yet.
    pub(super) fn is_first(&mut self, source: SourceId, version: Version, key: &ObjectKey) -> bool {
        let event = &mut self.record(source).event;
        let (_, reached) = match event.take_if(|(of, _)| *of == version) {
            Some(same) => event.insert(same),
            None => event.insert((version, HashSet::default())),
        };
        reached.insert(key.clone())
    }

    /// Notes that a cache shows another state of an object.
    pub(super) fn changed(&mut self, source: SourceId, object: &ObjectKey) {
        if let Some(record) = self.0.get_mut(&source)
            && record.by_object.contains_key(object)
        {
            record.changed.insert(object.clone());
        }
    }

    /// Takes the progress of a source. Returns the keys that it may settle something of.
    pub(super) fn deliver(&mut self, source: SourceId, progress: Progress) -> BTreeSet<ObjectKey> {
        let record = self.record(source);
        record.delivered = record.delivered.max(progress.version);
        let mut concerned = BTreeSet::new();
        if progress.via != ProgressVia::Watch {
            record.replaced = record.replaced.max(progress.version);
            record.event = None;
            concerned.extend(record.by_object.values().flatten().cloned());
        }
        while let Some(first) = record.by_version.first_entry()
            && Some(*first.key()) <= record.delivered
        {
            concerned.extend(first.remove());
        }
        for object in record.changed.drain() {
            concerned.extend(record.by_object.get(&object).into_iter().flatten().cloned());
        }
        concerned
    }

    /// Forgets what is known of a source whose versions start again.
    pub(super) fn begin_epoch(&mut self, source: SourceId, version: Option<Version>) {
        let record = self.record(source);
        let (by_object, open_since) = (std::mem::take(&mut record.by_object), record.open_since);
        let begun = SourceRecord { delivered: version, replaced: version, ..SourceRecord::default() };
        *record = SourceRecord { by_object, open_since, ..begun };
    }

    /// Notes that a version of a source settles something of a key.
    pub(super) fn await_version(&mut self, source: SourceId, version: Version, key: &ObjectKey) {
        self.record(source).by_version.entry(version).or_default().insert(key.clone());
    }

    /// Forgets the versions that settle nothing any more.
    pub(super) fn sweep(&mut self, awaits: impl Fn(&ObjectKey, SourceId, Version) -> bool) {
        for (source, record) in &mut self.0 {
            record.by_version.retain(|version, keys| {
                keys.retain(|key| awaits(key, *source, *version));
                !keys.is_empty()
            });
        }
    }

    /// Notes that a key waits for something of an object.
    pub(super) fn await_object(&mut self, source: SourceId, object: &ObjectKey, key: &ObjectKey) {
        self.record(source).by_object.entry(object.clone()).or_default().insert(key.clone());
    }

    pub(super) fn end_object(&mut self, source: SourceId, object: ObjectKey, key: &ObjectKey) {
        let record = self.record(source);
        if let Entry::Occupied(mut waiting) = record.by_object.entry(object) {
            waiting.get_mut().remove(key);
            if waiting.get().is_empty() {
                waiting.remove();
            }
        }
        record.open_since = record.open_since.filter(|_| !record.by_object.is_empty());
    }

    /// Returns the keys that wait for something of an object; a key that waits for several is returned for each.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.values().flat_map(|record| record.by_object.values().flatten())
    }

    /// Returns since when the watch of a source is open that a key waits for.
    pub(super) fn open_since(&self, source: SourceId) -> Option<Instant> {
        self.0.get(&source)?.open_since
    }

    /// Notes which watches are open.
    pub(super) fn note_watches(&mut self, is_open: impl Fn(SourceId) -> bool, now: Instant) {
        for (source, record) in &mut self.0 {
            let counts = !record.by_object.is_empty() && is_open(*source);
            record.open_since = counts.then(|| record.open_since.unwrap_or(now));
        }
    }

    fn record(&mut self, source: SourceId) -> &mut SourceRecord {
        self.0.entry(source).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sources {
        /// Counts what waits.
        pub(in crate::keys) fn waits(&self) -> usize {
            let waits = |record: &SourceRecord| {
                record.by_version.len() + record.by_object.len() + usize::from(record.open_since.is_some())
            };
            self.0.values().map(waits).sum()
        }
    }

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
        sources.sweep(|other, _, version| *other != key("d") || version != Version(9));
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

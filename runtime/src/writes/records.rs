//! What a controller remembers of its keys' writes, and what each progress of a cache settles: a pure state machine.
//!
//! There is one [record](super::record::Record) a key, one of the run of each key in flight, and one place that knows how
//! far a source has delivered. The parts of a record are kept in `own_writes` (versions that the key made), `answers` (what the server answered) and
//! `pending_writes` (what the key waits for).

use std::{
    collections::{BTreeSet, HashSet},
    hash::Hash,
};

use foldhash::HashMap;

use super::{
    awaited::Awaited,
    expectation::CachedState,
    record::{Clock, Record, RunRecord, Seen, Verdict, Wait, WatchState},
    source::SourceId,
};
use crate::{
    informer::{Progress, ProgressVia},
    object::{ObjectKey, Version},
};

/// The caches, as far as records need them.
pub(crate) trait Caches {
    fn cached(&self, source: SourceId, object: &ObjectKey) -> CachedState;
    fn watch_state(&self, source: SourceId) -> WatchState;
}

/// The records of all keys that have anything to remember.
///
/// A batch of changes costs in proportion to what it brought: whom it concerns is found by the versions that it
/// reached, and by the objects that it changed.
#[derive(Debug)]
pub(crate) struct WriteRecords<Key> {
    pub(super) by_key: HashMap<Key, Record>,
    /// The runs under way: apart, since most neither find nor leave a record.
    pub(super) runs: HashMap<Key, RunRecord>,
    pub(super) sources: HashMap<SourceId, Source>,
    /// Whose records a version settles something of.
    pub(super) by_version: Awaited<Key>,
    /// Who waits for something of an object.
    pub(super) by_object: HashMap<(SourceId, ObjectKey), BTreeSet<Key>>,
}

/// How far a source has come.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// The cache shows at least this.
    pub(super) delivered: Option<Version>,
    /// The version of the last list that replaced the cache.
    pub(super) replaced: Option<Version>,
    /// Objects that keys wait for, and that changed since the last progress.
    pub(super) changed: HashSet<ObjectKey>,
    /// Runs while any key waits.
    pub(super) clock: Option<Clock>,
}

/// What a progress means for keys, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settled<Key> {
    /// They wait for nothing any more.
    pub(crate) released: Vec<Key>,
    /// They must run: what they wrote may have come and gone unseen.
    pub(crate) missed: Vec<Key>,
}

impl<Key> Default for WriteRecords<Key> {
    fn default() -> Self {
        Self {
            by_key: HashMap::default(),
            runs: HashMap::default(),
            sources: HashMap::default(),
            by_version: Awaited::default(),
            by_object: HashMap::default(),
        }
    }
}

impl<Key: Clone + Eq + Hash + Ord> WriteRecords<Key> {
    /// Returns how far a source has been delivered.
    pub(crate) fn delivered(&self, source: SourceId) -> Option<Version> {
        self.sources.get(&source)?.delivered
    }

    /// Learns that a cache shows another state of an object.
    pub(crate) fn changed(&mut self, source: SourceId, object: &ObjectKey) {
        if !self.by_object.is_empty() && self.by_object.contains_key(&(source, object.clone())) {
            self.sources.entry(source).or_default().changed.insert(object.clone());
        }
    }

    /// Learns how far a source has been brought.
    pub(crate) fn progressed(
        &mut self,
        source: SourceId,
        progress: Progress,
        caches: &impl Caches,
    ) -> Settled<Key> {
        let settled = match progress.via {
            ProgressVia::NewEpoch => self.begin_epoch(source, progress.version),
            via => self.deliver(source, progress.version, via, caches),
        };
        self.stop_clocks();
        settled
    }

    fn deliver(
        &mut self,
        source: SourceId,
        version: Option<Version>,
        via: ProgressVia,
        caches: &impl Caches,
    ) -> Settled<Key> {
        let state = self.sources.entry(source).or_default();
        state.delivered = state.delivered.max(version);
        if via == ProgressVia::Replace {
            state.replaced = state.replaced.max(version);
        }
        let (delivered, changed) = (state.delivered, std::mem::take(&mut state.changed));
        let mut settled = Settled { released: Vec::new(), missed: Vec::new() };
        for key in self.concerned(source, delivered, via, changed) {
            let Some(record) = self.by_key.get_mut(&key) else { continue };
            let mut seen = Seen::Yes;
            if let Some(delivered) = delivered {
                seen = record.forget_own(source, |version| version <= delivered);
                record.deliver_answers(source, delivered);
                if !self.runs.contains_key(&key) {
                    record.forget_shown_answers();
                }
            }
            let is_met = |wait: &Wait| {
                let shown = || caches.cached(source, &wait.object);
                wait.source == source && wait.expectation.is_met(delivered, shown)
            };
            self.drop_waits(&key, is_met, &mut settled.released);
            // Watch events show every change; a list may pass some.
            if seen == Seen::NotYet && via == ProgressVia::Replace {
                self.miss(&key, &mut settled.missed);
            }
            self.prune(&key);
        }
        settled
    }

    /// Finds whose records a progress may settle something of.
    fn concerned(
        &mut self,
        source: SourceId,
        delivered: Option<Version>,
        via: ProgressVia,
        changed: HashSet<ObjectKey>,
    ) -> BTreeSet<Key> {
        let reached = delivered.map(|version| self.by_version.take_up_to(source, version));
        let mut concerned: BTreeSet<Key> = reached.into_iter().flatten().collect();
        if via == ProgressVia::Replace {
            let waiting = self.by_key.iter().filter(|(_, record)| !record.waits.is_empty());
            concerned.extend(waiting.map(|(key, _)| key.clone()));
        }
        for object in changed {
            concerned.extend(self.by_object.get(&(source, object)).into_iter().flatten().cloned());
        }
        concerned
    }

    /// Forgets what is known of a source whose versions start anew.
    fn begin_epoch(&mut self, source: SourceId, version: Option<Version>) -> Settled<Key> {
        let state = self.sources.entry(source).or_default();
        (state.delivered, state.replaced) = (version, version);
        state.changed.clear();
        self.by_version.take(source);
        for run in self.runs.values_mut() {
            run.changed = true;
            run.new_epochs.push(source);
        }
        let keys: BTreeSet<Key> = self.by_key.keys().cloned().collect();
        let mut settled = Settled { released: Vec::new(), missed: Vec::new() };
        for key in keys {
            let Some(record) = self.by_key.get_mut(&key) else { continue };
            let seen = record.forget_own(source, |_| true);
            record.answers.retain(|_, answer| answer.source != Some(source));
            self.drop_waits(&key, |wait| wait.source == source, &mut settled.released);
            if seen == Seen::NotYet {
                self.miss(&key, &mut settled.missed);
            }
            self.prune(&key);
        }
        settled
    }

    fn miss(&mut self, key: &Key, missed: &mut Vec<Key>) {
        if self.foreign_change(key) == Verdict::Enqueue {
            missed.push(key.clone());
        }
    }

    /// Drops some of what a key waits for; says so where that was all.
    pub(super) fn drop_waits(&mut self, key: &Key, gone: impl Fn(&Wait) -> bool, released: &mut Vec<Key>) {
        let Some(record) = self.by_key.get_mut(key).filter(|record| !record.waits.is_empty()) else { return };
        let (dropped, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut record.waits).into_iter().partition(gone);
        record.waits = kept;
        if record.waits.is_empty() {
            released.push(key.clone());
        }
        for Wait { source, object, expectation, .. } in dropped {
            if let Some(version) = expectation.version() {
                self.await_no_more(key, source, version);
            }
            let of = (source, object);
            if let Some(all) = self.by_object.get_mut(&of) {
                all.remove(key);
                if all.is_empty() {
                    self.by_object.remove(&of);
                }
            }
        }
    }

    /// Forgets that a version settles something of a key, unless it settles more.
    pub(super) fn await_no_more(&mut self, key: &Key, source: SourceId, version: Version) {
        if self.by_key.get(key).is_none_or(|record| !record.awaits(source, version)) {
            self.by_version.remove(source, version, key);
        }
    }

    /// Forgets a record that holds nothing.
    pub(super) fn prune(&mut self, key: &Key) {
        if self.by_key.get(key).is_some_and(Record::is_empty) {
            self.by_key.remove(key);
        }
    }

    /// A clock that nobody reads stops.
    pub(super) fn stop_clocks(&mut self) {
        if self.by_object.is_empty() {
            self.sources.values_mut().for_each(|source| source.clock = None);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let idle = self.sources.values().all(|source| source.clock.is_none());
        idle && self.runs.is_empty()
            && self.by_key.is_empty()
            && self.by_version.is_empty()
            && self.by_object.is_empty()
    }
}

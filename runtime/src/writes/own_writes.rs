//! Tells a controller's own writes from everybody else's: a pure state machine.
//!
//! An event is a key's own if its version is one that a write of that key made. The event may arrive before the
//! write's reply, so events for a key in flight are held with their versions, and what is still held when the
//! run ends was a stranger's. What a list brought is never own, and a list that passes a version which a key
//! wrote and has not seen wakes that key: what it wrote may have come and gone in the gap.
//!
//! Versions belong to a source (one informer: a kind and a scope) and are never compared across sources.

use std::{collections::VecDeque, hash::Hash};

use foldhash::HashMap;

use super::awaited::Awaited;
use crate::{
    informer::{Progress, ProgressVia},
    object::Version,
};

/// Names one informer among those that feed a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SourceId(pub(crate) usize);

/// How many events a key in flight holds; one more counts as changed.
const DEFERRED_PER_RUN: usize = 16;
/// How many unseen own versions a key has; the oldest then count as a stranger's.
const OWN_PER_KEY: usize = 64;

/// What an event means for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Somebody else's change: the key must run.
    Enqueue,
    /// The key's own write, seen.
    Own,
    /// The key is in flight: judged when its run ends.
    Deferred,
}

/// What a run leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// Nobody else changed anything.
    Quiet,
    /// Somebody did: the key must run again.
    Changed,
}

/// What is known of a run that may have written, while it lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunActivity {
    /// It sent nothing, and no event of its key came.
    #[default]
    Nothing,
    /// Something of its key changed meanwhile.
    Changed,
    /// It sent a write.
    Wrote,
}

#[derive(Debug, Default)]
struct RunRecord {
    deferred: Vec<(SourceId, Version)>,
    changed: bool,
    activity: RunActivity,
    /// Sources whose versions started anew meanwhile: an answer may be of either side.
    new_epochs: Vec<SourceId>,
}

#[derive(Debug, Default)]
struct Source {
    /// The cache shows at least this.
    delivered: Option<Version>,
    /// The version of the last list that replaced the cache.
    replaced: Option<Version>,
}

/// A version that a key made, until its source has delivered past it.
#[derive(Debug)]
struct OwnVersion {
    source: SourceId,
    version: Version,
    seen: Seen,
}

/// Says whether an event has shown a version; more may come, where a source feeds a controller several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    NotYet,
    Once,
}

/// Own versions that were not delivered past yet, and events that were not judged yet.
#[derive(Debug)]
pub(crate) struct OwnWrites<Key> {
    runs: HashMap<Key, RunRecord>,
    sources: HashMap<SourceId, Source>,
    own: HashMap<Key, VecDeque<OwnVersion>>,
    /// Whose versions are not delivered past yet.
    awaited: Awaited<Key>,
}

impl<Key> Default for OwnWrites<Key> {
    fn default() -> Self {
        Self {
            runs: HashMap::default(),
            sources: HashMap::default(),
            own: HashMap::default(),
            awaited: Awaited::default(),
        }
    }
}

impl<Key: Clone + Eq + Hash + Ord> OwnWrites<Key> {
    /// Starts a run of a key: from here on its events are held.
    pub(crate) fn begin(&mut self, key: &Key) {
        self.runs.insert(key.clone(), RunRecord::default());
    }

    /// Whether a run of the key is under way.
    pub(crate) fn is_running(&self, key: &Key) -> bool {
        self.runs.contains_key(key)
    }

    /// Takes note of what the run of a key did, or what happened meanwhile; the most counts.
    pub(crate) fn note(&mut self, key: &Key, activity: RunActivity) {
        if let Some(run) = self.runs.get_mut(key) {
            run.activity = run.activity.max(activity);
        }
    }

    /// Tells what the run of a key did so far.
    pub(crate) fn activity(&self, key: &Key) -> RunActivity {
        self.runs.get(key).map_or(RunActivity::Nothing, |run| run.activity)
    }

    /// Tells whether versions started anew while the key runs: what it began with may be gone.
    pub(crate) fn spans_epochs(&self, key: &Key) -> bool {
        self.runs.get(key).is_some_and(|run| !run.new_epochs.is_empty())
    }

    /// Forgets what a key wrote: the server lost it, and may give its versions to others. The key must run again.
    pub(crate) fn forget_own(&mut self, key: &Key) -> Verdict {
        self.own.remove(key);
        self.foreign_change(key)
    }

    /// Ends the run, and judges what is still held.
    pub(crate) fn end(&mut self, key: &Key) -> RunEnd {
        match self.runs.remove(key) {
            Some(run) if run.changed || !run.deferred.is_empty() => RunEnd::Changed,
            _ => RunEnd::Quiet,
        }
    }

    /// Judges a watch event that concerns a key; an event without a comparable version is nobody's own.
    pub(crate) fn event(&mut self, source: SourceId, version: Option<Version>, key: &Key) -> Verdict {
        let Some(version) = version else { return self.foreign_change(key) };
        if self.is_own(key, source, version) {
            self.note(key, RunActivity::Changed);
            return Verdict::Own;
        }
        match self.runs.get_mut(key) {
            Some(run) if run.deferred.len() < DEFERRED_PER_RUN => {
                run.deferred.push((source, version));
                run.activity = run.activity.max(RunActivity::Changed);
                Verdict::Deferred
            }
            _ => self.foreign_change(key),
        }
    }

    /// Takes a change that is nobody's own: a deletion, or what a list brought.
    pub(crate) fn foreign_change(&mut self, key: &Key) -> Verdict {
        match self.runs.get_mut(key) {
            Some(run) => {
                run.changed = true;
                run.activity = run.activity.max(RunActivity::Changed);
                Verdict::Deferred
            }
            None => Verdict::Enqueue,
        }
    }

    /// Learns that a write of the key made a version; says whether the key must run for it.
    ///
    /// It must when a list has passed that version already and no event of it is held: whatever the write made
    /// may be gone again.
    pub(crate) fn wrote(&mut self, key: &Key, source: SourceId, version: Version) -> Verdict {
        let mut seen = Seen::NotYet;
        if let Some(run) = self.runs.get_mut(key) {
            let before = run.deferred.len();
            run.deferred.retain(|deferred| *deferred != (source, version));
            if run.deferred.len() < before {
                seen = Seen::Once;
            } else if run.new_epochs.contains(&source) {
                return self.foreign_change(key);
            }
        }
        let state = self.sources.entry(source).or_default();
        if seen == Seen::NotYet && state.replaced.is_some_and(|replaced| replaced >= version) {
            return self.foreign_change(key);
        }
        if state.delivered.is_none_or(|delivered| delivered < version) {
            let own = self.own.entry(key.clone()).or_default();
            if own.len() == OWN_PER_KEY
                && let Some(oldest) = own.pop_front()
            {
                self.awaited.remove(oldest.source, oldest.version, key);
            }
            own.push_back(OwnVersion { source, version, seen });
            self.awaited.insert(source, version, key.clone());
        }
        Verdict::Own
    }

    /// Learns how far a source has delivered; returns the keys that must run for it.
    pub(crate) fn progressed(&mut self, source: SourceId, progress: Progress) -> Vec<Key> {
        let state = self.sources.entry(source).or_default();
        match progress.via {
            ProgressVia::Watch => {
                state.delivered = state.delivered.max(progress.version);
                self.forget_up_to(source, progress.version);
                Vec::new()
            }
            ProgressVia::Replace => {
                state.delivered = state.delivered.max(progress.version);
                state.replaced = state.replaced.max(progress.version);
                let passed = self.forget_up_to(source, progress.version);
                self.wake_all(passed)
            }
            ProgressVia::NewEpoch => {
                *state = Source { delivered: progress.version, replaced: progress.version };
                for run in self.runs.values_mut() {
                    run.changed = true;
                    run.new_epochs.push(source);
                }
                let lost = self.awaited.take(source);
                let lost = self.forget(lost, |own| own.source == source);
                self.wake_all(lost)
            }
        }
    }

    fn wake_all(&mut self, keys: Vec<Key>) -> Vec<Key> {
        keys.into_iter().filter(|key| self.foreign_change(key) == Verdict::Enqueue).collect()
    }

    fn is_own(&mut self, key: &Key, source: SourceId, version: Version) -> bool {
        if self.own.is_empty() {
            return false;
        }
        let Some(own) = self.own.get_mut(key) else { return false };
        let Some(found) = own.iter_mut().find(|own| own.source == source && own.version == version) else {
            return false;
        };
        found.seen = Seen::Once;
        true
    }

    /// Forgets own versions that a source has delivered past; returns the keys that never saw theirs.
    fn forget_up_to(&mut self, source: SourceId, version: Option<Version>) -> Vec<Key> {
        let Some(version) = version else { return Vec::new() };
        let passed = self.awaited.take_up_to(source, version);
        self.forget(passed, |own| own.source == source && own.version <= version)
    }

    fn forget(&mut self, keys: Vec<Key>, gone: impl Fn(&OwnVersion) -> bool) -> Vec<Key> {
        let mut missed = Vec::new();
        for key in keys {
            let Some(versions) = self.own.get_mut(&key) else { continue };
            let unseen = versions.iter().any(|own| gone(own) && own.seen == Seen::NotYet);
            versions.retain(|own| !gone(own));
            if versions.is_empty() {
                self.own.remove(&key);
            }
            if unseen {
                missed.push(key);
            }
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: SourceId = SourceId(0);
    const DEPLOYMENTS: SourceId = SourceId(1);

    fn progress(version: u64, via: ProgressVia) -> Progress {
        Progress { version: Some(Version(version)), via }
    }

    fn started() -> OwnWrites<&'static str> {
        let mut own = OwnWrites::default();
        own.begin(&"a");
        own
    }

    // C24
    #[test]
    fn an_own_event_wakes_nobody_before_or_after_its_reply() {
        let mut own = started();
        assert_eq!(own.event(SITES, Some(Version(5)), &"a"), Verdict::Deferred);
        assert_eq!(own.wrote(&"a", SITES, Version(5)), Verdict::Own);
        assert_eq!(own.wrote(&"a", SITES, Version(6)), Verdict::Own);
        assert_eq!(own.end(&"a"), RunEnd::Quiet);
        assert_eq!(own.event(SITES, Some(Version(6)), &"a"), Verdict::Own);
        own.progressed(SITES, progress(6, ProgressVia::Watch));
        assert_eq!(own.event(SITES, Some(Version(6)), &"a"), Verdict::Enqueue, "versions go up");
    }

    // C24
    #[test]
    fn a_source_that_feeds_a_controller_twice_shows_each_own_version_twice() {
        let mut own = started();
        own.event(SITES, Some(Version(5)), &"a");
        own.event(SITES, Some(Version(5)), &"a");
        assert_eq!(own.wrote(&"a", SITES, Version(5)), Verdict::Own);
        own.event(SITES, Some(Version(6)), &"a");
        assert_eq!(own.wrote(&"a", SITES, Version(6)), Verdict::Own, "between the two");
        assert_eq!(own.event(SITES, Some(Version(6)), &"a"), Verdict::Own);
        own.wrote(&"a", SITES, Version(7));
        assert_eq!(own.event(SITES, Some(Version(7)), &"a"), Verdict::Own);
        assert_eq!(own.event(SITES, Some(Version(7)), &"a"), Verdict::Own);
        assert_eq!(own.end(&"a"), RunEnd::Quiet);
        assert_eq!(
            own.progressed(SITES, progress(9, ProgressVia::Replace)),
            Vec::<&str>::new(),
            "all was seen"
        );
        assert!(own.own.is_empty());
    }

    // C27
    #[test]
    fn a_strangers_event_wakes_on_either_side_of_an_own_one() {
        let mut own = started();
        own.event(SITES, Some(Version(4)), &"a");
        own.wrote(&"a", SITES, Version(5));
        assert_eq!(own.end(&"a"), RunEnd::Changed);
        assert_eq!(own.event(SITES, Some(Version(5)), &"a"), Verdict::Own);
        assert_eq!(own.event(SITES, Some(Version(6)), &"a"), Verdict::Enqueue);
    }

    // C28
    #[test]
    fn an_own_write_is_news_to_every_other_key() {
        let mut own = started();
        own.wrote(&"a", SITES, Version(5));
        assert_eq!(own.event(SITES, Some(Version(5)), &"b"), Verdict::Enqueue);
        assert_eq!(own.event(SITES, Some(Version(5)), &"a"), Verdict::Own);
    }

    // C29
    #[test]
    fn a_list_that_passes_an_unseen_own_version_wakes_its_key() {
        let mut own = started();
        own.wrote(&"a", DEPLOYMENTS, Version(5));
        own.end(&"a");
        assert_eq!(own.progressed(DEPLOYMENTS, progress(4, ProgressVia::Replace)), Vec::<&str>::new());
        assert_eq!(own.progressed(DEPLOYMENTS, progress(7, ProgressVia::Replace)), vec!["a"]);
        own.begin(&"b");
        own.wrote(&"b", DEPLOYMENTS, Version(6));
        assert_eq!(own.end(&"b"), RunEnd::Changed, "the list passed the write before its reply");
    }

    // C27
    #[test]
    fn versions_of_different_sources_are_never_mixed() {
        let mut own = started();
        own.wrote(&"a", DEPLOYMENTS, Version(5));
        own.end(&"a");
        assert_eq!(own.event(SITES, Some(Version(5)), &"a"), Verdict::Enqueue);
        own.progressed(SITES, progress(9, ProgressVia::Watch));
        assert_eq!(own.event(DEPLOYMENTS, Some(Version(5)), &"a"), Verdict::Own);
    }

    #[test]
    fn delivered_versions_and_idle_keys_leave_nothing_behind() {
        let mut own = started();
        for version in 1..=200 {
            own.wrote(&"a", SITES, Version(version));
        }
        assert_eq!(own.own["a"].len(), OWN_PER_KEY);
        own.end(&"a");
        own.progressed(SITES, progress(200, ProgressVia::Watch));
        assert!(own.own.is_empty() && own.runs.is_empty() && own.awaited.is_empty());
    }

    #[test]
    fn a_key_in_flight_that_holds_too_many_events_counts_as_changed() {
        let mut own = started();
        for version in 1..=17 {
            own.event(SITES, Some(Version(version)), &"a");
        }
        for version in 1..=17 {
            own.wrote(&"a", SITES, Version(version));
        }
        assert_eq!(own.end(&"a"), RunEnd::Changed);
    }

    // C27
    #[test]
    fn a_new_epoch_forgets_own_versions_and_counts_runs_as_changed() {
        let mut own = started();
        own.wrote(&"a", SITES, Version(50));
        own.begin(&"b");
        own.progressed(SITES, progress(3, ProgressVia::NewEpoch));
        assert_eq!(own.end(&"b"), RunEnd::Changed);
        assert_eq!(own.end(&"a"), RunEnd::Changed);
        assert_eq!(own.event(SITES, Some(Version(50)), &"a"), Verdict::Enqueue);
    }

    // C29
    #[test]
    fn a_new_epoch_wakes_the_keys_whose_writes_it_may_have_lost() {
        let mut own = started();
        own.wrote(&"a", DEPLOYMENTS, Version(50));
        own.end(&"a");
        assert_eq!(own.progressed(DEPLOYMENTS, progress(3, ProgressVia::NewEpoch)), vec!["a"]);
    }

    // C27
    #[test]
    fn an_answer_that_comes_after_a_new_epoch_makes_no_version_own() {
        let mut own = started();
        own.progressed(SITES, progress(3, ProgressVia::NewEpoch));
        own.wrote(&"a", SITES, Version(50));
        assert_eq!(own.end(&"a"), RunEnd::Changed);
        assert_eq!(own.event(SITES, Some(Version(50)), &"a"), Verdict::Enqueue, "of the epoch that began");
    }
}

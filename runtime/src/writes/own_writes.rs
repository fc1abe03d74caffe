//! Distinguishes a controller's own writes from foreign changes.
//!
//! An event is a key's own if its version is one that a write of that key made. The event may arrive before the
//! write's reply. So the events of a key in flight are deferred with their versions, and what is still deferred when
//! the run ends was somebody else's. What a list brought is never own, and a list that passes a version which a key
//! wrote and has not seen enqueues that key: what it wrote may have come and gone in the gap.
//!
//! Versions belong to a source (one informer: a kind and a scope) and are never compared across sources.

use std::hash::Hash;

use super::{
    record::{OwnVersion, RunActivity, RunDone, RunEnd, RunRecord, Seen, Verdict},
    records::WriteRecords,
    source::SourceId,
};
use crate::object::Version;

/// How many events are deferred for a key in flight; one more counts as changed.
const DEFERRED_PER_RUN: usize = 16;
/// How many unseen own versions a key has; the oldest then count as somebody else's.
const OWN_PER_KEY: usize = 64;

impl<Key: Clone + Eq + Hash + Ord> WriteRecords<Key> {
    /// Starts a run of a key: from here on its events are deferred.
    pub(crate) fn begin(&mut self, key: &Key) {
        self.runs.insert(key.clone(), RunRecord::default());
    }

    /// Whether a run of the key is under way.
    pub(crate) fn is_running(&self, key: &Key) -> bool {
        self.run(key).is_some()
    }

    /// Takes note of what the run of a key did, or what happened meanwhile; the most counts.
    pub(crate) fn note(&mut self, key: &Key, activity: RunActivity) {
        if let Some(run) = self.run_mut(key) {
            run.activity = run.activity.max(activity);
            run.writes = run.writes.saturating_add((activity == RunActivity::Wrote).into());
        }
    }

    /// Whether versions started anew while the key runs: what it began with may be gone.
    pub(crate) fn spans_epochs(&self, key: &Key) -> bool {
        self.run(key).is_some_and(|run| !run.new_epochs.is_empty())
    }

    /// Forgets what a key wrote: the server lost it, and may give its versions to others. The key must run again.
    pub(crate) fn forget_own(&mut self, key: &Key) -> Verdict {
        let own = self.by_key.get_mut(key).map(|record| std::mem::take(&mut record.own));
        own.into_iter().flatten().for_each(|own| self.await_no_more(key, own.source, own.version));
        let verdict = self.foreign_change(key);
        self.prune(key);
        verdict
    }

    /// Ends the run, judges what is still deferred, and forgets what only the run needed; tells what the run did.
    pub(crate) fn end(&mut self, key: &Key) -> (RunEnd, RunDone) {
        let run = self.runs.remove(key).unwrap_or_default();
        if let Some(record) = self.by_key.get_mut(key) {
            record.forget_shown_answers();
            if record.is_empty() {
                self.by_key.remove(key);
            }
        }
        let done = RunDone { activity: run.activity, writes: run.writes };
        match run.changed || !run.deferred.is_empty() {
            true => (RunEnd::Changed, done),
            false => (RunEnd::Quiet, done),
        }
    }

    /// Judges a watch event that concerns a key; an event without a comparable version is a foreign change.
    pub(crate) fn event(&mut self, source: SourceId, version: Option<Version>, key: &Key) -> Verdict {
        let Some(version) = version else { return self.foreign_change(key) };
        if self.is_own(key, source, version) {
            self.note(key, RunActivity::Changed);
            return Verdict::Own;
        }
        match self.run_mut(key) {
            Some(run) if run.deferred.len() < DEFERRED_PER_RUN => {
                run.deferred.push((source, version));
                run.activity = run.activity.max(RunActivity::Changed);
                Verdict::Deferred
            }
            _ => self.foreign_change(key),
        }
    }

    /// Takes a change that can't be the key's own: a deletion, or what a list brought.
    pub(crate) fn foreign_change(&mut self, key: &Key) -> Verdict {
        match self.run_mut(key) {
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
    /// It must when a list has passed that version already and no event of it is deferred: whatever the write made
    /// may be gone again.
    pub(crate) fn wrote(&mut self, key: &Key, source: SourceId, version: Version) -> Verdict {
        let mut seen = Seen::NotYet;
        if let Some(run) = self.run_mut(key) {
            let before = run.deferred.len();
            run.deferred.retain(|deferred| *deferred != (source, version));
            if run.deferred.len() < before {
                seen = Seen::Yes;
            } else if run.new_epochs.contains(&source) {
                return self.foreign_change(key);
            }
        }
        let state = self.sources.entry(source).or_default();
        if seen == Seen::NotYet && state.replaced.is_some_and(|replaced| replaced >= version) {
            return self.foreign_change(key);
        }
        if state.delivered.is_none_or(|delivered| delivered < version) {
            let own = &mut self.by_key.entry(key.clone()).or_default().own;
            let oldest = if own.len() == OWN_PER_KEY { own.pop_front() } else { None };
            own.push_back(OwnVersion { source, version, seen });
            self.by_version.insert(source, version, key.clone());
            if let Some(oldest) = oldest {
                self.await_no_more(key, oldest.source, oldest.version);
            }
        }
        Verdict::Own
    }

    fn is_own(&mut self, key: &Key, source: SourceId, version: Version) -> bool {
        let Some(record) = self.by_key.get_mut(key) else { return false };
        let mut own = record.own.iter_mut();
        let Some(found) = own.find(|own| own.source == source && own.version == version) else {
            return false;
        };
        found.seen = Seen::Yes;
        true
    }

    fn run(&self, key: &Key) -> Option<&RunRecord> {
        self.runs.get(key)
    }

    fn run_mut(&mut self, key: &Key) -> Option<&mut RunRecord> {
        self.runs.get_mut(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        informer::{Progress, ProgressVia},
        object::ObjectKey,
        writes::{
            expectation::CachedState,
            record::WatchState,
            records::{Caches, Settled},
        },
    };

    const SITES: SourceId = SourceId(0);
    const DEPLOYMENTS: SourceId = SourceId(1);

    fn progress(version: u64, via: ProgressVia) -> Progress {
        Progress { version: Some(Version(version)), via }
    }

    /// No key waits for what a cache shows.
    struct Unasked;

    impl Caches for Unasked {
        fn cached(&self, _: SourceId, _: &ObjectKey) -> CachedState {
            unreachable!("nothing is waited for")
        }

        fn watch_state(&self, _: SourceId) -> WatchState {
            WatchState::Open
        }
    }

    type Own = WriteRecords<&'static str>;

    fn progressed(own: &mut Own, source: SourceId, version: u64, via: ProgressVia) -> Vec<&'static str> {
        let Settled { released, missed } = own.progressed(source, progress(version, via), &Unasked);
        assert!(released.is_empty());
        missed
    }

    fn started() -> Own {
        let mut own = Own::default();
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
        assert_eq!(own.end(&"a").0, RunEnd::Quiet);
        assert_eq!(own.event(SITES, Some(Version(6)), &"a"), Verdict::Own);
        progressed(&mut own, SITES, 6, ProgressVia::Watch);
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
        assert_eq!(own.end(&"a").0, RunEnd::Quiet);
        assert_eq!(progressed(&mut own, SITES, 9, ProgressVia::Replace), Vec::<&str>::new(), "all was seen");
        own.end(&"a");
        assert!(own.is_empty());
    }

    // C27
    #[test]
    fn a_strangers_event_wakes_on_either_side_of_an_own_one() {
        let mut own = started();
        own.event(SITES, Some(Version(4)), &"a");
        own.wrote(&"a", SITES, Version(5));
        assert_eq!(own.end(&"a").0, RunEnd::Changed);
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
        assert_eq!(progressed(&mut own, DEPLOYMENTS, 4, ProgressVia::Replace), Vec::<&str>::new());
        assert_eq!(progressed(&mut own, DEPLOYMENTS, 7, ProgressVia::Replace), vec!["a"]);
        own.begin(&"b");
        own.wrote(&"b", DEPLOYMENTS, Version(6));
        assert_eq!(own.end(&"b").0, RunEnd::Changed, "the list passed the write before its reply");
    }

    // C27
    #[test]
    fn versions_of_different_sources_are_never_mixed() {
        let mut own = started();
        own.wrote(&"a", DEPLOYMENTS, Version(5));
        own.end(&"a");
        assert_eq!(own.event(SITES, Some(Version(5)), &"a"), Verdict::Enqueue);
        progressed(&mut own, SITES, 9, ProgressVia::Watch);
        assert_eq!(own.event(DEPLOYMENTS, Some(Version(5)), &"a"), Verdict::Own);
    }

    #[test]
    fn delivered_versions_and_idle_keys_leave_nothing_behind() {
        let mut own = started();
        for version in 1..=200 {
            own.wrote(&"a", SITES, Version(version));
        }
        assert_eq!(own.by_key["a"].own.len(), OWN_PER_KEY);
        own.end(&"a");
        progressed(&mut own, SITES, 200, ProgressVia::Watch);
        assert!(own.is_empty());
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
        assert_eq!(own.end(&"a").0, RunEnd::Changed);
    }

    // C27
    #[test]
    fn a_new_epoch_forgets_own_versions_and_counts_runs_as_changed() {
        let mut own = started();
        own.wrote(&"a", SITES, Version(50));
        own.begin(&"b");
        progressed(&mut own, SITES, 3, ProgressVia::NewEpoch);
        assert_eq!(own.end(&"b").0, RunEnd::Changed);
        assert_eq!(own.end(&"a").0, RunEnd::Changed);
        assert_eq!(own.event(SITES, Some(Version(50)), &"a"), Verdict::Enqueue);
    }

    // C29
    #[test]
    fn a_new_epoch_wakes_the_keys_whose_writes_it_may_have_lost() {
        let mut own = started();
        own.wrote(&"a", DEPLOYMENTS, Version(50));
        own.end(&"a");
        assert_eq!(progressed(&mut own, DEPLOYMENTS, 3, ProgressVia::NewEpoch), vec!["a"]);
    }

    // C27
    #[test]
    fn an_answer_that_comes_after_a_new_epoch_makes_no_version_own() {
        let mut own = started();
        progressed(&mut own, SITES, 3, ProgressVia::NewEpoch);
        own.wrote(&"a", SITES, Version(50));
        assert_eq!(own.end(&"a").0, RunEnd::Changed);
        assert_eq!(own.event(SITES, Some(Version(50)), &"a"), Verdict::Enqueue, "of the epoch that began");
    }
}

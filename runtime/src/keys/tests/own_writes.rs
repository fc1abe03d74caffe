//! Own writes are distinguished from foreign changes.

use super::{super::table::ChangeVerdict, *};

const DEPLOYMENTS: SourceId = SourceId(1);

/// A table in which a run of the key `a` is under way.
fn started() -> Bench {
    let bench = Bench::new();
    bench.begin("a");
    bench
}

impl Bench {
    fn begin(&self, name: &str) {
        self.table().begin(&key(name), 1);
    }

    /// Ends a run. Returns whether the key must run again.
    fn ends_changed(&self, name: &str) -> bool {
        self.table().end(&key(name)).changed
    }

    fn event(&self, source: SourceId, version: u64, name: &str) -> ChangeVerdict {
        self.table().take(key(name), Some((source, Version(version))), Reason::Changed)
    }

    fn wrote(&self, name: &str, source: SourceId, version: u64) {
        self.table().wrote(&key(name), source, Version(version));
    }

    /// Brings a source to a version. Returns the keys that must run since a write of theirs may be lost.
    fn missed(&self, source: SourceId, version: u64, via: ProgressVia) -> Vec<&'static str> {
        assert!(self.brought(source, version, via).is_empty(), "no key waits");
        let missed = |name: &&str| self.asked(name) == Some(Reason::MissedOwnWrite);
        ["a", "b"].into_iter().filter(missed).collect()
    }
}

// C24
#[test]
fn an_own_event_wakes_no_key_before_or_after_its_reply() {
    let own = started();
    assert_eq!(own.event(SITES, 5, "a"), ChangeVerdict::Deferred);
    own.wrote("a", SITES, 5);
    own.wrote("a", SITES, 6);
    assert!(!own.ends_changed("a"));
    assert_eq!(own.event(SITES, 6, "a"), ChangeVerdict::Own);
    own.missed(SITES, 6, ProgressVia::Watch);
    assert_eq!(own.event(SITES, 6, "a"), ChangeVerdict::Enqueue, "versions go up");
}

// C24
#[test]
fn a_source_that_feeds_a_controller_twice_shows_each_own_version_twice() {
    let own = started();
    own.event(SITES, 5, "a");
    own.event(SITES, 5, "a");
    own.wrote("a", SITES, 5);
    own.event(SITES, 6, "a");
    own.wrote("a", SITES, 6);
    assert_eq!(own.event(SITES, 6, "a"), ChangeVerdict::Own);
    own.wrote("a", SITES, 7);
    assert_eq!(own.event(SITES, 7, "a"), ChangeVerdict::Own);
    assert_eq!(own.event(SITES, 7, "a"), ChangeVerdict::Own);
    assert!(!own.ends_changed("a"));
    assert_eq!(own.missed(SITES, 9, ProgressVia::Replace), Vec::<&str>::new(), "all was seen");
    own.ends_changed("a");
    assert_eq!(own.table().remembered(), 0);
}

// C27
#[test]
fn a_strangers_event_wakes_on_either_side_of_an_own_one() {
    let own = started();
    own.event(SITES, 4, "a");
    own.wrote("a", SITES, 5);
    assert!(own.ends_changed("a"));
    assert_eq!(own.event(SITES, 5, "a"), ChangeVerdict::Own);
    assert_eq!(own.event(SITES, 6, "a"), ChangeVerdict::Enqueue);
}

// C28
#[test]
fn an_own_write_is_a_foreign_change_for_every_other_key() {
    let own = started();
    own.wrote("a", SITES, 5);
    assert_eq!(own.event(SITES, 5, "b"), ChangeVerdict::Enqueue);
    assert_eq!(own.event(SITES, 5, "a"), ChangeVerdict::Own);
}

// C29
#[test]
fn a_list_that_passes_an_unseen_own_version_wakes_its_key() {
    let own = started();
    own.wrote("a", DEPLOYMENTS, 5);
    own.ends_changed("a");
    assert_eq!(own.missed(DEPLOYMENTS, 4, ProgressVia::Replace), Vec::<&str>::new());
    assert_eq!(own.missed(DEPLOYMENTS, 7, ProgressVia::Replace), vec!["a"]);
    own.begin("b");
    own.wrote("b", DEPLOYMENTS, 6);
    assert!(own.ends_changed("b"), "the list passed the write before its reply");
}

// C27
#[test]
fn versions_of_different_sources_are_never_mixed() {
    let own = started();
    own.wrote("a", DEPLOYMENTS, 5);
    own.ends_changed("a");
    assert_eq!(own.event(SITES, 5, "a"), ChangeVerdict::Enqueue);
    own.missed(SITES, 9, ProgressVia::Watch);
    assert_eq!(own.event(DEPLOYMENTS, 5, "a"), ChangeVerdict::Own);
}

#[test]
fn delivered_versions_and_idle_keys_leave_nothing_behind() {
    let own = started();
    for version in 1..=200 {
        own.wrote("a", SITES, version);
    }
    assert_eq!(own.event(SITES, 136, "a"), ChangeVerdict::Deferred, "the oldest are forgotten");
    assert_eq!(own.event(SITES, 137, "a"), ChangeVerdict::Own);
    own.ends_changed("a");
    own.missed(SITES, 200, ProgressVia::Watch);
    assert_eq!(own.table().remembered(), 0);
}

#[test]
fn a_key_in_flight_that_holds_too_many_events_counts_as_changed() {
    let own = started();
    for version in 1..=17 {
        own.event(SITES, version, "a");
    }
    for version in 1..=17 {
        own.wrote("a", SITES, version);
    }
    assert!(own.ends_changed("a"));
}

// C27
#[test]
fn a_new_epoch_forgets_own_versions_and_counts_runs_as_changed() {
    let own = started();
    own.wrote("a", SITES, 50);
    own.begin("b");
    own.missed(SITES, 3, ProgressVia::NewEpoch);
    assert!(own.ends_changed("b"));
    assert!(own.ends_changed("a"));
    assert_eq!(own.event(SITES, 50, "a"), ChangeVerdict::Enqueue);
}

// C29
#[test]
fn a_new_epoch_wakes_the_keys_whose_writes_it_may_have_lost() {
    let own = started();
    own.wrote("a", DEPLOYMENTS, 50);
    own.ends_changed("a");
    assert_eq!(own.missed(DEPLOYMENTS, 3, ProgressVia::NewEpoch), vec!["a"]);
}

// C27
#[test]
fn an_answer_that_comes_after_a_new_epoch_makes_no_version_own() {
    let own = started();
    own.missed(SITES, 3, ProgressVia::NewEpoch);
    own.wrote("a", SITES, 50);
    assert!(own.ends_changed("a"));
    assert_eq!(own.event(SITES, 50, "a"), ChangeVerdict::Enqueue, "of the epoch that began");
}

//! What keys wait for after their writes, until when, and that no key waits for ever.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::{
    super::{
        table::NOTICED_WITHIN,
        writes::{FOR_FOREIGN_CHANGE, IN_OUTAGE, WHILE_OPEN},
    },
    *,
};
use crate::workqueue::KeyState;

const SECOND: Duration = Duration::from_secs(1);

fn cached(uid: &str, version: u64) -> CachedState {
    CachedState::Shown { uid: uid.into(), version: Some(Version(version)), finalizers: Vec::new() }
}

fn pod() -> ObjectKey {
    ObjectKey::new("shop", "pod")
}

/// What a write changed for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    /// It waits from now on.
    Waits,
    /// It waits for nothing any more.
    Released,
    Unchanged,
}

impl Bench {
    fn show(&self, source: SourceId, object: &ObjectKey, cached: CachedState) {
        self.caches.shown.borrow_mut().insert((source, object.clone()), cached);
        self.table().sources.changed(source, object);
    }

    fn expects(&self, name: &str, place: (SourceId, &ObjectKey), expectation: Expectation) -> Transition {
        let (mut table, key) = (self.table(), key(name));
        let before = table.has_pending(&key);
        table.expect(&key, place, expectation, &self.caches, self.now);
        match (before, table.has_pending(&key)) {
            (false, true) => Transition::Waits,
            (true, false) => Transition::Released,
            _ => Transition::Unchanged,
        }
    }

    fn wrote_to(&self, source: SourceId, object: &ObjectKey, expectation: Expectation) -> Transition {
        self.expects("a", (source, object), expectation)
    }

    fn progressed(&self, source: SourceId, version: u64) -> Vec<ObjectKey> {
        self.brought(source, version, ProgressVia::Watch)
    }

    /// Lets time pass up to the next tick. Returns the keys that it released.
    fn tick(&mut self) -> Option<Vec<ObjectKey>> {
        self.now = self.next_tick()?;
        let before = self.waiting();
        let overdue = self.table().tick(&self.caches, self.now);
        let released = self.released_of(before);
        assert!(released.is_empty() || !overdue.is_empty());
        Some(released)
    }

    fn next_tick(&self) -> Option<Instant> {
        self.table().next_tick(self.now)
    }

    /// Returns whether the queue holds a key back.
    fn is_held(&self, name: &str) -> bool {
        matches!(self.keys.queue.state_of(&key(name)), KeyState::Held { .. })
    }

    /// Returns whether a key waits for what a source shows already.
    fn keeps_in_vain(&self, source: SourceId) -> bool {
        let table = self.table();
        let delivered = table.delivered(source);
        table
            .waits()
            .filter(|(_, wait)| wait.source == source)
            .any(|(_, wait)| wait.expectation.is_met(delivered, || self.caches.cached(source, &wait.object)))
    }

    /// Lets time pass as the follow-up task does. Returns after how long the key was given up.
    fn given_up_after(&mut self, most: Duration) -> Option<Duration> {
        let began = self.now;
        while self.now - began < most {
            if !self.tick()?.is_empty() {
                return Some(self.now - began);
            }
        }
        None
    }
}

// W3
#[test]
fn a_key_waits_until_every_cache_that_it_wrote_to_shows_what_it_wrote() {
    let lot = Bench::new();
    assert_eq!(lot.wrote_to(SITES, &pod(), Expectation::Reached(Version(5))), Transition::Waits);
    assert_eq!(lot.wrote_to(PODS, &pod(), Expectation::Reached(Version(6))), Transition::Unchanged);
    assert!(lot.progressed(SITES, 4).is_empty());
    assert!(lot.progressed(SITES, 9).is_empty(), "versions of one kind say nothing of another");
    assert!(lot.progressed(PODS, 5).is_empty());
    assert_eq!(lot.progressed(PODS, 6), [key("a")]);
    assert!(!lot.table().has_pending(&key("a")));
    assert_eq!(lot.table().next_tick(lot.now), None);
}

// W3
#[test]
fn what_a_cache_shows_already_is_not_waited_for() {
    let lot = Bench::new();
    lot.progressed(SITES, 5);
    assert_eq!(lot.wrote_to(SITES, &pod(), Expectation::Reached(Version(5))), Transition::Unchanged);
    lot.show(PODS, &pod(), cached("u", 7));
    assert_eq!(lot.wrote_to(PODS, &pod(), Expectation::Reached(Version(7))), Transition::Unchanged);
    assert_eq!(lot.wrote_to(PODS, &pod(), Expectation::Reached(Version(8))), Transition::Waits);
    assert_eq!(
        lot.wrote_to(PODS, &pod(), Expectation::Reached(Version(7))),
        Transition::Released,
        "the last word counts"
    );
}

// W3
#[test]
fn a_deletion_is_seen_by_its_mark_or_by_the_uid_going() {
    for (expectation, before, seen) in [
        (Expectation::Gone { uid: "u".into() }, cached("u", 9), cached("v", 10)),
        (Expectation::Gone { uid: "u".into() }, CachedState::Unknown, CachedState::Absent),
        (Expectation::Marked { uid: "u".into(), version: Version(7) }, cached("u", 6), cached("u", 7)),
        (Expectation::Marked { uid: "u".into(), version: Version(7) }, cached("u", 6), CachedState::Absent),
        (Expectation::Absent, cached("u", 6), CachedState::Absent),
    ] {
        let lot = Bench::new();
        lot.show(PODS, &pod(), before);
        assert_eq!(lot.wrote_to(PODS, &pod(), expectation.clone()), Transition::Waits, "{expectation:?}");
        assert!(lot.progressed(PODS, 5).is_empty(), "{expectation:?}");
        lot.show(PODS, &pod(), seen);
        assert_eq!(lot.progressed(PODS, 6), [key("a")], "{expectation:?}");
    }
}

// W3
#[test]
fn a_finalizers_removal_is_seen_by_its_going_since_its_answer_has_the_old_version() {
    let held = |finalizers: &[&str]| CachedState::Shown {
        uid: "u".into(),
        version: Some(Version(5)),
        finalizers: finalizers.iter().map(|&f| f.to_owned()).collect(),
    };
    let expectation = || Expectation::Released { uid: "u".into(), finalizer: "ours".into() };
    for seen in [held(&["theirs"]), CachedState::Absent, cached("v", 6)] {
        let lot = Bench::new();
        lot.show(SITES, &pod(), held(&["theirs", "ours"]));
        assert_eq!(lot.wrote_to(SITES, &pod(), expectation()), Transition::Waits);
        assert!(lot.progressed(SITES, 5).is_empty());
        lot.show(SITES, &pod(), seen);
        assert_eq!(lot.progressed(SITES, 6), [key("a")]);
    }
}

// W9
#[test]
fn after_a_conflict_a_key_waits_a_second_for_somebody_elses_change() {
    let mut lot = Bench::new();
    lot.show(SITES, &pod(), cached("u", 5));
    assert_eq!(lot.wrote_to(SITES, &pod(), Expectation::NewerThan(Version(5))), Transition::Waits);
    assert!(lot.progressed(SITES, 9).is_empty(), "the object is what it was");
    assert_eq!(lot.given_up_after(10 * SECOND), Some(FOR_FOREIGN_CHANGE));
    lot.wrote_to(SITES, &pod(), Expectation::NewerThan(Version(5)));
    lot.show(SITES, &pod(), cached("u", 6));
    assert_eq!(lot.progressed(SITES, 10), [key("a")]);
    lot.show(SITES, &pod(), CachedState::Absent);
    assert_eq!(lot.wrote_to(SITES, &pod(), Expectation::NewerThan(Version(6))), Transition::Unchanged);
}

// W3
#[test]
fn the_deadline_runs_while_the_watch_is_open() {
    let mut lot = Bench::new();
    lot.wrote_to(SITES, &pod(), Expectation::Reached(Version(5)));
    assert_eq!(lot.given_up_after(600 * SECOND), Some(WHILE_OPEN));
    lot.caches.shut.borrow_mut().push(SITES);
    lot.wrote_to(SITES, &pod(), Expectation::Reached(Version(5)));
    assert_eq!(lot.given_up_after(600 * SECOND), Some(IN_OUTAGE));
}

// W3
#[test]
fn time_in_an_outage_does_not_count_towards_the_time_of_an_open_watch() {
    let mut lot = Bench::new();
    lot.wrote_to(SITES, &pod(), Expectation::Reached(Version(5)));
    lot.caches.shut.borrow_mut().push(SITES);
    assert_eq!(lot.given_up_after(100 * SECOND), None);
    lot.caches.shut.borrow_mut().clear();
    let left = lot.given_up_after(600 * SECOND).unwrap();
    assert!(left >= WHILE_OPEN - 2 * NOTICED_WITHIN && left <= WHILE_OPEN + NOTICED_WITHIN, "{left:?}");
}

// W3
#[test]
fn a_batch_costs_in_proportion_to_what_it_changed() {
    let lot = Bench::new();
    let object = |n: u32| ObjectKey::new("shop", n.to_string());
    for n in 0..10_000 {
        let expectation = if n % 2 == 0 {
            Expectation::Gone { uid: "u".into() }
        } else {
            Expectation::Reached(Version(u64::from(n) + 100))
        };
        lot.show(PODS, &object(n), cached("u", 7));
        assert_eq!(lot.expects(&n.to_string(), (PODS, &object(n)), expectation), Transition::Waits);
    }
    lot.caches.looks.set(0);
    lot.show(PODS, &object(4), CachedState::Absent);
    lot.table().sources.changed(PODS, &key("somebody"));
    assert_eq!(lot.brought(PODS, 50, ProgressVia::Watch), [object(4)]);
    assert_eq!(lot.brought(PODS, 103, ProgressVia::Watch), [object(1), object(3)]);
    assert_eq!(lot.caches.looks.get(), 1, "no cache is asked for what did not change");
    let all = lot.brought(PODS, 20_000, ProgressVia::Replace);
    assert_eq!(all.len(), 4_998, "a list is looked through whole");
}

// W3
#[test]
fn a_list_shows_what_no_change_told_of() {
    let lot = Bench::new();
    lot.show(PODS, &pod(), cached("u", 6));
    lot.wrote_to(PODS, &pod(), Expectation::Gone { uid: "u".into() });
    lot.caches.shown.borrow_mut().insert((PODS, pod()), CachedState::Absent);
    assert!(lot.progressed(PODS, 7).is_empty());
    assert_eq!(lot.brought(PODS, 8, ProgressVia::Replace), [key("a")]);
}

// W3
#[test]
fn a_new_epoch_releases() {
    let lot = Bench::new();
    lot.wrote_to(SITES, &pod(), Expectation::Reached(Version(500)));
    assert_eq!(lot.brought(SITES, 3, ProgressVia::NewEpoch), [key("a")]);
    assert_eq!(
        lot.wrote_to(SITES, &pod(), Expectation::Reached(Version(4))),
        Transition::Waits,
        "old versions mean nothing"
    );
    assert_eq!(lot.progressed(SITES, 4), [key("a")]);
}

// W10
#[test]
fn whose_reply_was_lost_waits_for_what_the_server_says() {
    let lot = Bench::new();
    lot.show(PODS, &pod(), cached("u", 4));
    assert_eq!(lot.wrote_to(PODS, &pod(), Expectation::ReplyLost), Transition::Waits);
    assert!(lot.progressed(PODS, 9).is_empty());
    assert!(lot.table().awaits_reply(&key("a"), &pod()));
    assert_eq!(lot.wrote_to(PODS, &pod(), Expectation::Reached(Version(12))), Transition::Unchanged);
    assert!(!lot.table().awaits_reply(&key("a"), &pod()), "the server has said");
    assert_eq!(lot.progressed(PODS, 12), [key("a")]);
    assert!(!lot.table().has_pending(&key("a")));
}

#[derive(Clone, Debug)]
enum Input {
    Wrote { writer: usize, source: usize, object: usize, expectation: usize, ahead: u64 },
    Changed { source: usize, object: usize, cached: usize },
    Progressed { source: usize, ahead: u64 },
    Replaced { source: usize, ahead: u64 },
    Turned { source: usize },
    Epoch { source: usize },
    Passed { millis: u64 },
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => (0..3usize, 0..2usize, 0..3usize, 0..7usize, 0..4u64)
            .prop_map(|(writer, source, object, expectation, ahead)| Input::Wrote { writer, source, object, expectation, ahead }),
        4 => (0..2usize, 0..3usize, 0..4usize)
            .prop_map(|(source, object, cached)| Input::Changed { source, object, cached }),
        4 => (0..2usize, 0..3u64).prop_map(|(source, ahead)| Input::Progressed { source, ahead }),
        1 => (0..2usize, 0..3u64).prop_map(|(source, ahead)| Input::Replaced { source, ahead }),
        1 => (0..2usize).prop_map(|source| Input::Turned { source }),
        1 => (0..2usize).prop_map(|source| Input::Epoch { source }),
        4 => (0..3_000u64).prop_map(|millis| Input::Passed { millis }),
    ]
}

fn expectation(choice: usize, version: u64) -> Expectation {
    let (uid, finalizer) = ("u".to_owned(), "f".to_owned());
    match choice {
        0..3 => Expectation::Reached(Version(version)),
        3 => Expectation::Gone { uid },
        4 => Expectation::Released { uid, finalizer },
        5 => Expectation::NewerThan(Version(version)),
        _ => Expectation::ReplyLost,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The transitions add up to which keys wait, whatever happens; and nobody waits past all deadlines.
    // W3
    #[test]
    fn nobody_is_forgotten_and_nobody_waits_for_ever(inputs in prop::collection::vec(input(), 1..80)) {
        const KEYS: [&str; 3] = ["a", "b", "c"];
        let objects = [pod(), ObjectKey::new("shop", "other"), ObjectKey::new("shop", "third")];
        let mut lot = Bench::new();
        let (mut held, mut at) = (BTreeMap::<ObjectKey, Instant>::new(), [0u64; 2]);
        for object in &objects {
            lot.show(SITES, object, cached("u", 0));
            lot.show(PODS, object, cached("u", 0));
        }
        for input in inputs {
            match input {
                Input::Wrote { writer, source, object, expectation: choice, ahead } => {
                    let (place, expectation) = ((SourceId(source), &objects[object]), expectation(choice, at[source] + ahead));
                    let name = KEYS[writer];
                    match lot.expects(name, place, expectation) {
                        Transition::Waits => prop_assert!(held.insert(key(name), lot.now).is_none()),
                        Transition::Released => prop_assert!(held.remove(&key(name)).is_some()),
                        // A key that writes on waits for the last of its writes.
                        Transition::Unchanged => { held.entry(key(name)).and_modify(|since| *since = lot.now); }
                    }
                }
                Input::Progressed { source, ahead } => {
                    at[source] += ahead;
                    for key in lot.progressed(SourceId(source), at[source]) {
                        prop_assert!(held.remove(&key).is_some());
                    }
                    prop_assert!(!lot.keeps_in_vain(SourceId(source)));
                }
                Input::Replaced { source, ahead } => {
                    at[source] += ahead;
                    for key in lot.brought(SourceId(source), at[source], ProgressVia::Replace) {
                        prop_assert!(held.remove(&key).is_some());
                    }
                    prop_assert!(!lot.keeps_in_vain(SourceId(source)));
                }
                Input::Changed { source, object, cached: choice } => {
                    let seen = match choice {
                        0 => CachedState::Absent,
                        1 => CachedState::Unknown,
                        2 => cached("v", at[source] + 1),
                        _ => cached("u", at[source] + 1),
                    };
                    lot.show(SourceId(source), &objects[object], seen);
                }
                Input::Epoch { source } => {
                    at[source] = 0;
                    for key in lot.brought(SourceId(source), 0, ProgressVia::NewEpoch) {
                        prop_assert!(held.remove(&key).is_some());
                    }
                }
                Input::Turned { source } => {
                    let mut shut = lot.caches.shut.borrow_mut();
                    match shut.iter().position(|shut| *shut == SourceId(source)) {
                        Some(place) => drop(shut.remove(place)),
                        None => shut.push(SourceId(source)),
                    }
                }
                Input::Passed { millis } => {
                    let until = lot.now + Duration::from_millis(millis);
                    while let Some(next) = lot.next_tick().filter(|next| *next <= until) {
                        prop_assert!(next > lot.now, "a tick that does nothing comes again at once");
                        for key in lot.tick().into_iter().flatten() {
                            prop_assert!(held.remove(&key).is_some());
                        }
                    }
                    lot.now = until;
                }
            }
            for name in KEYS {
                prop_assert_eq!(lot.table().has_pending(&key(name)), held.contains_key(&key(name)));
                prop_assert_eq!(lot.is_held(name), held.contains_key(&key(name)), "it is held exactly while it waits");
            }
            for since in held.values() {
                prop_assert!(lot.now - *since <= IN_OUTAGE + WHILE_OPEN + NOTICED_WITHIN);
            }
        }
        while lot.tick().is_some() {}
        lot.table().sweep(lot.now, |_| true);
        prop_assert_eq!(lot.table().remembered(), 0);
    }
}

//! What is waited for, until when, and that nobody waits for ever.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use proptest::prelude::*;

use super::*;
use crate::{
    informer::{Progress, ProgressVia},
    object::Version,
    writes::{
        expectation::CachedState,
        record::{FOR_FOREIGN_CHANGE, IN_OUTAGE, WHILE_OPEN, WatchState},
    },
};

const SITES: SourceId = SourceId(0);
const PODS: SourceId = SourceId(1);
const SECOND: Duration = Duration::from_secs(1);

/// Caches as a test wants them.
#[derive(Default)]
struct Fake {
    /// How often somebody looked.
    looks: Cell<usize>,
    shown: RefCell<BTreeMap<(SourceId, ObjectKey), CachedState>>,
    shut: RefCell<Vec<SourceId>>,
}

impl Caches for Fake {
    fn cached(&self, source: SourceId, object: &ObjectKey) -> CachedState {
        self.looks.set(self.looks.get() + 1);
        self.shown.borrow().get(&(source, object.clone())).cloned().unwrap_or(CachedState::Absent)
    }

    fn watch_state(&self, source: SourceId) -> WatchState {
        if self.shut.borrow().contains(&source) { WatchState::Closed } else { WatchState::Open }
    }
}

impl Fake {
    fn show(&self, source: SourceId, object: &ObjectKey, cached: CachedState) {
        self.shown.borrow_mut().insert((source, object.clone()), cached);
    }
}

fn cached(uid: &str, version: u64) -> CachedState {
    CachedState::Shown { uid: uid.into(), version: Some(Version(version)), finalizers: Vec::new() }
}

fn pod() -> ObjectKey {
    ObjectKey::new("shop", "pod")
}

struct Lot<Key = &'static str> {
    pending: WriteRecords<Key>,
    caches: Fake,
    now: Instant,
}

impl Lot {
    fn new() -> Self {
        Self { pending: WriteRecords::default(), caches: Fake::default(), now: Instant::now() }
    }

    fn show(&mut self, source: SourceId, object: &ObjectKey, cached: CachedState) {
        self.caches.show(source, object, cached);
        self.pending.changed(source, object);
    }

    fn wrote(&mut self, source: SourceId, object: &ObjectKey, expectation: Expectation) -> Transition {
        self.pending.expect(&"a", (source, object), expectation, self.now, &self.caches)
    }

    fn progressed(&mut self, source: SourceId, version: u64) -> Vec<&'static str> {
        self.brought(source, version, ProgressVia::Watch)
    }
}

impl<Key: Clone + Eq + Hash + Ord> Lot<Key> {
    fn brought(&mut self, source: SourceId, version: u64, via: ProgressVia) -> Vec<Key> {
        let progress = Progress { version: Some(Version(version)), via };
        self.pending.progressed(source, progress, &self.caches).released
    }
}

impl Lot {
    /// Whether somebody waits for what a source shows already.
    fn keeps_in_vain(&self, source: SourceId) -> bool {
        let delivered = self.pending.delivered(source);
        let met =
            |wait: &&Wait| wait.expectation.is_met(delivered, || self.caches.cached(source, &wait.object));
        self.pending.waits().map(|(_, wait)| wait).filter(|wait| wait.source == source).any(|wait| met(&wait))
    }

    /// Lets time pass as the follow-up task does; returns after how long the key was given up.
    fn given_up_after(&mut self, most: Duration) -> Option<Duration> {
        let began = self.now;
        while self.now - began < most {
            self.now = self.pending.next_tick(self.now)?;
            let (overdue, released) = self.pending.tick(self.now, &self.caches);
            if !released.is_empty() {
                assert!(!overdue.is_empty());
                return Some(self.now - began);
            }
        }
        None
    }
}

// W3
#[test]
fn a_key_waits_until_every_cache_that_it_wrote_to_shows_what_it_wrote() {
    let mut lot = Lot::new();
    assert_eq!(lot.wrote(SITES, &pod(), Expectation::Reached(Version(5))), Transition::Waits);
    assert_eq!(lot.wrote(PODS, &pod(), Expectation::Reached(Version(6))), Transition::Unchanged);
    assert!(lot.progressed(SITES, 4).is_empty());
    assert!(lot.progressed(SITES, 9).is_empty(), "versions of one kind say nothing of another");
    assert!(lot.progressed(PODS, 5).is_empty());
    assert_eq!(lot.progressed(PODS, 6), ["a"]);
    assert!(!lot.pending.has_pending(&"a"));
    assert_eq!(lot.pending.next_tick(lot.now), None);
}

// W3
#[test]
fn what_a_cache_shows_already_is_not_waited_for() {
    let mut lot = Lot::new();
    lot.progressed(SITES, 5);
    assert_eq!(lot.wrote(SITES, &pod(), Expectation::Reached(Version(5))), Transition::Unchanged);
    lot.show(PODS, &pod(), cached("u", 7));
    assert_eq!(lot.wrote(PODS, &pod(), Expectation::Reached(Version(7))), Transition::Unchanged);
    assert_eq!(lot.wrote(PODS, &pod(), Expectation::Reached(Version(8))), Transition::Waits);
    assert_eq!(
        lot.wrote(PODS, &pod(), Expectation::Reached(Version(7))),
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
        let mut lot = Lot::new();
        lot.show(PODS, &pod(), before);
        assert_eq!(lot.wrote(PODS, &pod(), expectation.clone()), Transition::Waits, "{expectation:?}");
        assert!(lot.progressed(PODS, 5).is_empty(), "{expectation:?}");
        lot.show(PODS, &pod(), seen);
        assert_eq!(lot.progressed(PODS, 6), ["a"], "{expectation:?}");
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
        let mut lot = Lot::new();
        lot.show(SITES, &pod(), held(&["theirs", "ours"]));
        assert_eq!(lot.wrote(SITES, &pod(), expectation()), Transition::Waits);
        assert!(lot.progressed(SITES, 5).is_empty());
        lot.show(SITES, &pod(), seen);
        assert_eq!(lot.progressed(SITES, 6), ["a"]);
    }
}

// W9
#[test]
fn after_a_conflict_a_key_waits_a_second_for_somebody_elses_change() {
    let mut lot = Lot::new();
    lot.show(SITES, &pod(), cached("u", 5));
    assert_eq!(lot.wrote(SITES, &pod(), Expectation::NewerThan(Version(5))), Transition::Waits);
    assert!(lot.progressed(SITES, 9).is_empty(), "the object is what it was");
    assert_eq!(lot.given_up_after(10 * SECOND), Some(FOR_FOREIGN_CHANGE));
    lot.wrote(SITES, &pod(), Expectation::NewerThan(Version(5)));
    lot.show(SITES, &pod(), cached("u", 6));
    assert_eq!(lot.progressed(SITES, 10), ["a"]);
    lot.show(SITES, &pod(), CachedState::Absent);
    assert_eq!(lot.wrote(SITES, &pod(), Expectation::NewerThan(Version(6))), Transition::Unchanged);
}

// W3
#[test]
fn the_deadline_runs_while_the_watch_is_open() {
    let mut lot = Lot::new();
    lot.wrote(SITES, &pod(), Expectation::Reached(Version(5)));
    assert_eq!(lot.given_up_after(600 * SECOND), Some(WHILE_OPEN));
    lot.caches.shut.borrow_mut().push(SITES);
    lot.wrote(SITES, &pod(), Expectation::Reached(Version(5)));
    assert_eq!(lot.given_up_after(600 * SECOND), Some(IN_OUTAGE));
}

// W3
#[test]
fn time_in_an_outage_does_not_count_towards_the_time_of_an_open_watch() {
    let mut lot = Lot::new();
    lot.wrote(SITES, &pod(), Expectation::Reached(Version(5)));
    lot.caches.shut.borrow_mut().push(SITES);
    assert_eq!(lot.given_up_after(100 * SECOND), None);
    lot.caches.shut.borrow_mut().clear();
    let left = lot.given_up_after(600 * SECOND).unwrap();
    assert!(left >= WHILE_OPEN - 2 * NOTICED_WITHIN && left <= WHILE_OPEN + NOTICED_WITHIN, "{left:?}");
}

// W3
#[test]
fn a_batch_costs_in_proportion_to_what_it_changed() {
    let mut lot =
        Lot { pending: WriteRecords::<u32>::default(), caches: Fake::default(), now: Instant::now() };
    let object = |n: u32| ObjectKey::new("shop", n.to_string());
    for n in 0..10_000 {
        let expectation = if n % 2 == 0 {
            Expectation::Gone { uid: "u".into() }
        } else {
            Expectation::Reached(Version(u64::from(n) + 100))
        };
        lot.caches.show(PODS, &object(n), cached("u", 7));
        assert_eq!(
            lot.pending.expect(&n, (PODS, &object(n)), expectation, lot.now, &lot.caches),
            Transition::Waits
        );
    }
    lot.caches.looks.set(0);
    lot.caches.show(PODS, &object(4), CachedState::Absent);
    lot.pending.changed(PODS, &object(4));
    lot.pending.changed(PODS, &ObjectKey::new("shop", "somebody"));
    assert_eq!(lot.brought(PODS, 50, ProgressVia::Watch), [4]);
    assert_eq!(lot.brought(PODS, 103, ProgressVia::Watch), [1, 3]);
    assert_eq!(lot.caches.looks.get(), 1, "nobody looked at what did not change");
    let all = lot.brought(PODS, 20_000, ProgressVia::Replace);
    assert_eq!(all.len(), 4_998, "a list is looked through whole");
}

// W3
#[test]
fn a_list_shows_what_no_change_told_of() {
    let mut lot = Lot::new();
    lot.show(PODS, &pod(), cached("u", 6));
    lot.wrote(PODS, &pod(), Expectation::Gone { uid: "u".into() });
    lot.caches.show(PODS, &pod(), CachedState::Absent);
    assert!(lot.progressed(PODS, 7).is_empty());
    assert_eq!(lot.brought(PODS, 8, ProgressVia::Replace), ["a"]);
}

// W3
#[test]
fn a_new_epoch_releases() {
    let mut lot = Lot::new();
    lot.wrote(SITES, &pod(), Expectation::Reached(Version(500)));
    assert_eq!(lot.brought(SITES, 3, ProgressVia::NewEpoch), ["a"]);
    assert_eq!(
        lot.wrote(SITES, &pod(), Expectation::Reached(Version(4))),
        Transition::Waits,
        "old versions mean nothing"
    );
    assert_eq!(lot.progressed(SITES, 4), ["a"]);
}

// W10
#[test]
fn whose_reply_was_lost_waits_for_what_the_server_says() {
    let mut lot = Lot::new();
    lot.show(PODS, &pod(), cached("u", 4));
    assert_eq!(lot.wrote(PODS, &pod(), Expectation::ReplyLost), Transition::Waits);
    assert!(lot.progressed(PODS, 9).is_empty());
    let (now, place) = (lot.now, pod());
    let answer = |lot: &mut Lot, expectation| {
        lot.pending.reply_found(&"a", (PODS, &place), expectation, now, &lot.caches)
    };
    assert_eq!(answer(&mut lot, Expectation::Reached(Version(12))), Transition::Unchanged);
    assert_eq!(lot.progressed(PODS, 12), ["a"]);
    assert_eq!(
        answer(&mut lot, Expectation::Reached(Version(99))),
        Transition::Unchanged,
        "nobody asks any more"
    );
    assert!(!lot.pending.has_pending(&"a"));
}

#[derive(Clone, Debug)]
enum Input {
    Wrote { key: usize, source: usize, object: usize, expectation: usize, ahead: u64 },
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
            .prop_map(|(key, source, object, expectation, ahead)| Input::Wrote { key, source, object, expectation, ahead }),
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
        let mut lot = Lot::new();
        let (mut held, mut at) = (BTreeMap::<&str, Instant>::new(), [0u64; 2]);
        for object in &objects {
            lot.show(SITES, object, cached("u", 0));
            lot.show(PODS, object, cached("u", 0));
        }
        for input in inputs {
            match input {
                Input::Wrote { key, source, object, expectation: choice, ahead } => {
                    let (place, expectation) = ((SourceId(source), &objects[object]), expectation(choice, at[source] + ahead));
                    match lot.pending.expect(&KEYS[key], place, expectation, lot.now, &lot.caches) {
                        Transition::Waits => prop_assert!(held.insert(KEYS[key], lot.now).is_none()),
                        Transition::Released => prop_assert!(held.remove(KEYS[key]).is_some()),
                        // A key that writes on waits for the last of its writes.
                        Transition::Unchanged => { held.entry(KEYS[key]).and_modify(|since| *since = lot.now); }
                    }
                }
                Input::Progressed { source, ahead } => {
                    at[source] += ahead;
                    for key in lot.progressed(SourceId(source), at[source]) {
                        prop_assert!(held.remove(key).is_some());
                    }
                    prop_assert!(!lot.keeps_in_vain(SourceId(source)));
                }
                Input::Replaced { source, ahead } => {
                    at[source] += ahead;
                    for key in lot.brought(SourceId(source), at[source], ProgressVia::Replace) {
                        prop_assert!(held.remove(key).is_some());
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
                        prop_assert!(held.remove(key).is_some());
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
                    while let Some(next) = lot.pending.next_tick(lot.now).filter(|next| *next <= until) {
                        prop_assert!(next > lot.now, "a tick that does nothing comes again at once");
                        lot.now = next;
                        for key in lot.pending.tick(next, &lot.caches).1 {
                            prop_assert!(held.remove(key).is_some());
                        }
                    }
                    lot.now = until;
                }
            }
            for key in KEYS {
                prop_assert_eq!(lot.pending.has_pending(&key), held.contains_key(key));
            }
            for since in held.values() {
                prop_assert!(lot.now - *since <= IN_OUTAGE + WHILE_OPEN + NOTICED_WITHIN);
            }
        }
        while let Some(next) = lot.pending.next_tick(lot.now) {
            lot.now = next;
            lot.pending.tick(next, &lot.caches);
        }
        prop_assert!(lot.pending.is_empty());
    }
}

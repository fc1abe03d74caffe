//! What waits for a handler, and how it folds.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::testing::{cached, item, key, show_held};
use crate::{
    counted::assert_grows_linearly,
    informer::{
        backlog::{Backlog, Notification},
        change::{AddOrigin, Gone},
        resync::ResyncSnapshot,
    },
    object::AnyObject,
    store::{CachedObject, Indexer, StoredType},
};

struct Case(Backlog);

impl Case {
    fn new() -> Self {
        Self(Backlog::default())
    }

    fn add(&mut self, text: &str) {
        self.push(Notification::Add(cached(text), AddOrigin::Watch));
    }

    fn update(&mut self, old: &str, new: &str) {
        self.push(Notification::Update { old: cached(old), new: cached(new) });
    }

    fn delete(&mut self, text: &str) {
        self.push(Notification::Delete(Box::new(Gone::Final(cached(text)))));
    }

    fn push(&mut self, notification: Notification) {
        self.0.push(notification, Instant::now());
    }

    fn drained(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.pop())
            .map(|notification| match notification {
                Notification::Add(object, _) => format!("+{}", show_held(&object)),
                Notification::Update { old, new } => format!("~{}>{}", show_held(&old), show_held(&new)),
                Notification::Delete(gone) => match *gone {
                    Gone::Undecoded { key, uid, .. } => format!("-{key}:{}", uid.unwrap()),
                    Gone::Final(held) | Gone::Inferred(held) => format!("-{}", show_held(&held)),
                },
            })
            .collect()
    }
}

// I11
#[test]
fn what_waits_for_one_object_folds_to_one_notification() {
    let mut case = Case::new();
    case.add("a@1");
    case.update("b@1", "b@2");
    case.update("a@1", "a@3");
    case.update("b@2", "b@4");
    case.update("c@1", "c@5");
    case.delete("c@6");
    case.add("d@7");
    case.delete("d@8");
    assert_eq!(case.drained(), ["+a@3", "~b@1>b@4", "-c@6", "-d@8"]);
    assert_eq!(case.0.len(), 0);
    case.update("a@3", "a@9");
    assert_eq!(case.drained(), ["~a@3>a@9"], "what was taken is not folded into");
}

// I21
#[test]
fn a_delete_is_never_swallowed_and_a_successor_stays_apart() {
    let mut case = Case::new();
    case.update("a:one@1", "a:one@2");
    case.delete("a:one@3");
    case.add("a:two@4");
    case.update("a:two@4", "a:two@5");
    assert_eq!(case.drained(), ["-a:one@3", "+a:two@5"]);

    case.delete("a:one@3");
    case.add("a:two@4");
    case.delete("a:two@5");
    case.add("a:three@6");
    case.delete("a:three@7");
    assert_eq!(case.drained(), ["-a:one@3", "-a:two@5", "-a:three@7"]);
}

// I11
#[test]
fn an_object_that_comes_and_goes_under_one_uid_waits_at_most_twice() {
    let mut case = Case::new();
    for version in 0..100 {
        case.add(&format!("a@{version}"));
        case.delete(&format!("a@{version}"));
    }
    assert_eq!(case.0.len(), 1);
    case.add("a@100");
    assert_eq!(case.drained(), ["-a@99", "+a@100"]);
}

// I11
#[test]
fn past_ten_thousand_deletions_only_names_are_kept() {
    let mut case = Case::new();
    for n in 0..10_002 {
        case.delete(&format!("o{n}:u{n}@1"));
    }
    let drained = case.drained();
    assert_eq!((&*drained[9_999], &*drained[10_000]), ("-o9999:u9999@1", "-shop/o10000:u10000"));
    case.delete("a@1");
    assert_eq!(case.drained(), ["-a@1"], "once there is room again, states are kept again");
}

#[test]
fn the_initial_content_is_out_once_nothing_of_it_waits() {
    let mut case = Case::new();
    assert!(!case.0.initial_is_out(), "nothing was marked");
    case.add("a@1");
    case.0.mark_initial();
    case.add("b@2");
    assert!(!case.0.initial_is_out());
    case.update("a@1", "a@3");
    case.0.pop();
    assert!(case.0.initial_is_out());
}

// I11, I21
#[test]
fn what_was_listed_takes_in_what_came_for_it_later() {
    let mut case = Case::new();
    case.delete("back:one@1");
    ["same@1", "changed@2", "gone@3", "back:two@4", "twice@5"].iter().for_each(|text| case.add(text));
    case.add("later@6");
    case.update("changed@2", "changed@7");
    case.update("changed@7", "changed@8");
    case.update("gone@3", "gone@9");
    case.delete("gone@10");
    case.delete("twice@11");
    case.add("twice:next@12");
    assert_eq!(
        case.drained(),
        [
            "-back:one@1",
            "+same@1",
            "+changed@8",
            "-gone@10",
            "+back:two@4",
            "-twice@11",
            "+later@6",
            "+twice:next@12"
        ]
    );
    assert_eq!(case.0.len(), 0);
}

// I21
#[test]
fn the_second_deletion_of_what_was_listed_again_is_not_folded_into_the_first() {
    let mut case = Case::new();
    case.delete("a@1");
    case.add("a@2");
    case.delete("a@3");
    assert_eq!(case.drained().last().unwrap(), "-a@3", "otherwise the addition would come last");
}

#[test]
fn listed_content_is_out_once_the_last_of_it_was_taken() {
    let mut case = Case::new();
    ["a@1", "b@1"].iter().for_each(|text| case.add(text));
    case.0.mark_initial();
    case.add("c@2");
    case.0.pop();
    assert!(!case.0.initial_is_out());
    case.0.pop();
    assert!(case.0.initial_is_out());
}

/// A cache, and the backlog of a handler of it.
struct Cached {
    cache: Indexer<dyn AnyObject>,
    case: Case,
}

impl Cached {
    fn new(texts: &[&str]) -> Self {
        let cached = Self { cache: Indexer::of_type(StoredType::of::<ConfigMap>(), None), case: Case::new() };
        texts.iter().for_each(|text| drop(cached.put(text)));
        cached
    }

    fn put(&self, text: &str) -> (Option<CachedObject>, CachedObject) {
        self.cache.write(|batch| {
            let held = batch.hold(item(text)).unwrap();
            (batch.put(held.clone()), held)
        })
    }

    fn change(&mut self, text: &str) {
        let notification = match self.put(text) {
            (None, object) => Notification::Add(object, AddOrigin::Watch),
            (Some(old), new) => Notification::Update { old, new },
        };
        self.case.push(notification);
    }

    fn resync(&mut self) {
        let lister = self.cache.lister();
        self.case.0.push_resync(ResyncSnapshot::of(lister), Instant::now());
    }
}

// D6, D7
#[test]
fn a_resync_comes_behind_changes_and_leaves_out_what_changed() {
    let mut cached = Cached::new(&["same@1", "waits@1", "changes@1", "goes@1"]);
    cached.change("waits@2");
    cached.resync();
    assert_eq!(cached.case.0.len(), 5);
    cached.change("changes@3");
    let gone = cached.cache.delete(&key("goes")).unwrap();
    cached.case.push(Notification::Delete(Box::new(Gone::Final(gone))));
    assert_eq!(
        cached.case.drained(),
        ["~waits@1>waits@2", "~changes@1>changes@3", "-goes@1", "~same@1>same@1"]
    );
}

// I9, I11
#[test]
fn a_resync_is_not_starved_and_a_change_waits_for_one_call_of_it() {
    let names: Vec<String> = (0..20).map(|n| format!("o{n}@1")).collect();
    let mut cached = Cached::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    cached.resync();
    let mut reshown = 0;
    for version in 2..1_000 {
        cached.change(&format!("busy{}@{version}", version % 16));
        let Notification::Update { old, new } = cached.case.0.pop().unwrap() else { continue };
        reshown += usize::from(old.is_same(&new));
        if reshown == 20 {
            assert_eq!(version, 1 + 9 * 20, "one call of nine");
            break;
        }
    }
    assert_eq!(reshown, 20, "all are shown, although changes never end");
    assert!(cached.case.0.len() <= 20 + 16);
    cached.resync();
    cached.case.drained();
    cached.resync();
    cached.case.0.pop();
    cached.change("late@999");
    let told = (0..2).filter_map(|_| cached.case.0.pop()).any(|told| told.key() == &key("late"));
    assert!(told, "behind one call at most");
}

// I9
#[test]
fn a_resync_that_has_not_begun_is_one_with_the_next() {
    let mut cached = Cached::new(&["a@1"]);
    (0..3).for_each(|_| cached.resync());
    assert_eq!(cached.case.0.len(), 1);
    assert_eq!(cached.case.drained(), ["~a@1>a@1"]);
}

/// The state that a handler builds from its calls; it panics if a call contradicts it.
#[derive(Default)]
struct Folded {
    view: BTreeMap<String, String>,
    told: BTreeSet<String>,
}

impl Folded {
    fn take(&mut self, notification: Notification) {
        let name = notification.key().name().to_owned();
        self.told.insert(name.clone());
        match notification {
            Notification::Add(object, _) => {
                assert_eq!(self.view.insert(name, show_held(&object)), None, "added twice");
            }
            Notification::Update { old, new } => {
                assert_eq!(old.uid(), new.uid());
                assert_eq!(
                    self.view.insert(name, show_held(&new)),
                    Some(show_held(&old)),
                    "another old state"
                );
            }
            Notification::Delete(gone) => {
                let uid = |shown: &String| shown.contains(&format!(":{}@", gone.uid().unwrap()));
                assert!(self.view.remove(&name).is_none_or(|shown| uid(&shown)), "of another object");
            }
        }
    }
}

// I2, I11, I21, D6
#[test]
fn whatever_waits_folds_to_what_is_cached_and_a_resync_misses_nothing() {
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut cached, mut folded) = (Cached::new(&[]), Folded::default());
        let mut due = BTreeMap::new();
        for version in 1..200 {
            let name = format!("o{}", rng.random_range(0..6));
            let lister = cached.cache.lister();
            let uid =
                lister.cached(&key(&name)).map_or(version.to_string(), |held| held.uid().unwrap().into());
            match rng.random_range(0..16) {
                0..6 => cached.change(&format!("{name}:{uid}@{version}")),
                6..9 => {
                    if let Some(gone) = cached.cache.delete(&key(&name)) {
                        cached.case.push(Notification::Delete(Box::new(Gone::Inferred(gone))));
                    }
                }
                9 => {
                    let absent = (0..6).map(|n| format!("o{n}"));
                    let absent = absent.filter(|name| lister.cached(&key(name)).is_none());
                    let added = absent.map(|name| cached.put(&format!("{name}:{version}@{version}")).1);
                    let added: Vec<_> = added.collect();
                    added.into_iter().for_each(|added| {
                        cached.case.push(Notification::Add(added, AddOrigin::Watch));
                    });
                }
                10 => {
                    cached.resync();
                    folded.told.clear();
                    due = lister
                        .list_cached()
                        .iter()
                        .map(|held| (held.key().clone(), show_held(held)))
                        .collect();
                }
                _ => {
                    for _ in 0..rng.random_range(0..4) {
                        cached.case.0.pop().into_iter().for_each(|told| folded.take(told));
                    }
                }
            }
        }
        while cached.case.0.len() > 0 {
            cached.case.0.pop().into_iter().for_each(|told| folded.take(told));
        }
        let lister = cached.cache.lister();
        let truth: BTreeMap<_, _> =
            lister.list_cached().iter().map(|held| (held.key().name().to_owned(), show_held(held))).collect();
        assert_eq!(folded.view, truth, "seed {seed}");
        for (key, shown) in due {
            let same = lister.cached(&key).is_some_and(|held| show_held(&held) == shown);
            assert!(!same || folded.told.contains(key.name()), "seed {seed}: {key} was not shown again");
        }
    }
}

// I11
#[test]
fn a_key_that_flaps_behind_a_handler_that_is_stuck_takes_one_place() {
    let mut case = Case::new();
    case.add("head@1");
    for _ in 0..20_000 {
        case.add("flapping@2");
        case.delete("flapping@2");
    }
    (0..20).for_each(|n| case.add(&format!("tail-{n}@3")));
    for _ in 0..20_000 {
        case.add("flapping@2");
        case.delete("flapping@2");
    }
    assert_eq!(case.0.len(), 22);
    case.update("tail-7@3", "tail-7@4");
    let drained = case.drained();
    assert_eq!((drained.len(), &*drained[0], &*drained[9]), (22, "+head@1", "+tail-7@4"), "{drained:?}");
    assert_eq!(drained.iter().filter(|line| *line == "-flapping@2").count(), 1);
}

// I26
#[test]
fn a_name_that_is_taken_again_and_again_behind_a_handler_that_is_stuck_leaves_a_few_deletions() {
    let mut case = Case::new();
    case.update("flapping:0@1", "flapping:0@2");
    for life in 0..800 {
        case.delete(&format!("flapping:{life}@3"));
        case.add(&format!("flapping:{}@4", life + 1));
    }
    assert_eq!(
        case.drained(),
        [
            "-flapping:0@3",
            "-flapping:796@3",
            "-flapping:797@3",
            "-flapping:798@3",
            "-flapping:799@3",
            "+flapping:800@4"
        ]
    );
    assert_eq!(case.0.len(), 0);
}

// I26
#[test]
fn the_deletion_of_what_the_handler_was_shown_stays_however_often_the_name_is_taken() {
    let mut case = Case::new();
    case.delete("a:shown@1");
    case.add("a:shown@2");
    case.delete("a:shown@3");
    for life in 0..10 {
        case.add(&format!("a:{life}@4"));
        case.delete(&format!("a:{life}@5"));
    }
    let drained = case.drained();
    assert!(drained.len() == 5 && drained.contains(&"-a:shown@3".to_owned()), "{drained:?}");
}

/// What is pushed into a backlog that nobody empties, by size.
type Flood = (&'static str, fn(&mut Case, usize));

const FLOODS: &[Flood] = &[
    ("lives of one name", |case, size| {
        for life in 0..size {
            case.add(&format!("a:{life}@1"));
            case.delete(&format!("a:{life}@2"));
        }
    }),
    ("one object that comes and goes", |case, size| {
        for version in 0..size {
            case.add(&format!("a@{version}"));
            case.delete(&format!("a@{version}"));
        }
    }),
    ("additions of many, then their updates and deletions", |case, size| {
        (0..size).for_each(|n| case.add(&format!("o{n}@1")));
        (0..size).for_each(|n| case.update(&format!("o{n}@1"), &format!("o{n}@2")));
        (0..size).for_each(|n| case.delete(&format!("o{n}@3")));
    }),
    ("a list of many, of which each changes", |case, size| {
        (0..size).for_each(|n| case.add(&format!("o{n}@1")));
        (0..size).for_each(|n| case.update(&format!("o{n}@1"), &format!("o{n}@2")));
    }),
];

// I26
#[test]
fn twice_as_much_in_a_backlog_takes_about_twice_the_steps() {
    for (name, flood) in FLOODS {
        assert_grows_linearly(name, |size| {
            let mut case = Case::new();
            flood(&mut case, size);
            case.drained();
        });
    }
    assert_grows_linearly("a resync behind changes of all", |size| {
        let names: Vec<String> = (0..size).map(|n| format!("o{n}@1")).collect();
        let mut cached = Cached::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        (0..size).for_each(|n| cached.change(&format!("o{n}@2")));
        cached.resync();
        cached.case.drained();
    });
}

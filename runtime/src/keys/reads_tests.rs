//! Whom a change wakes, compared with a model.

use std::collections::{BTreeMap, BTreeSet, HashMap as Naive};

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;
use crate::store::Selector;

const KIND: ReadKind = ReadKind(1);

/// An object, as far as readers are concerned.
#[derive(Clone, Debug, PartialEq)]
struct Thing {
    labels: BTreeMap<String, String>,
    sites: Vec<IndexValue>,
    port: u32,
}

/// What a reader looks at; the last ones are what a model needs to know of a pick.
#[derive(Clone, Debug)]
enum Sort {
    Content,
    Members,
    Picked(Option<u32>),
}

type Reads = Vec<(ReadPart, Sort)>;

/// Knows every read of every key, and looks at all of them at each change.
#[derive(Default)]
struct NaiveReads {
    done: Naive<ObjectKey, Reads>,
    running: Naive<ObjectKey, Reads>,
}

fn belongs(part: &ReadPart, key: &ObjectKey, thing: &Thing) -> bool {
    let within =
        |namespace: &Option<Arc<str>>| namespace.is_none() || namespace.as_ref() == key.shared_namespace();
    match part {
        ReadPart::Object(other) => other == key,
        ReadPart::Set(ReadSet::Everything) => true,
        ReadPart::Set(ReadSet::Namespace(namespace)) => within(&Some(namespace.clone())),
        ReadPart::Set(ReadSet::Index { value, namespace, .. }) => {
            thing.sites.contains(value) && within(namespace)
        }
        ReadPart::Set(ReadSet::Selector { selector, namespace }) => {
            selector.matches(&thing.labels) && within(namespace)
        }
    }
}

impl NaiveReads {
    fn woken(&self, key: &ObjectKey, before: Option<&Thing>, after: Option<&Thing>) -> BTreeSet<ObjectKey> {
        let concerns = |(part, sort): &(ReadPart, Sort)| {
            let was = before.is_some_and(|thing| belongs(part, key, thing));
            let is = after.is_some_and(|thing| belongs(part, key, thing));
            match sort {
                Sort::Content => was || is,
                Sort::Members => was != is,
                Sort::Picked(port) => (was || is) && after.map(|thing| thing.port) != *port,
            }
        };
        let readers = self.done.iter().chain(&self.running);
        readers.filter(|(_, reads)| reads.iter().any(concerns)).map(|(key, _)| key.clone()).collect()
    }
}

fn a_key(random: &mut SmallRng) -> ObjectKey {
    ObjectKey::new(["shop", "ops"][random.random_range(0..2)], format!("o{}", random.random_range(0..5)))
}

fn a_thing(random: &mut SmallRng) -> Thing {
    let site = |random: &mut SmallRng| IndexValue::from(["a", "b", "c"][random.random_range(0..3)]);
    let mut sites: Vec<_> = (0..random.random_range(0..3)).map(|_| site(random)).collect();
    sites.sort_unstable();
    sites.dedup();
    let tier =
        ["gold", "silver"].get(random.random_range(0..3)).map(|tier| ("tier".to_owned(), (*tier).to_owned()));
    Thing { labels: tier.into_iter().collect(), sites, port: random.random_range(0..3) }
}

fn a_part(random: &mut SmallRng) -> ReadPart {
    let namespace = |random: &mut SmallRng| {
        ["shop", "ops"].get(random.random_range(0..4)).map(|namespace| Arc::from(*namespace))
    };
    ReadPart::Set(match random.random_range(0..5) {
        0 => ReadSet::Everything,
        1 => ReadSet::Namespace(["shop", "ops"][random.random_range(0..2)].into()),
        2 => ReadSet::Index {
            index: "site".into(),
            value: ["a", "b", "c"][random.random_range(0..3)].into(),
            namespace: namespace(random),
        },
        3 => {
            let selectors = ["tier=gold", "tier in (gold,silver)", "tier!=gold", "!tier", "tier"];
            let selector: Selector = selectors[random.random_range(0..5)].parse().unwrap();
            ReadSet::Selector { selector, namespace: namespace(random) }
        }
        _ => return ReadPart::Object(a_key(random)),
    })
}

fn state<'o>(wanted: &[Arc<str>], thing: &'o Thing) -> ReadState<'o> {
    let values = wanted.iter().map(|_| thing.sites.clone()).collect();
    ReadState { labels: Cow::Borrowed(&thing.labels), values }
}

/// Plays runs and changes, and compares whom each change wakes.
fn plays(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut table, mut naive) = (ReadTable::default(), NaiveReads::default());
    let mut things: BTreeMap<ObjectKey, Thing> = BTreeMap::new();
    let mut runs: BTreeMap<ObjectKey, u64> = BTreeMap::new();
    let (mut last_run, hashing) = (0, RandomState::default());
    for _ in 0..60 {
        let reader = ObjectKey::new("readers", format!("r{}", random.random_range(0..4)));
        match random.random_range(0..9) {
            0..4 => {
                let run = *runs.entry(reader.clone()).or_insert_with(|| {
                    last_run += 1;
                    last_run
                });
                let by = RunningReader::new(reader.clone(), run);
                let part = a_part(&mut random);
                let (sort, aspect) = match (&part, random.random_range(0..4)) {
                    (ReadPart::Object(key), 0) => {
                        let port = things.get(key).map(|thing| thing.port);
                        // What is looked at is the model's: the check has only to be asked, and for the right object.
                        (Sort::Picked(port), ReadAspect::Picked(Arc::new(|_| true)))
                    }
                    (_, 1) => (Sort::Members, ReadAspect::Members),
                    _ => (Sort::Content, ReadAspect::Content),
                };
                assert!(table.note(&by, KIND, part.clone(), aspect).is_none(), "it is little");
                naive.running.entry(reader).or_default().push((part, sort));
            }
            4 => {
                if let Some(run) = runs.remove(&reader) {
                    table.finish(&reader, run, 0);
                    let read = naive.running.remove(&reader).unwrap_or_default();
                    naive.done.insert(reader, read);
                }
            }
            // A run that keeps its reads to itself until it ends.
            5 if !runs.contains_key(&reader) => {
                last_run += 1;
                let by = RunningReader::new(reader.clone(), last_run);
                let one = |_| (a_key(&mut random), random.random_bool(0.2));
                let kept: Vec<(ObjectKey, bool)> = (0..seed % 4).map(one).collect();
                let digest = kept.iter().fold(0, |sum: u64, read| sum.wrapping_add(hashing.hash_one(read)));
                let aspect = |is_members| if is_members { ReadAspect::Members } else { ReadAspect::Content };
                if !table.repeat(&reader, last_run, digest) {
                    for (key, is_members) in &kept {
                        table.note(&by, KIND, ReadPart::Object(key.clone()), aspect(*is_members));
                    }
                    table.finish(&reader, last_run, digest);
                }
                let sort = |is_members| if is_members { Sort::Members } else { Sort::Content };
                let read = kept.into_iter().map(|(key, members)| (ReadPart::Object(key), sort(members)));
                naive.done.insert(reader, read.collect());
            }
            _ => {
                let key = a_key(&mut random);
                let before = things.remove(&key);
                let after = (random.random_range(0..3) > 0).then(|| a_thing(&mut random));
                if before.is_none() && after.is_none() {
                    continue;
                }
                let wanted = table.wanted(KIND);
                let change = ReadChange {
                    key: &key,
                    before: before.as_ref().map(|thing| state(&wanted, thing)),
                    after: after.as_ref().map(|thing| state(&wanted, thing)),
                    is_doubtful: false,
                };
                let woken = table.woken(KIND, &wanted, &change);
                let expected = naive.woken(&key, before.as_ref(), after.as_ref());
                let plain: BTreeSet<_> = woken.keys.iter().map(|(key, _)| key.clone()).collect();
                assert_eq!(plain.len(), woken.keys.len(), "seed {seed}: each key once");
                let asked: BTreeSet<_> = woken.picks.iter().map(|(key, ..)| key.clone()).collect();
                assert!(plain.is_subset(&expected), "seed {seed}: {plain:?} woke, not {expected:?}");
                let missed: Vec<_> =
                    expected.difference(&plain).filter(|key| !asked.contains(*key)).collect();
                assert!(missed.is_empty(), "seed {seed}: {missed:?} did not wake");
                assert!(table.woken(ReadKind(0), &[], &change).keys.is_empty(), "another kind");
                if let Some(after) = after {
                    things.insert(key, after);
                }
            }
        }
    }
    // Nothing is left once all keys have run without reading.
    for number in 0..4 {
        last_run += 1;
        let reader = ObjectKey::new("readers", format!("r{number}"));
        if let Some(run) = runs.remove(&reader) {
            table.finish(&reader, run, 0);
        }
        table.finish(&reader, last_run, 0);
    }
    assert_eq!(table.len(), (0, 0), "seed {seed}");
    assert!(table.wanted(KIND).is_empty());
}

// C53 C54
#[test]
fn whom_a_change_wakes_is_what_a_model_says_that_looks_at_every_read() {
    (0..2_000).for_each(plays);
}

// C57
#[test]
fn a_run_that_reads_too_many_objects_depends_on_their_namespace_or_on_all() {
    let reader = ObjectKey::new("readers", "r");
    for (namespaces, whole) in
        [(["shop", "shop"], ReadSet::Namespace("shop".into())), (["shop", "ops"], ReadSet::Everything)]
    {
        let mut table = ReadTable::default();
        let (mut told, by) = (Vec::new(), RunningReader::new(reader.clone(), 1));
        for number in 0..2 * ONE_BY_ONE {
            let key = ObjectKey::new(namespaces[number % 2], format!("o{number}"));
            told.extend(table.note(&by, KIND, ReadPart::Object(key), ReadAspect::Content));
        }
        assert_eq!(told, std::slice::from_ref(&whole));
        assert_eq!(table.len().0, 1, "one node is left");
        let another = ObjectKey::new("shop", "another");
        let change =
            ReadChange { key: &another, before: None, after: Some(ReadState::default()), is_doubtful: false };
        assert_eq!(table.woken(KIND, &[], &change).keys, [(reader.clone(), 1)]);
        table.finish(&reader, 1, 0);
        assert_eq!(table.of(&reader), [(KIND, ReadPart::Set(whole))]);
    }
}

#[test]
fn work_that_outlives_its_run_goes_on_to_read_for_it_until_another_run_ends() {
    let (mut table, reader) = (ReadTable::default(), ObjectKey::new("readers", "r"));
    let read = |table: &mut ReadTable, run, name: &str| {
        let by = RunningReader::new(reader.clone(), run);
        table.note(&by, KIND, ReadPart::Object(ObjectKey::new("shop", name)), ReadAspect::Content);
    };
    read(&mut table, 1, "a");
    table.finish(&reader, 1, 0);
    read(&mut table, 1, "b");
    let names = |table: &ReadTable| table.of(&reader).len();
    assert_eq!(names(&table), 2);
    read(&mut table, 2, "c");
    assert_eq!(names(&table), 3);
    table.finish(&reader, 2, 0);
    read(&mut table, 1, "d");
    assert_eq!(names(&table), 1, "the key keeps nothing of the first run");
}

#[test]
fn what_only_work_that_outlives_its_run_has_read_is_forgotten_as_well() {
    let (mut table, reader) = (ReadTable::default(), ObjectKey::new("readers", "r"));
    table.finish(&reader, 1, 0);
    let by = RunningReader::new(reader.clone(), 1);
    let a = ObjectKey::new("shop", "a");
    table.note(&by, KIND, ReadPart::Object(a.clone()), ReadAspect::Content);
    let change = ReadChange { key: &a, before: None, after: Some(ReadState::default()), is_doubtful: false };
    assert_eq!(table.woken(KIND, &[], &change).keys, [(reader.clone(), 1)]);
    table.finish(&reader, 2, 0);
    assert_eq!(table.len(), (0, 0));
    assert!(table.woken(KIND, &[], &change).keys.is_empty());
}

#[test]
fn keys_that_are_not_to_be_kept_are_forgotten_in_portions() {
    let mut table = ReadTable::default();
    let key = |at: usize| ObjectKey::new("readers", format!("r{at}"));
    for at in 0..10 {
        let by = RunningReader::new(key(at), 1);
        let shared = ReadPart::Object(ObjectKey::new("shop", "shared"));
        table.note(&by, KIND, shared, ReadAspect::Content);
        table.finish(&key(at), 1, 0);
        table.note(
            &RunningReader::new(key(at), 2),
            KIND,
            ReadPart::Set(ReadSet::Everything),
            ReadAspect::Content,
        );
    }
    for left in [6, 2, 0] {
        table.sweep_some(4, |_| false);
        assert_eq!(table.len(), (if left == 0 { 0 } else { 2 }, left));
    }
    assert_eq!(table.swept_to, 0, "from the beginning again");
}

// C57
#[test]
fn a_node_takes_as_little_as_it_may() {
    assert_eq!((size_of::<Option<Node<ObjectKey>>>(), size_of::<ReadRef>()), (48, 4));
    assert_eq!(size_of::<Option<Reader>>(), 88);
}

//! Tests of the store: a naive model, snapshots, indexes, versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::FORM;
use crate::{
    delta_fifo::Extent,
    list_watch::{Identity, ItemForm, RawObject, Unreadable},
    object::{ObjectKey, Version},
    store::{
        CachedObject, DuplicateIndex, IndexDefinition, IndexValue, Indexer, Lister, Lookup, Selector,
        WriteBatch, snapshot::StoreSnapshot,
    },
};

/// An object whose `tags` (comma-separated, in its data) are the values of an index.
fn object(namespace: &str, name: &str, tier: &str, tags: &str) -> Arc<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.labels = Some(BTreeMap::from([("tier".to_owned(), tier.to_owned())]));
    object.data = Some(BTreeMap::from([("tags".to_owned(), tags.to_owned())]));
    Arc::new(object)
}

/// Puts an object into a batch, in the form that is tested.
pub(super) fn put_in(batch: &mut WriteBatch, object: Arc<ConfigMap>) -> Option<Arc<ConfigMap>> {
    let old = match FORM {
        ItemForm::Typed => batch.upsert(object),
        ItemForm::Bytes => batch.upsert_raw(RawObject::of(&*object).unwrap()),
    };
    old.map(decoded)
}

pub(super) fn put(indexer: &Indexer<ConfigMap>, object: Arc<ConfigMap>) {
    indexer.write(|batch| drop(put_in(batch, object)));
}

fn decoded(held: CachedObject) -> Arc<ConfigMap> {
    held.object_as().unwrap()
}

fn tags_of(object: &ConfigMap) -> Vec<String> {
    let tags = object.data.as_ref().and_then(|data| data.get("tags")).map_or("", String::as_str);
    tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

fn by_tag() -> IndexDefinition<ConfigMap> {
    IndexDefinition::new("tag", tags_of)
}

fn indexed() -> Indexer<ConfigMap> {
    Indexer::with_indexes([by_tag()]).unwrap()
}

fn names(objects: &[Arc<ConfigMap>]) -> BTreeSet<String> {
    objects.iter().map(|object| ObjectKey::of(&**object).to_string()).collect()
}

fn tagged(lister: &Lister<ConfigMap>, tag: &str) -> BTreeSet<String> {
    names(&lister.by_index("tag", &tag.into()))
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn published(indexer: &Indexer<ConfigMap>) -> StoreSnapshot {
    StoreSnapshot::clone(&indexer.lister().snapshot())
}

#[derive(Clone, Debug)]
enum Step {
    Upsert { namespace: usize, name: u8, tier: usize, tags: Vec<u8> },
    Delete { namespace: usize, name: u8 },
    Replace(Vec<(usize, u8, usize, Vec<u8>)>),
}

const NAMESPACES: [&str; 3] = ["shop", "farm", ""];
const TIERS: [&str; 2] = ["gold", "silver"];

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let object = || (0..3_usize, 0..30_u8, 0..2_usize, prop::collection::vec(0..5_u8, 0..4));
    let step = prop_oneof![
        8 => object().prop_map(|(namespace, name, tier, tags)| Step::Upsert { namespace, name, tier, tags }),
        4 => (0..3_usize, 0..30_u8).prop_map(|(namespace, name)| Step::Delete { namespace, name }),
        1 => prop::collection::vec(object(), 0..60).prop_map(Step::Replace),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..20), 1..20)
}

fn built((namespace, name, tier, tags): (usize, u8, usize, Vec<u8>)) -> Arc<ConfigMap> {
    let tags: Vec<_> = tags.iter().map(u8::to_string).collect();
    object(NAMESPACES[namespace], &name.to_string(), TIERS[tier], &tags.join(","))
}

/// Takes a step in the store and in the model.
fn take(batch: &mut WriteBatch, model: &mut BTreeMap<ObjectKey, Arc<ConfigMap>>, step: Step) {
    match step {
        Step::Upsert { namespace, name, tier, tags } => {
            let object = built((namespace, name, tier, tags));
            let key = ObjectKey::of(&*object);
            assert_eq!(put_in(batch, object.clone()), model.insert(key, object));
        }
        Step::Delete { namespace, name } => {
            let key = ObjectKey::new(NAMESPACES[namespace], name.to_string());
            assert_eq!(batch.delete(&key).map(decoded), model.remove(&key));
        }
        Step::Replace(objects) => {
            batch.keys(&Extent::All).iter().for_each(|key| drop(batch.delete(key)));
            model.clear();
            for object in objects.into_iter().map(built) {
                model.insert(ObjectKey::of(&*object), object.clone());
                put_in(batch, object);
            }
        }
    }
}

fn check(indexer: &Indexer<ConfigMap>, model: &BTreeMap<ObjectKey, Arc<ConfigMap>>) {
    let lister = indexer.lister();
    let expected = |keep: &dyn Fn(&ObjectKey, &ConfigMap) -> bool| -> BTreeSet<String> {
        model.iter().filter(|(key, object)| keep(key, object)).map(|(key, _)| key.to_string()).collect()
    };
    let gold: Selector = "tier=gold".parse().unwrap();
    assert_eq!(lister.len(), model.len());
    assert_eq!(names(&lister.list()), expected(&|_, _| true));
    let is_gold = |object: &ConfigMap| object.metadata.labels.as_ref().unwrap()["tier"] == "gold";
    assert_eq!(names(&lister.list_matching(&gold)), expected(&|_, object| is_gold(object)));
    // No namespace is named: all.
    let everywhere = lister.namespace("");
    assert_eq!(names(&everywhere.list()), names(&lister.list()));
    assert_eq!(names(&everywhere.list_matching(&gold)), names(&lister.list_matching(&gold)));
    assert_eq!(names(&everywhere.by_index("tag", &"1".into())), names(&lister.by_index("tag", &"1".into())));
    for namespace in ["shop", "farm"] {
        let here = lister.namespace(namespace);
        let inside = |key: &ObjectKey| key.namespace() == Some(namespace);
        assert_eq!(names(&here.list()), expected(&|key, _| inside(key)));
        assert_eq!(
            names(&here.list_matching(&gold)),
            expected(&|key, object| inside(key) && is_gold(object))
        );
        let tagged = expected(&|key, object| inside(key) && tags_of(object).contains(&"1".to_owned()));
        assert_eq!(names(&here.by_index("tag", &"1".into())), tagged);
    }
    for tag in 0..5_u8 {
        let expected = expected(&|_, object| tags_of(object).contains(&tag.to_string()));
        assert_eq!(tagged(&lister, &tag.to_string()), expected);
    }
    for namespace in NAMESPACES {
        for name in 0..30_u8 {
            let key = ObjectKey::new(namespace, name.to_string());
            assert_eq!(lister.get(&key), model.get(&key).cloned());
            assert_eq!(lister.namespace(namespace).get(key.name()), model.get(&key).cloned());
        }
    }
    // S3
    assert!(!published(indexer).has_empty_bucket());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    // S1
    #[test]
    fn reads_agree_with_a_naive_model_under_random_operations(batches in steps()) {
        let (indexer, mut model) = (indexed(), BTreeMap::new());
        for steps in batches {
            indexer.write(|batch| steps.into_iter().for_each(|step| take(batch, &mut model, step)));
            check(&indexer, &model);
        }
    }
}

// S2
#[test]
fn reindexing_moves_an_object_exactly_between_its_values() {
    let indexer = indexed();
    let lister = indexer.lister();
    put(&indexer, object("shop", "a", "gold", "x,y,x"));
    assert_eq!((tagged(&lister, "x"), tagged(&lister, "y")), (set(&["shop/a"]), set(&["shop/a"])));
    put(&indexer, object("shop", "a", "gold", "y,z"));
    assert_eq!(tagged(&lister, "x"), set(&[]));
    assert_eq!((tagged(&lister, "y"), tagged(&lister, "z")), (set(&["shop/a"]), set(&["shop/a"])));
    // The index shows the new state, not the one that first had the value.
    assert_eq!(tags_of(&lister.by_index("tag", &"y".into())[0]), ["y", "z"]);
    assert!(lister.by_index("nobody defined it", &"y".into()).is_empty());
}

// S3, S4
#[test]
fn siblings_survive_a_delete_and_no_empty_set_stays() {
    let indexer = indexed();
    let lister = indexer.lister();
    put(&indexer, object("shop", "a", "gold", "x"));
    put(&indexer, object("shop", "b", "gold", "x,y"));
    indexer.delete(&ObjectKey::new("shop", "b"));
    assert_eq!((tagged(&lister, "x"), tagged(&lister, "y")), (set(&["shop/a"]), set(&[])));
    assert_eq!(names(&lister.namespace("shop").list()), set(&["shop/a"]));
    assert!(!published(&indexer).has_empty_bucket());
    indexer.delete(&ObjectKey::new("shop", "a"));
    assert!(!published(&indexer).has_empty_bucket() && lister.is_empty());
}

// S5
#[test]
fn an_index_added_later_is_filled_and_a_second_of_its_name_is_refused() {
    let indexer = Indexer::new();
    put(&indexer, object("shop", "a", "gold", "x"));
    indexer.add_index(by_tag()).unwrap();
    assert_eq!(tagged(&indexer.lister(), "x"), set(&["shop/a"]));
    assert_eq!(indexer.add_index(by_tag()), Err(DuplicateIndex("tag".to_owned())));
    assert_eq!(tagged(&indexer.lister(), "x"), set(&["shop/a"]));
}

// S5
#[test]
fn an_index_that_is_added_late_is_in_every_snapshot() {
    let indexer = Indexer::new();
    let write = |name: &str| put(&indexer, object("shop", name, "gold", "x"));
    write("a");
    write("b");
    indexer.add_index(by_tag()).unwrap();
    let mut expected = set(&["shop/a", "shop/b"]);
    for name in ["c", "d", "e"] {
        write(name);
        expected.insert(format!("shop/{name}"));
        assert_eq!(tagged(&indexer.lister(), "x"), expected);
    }
}

// S2 S5
#[test]
fn an_object_leaves_its_old_values_though_as_many_as_before_are_left_to_it() {
    let indexer = indexed();
    let lister = indexer.lister();
    // A value that is given twice is one.
    put(&indexer, object("shop", "a", "gold", "x,y"));
    put(&indexer, object("shop", "a", "gold", "x,x"));
    assert!(tagged(&lister, "y").is_empty());
    put(&indexer, object("shop", "a", "gold", "x,y"));
    // A late index gives it a third; then the first gives it one less.
    indexer.add_index(IndexDefinition::label("tier")).unwrap();
    put(&indexer, object("shop", "a", "gold", "x"));
    assert!(tagged(&lister, "y").is_empty());
    assert_eq!(tagged(&lister, "x"), set(&["shop/a"]));
    // As many, others.
    put(&indexer, object("shop", "a", "gold", "z"));
    assert!(tagged(&lister, "x").is_empty());
    assert_eq!(tagged(&lister, "z"), set(&["shop/a"]));
}

// S6
#[test]
fn an_index_function_that_fails_or_panics_hurts_one_object_only() {
    let indexer = indexed();
    let fragile = |object: &ConfigMap| match object.metadata.name.as_deref() {
        Some("fails") => Err("not this one"),
        Some("panics") => panic!("a planted panic"),
        name => Ok(vec![IndexValue::from(name.unwrap_or_default())]),
    };
    indexer.add_index(IndexDefinition::fallible("fragile", fragile)).unwrap();
    ["a", "fails", "panics"].iter().for_each(|name| put(&indexer, object("shop", name, "gold", "x")));
    let lister = indexer.lister();
    assert_eq!(lister.len(), 3);
    assert_eq!(tagged(&lister, "x").len(), 3);
    assert_eq!(names(&lister.by_index("fragile", &"a".into())), set(&["shop/a"]));
    assert!(lister.by_index("fragile", &"panics".into()).is_empty());
    ["a", "fails", "panics"].iter().for_each(|name| drop(indexer.delete(&ObjectKey::new("shop", name))));
    assert!(lister.is_empty() && !published(&indexer).has_empty_bucket());
}

// S7
#[test]
fn what_was_read_does_not_change_with_later_writes() {
    let indexer = indexed();
    (0..500).for_each(|n| put(&indexer, object("shop", &n.to_string(), "gold", "x")));
    let (before, listed) = (published(&indexer), indexer.lister().list());
    (0..400).for_each(|n| drop(indexer.delete(&ObjectKey::new("shop", n.to_string()))));
    put(&indexer, object("shop", "450", "silver", "y"));
    assert_eq!((listed.len(), before.objects.len()), (500, 500));
    assert_eq!(before.indexed("tag", &"x".into()).flatten().unwrap().len(), 500);
    assert_eq!(tags_of(&before.get(Some("shop"), "450").unwrap().object_as().unwrap()), ["x"]);
    assert_eq!(before.namespace("shop").unwrap().len(), 500);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    // S7
    #[test]
    fn what_is_held_shows_its_moment_however_writes_follow(batches in steps(), held in prop::collection::vec(0..4_u8, 20)) {
        let (indexer, mut model, mut kept) = (indexed(), BTreeMap::new(), Vec::new());
        let moment = |model: &BTreeMap<ObjectKey, Arc<ConfigMap>>| names(&model.values().cloned().collect::<Vec<_>>());
        for (batch, held) in batches.into_iter().zip(held) {
            indexer.write(|writing| batch.into_iter().for_each(|step| take(writing, &mut model, step)));
            match held {
                0 => kept.push((indexer.lister().list(), moment(&model))),
                1 => kept.clear(),
                2 => kept.push((indexer.lister().namespace("shop").list(), {
                    let shop = model.iter().filter(|(key, _)| key.namespace() == Some("shop"));
                    names(&shop.map(|(_, object)| object.clone()).collect::<Vec<_>>())
                })),
                _ => {}
            }
            check(&indexer, &model);
            for (list, expected) in &kept {
                prop_assert_eq!(&names(&list.iter().cloned().collect::<Vec<_>>()), expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    // S7
    #[test]
    fn a_snapshot_that_a_reader_holds_stays_and_what_is_published_is_right(
        steps in prop::collection::vec((0..3_usize, 0..30_u8, 0..2_usize, 0..6_u8, 0..8_u8), 1..80)
    ) {
        let (indexer, mut model, mut held) = (indexed(), BTreeMap::new(), None);
        let all = (0..90).map(|n| (n / 30, (n % 30) as u8, 0, vec![1])).collect();
        indexer.write(|batch| take(batch, &mut model, Step::Replace(all)));
        for (namespace, name, tier, tag, reader) in steps {
            let step = match tag {
                0 => Step::Delete { namespace, name },
                _ => Step::Upsert { namespace, name, tier, tags: vec![tag] },
            };
            indexer.write(|batch| take(batch, &mut model, step));
            match reader {
                0 => held = Some((indexer.lister().snapshot(), model.clone())),
                1 => {
                    check(&indexer, &model);
                    held = None;
                }
                _ => {}
            }
            if let Some((snapshot, model)) = &held {
                let shown: Vec<_> = snapshot.objects.iter().map(|stored| stored.held.object_as().unwrap()).collect();
                prop_assert_eq!(names(&shown), names(&model.values().cloned().collect::<Vec<_>>()));
            }
        }
        check(&indexer, &model);
    }
}

// S7
#[test]
fn the_second_copy_of_the_tables_outlives_a_reader_that_holds_it() {
    let indexer = indexed();
    let put_all = || (0..400).for_each(|n| put(&indexer, object("shop", &n.to_string(), "gold", "x")));
    (0..3).for_each(|_| put_all());
    let copies = || published(&indexer).objects.iter().map(|stored| stored.held.held_by()).sum::<usize>();
    let write = |n: usize| put(&indexer, object("shop", &(n % 5).to_string(), "silver", "y"));
    let (before, reader) = (copies(), indexer.lister().snapshot());
    (0..20).for_each(write);
    drop(reader);
    (0..2).for_each(write);
    assert!(copies() >= before, "{} of {before}", copies());
    // One that holds it for too long keeps it for itself.
    let reader = indexer.lister().snapshot();
    (0..100).for_each(write);
    drop(reader);
    assert!(copies() < before * 2 / 3, "{} of {before}", copies());
}

// S7
#[test]
fn a_list_reads_the_same_in_every_way_and_for_good() {
    let indexer = indexed();
    (0..300).for_each(|n| put(&indexer, object(NAMESPACES[n % 3], &n.to_string(), "gold", "x")));
    let lister = indexer.lister();
    let shop = lister.namespace("shop");
    let lists = [
        (lister.list(), 300),
        (shop.list(), 100),
        (lister.by_index("tag", &"x".into()), 300),
        (shop.by_index("tag", &"x".into()), 100),
        (lister.list_matching(&"tier=gold".parse().unwrap()), 300),
        (lister.namespace("nobody's").list(), 0),
    ];
    indexer.replace([]);
    for (list, len) in lists {
        assert_eq!((list.len(), list.is_empty()), (len, len == 0));
        assert_eq!((list.iter().len(), (&list).into_iter().count()), (len, len));
        assert_eq!(list.as_slice().len(), len);
        let walked = list.iter().zip(list.as_slice());
        assert!(walked.into_iter().all(|(walked, listed)| Arc::ptr_eq(walked, listed)));
        let (named, copy) = (names(&list), list.clone());
        assert_eq!(named.len(), len);
        assert_eq!(names(&copy.clone().into_vec()), named);
        assert_eq!(names(&list.into_vec()), named);
        assert_eq!(names(&copy.into_iter().collect::<Vec<_>>()), named);
    }
}

#[test]
fn a_list_shows_objects_of_both_forms() {
    let indexer = indexed();
    indexer.upsert(object("shop", "typed", "gold", "x"));
    indexer.upsert_raw(RawObject::of(&*object("shop", "compact", "gold", "x")).unwrap());
    let lister = indexer.lister();
    for list in [lister.list(), lister.namespace("shop").list(), lister.by_index("tag", &"x".into())] {
        assert_eq!(names(&list), set(&["shop/compact", "shop/typed"]));
    }
}

// S7
#[test]
fn a_write_that_panics_publishes_nothing_and_the_store_goes_on() {
    let indexer = indexed();
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        indexer.write(|batch| {
            put_in(batch, object("shop", "a", "gold", "x"));
            panic!("a planted panic");
        })
    }));
    assert!(broken.is_err() && indexer.lister().is_empty());
    put(&indexer, object("shop", "b", "gold", "x"));
    assert_eq!(indexer.lister().len(), 1);
}

// S8
#[test]
fn fifty_readers_and_a_writer_go_on_without_each_other() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        readers_beside_a_writer();
        done.send(()).unwrap();
    });
    // In real threads: what hangs, or panics there, fails here.
    ended.recv_timeout(Duration::from_secs(120)).expect("readers and writer go on");
}

fn readers_beside_a_writer() {
    let indexer = indexed();
    (0..200).for_each(|n| put(&indexer, object("shop", &n.to_string(), "gold", "x")));
    // While a write is under way, and for as long as it likes, every read ends.
    indexer.write(|batch| {
        batch.delete(&ObjectKey::new("shop", "0"));
        std::thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| assert_eq!(indexer.lister().namespace("shop").list().len(), 200));
            }
        });
    });
    // While readers hold what they read, every write ends, and each read sees one moment.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let lister = indexer.lister();
                while !done.load(Ordering::Relaxed) {
                    let count = lister.by_index("tag", &"pair".into()).len();
                    assert!(count == 0 || count == 2, "half a batch was seen: {count}");
                }
            });
        }
        for _ in 0..200 {
            indexer.write(|batch| {
                put_in(batch, object("shop", "left", "gold", "pair"));
                put_in(batch, object("farm", "right", "gold", "pair"));
            });
            indexer.write(|batch| {
                batch.delete(&ObjectKey::new("farm", "right"));
                batch.delete(&ObjectKey::new("shop", "left"));
            });
        }
        done.store(true, Ordering::Relaxed);
    });
}

// S9
#[test]
fn the_version_is_the_lowest_of_the_extents_and_unknown_while_one_is() {
    let indexer = Indexer::<ConfigMap>::new();
    let lister = indexer.lister();
    let (shop, farm) = (Extent::Namespace("shop".into()), Extent::Namespace("farm".into()));
    assert_eq!(lister.resource_version(), None);
    indexer.write(|batch| {
        batch.set_version(&shop, Some(Version(7)));
        batch.set_version(&farm, None);
    });
    assert_eq!(lister.resource_version(), None);
    indexer.write(|batch| batch.set_version(&farm, Some(Version(5))));
    assert_eq!(lister.resource_version(), Some(Version(5)));
    indexer.write(|batch| batch.set_version(&farm, Some(Version(10))));
    assert_eq!(lister.resource_version(), Some(Version(7)));
}

// S10
#[tokio::test(start_paused = true)]
async fn waiting_for_a_version_ends_at_it_or_with_a_deadline_error() {
    let indexer = Indexer::<ConfigMap>::new();
    let lister = indexer.lister();
    let within = Duration::from_secs(5);
    let missed = lister.wait_for_version(Version(3), within).await.unwrap_err();
    assert_eq!((missed.wanted, missed.reached), (Version(3), None));
    assert!(missed.to_string().contains("no known version"), "{missed}");

    let waiting = tokio::spawn(async move { lister.wait_for_version(Version(9), within).await });
    for version in [3, 8, 9] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        indexer.write(|batch| batch.set_version(&Extent::All, Some(Version(version))));
    }
    assert_eq!(waiting.await.unwrap(), Ok(()));
    indexer.lister().wait_for_version(Version(9), Duration::ZERO).await.unwrap();
}

#[test]
fn a_mark_tells_outdated_and_unreadable_from_absent() {
    let indexer = indexed();
    let lister = indexer.lister();
    let (kept, hidden) = (ObjectKey::new("shop", "kept"), ObjectKey::new("shop", "hidden"));
    let mark = |key: &ObjectKey| {
        let identity = Identity { key: Some(key.clone()), ..Identity::default() };
        Arc::new(Unreadable { identity, error: "spec.domain: missing".to_owned() })
    };
    indexer.write(|batch| {
        put_in(batch, object("shop", "kept", "gold", "x"));
        [&kept, &hidden].iter().for_each(|key| batch.mark_unreadable(key, mark(key)));
        assert_eq!(batch.keys(&Extent::All).len(), 2);
    });
    assert!(matches!(lister.lookup(&kept), Lookup::Outdated { .. }));
    assert!(matches!(lister.lookup(&hidden), Lookup::Unreadable(_)));
    assert!(matches!(lister.lookup(&ObjectKey::new("shop", "none")), Lookup::Absent));
    assert_eq!(names(&lister.list()), set(&["shop/kept"]));
    assert_eq!((lister.unreadable().len(), lister.unreadable_or_outdated().len()), (1, 2));
    indexer.write(|batch| batch.clear_unreadable(&kept));
    assert!(matches!(lister.lookup(&kept), Lookup::Found(_)));
}

#[test]
fn a_namespace_is_stored_once_for_all_its_keys() {
    let indexer = indexed();
    (0..3).for_each(|n| put(&indexer, object("shop", &n.to_string(), "gold", "")));
    let keys: Vec<_> = indexer.lister().list_cached().iter().map(|held| held.key().clone()).collect();
    let shared = |key: &ObjectKey| key.shared_namespace().cloned().unwrap();
    assert!(keys.iter().all(|key| Arc::ptr_eq(&shared(key), &shared(&keys[0]))));
}

//! Tests of the queue.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::{
    list_watch::{Identity, RawObject, Unreadable},
    reflector::{Epoch, List, ReflectorStore, StoreChange},
};

fn object(name: &str, uid: &str, version: u64) -> FetchedItem<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("shop".to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.resource_version = Some(version.to_string());
    FetchedItem::Object(Arc::new(object))
}

fn upsert(name: &str, version: u64) -> StoreChange<ConfigMap> {
    StoreChange::Upsert(object(name, name, version))
}

fn delete(name: &str, version: u64) -> StoreChange<ConfigMap> {
    StoreChange::Delete(object(name, name, version))
}

fn queue() -> (DeltaFifo<ConfigMap>, FifoSink<ConfigMap>) {
    let fifo = DeltaFifo::new();
    let sink = fifo.sink(Extent::All, None);
    (fifo, sink)
}

fn limit(limit: usize) -> NonZeroUsize {
    NonZeroUsize::new(limit).unwrap()
}

fn named(item: &FetchedItem<ConfigMap>) -> String {
    let key = item.key().map_or("?".to_owned(), |key| key.name().to_owned());
    format!("{key}@{}", item.resource_version().unwrap_or("?"))
}

fn told((_, delta): &(Extent, Delta<ConfigMap>)) -> String {
    match delta {
        Delta::Upserted(item) => format!("~{}", named(item)),
        Delta::Deleted(item) => format!("-{}", named(item)),
        Delta::Replaced(List { items, resource_version, .. }) => {
            format!("={} @{resource_version}", items.iter().map(named).collect::<Vec<_>>().join("+"))
        }
        Delta::Reached(version) => format!("@{version}"),
        Delta::Reported(report) => format!("{report:?}"),
        Delta::Sync => "sync".to_owned(),
    }
}

async fn popped(fifo: &DeltaFifo<ConfigMap>, most: usize) -> Vec<String> {
    fifo.pop(limit(most)).await.unwrap().take().iter().map(told).collect()
}

// D1, D10
#[tokio::test(start_paused = true)]
async fn deltas_leave_in_order_in_batches_up_to_the_limit_and_a_replace_alone() {
    let (fifo, sink) = queue();
    sink.apply(vec![upsert("a", 1), upsert("b", 2), upsert("a", 3), delete("b", 4), upsert("c", 5)]);
    sink.replace(List::new(vec![object("a", "a", 6)], "7", Epoch::Same));
    sink.apply(vec![StoreChange::Bookmark("8".into()), StoreChange::Bookmark("9".into()), upsert("d", 10)]);
    assert_eq!(popped(&fifo, 3).await, ["~a@1", "~b@2", "~a@3"]);
    assert_eq!(popped(&fifo, 3).await, ["-b@4", "~c@5"]);
    assert_eq!(popped(&fifo, 3).await, ["=a@6 @7"]);
    assert_eq!(popped(&fifo, 3).await, ["@8", "@9", "~d@10"]);
    assert!(fifo.is_empty());
}

// D5
#[tokio::test(start_paused = true)]
async fn a_delete_of_what_only_waits_is_queued_behind_it() {
    let (fifo, sink) = queue();
    sink.apply(vec![upsert("a", 1), delete("a", 2)]);
    assert_eq!(popped(&fifo, 99).await, ["~a@1", "-a@2"]);
}

// D6
#[tokio::test(start_paused = true)]
async fn a_resync_waits_only_once_behind_what_was_queued_before_it() {
    let (fifo, sink) = queue();
    sink.apply(vec![upsert("a", 1)]);
    sink.replace(List::new(vec![], "2", Epoch::Same));
    fifo.resync();
    sink.apply(vec![upsert("b", 3)]);
    sink.resync();
    assert_eq!(fifo.len(), 4);
    assert_eq!(popped(&fifo, 9).await, ["~a@1"]);
    assert_eq!(popped(&fifo, 9).await, ["= @2"]);
    assert_eq!(popped(&fifo, 9).await, ["sync", "~b@3"]);
}

#[tokio::test(start_paused = true)]
async fn it_is_settled_once_nothing_waits_and_all_that_was_popped_is_handled() {
    let (fifo, sink) = queue();
    assert!(fifo.is_settled());
    sink.apply(vec![upsert("a", 1), upsert("b", 2)]);
    assert!(!sink.is_settled());
    let (first, second) = (fifo.pop(limit(1)).await, fifo.pop(limit(1)).await);
    drop(first);
    assert!(!sink.is_settled(), "one is being handled");
    drop(second);
    assert!(sink.is_settled());
}

// D8
#[tokio::test(start_paused = true)]
async fn it_has_synced_once_the_first_replace_of_every_extent_is_handled() {
    let fifo = DeltaFifo::<ConfigMap>::new();
    assert!(!fifo.has_synced(), "without an extent nothing can be synced");
    let shop = fifo.sink(Extent::Namespace("shop".into()), None);
    let farm = fifo.sink(Extent::Namespace("farm".into()), None);
    shop.apply(vec![upsert("early", 1)]);
    drop(fifo.pop(limit(9)).await);
    assert!(!fifo.has_synced(), "changes are not a list");

    shop.replace(List::new(vec![], "2", Epoch::Same));
    farm.replace(List::new(vec![], "3", Epoch::Same));
    drop(fifo.pop(limit(9)).await);
    assert!(!fifo.has_synced(), "one of two");
    let batch = fifo.pop(limit(9)).await;
    assert!(!fifo.has_synced(), "popped is not handled");
    drop(batch);
    assert!(fifo.has_synced());

    shop.replace(List::new(vec![], "4", Epoch::Same));
    assert!(fifo.has_synced(), "a relist takes nothing back");
}

// D8
#[tokio::test(start_paused = true)]
async fn in_any_order_of_steps_it_has_synced_once_a_replace_was_handled_and_not_before() {
    const STEPS: [&str; 5] = ["add", "delete", "replace", "resync", "pop"];
    for number in 0..STEPS.len().pow(6) {
        let (fifo, sink) = queue();
        let steps: Vec<_> = (0..6).map(|at| STEPS[number / STEPS.len().pow(at) % STEPS.len()]).collect();
        let mut replaced = false;
        for step in &steps {
            match *step {
                "add" => sink.apply(vec![upsert("a", 1)]),
                "delete" => sink.apply(vec![delete("a", 2)]),
                "replace" => sink.replace(List::new(vec![object("a", "a", 3)], "3", Epoch::Same)),
                "resync" => sink.resync(),
                _ if fifo.is_empty() => {}
                _ => {
                    let mut batch = fifo.pop(limit(2)).await.unwrap();
                    let holds = batch.take().iter().any(|(_, delta)| matches!(delta, Delta::Replaced(_)));
                    assert_eq!(fifo.has_synced(), replaced, "{steps:?}: a replace counts once it is handled");
                    replaced |= holds;
                }
            }
            assert_eq!(fifo.has_synced(), replaced, "{steps:?}");
        }
    }
}

// D9
#[tokio::test(start_paused = true)]
async fn closing_wakes_a_pop_that_waits_and_what_is_queued_still_leaves() {
    let (fifo, sink) = queue();
    let waiting = tokio::spawn({
        let fifo = fifo.clone();
        async move { fifo.pop(limit(1)).await.is_none() }
    });
    tokio::task::yield_now().await;
    fifo.close();
    let woken = tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await;
    assert!(woken.expect("it sleeps on").unwrap());

    let (fifo, sink_before) = queue();
    sink_before.apply(vec![upsert("a", 1)]);
    fifo.close();
    sink_before.apply(vec![upsert("b", 2)]);
    assert_eq!(popped(&fifo, 9).await, ["~a@1"]);
    assert!(fifo.pop(limit(9)).await.is_none());
    drop(sink);
}

// D4
#[tokio::test(start_paused = true)]
async fn a_transform_runs_once_for_each_object_and_changes_it_in_place() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let transform = Transform::new(move |object: &mut ConfigMap| {
        counted.fetch_add(1, Ordering::Relaxed);
        object.data = Some(BTreeMap::new());
    });
    let fifo = DeltaFifo::new();
    let sink = fifo.sink(Extent::All, Some(transform));
    let item = object("a", "a", 1);
    let FetchedItem::Object(unchanged) = &item else { panic!("an object") };
    let address = Arc::as_ptr(unchanged);
    sink.apply(vec![StoreChange::Upsert(item)]);
    sink.replace(List::new(vec![object("b", "b", 2), object("c", "c", 2)], "2", Epoch::Same));
    sink.resync();
    let entries = fifo.pop(limit(9)).await.unwrap().take();
    let [(_, Delta::Upserted(FetchedItem::Object(changed)))] = &entries[..] else { panic!("an object") };
    assert!(changed.data.is_some());
    assert_eq!(Arc::as_ptr(changed), address, "changed in place, not copied");
    drop((fifo.pop(limit(9)).await, fifo.pop(limit(9)).await));
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

// D11 D16
#[tokio::test(start_paused = true)]
async fn an_item_that_a_transform_breaks_leaves_as_unreadable_and_the_rest_goes_on() {
    let transform = Transform::new(|object: &mut ConfigMap| match object.metadata.name.as_deref() {
        Some("fails") => Err("no such luck"),
        Some("panics") => panic!("a planted panic"),
        Some("renames") => {
            object.metadata.name = Some("other".to_owned());
            Ok(())
        }
        Some("forgets") => {
            object.metadata.resource_version = None;
            Ok(())
        }
        _ => Ok(()),
    });
    let fifo = DeltaFifo::new();
    let sink = fifo.sink(Extent::All, Some(transform));
    sink.apply(vec![
        upsert("fails", 1),
        upsert("panics", 2),
        upsert("renames", 3),
        upsert("forgets", 4),
        upsert("fine", 5),
    ]);
    let mut errors = Vec::new();
    for (_, delta) in fifo.pop(limit(9)).await.unwrap().take() {
        match delta {
            Delta::Upserted(FetchedItem::Unreadable(unreadable)) => {
                let Unreadable { identity: Identity { key, .. }, error } = *unreadable;
                errors.push(format!("{}: {error}", key.unwrap()));
            }
            Delta::Upserted(item) => errors.push(named(&item)),
            _ => panic!("only upserts were queued"),
        }
    }
    assert_eq!(
        errors,
        [
            "shop/fails: the transform failed: no such luck",
            "shop/panics: the transform failed: it panicked",
            "shop/renames: the transform changed the object's name, namespace, UID or resource version",
            "shop/forgets: the transform changed the object's name, namespace, UID or resource version",
            "fine@5",
        ]
    );
}

// D5, D13
#[tokio::test(start_paused = true)]
async fn a_delete_does_not_collapse_across_a_list() {
    let (fifo, sink) = queue();
    sink.apply(vec![StoreChange::Delete(object("a", "a", 1))]);
    sink.replace(List::new(vec![object("a", "a", 1)], "1", Epoch::New));
    sink.apply(vec![StoreChange::Delete(object("a", "a", 2))]);
    assert_eq!(popped(&fifo, 99).await, ["-a@1"]);
    assert_eq!(popped(&fifo, 99).await, ["=a@1 @1"]);
    assert_eq!(popped(&fifo, 99).await, ["-a@2"]);
}

// D14
#[tokio::test(start_paused = true)]
async fn producers_never_wait_for_the_consumer() {
    let (fifo, sink) = queue();
    // A plain function: it can't wait. Nobody pops meanwhile.
    (0..10_000).for_each(|version| sink.apply(vec![upsert("a", version)]));
    assert_eq!(fifo.len(), 10_000);
}

#[test]
fn bytes_that_are_transformed_are_decoded_and_a_failure_shows_no_content() {
    let transform = Transform::new(|_: &mut ConfigMap| {});
    let raw = |json: &'static str| FetchedItem::Raw(RawObject::new(json).unwrap().into());
    let good = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    assert!(matches!(transform.apply(raw(good)), FetchedItem::Raw(_)));
    let bad = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":"hunter2"}"#;
    let FetchedItem::Unreadable(bad) = transform.apply(raw(bad)) else { panic!("it was decoded") };
    assert!(bad.error.starts_with("data: ") && !bad.error.contains("hunter2"), "{}", bad.error);
    assert_eq!(bad.identity.key, Some(ObjectKey::cluster("a")));
}

// I18
#[test]
fn a_transform_of_bytes_gives_bytes() {
    let transform = Transform::new(|object: &mut ConfigMap| object.data = None);
    let json = r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#;
    let FetchedItem::Raw(raw) = transform.apply(FetchedItem::Raw(RawObject::new(json).unwrap().into()))
    else {
        panic!("it came as bytes")
    };
    assert_eq!((raw.key.name(), raw.decode::<ConfigMap>().unwrap().data), ("a", None));
}

//! Lists that repeat what is cached: unchanged objects are recognised while they arrive.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;

use super::testing::{Fed, Item1, Log, broken, item, item_with, key, settle};
use crate::{
    delta_fifo::{Extent, Transform},
    object::ObjectKey,
    reflector::{Epoch, List},
};

/// Lists as a reflector does: what the store holds is dropped at once. Returns the keys of that.
fn relist(fed: &Fed, items: Vec<Item1>, version: &str, epoch: Epoch) -> Vec<String> {
    let sink = fed.source(0);
    let mut list = List::new(Vec::new(), version, epoch);
    for item in items {
        match sink.unchanged(&item) {
            Some(key) => list.unchanged.push(key),
            None => list.items.push(item),
        }
    }
    let held = list.unchanged.iter().map(|key| key.name().to_owned()).collect();
    sink.replace(list);
    held
}

async fn heard(fed: &Fed) -> (Log, Log, impl Sized + use<>) {
    let (observer, handler) = (Log::default(), Log::default());
    let keep = (fed.informer.observe(Arc::new(observer.clone())), fed.informer.add_handler(handler.clone()));
    settle().await;
    observer.take();
    handler.take();
    (observer, handler, keep)
}

// I8, D2
#[tokio::test(start_paused = true)]
async fn what_a_list_repeats_stays_as_it_is_and_the_rest_is_told() {
    let fed = Fed::listed(&["same@1", "changed@2", "gone@3", "new-uid:one@4"], "4").await;
    let lister = fed.informer.lister();
    let (observer, handler, _keep) = heard(&fed).await;
    let before = lister.cached(&key("same")).unwrap();
    let items = vec![item("same@1"), item("changed@5"), item("new-uid:two@4"), item("new@6")];
    assert_eq!(relist(&fed, items, "7", Epoch::Same), ["same"]);
    settle().await;
    assert!(before.is_same(&lister.cached(&key("same")).unwrap()));
    let told = ["+new-uid:two@4 watch", "+new@6 watch", "-gone@3 inferred", "-new-uid:one@4 inferred"];
    assert_eq!(handler.sorted()[..4], told.map(str::to_owned));
    assert!(!observer.has("=same") && observer.has("@Some(7) Replace"));
    assert_eq!(lister.len(), 4);
}

// I20
#[tokio::test(start_paused = true)]
async fn a_version_alone_repeats_nothing() {
    let fed = Fed::listed(&["a@1", "bare@"], "1").await;
    let (_, handler, _keep) = heard(&fed).await;
    let held = relist(&fed, vec![item_with("a@1", "converted"), item("bare@")], "2", Epoch::Same);
    assert_eq!(held, ["bare"]);
    settle().await;
    assert_eq!(fed.informer.lister().by_index("content", &"converted".into()).len(), 1);
    assert_eq!(handler.take(), ["~bare@>"], "an empty version may be any");
}

// I20
#[tokio::test(start_paused = true)]
async fn a_new_history_tells_even_what_it_repeats() {
    let fed = Fed::listed(&["a@5", "b@4"], "5").await;
    let (_, handler, _keep) = heard(&fed).await;
    assert_eq!(relist(&fed, vec![item("a@5"), item_with("b@4", "other")], "4", Epoch::New), ["a"]);
    settle().await;
    assert_eq!(handler.sorted(), ["~a@5>5", "~b@4>4"]);
    assert_eq!(fed.informer.lister().by_index("content", &"other".into()).len(), 1);
}

// D2, D7
#[tokio::test(start_paused = true)]
async fn nothing_is_recognised_while_changes_wait() {
    let fed = Fed::listed(&["a@1", "b@1"], "1").await;
    let (_, handler, _keep) = heard(&fed).await;
    // The list shows the past, and is followed: its state must not be lost with what waits.
    fed.upsert("a@2");
    assert!(relist(&fed, vec![item("a@1"), item("b@1")], "3", Epoch::Same).is_empty());
    settle().await;
    assert_eq!(handler.take(), ["~a@1>1"]);
    assert_eq!(relist(&fed, vec![item("a@1"), item("b@1")], "4", Epoch::Same), ["a", "b"]);
}

// R20
#[tokio::test(start_paused = true)]
async fn what_is_marked_is_read_again() {
    let fed = Fed::listed(&["outdated@1", "fine@2"], "2").await;
    let (_, handler, _keep) = heard(&fed).await;
    fed.upsert_with(broken("outdated@1"));
    fed.upsert_with(broken("never@3"));
    settle().await;
    let items = || vec![item("outdated@1"), item("fine@2"), broken("never@3")];
    assert_eq!(relist(&fed, items(), "4", Epoch::Same), ["fine"]);
    settle().await;
    assert_eq!(handler.take(), ["~outdated@1>1"]);
    assert_eq!(fed.informer.sync_state().unreadable.len(), 1);
    assert_eq!(relist(&fed, items(), "5", Epoch::Same), ["outdated", "fine"]);
}

// D4, R20
#[tokio::test(start_paused = true)]
async fn what_was_transformed_is_recognised_and_not_transformed_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let transform = Transform::new(move |object: &mut ConfigMap| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        object.data = None;
        let twice = object.metadata.labels.get_or_insert_default().insert("seen".to_owned(), String::new());
        match (twice, object.metadata.name.as_deref()) {
            (Some(_), _) => Err("transformed twice"),
            (None, Some("moody")) if run < 4 => Err("not in the mood"),
            _ => Ok(()),
        }
    });
    let fed = Fed::of(&[Extent::All], Some(transform));
    fed.informer.start();
    settle().await;
    let items = || vec![item_with("a@1", "left out"), item("moody@2")];
    for (held, ran) in [(&[][..], 2), (&["a"], 4), (&["a"], 6), (&["a", "moody"], 8)] {
        assert_eq!(relist(&fed, items(), "2", Epoch::Same), held);
        settle().await;
        assert_eq!(runs.load(Ordering::Relaxed), ran, "once for each object that came");
    }
    let lister = fed.informer.lister();
    assert!(lister.get(&key("a")).unwrap().data.is_none() && lister.unreadable().is_empty());
}

// D12
#[tokio::test(start_paused = true)]
async fn a_key_is_recognised_in_its_own_extent() {
    let extents = ["shop", "farm"].map(|name| Extent::Namespace(name.into()));
    let fed = Fed::of(&extents, None);
    fed.informer.start();
    settle().await;
    fed.source(0).replace(List::new(vec![item("shop/a@1")], "1", Epoch::Same));
    fed.source(1).replace(List::new(vec![item("farm/a@1")], "1", Epoch::Same));
    settle().await;
    assert_eq!(fed.source(1).unchanged(&item("farm/a@1")), Some(ObjectKey::new("farm", "a")));
    let unchanged = vec![ObjectKey::new("farm", "a")];
    fed.source(1).replace(List { unchanged, ..List::new(vec![item("farm/b@2")], "2", Epoch::Same) });
    settle().await;
    assert_eq!(fed.informer.lister().len(), 3);
}

// D6, D7, I8, I9
#[tokio::test(start_paused = true)]
async fn a_resync_behind_a_list_shows_what_the_list_did_not_change() {
    let fed = Fed::listed(&["same@1", "changed@1", "gone@1"], "1").await;
    let (observer, handler, _keep) = heard(&fed).await;
    let items = vec![item("same@1"), item("changed@2"), item("new@2")];
    relist(&fed, items, "2", Epoch::Same);
    fed.source(0).resync();
    settle().await;
    let told = ["+new@2 watch", "-gone@1 inferred", "~changed@1>2", "~same@1>1"];
    assert_eq!(handler.sorted(), told);
    assert_eq!(observer.take().iter().filter(|line| line.starts_with('=')).count(), 1);
}

// D6, I9
#[tokio::test(start_paused = true)]
async fn changes_come_between_the_slices_of_a_resync() {
    let names: Vec<String> = (0..2_000).map(|n| format!("o{n:04}@1")).collect();
    let fed = Fed::listed(&names.iter().map(String::as_str).collect::<Vec<_>>(), "1").await;
    let (observer, handler, _keep) = heard(&fed).await;
    fed.source(0).resync();
    // Lets the resync begin, and no more.
    while !observer.has("=") {
        tokio::task::yield_now().await;
    }
    fed.upsert("o0000@2");
    fed.delete("o0001@3");
    fed.upsert("new@4");
    settle().await;
    let seen = observer.take();
    let changed = seen.iter().position(|line| line == "+new@4 watch Watch").unwrap();
    assert!(changed < 1_200, "it was seen after {changed} others");
    assert!(seen[changed..].iter().filter(|line| line.starts_with('=')).count() > 800);
    let heard = handler.take();
    let changed = heard.iter().position(|line| line == "+new@4 watch").unwrap();
    assert!(changed < 1_990, "it was heard after {changed} others");
    for lines in [&seen[..], &heard] {
        let gone = lines.iter().position(|line| line.starts_with("-o0001")).unwrap();
        assert!(!lines[gone + 1..].iter().any(|line| line.contains("o0001")), "shown after its end");
        let once = lines.iter().filter(|line| line.contains("o1234@1")).count();
        assert_eq!(once, 1);
    }
    fed.source(0).resync();
    settle().await;
    let again = observer.take().iter().filter(|line| line.starts_with('=')).count();
    assert_eq!((again, handler.len()), (2_000, 2_000));
}

// I9
#[tokio::test(start_paused = true)]
async fn a_handler_that_is_slower_than_its_resyncs_is_shown_one_after_the_other() {
    let fed = Fed::listed(&["a@1", "b@1"], "1").await;
    let (_, handler, _keep) = heard(&fed).await;
    (0..3).for_each(|_| {
        fed.source(0).resync();
        fed.source(0).resync();
    });
    settle().await;
    assert_eq!(handler.len(), 2, "resyncs that wait are one");
    fed.source(0).resync();
    settle().await;
    assert_eq!(handler.len(), 4);
}

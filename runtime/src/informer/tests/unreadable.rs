//! Compact informers: what is decoded when, and what becomes of objects that do not decode.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;

use super::testing::{Fed, Item1, Log, item, key, object, settle, show};
use crate::{
    list_watch::{FetchedItem, RawObject},
    store::{Indexer, Lookup},
};

/// An object whose metadata reads well, and whose data does not decode.
fn undecodable(text: &str) -> Item1 {
    let raw = RawObject::of(&*object(text, "hunter2")).unwrap();
    let json = raw.text.json().replace(r#"{"content":"hunter2"}"#, r#""hunter2""#);
    FetchedItem::Raw(RawObject::new(json).unwrap().into())
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_unreadable_once_somebody_reads_it() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let lister = fed.informer.lister();
    let observer = Log::default();
    let _registration = fed.informer.observe(Arc::new(observer.clone()));
    settle().await;
    observer.take();
    fed.upsert_with(undecodable("a@2"));
    settle().await;
    // An index decodes it, so it is known at once; observers need no more than its names.
    assert_eq!(observer.take(), ["~a@1>a@2 Watch", "@Some(2) Watch"]);
    assert!(lister.get(&key("a")).is_none() && lister.list().is_empty());
    assert!(lister.namespace("shop").get("a").is_none());
    let Lookup::Unreadable(unreadable) = lister.lookup(&key("a")) else { panic!("it can't be read") };
    assert_eq!(unreadable.error, "data: invalid type: string, expected a map");
    assert_eq!(unreadable.identity.key, Some(key("a")));
    assert_eq!((lister.len(), lister.unreadable().len(), lister.unreadable_or_outdated().len()), (1, 1, 1));
    assert_eq!(fed.informer.sync_state().unreadable.len(), 1);

    fed.upsert("a@3");
    settle().await;
    assert_eq!(show(&*lister.get(&key("a")).unwrap()), "a@3");
    assert!(lister.unreadable().is_empty() && fed.informer.sync_state().unreadable.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_handler_hears_of_the_next_state_that_decodes_as_an_add_and_of_the_deletion() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let log = Log::default();
    let registration = fed.informer.add_handler(log.clone());
    settle().await;
    for change in [undecodable("a@2"), item("a@3"), undecodable("a@4")] {
        fed.upsert_with(change);
        settle().await;
    }
    fed.delete_with(undecodable("a@5"));
    settle().await;
    assert_eq!(log.take(), ["+a@1 initial list", "+a@3 watch", "-a undecoded"]);
    assert_eq!(registration.panics(), 0);
}

// I20
#[tokio::test(start_paused = true)]
async fn a_list_that_repeats_a_state_keeps_what_is_known_of_it_and_one_that_mends_it_is_news() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let lister = fed.informer.lister();
    fed.upsert_with(undecodable("b@2"));
    settle().await;
    let first = lister.get(&key("a")).unwrap();
    let log = Log::default();
    let _registration = fed.informer.observe(Arc::new(log.clone()));
    settle().await;
    log.take();
    fed.replace_with(vec![item("a@1"), undecodable("b@2")], "3");
    settle().await;
    assert!(Arc::ptr_eq(&first, &lister.get(&key("a")).unwrap()));
    assert_eq!(lister.unreadable().len(), 1, "nobody had to read it again");
    assert_eq!(log.take(), ["@Some(3) Replace"]);
    fed.replace(&["a@1", "b@2"], "4");
    settle().await;
    assert_eq!(log.take(), ["~b@2>b@2 Replace", "@Some(4) Replace"]);
    assert!(lister.get(&key("b")).is_some() && lister.unreadable().is_empty());
}

// R42
#[tokio::test(start_paused = true)]
async fn somebody_hears_once_of_each_state_that_does_not_decode() {
    let indexer = Indexer::<ConfigMap>::new();
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    indexer.report_unreadable(move |unreadable| {
        assert!(!unreadable.error.contains("hunter2"));
        count.fetch_add(1, Ordering::Relaxed);
    });
    let put = |item| {
        let FetchedItem::Raw(raw) = item else { panic!("bytes are tested") };
        drop(indexer.upsert_raw(*raw));
    };
    put(undecodable("a@1"));
    assert_eq!(told.load(Ordering::Relaxed), 0, "nobody has read it");
    (0..3).for_each(|_| assert!(indexer.lister().get(&key("a")).is_none()));
    assert_eq!(told.load(Ordering::Relaxed), 1);
    put(undecodable("a@2"));
    assert!(indexer.lister().list().is_empty());
    assert_eq!(told.load(Ordering::Relaxed), 2);
}

// I3
#[tokio::test(start_paused = true)]
async fn what_somebody_holds_is_handed_out_again_and_else_decoded_anew() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let lister = fed.informer.lister();
    let first = lister.get(&key("a")).unwrap();
    assert!(Arc::ptr_eq(&first, &lister.list()[0]));
    assert!(Arc::ptr_eq(&first, &lister.namespace("shop").get("a").unwrap()));
    fed.upsert("a@2");
    settle().await;
    let second = lister.get(&key("a")).unwrap();
    assert_eq!((show(&*first), show(&*second)), ("a@1".to_owned(), "a@2".to_owned()));
}

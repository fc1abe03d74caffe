//! What asks for runs, and which runs wait for their caches.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;

use super::{super::unsynced::MOST_UNSYNCED, *};
use crate::{
    clock::Moment,
    reflector::Server,
    workqueue::{ItemExponentialFailure, RateLimit, WorkQueue},
};

/// A table whose caches have not synced, fed twice by the source `PODS`.
fn unsynced(namespaces: &[&str]) -> Arc<Keys> {
    let queue = WorkQueue::new(ItemExponentialFailure::default());
    let gate = Gate::new(Server::default(), Vec::new());
    let limit = StormLimit::new(RateLimit::per_second(1).burst(10));
    let namespaces = namespaces.iter().map(|namespace| Arc::from(*namespace));
    Keys::new(queue, gate, namespaces, vec![PODS], limit, Counter::default())
}

fn nth(namespace: &str, at: usize) -> ObjectKey {
    ObjectKey::new(namespace, format!("o-{at}"))
}

async fn next(keys: &Keys) -> (String, Reason) {
    let item = keys.queue.get().await.unwrap();
    let mut table = keys.table();
    let (reason, _) = table.begin(item.key(), item.attempt()).unwrap();
    table.end(item.key());
    let name = item.key().to_string();
    item.forget();
    (name, reason)
}

// C33 C38
#[tokio::test(start_paused = true)]
async fn keys_wait_for_their_own_caches_in_order_and_those_that_are_gone_are_forgotten() {
    let keys = unsynced(&["a", "b"]);
    for (namespace, at) in [("b", 1), ("a", 1), ("", 1), ("a", 2), ("a", 3)] {
        keys.table().add(nth(namespace, at), Reason::Changed);
    }
    (0..2).for_each(|_| keys.table().add(nth("a", 9), Reason::InitialList));
    assert!(keys.table().forget_unsynced(&nth("a", 2)));
    assert_eq!((keys.queue.len(), keys.table().asked(&nth("a", 1))), (0, Some(Reason::Changed)));
    keys.table().open(None, Vec::new);
    assert_eq!(next(&keys).await.0, "o-1");
    assert!(keys.queue.is_empty());
    keys.table().open(Some(&"a".into()), Vec::new);
    assert!(!keys.table().forget_unsynced(&nth("a", 1)), "its caches have synced");
    let mut ran = Vec::new();
    for _ in 0..3 {
        ran.push(next(&keys).await);
    }
    let changed = |name: &str| (name.to_owned(), Reason::Changed);
    assert_eq!(ran, [changed("a/o-1"), changed("a/o-3"), ("a/o-9".to_owned(), Reason::InitialList)]);
    keys.table().sweep(Instant::now(), |_| true);
    keys.table().open(Some(&"b".into()), Vec::new);
    assert!(keys.queue.is_empty(), "it was swept");
    assert_eq!(keys.table().remembered(), 0);
}

// C38
#[tokio::test(start_paused = true)]
async fn a_bounded_number_of_keys_waits_by_name_and_past_that_all_that_is_cached_runs() {
    let keys = unsynced(&[]);
    (0..=MOST_UNSYNCED + 1).for_each(|at| keys.table().add(nth("a", at), Reason::Source));
    assert_eq!(keys.table().remembered(), 0);
    keys.table().open(None, || vec![nth("a", 7), nth("a", 8)]);
    assert_eq!((next(&keys).await.0, next(&keys).await.0), ("a/o-7".to_owned(), "a/o-8".to_owned()));
    assert!(keys.queue.is_empty());
}

// C51
#[tokio::test(start_paused = true)]
async fn an_event_reaches_a_key_once_and_after_a_list_its_version_is_another_event() {
    let keys = unsynced(&[]);
    keys.table().open(None, Vec::new);
    let reaches = |source, version, name| {
        let (mut table, key) = (keys.table(), key(name));
        table.take(key.clone(), Some((source, Version(version))), Reason::Changed);
        let is_asked = table.asked(&key).is_some();
        table.begin(&key, 1);
        table.end(&key);
        is_asked
    };
    assert_eq!(
        [reaches(SITES, 7, "a"), reaches(SITES, 7, "a")],
        [true, true],
        "it feeds the controller once"
    );
    assert_eq!([reaches(PODS, 7, "a"), reaches(PODS, 7, "a")], [true, false]);
    assert_eq!([reaches(PODS, 7, "b"), reaches(PODS, 7, "b")], [true, false]);
    let progressed = |via| {
        let progress = Progress { version: None, via };
        keys.table().progressed(PODS, progress, &FakeCaches::default(), Instant::now());
    };
    progressed(ProgressVia::Watch);
    assert!(!reaches(PODS, 7, "a"), "the watch goes on");
    for via in [ProgressVia::Replace, ProgressVia::NewEpoch] {
        progressed(via);
        assert_eq!([reaches(PODS, 7, "a"), reaches(PODS, 7, "a")], [true, false], "{via:?}");
    }
    assert!(reaches(PODS, 8, "a"), "another event");
}

// R63
#[test]
fn a_success_after_failures_says_how_many_there_were_once() {
    let (keys, a) = (Keys::alone(), key("a"));
    let error = |attempt| LastError { error: "no".to_owned(), at: Moment::now(), attempt };
    assert_eq!(keys.table().succeeded(&a), None);
    (1..=13).for_each(|attempt| keys.table().failed(&a, error(attempt)));
    assert_eq!(keys.table().succeeded(&a), Some(13));
    assert_eq!(keys.table().succeeded(&a), None);
    assert_eq!(keys.table().remembered(), 0);
}

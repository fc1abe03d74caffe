//! What lists and events change, and what observers and handlers hear of it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::Instant;

use super::testing::{Fed, Log, broken, item, item_with, key, nameless, settle, show};
use crate::{
    delta_fifo::Extent,
    informer::{CacheChange, Observer, SyncPhase},
    object::Version,
    reflector::{Epoch, List, StoreChange},
    store::Lookup,
};

/// Looks on with an observer and a handler that have heard what there was.
struct Eyes {
    observer: Log,
    handler: Log,
    _registrations: (crate::informer::ObserverRegistration, crate::informer::Registration),
}

impl Eyes {
    async fn on(fed: &Fed) -> Self {
        let (observer, handler) = (Log::default(), Log::default());
        let registrations =
            (fed.informer.observe(Arc::new(observer.clone())), fed.informer.add_handler(handler.clone()));
        settle().await;
        observer.take();
        handler.take();
        Self { observer, handler, _registrations: registrations }
    }
}

fn names(fed: &Fed) -> BTreeSet<String> {
    fed.informer.lister().list().iter().map(|object| show(&**object)).collect()
}

// D2, D3, I8
#[tokio::test(start_paused = true)]
async fn a_relist_tells_changes_and_one_tombstone_for_each_missing_object() {
    let fed = Fed::listed(&["same@1", "changed@2", "gone@3"], "3").await;
    let eyes = Eyes::on(&fed).await;
    // Known only to the queue when the list comes: it is missing all the same.
    fed.upsert("queued@4");
    fed.upsert("gone@5");
    fed.replace(&["same@1", "changed@6", "new@7"], "8");
    settle().await;
    let replaced = eyes.observer.take();
    assert_eq!(
        replaced[..3],
        ["+queued@4 watch Watch", "~gone@3>gone@5 Watch", "@Some(5) Watch"].map(str::to_owned)
    );
    let mut rest = replaced[3..].to_vec();
    assert_eq!(rest.pop().unwrap(), "@Some(8) Replace");
    rest.sort();
    assert_eq!(
        rest,
        [
            "+new@7 watch Replace",
            "-gone@5 inferred None Replace",
            "-queued@4 inferred None Replace",
            "~changed@2>changed@6 Replace"
        ]
    );
    // Nobody hears of what the list only confirms; what came and went before it looked is its delete.
    let heard = eyes.handler.sorted();
    assert_eq!(heard.iter().filter(|line| line.starts_with('-')).count(), 2);
    assert!(!heard.iter().any(|line| line.contains("same")), "{heard:?}");
    assert_eq!(names(&fed), ["changed@6", "new@7", "same@1"].map(str::to_owned).into());
}

// D5, D13
#[tokio::test(start_paused = true)]
async fn a_delete_is_told_also_of_what_was_never_cached_but_not_twice() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let eyes = Eyes::on(&fed).await;
    fed.upsert("b@2");
    fed.delete("b@3");
    fed.delete("never@4");
    fed.delete("a@5");
    settle().await;
    fed.delete("a@5");
    settle().await;
    assert_eq!(eyes.handler.take(), ["-b@3 final", "-never@4 final", "-a@5 final"]);
    assert!(names(&fed).is_empty());
}

// D7, D6
#[tokio::test(start_paused = true)]
async fn a_pending_update_suppresses_a_resync() {
    let fed = Fed::listed(&["a@1", "b@2"], "2").await;
    let eyes = Eyes::on(&fed).await;
    fed.upsert("a@3");
    fed.source(0).resync();
    settle().await;
    assert_eq!(eyes.handler.take(), ["~a@1>3", "~b@2>2"]);
    assert_eq!(eyes.observer.take(), ["~a@1>a@3 Watch", "@Some(3) Watch", "=b@2"]);
}

// D12
#[tokio::test(start_paused = true)]
async fn one_name_with_another_uid_is_a_delete_and_then_an_add() {
    let fed = Fed::listed(&["a:one@1", "b:one@2"], "2").await;
    let eyes = Eyes::on(&fed).await;
    fed.replace(&["a:two@4", "b:one@2"], "5");
    fed.upsert("b:two@6");
    settle().await;
    let heard = ["-a:one@1 inferred", "+a:two@4 watch", "-b:one@2 inferred", "+b:two@6 watch"];
    assert_eq!(eyes.handler.take(), heard);
    // The deletion of a predecessor, told late, hurts nobody.
    fed.source(0).apply(vec![StoreChange::Delete(item("b:one@3"))]);
    settle().await;
    assert!(eyes.handler.take().is_empty());
    assert_eq!(names(&fed), ["a:two@4", "b:two@6"].map(str::to_owned).into());
}

// D12, D8
#[tokio::test(start_paused = true)]
async fn one_namespaces_list_infers_nothing_about_another() {
    let extents = ["shop", "farm"].map(|name| Extent::Namespace(name.into()));
    let fed = Fed::of(&extents, None);
    let log = Log::default();
    let _registration = fed.informer.add_handler(log.clone());
    fed.informer.start();
    fed.source(0).replace(List::new(vec![item("shop/a@1")], "1", Epoch::Same));
    settle().await;
    assert!(!fed.informer.has_synced(), "farm is missing");
    fed.source(0).apply(vec![StoreChange::Upsert(item("shop/b@2"))]);
    fed.source(1).replace(List::new(vec![item("farm/a@3")], "3", Epoch::Same));
    settle().await;
    assert!(fed.informer.has_synced());
    let first = ["+a@1 initial list", "+b@2 initial list", "+a@3 initial list"];
    assert_eq!(log.take(), first);
    assert_eq!(fed.informer.lister().resource_version(), Some(Version(2)), "the lower of both");
    fed.source(1).replace(List::new(vec![], "4", Epoch::Same));
    settle().await;
    assert_eq!(log.take(), ["-a@3 inferred"]);
    assert_eq!(fed.informer.lister().len(), 2);
}

// S9
#[tokio::test(start_paused = true)]
async fn the_version_follows_every_event_and_bookmark_and_falls_only_with_a_new_epoch() {
    let fed = Fed::listed(&["a@1"], "5").await;
    let (lister, eyes) = (fed.informer.lister(), Eyes::on(&fed).await);
    let version = || lister.resource_version().map(|version| version.0);
    assert_eq!(version(), Some(5));
    fed.upsert("a@7");
    settle().await;
    assert_eq!(version(), Some(7));
    fed.delete("a@9");
    settle().await;
    assert_eq!(version(), Some(9));
    fed.bookmark("12");
    settle().await;
    fed.upsert_with(broken("b@14"));
    fed.bookmark("13");
    settle().await;
    assert_eq!(version(), Some(14));
    eyes.observer.take();
    fed.source(0).replace(List::new(vec![item("a@3")], "4", Epoch::New));
    settle().await;
    assert_eq!(version(), Some(4));
    let seen = eyes.observer.take();
    assert_eq!(seen.last().unwrap(), "@Some(4) NewEpoch");
    fed.upsert("a@6");
    settle().await;
    assert_eq!(show(&*lister.get(&key("a")).unwrap()), "a@6");
}

// I20
#[tokio::test(start_paused = true)]
async fn a_server_that_lost_its_history_may_mean_another_state_by_the_same_version() {
    let fed = Fed::listed(&["a@5"], "5").await;
    let eyes = Eyes::on(&fed).await;
    let other = || vec![item_with("a@5", "other")];
    fed.source(0).replace(List::new(other(), "5", Epoch::Same));
    settle().await;
    assert!(eyes.handler.take().is_empty(), "the same version is not a change");
    fed.source(0).replace(List::new(other(), "5", Epoch::New));
    settle().await;
    assert_eq!(eyes.handler.take(), ["~a@5>5"]);
    assert_eq!(eyes.observer.take().iter().filter(|line| line.starts_with('~')).count(), 1);
}

// R14 S9
#[tokio::test(start_paused = true)]
async fn an_event_that_is_older_than_what_is_cached_is_skipped() {
    let fed = Fed::listed(&["a@5"], "5").await;
    let eyes = Eyes::on(&fed).await;
    fed.upsert("a@4");
    fed.upsert("a@5");
    fed.upsert("a@6");
    settle().await;
    assert_eq!(eyes.handler.take(), ["~a@5>6"]);
    assert_eq!(eyes.observer.take(), ["=a@5", "~a@5>a@6 Watch", "@Some(6) Watch"]);
}

// I25
#[tokio::test(start_paused = true)]
async fn a_change_of_a_lower_version_is_reported_and_listed_anew_at_most_once_a_minute() {
    let fed = Fed::listed(&["a@5", "b@5"], "5").await;
    let heard = Log::default();
    let log = heard.clone();
    fed.informer.on_watch_error(move |error| log.push(error.to_string()));
    let sink = fed.source(0);
    assert_eq!(sink.wants_list().now_or_never(), None);
    fed.upsert("a@4");
    fed.upsert("b@3");
    settle().await;
    let skipped = heard.take();
    assert!(skipped.len() == 1 && skipped[0].contains("shop/a at version 4"), "{skipped:?}");
    assert_eq!(sink.wants_list().now_or_never(), Some(()), "nothing else would ever correct the cache");
    fed.upsert("a@4");
    settle().await;
    assert_eq!(heard.take().len(), 1);
    assert_eq!(sink.wants_list().now_or_never(), None, "it has just listed");
    let begun = Instant::now();
    sink.wants_list().await;
    assert!((58..=60).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    // The deletion of an earlier object of that name says nothing about this one.
    fed.delete("b:other@2");
    settle().await;
    assert!(heard.take()[0].contains("shop/b at version 2"));
}

// I25
#[tokio::test(start_paused = true)]
async fn what_a_list_of_several_versions_was_ahead_of_is_skipped_in_silence() {
    let fed = Fed::listed(&["a@5", "b@8"], "5").await;
    let heard = Log::default();
    let log = heard.clone();
    fed.informer.on_watch_error(move |error| log.push(error.to_string()));
    fed.upsert("b@7");
    fed.upsert("b@8");
    settle().await;
    assert_eq!((heard.len(), fed.source(0).wants_list().now_or_never()), (0, None));
}

// D13
#[tokio::test(start_paused = true)]
async fn a_deletion_that_a_list_was_ahead_of_takes_nothing_away() {
    let fed = Fed::listed(&["a@5", "b:two@8"], "5").await;
    let eyes = Log::default();
    let _keep = fed.informer.add_handler(eyes.clone());
    settle().await;
    eyes.take();
    fed.delete("b:one@6");
    settle().await;
    assert_eq!(eyes.take(), [""; 0]);
    fed.delete("b:two@9");
    settle().await;
    assert_eq!(eyes.take(), ["-b:two@9 final"]);
}

// D15
#[tokio::test(start_paused = true)]
async fn of_objects_that_can_t_be_read_the_first_ten_are_logged_and_later_ones_now_and_then() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let news = Log::default();
    let log = news.clone();
    fed.informer.on_watch_error(move |error| log.push(format!("{:?}", error.news)));
    for version in 2..102 {
        fed.upsert_with(broken(&format!("a@{version}")));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    settle().await;
    let logged = news.take().into_iter().filter(|news| news == "Begins").count();
    assert!((11..=13).contains(&logged), "{logged} of 100");
}

// D15
#[tokio::test(start_paused = true)]
async fn a_list_that_names_an_object_twice_leaves_everybody_with_what_it_named_last() {
    let fed = Fed::new();
    let eyes = Log::default();
    let _keep = fed.informer.add_handler(eyes.clone());
    fed.informer.start();
    fed.replace(&["a@1", "b:one@1", "a@2", "b:two@2", "c@1"], "2");
    settle().await;
    assert_eq!(
        eyes.take(),
        ["+a@2 initial list", "-b:one@1 inferred", "+b:two@2 initial list", "+c@1 initial list"]
    );
    fed.replace(&["a@2", "b:two@2", "c@1", "d@3", "d@4"], "4");
    settle().await;
    assert_eq!(eyes.take(), ["+d@4 watch"]);
    assert_eq!(fed.informer.lister().get(&key("d")).map(|object| show(&*object)), Some("d@4".to_owned()));
}

// I20, I8
#[tokio::test(start_paused = true)]
async fn other_content_at_the_same_version_reaches_readers_and_an_empty_version_is_a_change() {
    let fed = Fed::listed(&["a@1", "bare@"], "1").await;
    let eyes = Eyes::on(&fed).await;
    fed.replace_with(vec![item_with("a@1", "converted"), item("bare@")], "2");
    settle().await;
    assert_eq!(fed.informer.lister().by_index("content", &"converted".into()).len(), 1);
    assert_eq!(eyes.handler.take(), ["~bare@>"]);
}

// I8, I9
#[tokio::test(start_paused = true)]
async fn a_relist_shows_unchanged_objects_once_to_a_handler_whose_resync_is_due() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let (due, other) = (Log::default(), Log::default());
    let told = due.clone();
    let on_update = move |_: Arc<ConfigMap>, new: Arc<ConfigMap>| told.push(show(&*new));
    let period = Duration::from_secs(10);
    let _due = fed.informer.handler().on_update(on_update).resync_every(period).register();
    let _other = fed.informer.add_handler(other.clone());
    settle().await;
    other.take();
    fed.replace(&["a@1"], "2");
    settle().await;
    assert!(due.take().is_empty() && other.take().is_empty(), "nothing changed, nothing is due");
    // The list is queued when the period ends: it replaces the resync.
    fed.replace(&["a@1"], "3");
    tokio::time::advance(period).await;
    settle().await;
    assert_eq!((due.take(), other.len()), (vec!["a@1".to_owned()], 0));
    tokio::time::sleep(period).await;
    assert_eq!((due.take(), other.len()), (vec!["a@1".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_state_keeps_the_earlier_one_marked_until_one_decodes() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let (lister, eyes) = (fed.informer.lister(), Eyes::on(&fed).await);
    fed.upsert_with(broken("a@2"));
    fed.upsert_with(broken("new@3"));
    fed.upsert_with(broken("new@3"));
    settle().await;
    assert!(matches!(lister.lookup(&key("a")), Lookup::Outdated { .. }));
    assert!(matches!(lister.lookup(&key("new")), Lookup::Unreadable(_)));
    assert!(lister.contains(&key("new")) && !lister.contains(&key("nobody")));
    assert!(eyes.handler.take().is_empty());
    let seen = [r#"?a kept Some("a@1") Watch"#, "?new kept None Watch", "@Some(3) Watch"];
    assert_eq!(eyes.observer.take(), seen);
    assert_eq!(fed.informer.sync_state().unreadable.len(), 2);

    // A list with the same unreadable state is neither a deletion nor a change.
    fed.replace_with(vec![broken("a@2"), broken("new@3")], "4");
    settle().await;
    assert_eq!(eyes.observer.take(), ["@Some(4) Replace"]);
    fed.upsert("a@5");
    fed.upsert("new@6");
    settle().await;
    assert_eq!(eyes.handler.take(), ["~a@1>5", "+new@6 watch"]);
    assert!(fed.informer.sync_state().unreadable.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_successor_ends_the_earlier_object_and_its_deletion_is_told() {
    let fed = Fed::listed(&["a:one@1", "b@1"], "1").await;
    let eyes = Eyes::on(&fed).await;
    fed.upsert_with(broken("a:two@2"));
    settle().await;
    assert_eq!(eyes.handler.take(), ["-a:one@1 inferred"]);
    fed.delete_with(broken("a:two@3"));
    fed.delete_with(broken("b@4"));
    settle().await;
    assert_eq!(eyes.handler.take(), ["-a undecoded", "-b@1 inferred"]);
    // One that was listed unreadable, and then is missing.
    fed.replace_with(vec![broken("c@5")], "5");
    fed.replace(&[], "6");
    settle().await;
    assert_eq!(eyes.handler.take(), ["-c undecoded"]);
    assert!(matches!(fed.informer.lister().lookup(&key("c")), Lookup::Absent));
}

// D11
#[tokio::test(start_paused = true)]
async fn a_list_that_holds_an_item_without_a_name_infers_no_deletion() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let eyes = Eyes::on(&fed).await;
    fed.replace_with(vec![nameless(), item("b@2")], "3");
    settle().await;
    assert_eq!(eyes.handler.take(), ["+b@2 watch"]);
    let state = fed.informer.sync_state();
    assert_eq!((state.phase, state.unreadable.len(), fed.informer.lister().len()), (SyncPhase::Synced, 1, 2));
    fed.replace(&["b@2"], "4");
    settle().await;
    assert_eq!(eyes.handler.take(), ["-a@1 inferred"]);
    assert!(fed.informer.sync_state().unreadable.is_empty());
}

// I4
#[tokio::test(start_paused = true)]
async fn an_observer_that_comes_late_is_shown_the_cache_then_every_change() {
    let fed = Fed::listed(&["a@1"], "1").await;
    fed.upsert_with(broken("bad@2"));
    settle().await;
    let log = Log::default();
    let registration = fed.informer.observe(Arc::new(log.clone()));
    fed.upsert("b@3");
    registration.synced().await.unwrap();
    settle().await;
    let replay = ["+a@1 initial list Replay", "?bad kept None Replay", "@Some(2) Replace"];
    let heard = log.take();
    assert_eq!(heard[..3], replay.map(str::to_owned));
    assert_eq!(heard[3..], ["+b@3 watch Watch".to_owned(), "@Some(3) Watch".to_owned()]);
    drop(registration);
    fed.upsert("b@4");
    settle().await;
    assert!(log.take().is_empty());
}

// I10, I21
#[tokio::test(start_paused = true)]
async fn an_observer_sees_every_middle_state_and_its_panics_are_contained() {
    struct Fragile(Log);
    impl Observer for Fragile {
        fn changed(&self, change: &CacheChange) {
            Observer::changed(&self.0, change);
            panic!("a planted panic");
        }
    }
    let fed = Fed::listed(&[], "1").await;
    let log = Log::default();
    let _registration = fed.informer.observe(Arc::new(Fragile(log.clone())));
    (2..6).for_each(|version| fed.upsert(&format!("a@{version}")));
    settle().await;
    let middle = ["+a@2 watch Watch", "~a@2>a@3 Watch", "~a@3>a@4 Watch", "~a@4>a@5 Watch"];
    assert_eq!(log.take(), middle);
    assert_eq!(fed.informer.observer_panics(), 4);
}

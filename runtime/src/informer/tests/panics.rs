//! Code that panics where an informer fetches and applies: told, counted, and started again.

use std::{
    collections::VecDeque,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::testing::{Fed, Log, item, settle, unasked};
use crate::{
    backoff::BackoffSchedule,
    delta_fifo::Extent,
    informer::{
        External, FailureCause, SharedInformer, SyncPhase, Watched,
        change::CacheChange,
        core::InformerParts,
        handler::{EventHandler, Observer},
        reflector_task::ReflectorTask,
    },
    list_watch::{
        FetchedItem, ListOptions, ListPage, ListWatchError, ListerWatcher, WatchEvent, WatchStream,
    },
    metrics::Metrics,
    object::ObjectKey,
    reflector::{FetchPart, FirstList, ReflectorConfig},
};

/// What a source does when it is asked.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Answers,
    Panics,
    /// The stream opens, and panics when it is read.
    PanicsInside,
    Fails,
}

use Act::{Answers, Fails, Panics, PanicsInside};

/// Lists one object, more of them each time; watches tell of another, then stay open.
struct Shaky {
    lists: Mutex<VecDeque<Act>>,
    watches: Mutex<VecDeque<Act>>,
    listed: AtomicU32,
}

impl Shaky {
    fn informer(
        lists: &[Act],
        watches: &[Act],
        change: impl FnOnce(&mut ReflectorConfig),
    ) -> (SharedInformer<ConfigMap>, Metrics) {
        let metrics = Metrics::new();
        let mut config = ReflectorConfig {
            first_list: FirstList::Paged,
            seed: Some(1),
            metrics: Some(metrics.clone()),
            ..ReflectorConfig::default()
        };
        change(&mut config);
        let queue = |acts: &[Act]| Mutex::new(acts.iter().copied().collect());
        let source = Self { lists: queue(lists), watches: queue(watches), listed: AtomicU32::new(0) };
        (SharedInformer::from_source(&(), source, config), metrics)
    }
}

impl ListerWatcher<ConfigMap> for Shaky {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<ConfigMap>, ListWatchError> {
        let act = self.lists.lock().unwrap().pop_front().unwrap_or(Answers);
        match act {
            Panics | PanicsInside => panic!("a planted panic"),
            Fails => return Err(ListWatchError::CutShort),
            Answers => {}
        }
        let listed = self.listed.fetch_add(1, Ordering::Relaxed);
        let items = (0..=listed).map(|n| item(&format!("a{n}@5"))).collect();
        Ok(ListPage { items, resource_version: "5".to_owned(), continue_token: None })
    }

    async fn watch(&self, _: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        let act = self.watches.lock().unwrap().pop_front().unwrap_or(Answers);
        match act {
            Panics => panic!("a planted panic"),
            Fails => Err(ListWatchError::CutShort),
            PanicsInside => Ok(stream::poll_fn(|_| panic!("a planted panic")).boxed()),
            Answers => {
                let told = stream::iter([Ok(WatchEvent::Added(item("b@6")))]);
                Ok(told.chain(stream::once(pending())).boxed())
            }
        }
    }
}

fn panics_counted(metrics: &Metrics) -> String {
    let text = metrics.encode();
    let line = text.lines().find(|line| line.contains(r#"cause="panicked""#));
    line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0").to_owned()
}

// R47
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_source_is_told_and_counted_and_fetching_starts_again() {
    for (lists, watches, part) in [
        (&[Panics, Panics][..], &[][..], FetchPart::List),
        (&[], &[Panics, Panics], FetchPart::Watch),
        (&[], &[PanicsInside, PanicsInside], FetchPart::Watch),
    ] {
        let (informer, metrics) = Shaky::informer(lists, watches, |_| {});
        let heard = Log::default();
        let log = heard.clone();
        informer.on_watch_error(move |error| log.push(format!("#{} {} {error}", error.attempts, error.part)));
        informer.start();
        settle().await;
        let state = informer.sync_state();
        let failure = state.failure.expect("it shows at once");
        assert_eq!((failure.cause, failure.part, failure.attempts), (FailureCause::Panicked, part, 1));
        assert_eq!(panics_counted(&metrics), "1");
        sleep(Duration::from_secs(30)).await;
        let lines = heard.take();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[1].starts_with(&format!(
                "#2 {part} configmaps can't be read: the code that fetches it panicked"
            ))
        );
        assert_eq!(panics_counted(&metrics), "2");
        let state = informer.sync_state();
        assert!(state.failure.is_none() && state.phase == SyncPhase::Synced, "{state}");
        assert!(informer.lister().list().iter().any(|object| object.metadata.name.as_deref() == Some("b")));
        informer.shutdown().await;
    }
}

// R47
#[tokio::test(start_paused = true)]
async fn a_backoff_schedule_that_panics_does_not_stop_the_retries() {
    let (informer, metrics) = Shaky::informer(&[Fails, Fails, Fails], &[Fails], |config| {
        config.backoff = BackoffSchedule::custom(|_| panic!("a planted panic"));
    });
    informer.start();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(panics_counted(&metrics), "4");
    let state = informer.sync_state();
    assert!(state.failure.is_none() && state.is_synced(), "{state}");
    informer.shutdown().await;
}

// R47
#[tokio::test(start_paused = true)]
async fn an_informer_that_lost_a_task_does_not_say_that_it_is_synced() {
    let feed = ReflectorTask {
        server: Default::default(),
        source: unasked(),
        extent: Extent::All,
        run: Box::new(|sink, _| {
            Box::pin(async move {
                let items = vec![item("a@1")];
                let list = crate::reflector::List::new(items, "1", crate::reflector::Epoch::Same);
                sink.replace(list);
                sleep(Duration::from_secs(1)).await;
                panic!("a planted panic");
            })
        }),
    };
    let informer = SharedInformer::<ConfigMap>::of_parts(InformerParts {
        feeds: vec![feed],
        ..InformerParts::new::<ConfigMap>(ConfigMap::kind_of(&()), &ReflectorConfig::default())
    });
    let registration = informer.add_handler(Log::default());
    informer.start();
    informer.wait_for_sync(Duration::from_secs(1)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let state = informer.sync_state();
    assert!(!informer.has_synced() && state.phase == SyncPhase::Stopped, "{state}");
    assert_eq!(state.failure.map(|failure| failure.cause), Some(FailureCause::Panicked));
    registration.remove().await;
    informer.shutdown().await;
}

/// Panics when it is dropped, if it is to.
struct Unruly(bool);

impl Drop for Unruly {
    fn drop(&mut self) {
        assert!(!self.0 || std::thread::panicking(), "a planted panic");
    }
}

impl EventHandler<ConfigMap> for Unruly {}

impl Observer for Unruly {
    fn changed(&self, _: &CacheChange) {}
}

/// Panics when it is dropped, if its name says so.
#[derive(Clone, Debug, kube::Resource, Serialize, Deserialize)]
#[resource(inherit = ConfigMap)]
struct Brittle {
    metadata: ObjectMeta,
}

impl Drop for Brittle {
    fn drop(&mut self) {
        let breaks = self.metadata.name.as_deref() == Some("brittle") && !std::thread::panicking();
        assert!(!breaks, "a planted panic");
    }
}

/// Lists a brittle object, then shows a change of it, and another one.
struct Glass;

fn brittle(name: &str, version: &str) -> FetchedItem<Brittle> {
    let (name, resource_version) = (Some(name.to_owned()), Some(version.to_owned()));
    let metadata = ObjectMeta { name, resource_version, uid: Some("u".to_owned()), ..ObjectMeta::default() };
    FetchedItem::Object(Arc::new(Brittle { metadata }))
}

impl ListerWatcher<Brittle> for Glass {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<Brittle>, ListWatchError> {
        let items = vec![brittle("brittle", "5")];
        Ok(ListPage { items, resource_version: "5".to_owned(), continue_token: None })
    }

    async fn watch(&self, _: &ListOptions) -> Result<WatchStream<Brittle>, ListWatchError> {
        let told = [brittle("brittle", "6"), brittle("fine", "7")];
        let told = stream::iter(told.map(|item| Ok(WatchEvent::Modified(item))));
        Ok(told.chain(stream::once(pending())).boxed())
    }
}

// I29
#[tokio::test(start_paused = true)]
async fn an_informer_goes_on_past_an_object_that_panics_as_its_next_state_replaces_it() {
    let config = ReflectorConfig { first_list: FirstList::Paged, ..ReflectorConfig::default() };
    let informer = SharedInformer::<External<Brittle>>::from_source(&(), Glass, config);
    informer.start();
    settle().await;
    assert!(informer.has_synced() && informer.lister().get(&ObjectKey::cluster("fine")).is_some());
    informer.shutdown().await;
    // What it still holds would panic here.
    std::mem::forget(informer);
}

// I10
#[tokio::test(start_paused = true)]
async fn whoever_panics_when_dropped_takes_no_task_along() {
    let fed = Fed::listed(&["a@1"], "1").await;
    let log = Log::default();
    let staying = fed.informer.add_handler(log.clone());
    let observer = fed.informer.observe(Arc::new(Unruly(true)));
    let handler = fed.informer.add_handler(Unruly(true));
    let unborn = fed.informer.add_handler(Unruly(true));
    drop(unborn);
    settle().await;
    drop(observer);
    handler.remove().await;
    settle().await;
    fed.upsert("a@2");
    settle().await;
    assert_eq!(log.take(), ["+a@1 initial list", "~a@1>2"]);
    assert!(fed.informer.has_synced());
    drop(staying);
    fed.informer.shutdown().await;
}

//! What goes wrong while fetching: who hears of it, what the sync state shows, what is counted, what is logged.

use std::{
    collections::VecDeque,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::Status;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, sleep};

use super::{
    factory::{Answer, Server, served, status},
    testing::{broken, cached, item, nameless, settle},
};
use crate::{
    backoff::BackoffSchedule,
    informer::{
        AddOrigin, CacheChange, FailureCause, SharedInformer, SharedInformerFactory, SyncPhase, Via,
        listener::Listener, registration::HandlerSlot,
    },
    list_watch::{
        FetchedItem, ListOptions, ListPage, ListWatchError, ListerWatcher, RawObject, WatchEvent, WatchStream,
    },
    metrics::Metrics,
    reflector::{FetchPart, FirstList, ReflectorConfig, WatchError},
};

type Events = Vec<Result<WatchEvent<ConfigMap>, ListWatchError>>;

/// Answers from two queues; the last watch stays open in silence.
#[derive(Default)]
struct Script {
    lists: Mutex<VecDeque<Result<&'static str, ListWatchError>>>,
    watches: Mutex<VecDeque<Result<Events, ListWatchError>>>,
}

impl ListerWatcher<ConfigMap> for Script {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<ConfigMap>, ListWatchError> {
        let next = self.lists.lock().unwrap().pop_front();
        let Some(answer) = next else { return pending().await };
        let items = answer?.split_whitespace().map(item).collect();
        Ok(ListPage { items, resource_version: "5".to_owned(), continue_token: None })
    }

    async fn watch(&self, _: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        let next = self.watches.lock().unwrap().pop_front();
        let Some(answer) = next else { return Ok(stream::pending().boxed()) };
        Ok(stream::iter(answer?).boxed())
    }
}

fn informer(
    lists: impl IntoIterator<Item = Result<&'static str, ListWatchError>>,
    watches: impl IntoIterator<Item = Result<Events, ListWatchError>>,
    config: ReflectorConfig,
) -> SharedInformer<ConfigMap> {
    let script = Script {
        lists: Mutex::new(lists.into_iter().collect()),
        watches: Mutex::new(watches.into_iter().collect()),
    };
    let config = ReflectorConfig { first_list: FirstList::Paged, seed: Some(1), ..config };
    SharedInformer::from_source(&(), script, config)
}

fn answer(code: u16) -> ListWatchError {
    ListWatchError::from_status(Status::failure("so it is", "").with_code(code))
}

fn in_stream(code: u16) -> Result<WatchEvent<ConfigMap>, ListWatchError> {
    Ok(WatchEvent::Error(Box::new(Status::failure("so it is", "").with_code(code))))
}

/// Writes down what a handler hears: attempts, and the error.
#[derive(Clone, Default)]
struct Accepted(Arc<Mutex<Vec<String>>>);

impl Accepted {
    fn handler(&self) -> impl Fn(&WatchError) + Send + Sync + 'static {
        let heard = self.0.clone();
        move |error| {
            heard.lock().unwrap().push(format!("#{} {}: {}", error.attempts, error.name, error.error))
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

// R30
#[tokio::test(start_paused = true)]
async fn a_failing_kind_shows_its_last_error_since_when_and_how_often() {
    let refused = ListWatchError::Connection("connection refused".into());
    let informer = informer(
        [Err(answer(500)), Err(answer(500)), Err(refused), Ok("a@1")],
        [Ok(vec![in_stream(500)])],
        ReflectorConfig::default(),
    );
    let begun = Instant::now();
    informer.start();
    let mut shown = Vec::new();
    while !informer.has_synced() {
        settle().await;
        if let Some(failure) = informer.sync_state().failure.filter(|_| !informer.has_synced()) {
            assert_eq!(failure.since.instant(), begun, "of one outage, the first failure counts");
            let retry_in = failure.retry_at.instant() - begun;
            assert!(retry_in > Duration::ZERO && retry_in < Duration::from_secs(30), "{retry_in:?}");
            let line = (failure.attempts, failure.cause, failure.message);
            if shown.last() != Some(&line) {
                shown.push(line);
            }
        }
    }
    let server = (FailureCause::Other, "the server answered 500: so it is".to_owned());
    let reach = (FailureCause::Unreachable, "the connection failed: connection refused".to_owned());
    let expected = [(1, server.clone()), (2, server.clone()), (3, reach)];
    assert_eq!(shown, expected.map(|(attempts, (cause, message))| (attempts, cause, message)));

    // What breaks in a stream shows as well, until the next one has lived.
    settle().await;
    let failure = informer.sync_state().failure.expect("the stream failed");
    assert_eq!((failure.attempts, failure.cause, failure.since.instant() > begun), (1, server.0, true));
    let shown = informer.sync_state().to_string();
    assert!(shown.starts_with("configmaps is synced: the watch fails, for "), "{shown}");
    sleep(Duration::from_secs(15)).await;
    assert!(informer.sync_state().failure.is_none());
    informer.shutdown().await;
}

// R51
#[tokio::test(start_paused = true)]
async fn a_forbidden_watch_shows_since_when_and_how_often_although_lists_succeed() {
    let (lists, watches) = ((0..100).map(|_| Ok("a@1")), (0..100).map(|_| Err(answer(403))));
    let informer = informer(lists, watches, ReflectorConfig::default());
    let begun = Instant::now();
    informer.start();
    sleep(Duration::from_secs(600)).await;
    let state = informer.sync_state();
    let failure = state.failure.clone().expect("the watch is forbidden");
    assert!(state.is_synced() && state.is_forbidden());
    assert_eq!((failure.since.instant(), failure.part), (begun, FetchPart::Watch));
    assert!(failure.attempts > 10, "{state}");
    informer.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_says_never_is_taken_at_its_word() {
    let config =
        ReflectorConfig { backoff: BackoffSchedule::custom(|_| Duration::MAX), ..ReflectorConfig::default() };
    let informer = informer([Err(answer(500))], [], config);
    let registration = informer.handler().resync_every(Duration::MAX).register();
    informer.start();
    sleep(Duration::from_secs(86_400)).await;
    let state = informer.sync_state();
    assert_eq!(state.failure.as_ref().map(|failure| failure.attempts), Some(1), "{state}");
    assert_eq!((state.phase, informer.observer_panics()), (SyncPhase::Syncing, 0));
    drop(registration);
    informer.shutdown().await;
}

// R30
#[tokio::test(start_paused = true)]
async fn what_is_skipped_hides_no_failure() {
    let skipped = || Ok(WatchEvent::Unexpected("an event of an unknown type".to_owned()));
    let informer = informer([Ok("a@1")], [Err(answer(429)), Ok(vec![skipped()])], ReflectorConfig::default());
    let (looks, shown) = (informer.clone(), Arc::new(Mutex::new(Vec::new())));
    let told = shown.clone();
    informer.on_watch_error(move |error| {
        if error.error.to_string().contains("unknown type") {
            told.lock().unwrap().extend(looks.sync_state().failure.map(|failure| failure.message));
        }
    });
    informer.start();
    sleep(Duration::from_secs(20)).await;
    let shown = shown.lock().unwrap();
    assert!(shown.iter().any(|failure| failure.contains("429")), "{shown:?}");
}

// R31
#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_is_named_at_once_and_recovers_when_it_is_allowed() {
    let allowed = Arc::new(AtomicBool::new(false));
    let (server, may) = (Server::default(), allowed.clone());
    let client = served(move |uri| match uri.contains("/secrets") {
        false => server.answer(uri),
        true if !may.load(Ordering::Relaxed) => status(403, "Forbidden", "secrets is forbidden"),
        true => Answer::whole(r#"{"kind":"SecretList","metadata":{"resourceVersion":"5"},"items":[]}"#),
    });
    let config = ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() };
    let factory = SharedInformerFactory::with_config(client, config);
    let healthy = factory.informer::<ConfigMap>().build();
    let forbidden = factory.informer::<Secret>().page_size(500).build();
    factory.start();
    settle().await;
    assert!(healthy.has_synced() && !healthy.sync_state().is_forbidden());
    let state = forbidden.sync_state();
    assert!(state.is_forbidden() && !state.is_synced());
    let named: Vec<_> = factory.sync_states().into_iter().filter(|state| state.is_forbidden()).collect();
    assert_eq!(named.iter().map(|state| state.kind.to_string()).collect::<Vec<_>>(), ["secrets"]);
    let lag = factory.wait_for_sync(Duration::from_secs(1)).await.unwrap_err();
    assert!(lag.laggards[0].is_forbidden(), "{lag}");
    assert!(
        lag.to_string().contains("secrets has not listed yet: permission to list it is missing, for "),
        "{lag}"
    );

    allowed.store(true, Ordering::Relaxed);
    factory.wait_for_sync(Duration::from_secs(120)).await.unwrap();
    assert!(!forbidden.sync_state().is_forbidden());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn every_failure_reaches_the_handlers_in_stream_ones_too_and_their_panics_are_contained() {
    let (first, second) = (Accepted::default(), Accepted::default());
    let handler = first.handler();
    let on_error = Arc::new(move |error: &WatchError| {
        handler(error);
        panic!("a planted panic");
    });
    let odd = Ok(WatchEvent::Unexpected("an event of an unknown type".to_owned()));
    let informer = informer(
        [Err(answer(403)), Ok("a@1"), Ok("a@1")],
        [Ok(vec![odd, in_stream(429)]), Err(answer(410))],
        ReflectorConfig { on_error, ..ReflectorConfig::default() },
    );
    informer.on_watch_error(second.handler());
    informer.start();
    sleep(Duration::from_secs(20)).await;
    let heard = first.take();
    assert_eq!(
        heard,
        [
            "#1 configmaps: the server answered 403: so it is",
            "#1 configmaps: skipped an event of an unknown type",
            "#1 configmaps: the server answered 429: so it is",
            "#2 configmaps: the server answered 410: so it is",
        ]
    );
    assert_eq!(second.take(), heard);
    assert!(informer.sync_state().failure.is_none());
    informer.shutdown().await;
}

// R30, R33
#[tokio::test(start_paused = true)]
async fn an_object_that_can_not_be_read_reaches_the_handlers_once_in_either_form() {
    let heard = Accepted::default();
    let compact = r#"{"metadata":{"namespace":"shop","name":"b","resourceVersion":"7"},"data":"hunter2"}"#;
    let events = vec![
        Ok(WatchEvent::Modified(broken("a@6"))),
        Ok(WatchEvent::Modified(broken("a@6"))),
        Ok(WatchEvent::Added(FetchedItem::Raw(RawObject::new(compact).unwrap().into()))),
        Ok(WatchEvent::Modified(nameless())),
    ];
    let on_error = Arc::new(heard.handler());
    let config = ReflectorConfig { on_error, ..ReflectorConfig::default() };
    let informer = informer([Ok("a@1 b@1")], [Ok(events)], config);
    informer.start();
    settle().await;
    assert_eq!(informer.lister().list().len(), 1, "somebody reads them");
    let heard = heard.take();
    for unreadable in [
        "skipped shop/a, which can't be read: data: not a map",
        "skipped shop/b, which can't be read: data: invalid type: string, expected a map",
        "skipped an object without a name that can't be read: no JSON",
    ] {
        let told = heard.iter().filter(|told| told.contains(unreadable)).count();
        assert_eq!(told, 1, "{unreadable}: {heard:?}");
    }
    assert_eq!(informer.sync_state().unreadable.len(), 3);
    informer.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn handlers_of_factory_and_builder_hear_and_leave_the_question_as_it_is() {
    let (all, one, two) = (Accepted::default(), Accepted::default(), Accepted::default());
    let config = ReflectorConfig { on_error: Arc::new(all.handler()), ..ReflectorConfig::default() };
    let factory = Server::default().factory_with(config);
    let first = factory.informer::<Secret>().on_watch_error(one.handler()).build();
    let second = factory.informer::<Secret>().on_watch_error(two.handler()).build();
    assert!(Arc::ptr_eq(first.handle(), second.handle()));
    factory.start();
    settle().await;
    let heard = all.take();
    assert!(heard[0].starts_with("#1 secrets: the server answered 403"), "{heard:?}");
    assert_eq!((one.take(), two.take()), (heard.clone(), heard));
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn lists_watches_and_failures_are_counted_under_the_names_of_client_go() {
    let metrics = Metrics::new();
    let informer = informer(
        [Err(answer(403)), Ok("a@1 b@2")],
        [
            Ok(vec![
                Ok(WatchEvent::Modified(item("a@6"))),
                Ok(WatchEvent::Added(item("c@7"))),
                in_stream(429),
            ]),
            Ok(vec![]),
        ],
        ReflectorConfig { metrics: Some(metrics.clone()), ..ReflectorConfig::default() },
    );
    informer.start();
    sleep(Duration::from_secs(20)).await;
    let text = metrics.encode();
    for line in [
        r#"reflector_lists_total{name="configmaps"} 2"#,
        r#"reflector_list_duration_seconds_count{name="configmaps"} 1"#,
        r#"reflector_items_per_list_sum{name="configmaps"} 2.0"#,
        r#"reflector_watches_total{name="configmaps"} 3"#,
        r#"reflector_short_watches_total{name="configmaps"} 1"#,
        r#"reflector_watch_duration_seconds_count{name="configmaps"} 2"#,
        r#"reflector_items_per_watch_sum{name="configmaps"} 3.0"#,
        r#"reflector_last_resource_version{name="configmaps"} 7"#,
        r#"watchkeeper_reflector_failures_total{name="configmaps",cause="forbidden"} 1"#,
        r#"watchkeeper_reflector_failures_total{name="configmaps",cause="overloaded"} 1"#,
        r#"informer_queued_items{name="configmaps",group="",version="v1",resource="configmaps"} 0"#,
        r#"informer_store_resource_version{name="configmaps",group="",version="v1",resource="configmaps"} 7"#,
        r#"watchkeeper_informer_objects{name="configmaps",group="",version="v1",resource="configmaps"} 3"#,
        r#"watchkeeper_informer_unreadable_objects{name="configmaps",group="",version="v1",resource="configmaps"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
    }
    informer.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn depth_and_age_of_what_waits_for_handlers_are_metrics() {
    let metrics = Metrics::new();
    let config = ReflectorConfig { metrics: Some(metrics.clone()), ..ReflectorConfig::default() };
    let informer = informer([Ok("a@1 b@2 c@3")], [], config);
    let quick = informer.handler().register();
    informer.start();
    informer.wait_for_sync(Duration::from_secs(1)).await.unwrap();
    settle().await;
    let shows = |line: String| {
        let text = metrics.encode();
        assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
    };
    let series = |name: &str, value: &str| {
        shows(format!(r#"watchkeeper_informer_{name}{{name="configmaps"}} {value}"#));
    };
    series("handlers", "1.0");
    series("handler_backlog", "0.0");
    // One that has not had its turn yet: nobody runs between this and the scrape.
    let slow = Arc::new(Listener::new(None, Counter::default(), "ConfigMap"));
    let slot: Arc<dyn HandlerSlot> = slow.clone();
    informer.handle().core.note_handler(&slot);
    let added = |text| CacheChange::Added { object: cached(text), origin: AddOrigin::Watch, via: Via::Watch };
    slow.notify(&["a@1", "b@2"].map(added), false, Instant::now());
    sleep(Duration::from_secs(7)).await;
    series("handlers", "2.0");
    series("handler_backlog", "2.0");
    series("handler_backlog_age_seconds", "7.0");
    drop((slow, slot));
    series("handler_backlog", "0.0");
    drop(quick);
    informer.shutdown().await;
}

// R46
#[tokio::test(start_paused = true)]
async fn a_body_that_hangs_is_given_up_at_its_deadline_and_asked_for_again() {
    let server = Server::default();
    let lists = Mutex::new(0);
    let client = served(move |uri| {
        let mut lists = lists.lock().unwrap();
        *lists += usize::from(!uri.contains("watch="));
        match *lists {
            1 => Answer::hanging(r#"{"kind":"ConfigMapList","items":["#),
            _ => server.answer(uri),
        }
    });
    let heard = Accepted::default();
    let factory = SharedInformerFactory::new(client);
    let informer = factory.informer::<ConfigMap>().page_size(500).on_watch_error(heard.handler()).build();
    let begun = Instant::now();
    factory.start();
    factory.wait_for_sync(Duration::from_secs(60)).await.unwrap();
    assert_eq!(heard.take(), ["#1 configmaps: no answer within 30s"]);
    assert!((30..33).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(informer.lister().len(), 1);
    factory.shutdown().await;
}

//! The factory, over a client whose server is a function.

use std::{
    convert::Infallible,
    future::ready,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, client::Body};
use tokio::runtime::Handle;

use super::testing::{Log, by_content, item, key, settle, show};
use crate::{
    informer::{
        Assembly, Dynamic, EventHandler, FailureCause, Metadata, NameRefused, SharedInformer,
        SharedInformerFactory, SyncPhase, Watched,
    },
    list_watch::{ListOptions, ListPage, ListWatchError, ListerWatcher, WatchEvent, WatchStream},
    object::{Kind, Scope},
    reflector::{FirstList, ReflectorConfig, WatchError},
};

const SOON: Duration = Duration::from_secs(5);

/// A server with one ConfigMap a namespace; it forbids Secrets.
#[derive(Clone, Default)]
pub(super) struct Server {
    requests: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
}

impl Server {
    fn factory(&self) -> SharedInformerFactory {
        self.factory_with(ReflectorConfig::default())
    }

    pub(super) fn factory_with(&self, config: ReflectorConfig) -> SharedInformerFactory {
        let server = self.clone();
        SharedInformerFactory::with_config(served(move |uri| server.answer(uri)), config)
    }

    pub(super) fn answer(&self, uri: &str) -> Response<Answer> {
        self.requests.lock().unwrap().push(uri.to_owned());
        if uri.contains("/secrets") {
            return status(403, "Forbidden", "secrets is forbidden: may not list");
        }
        let namespace =
            uri.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or("shop");
        let meta = format!(r#"{{"name":"a","namespace":"{namespace}","uid":"u","resourceVersion":"3"}}"#);
        let object = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{meta}}}"#);
        if !uri.contains("watch=true") && !uri.contains("watch=1") {
            let list = format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"5"}},"items":[{object}]}}"#
            );
            return Response::new(Answer { bytes: Some(list.into()), open: None });
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let end = r#"{"k8s.io/initial-events-end":"true"}"#;
        let mark = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"5","annotations":{end}}}}}"#
        );
        let events = [
            format!(r#"{{"type":"ADDED","object":{object}}}"#),
            format!(r#"{{"type":"BOOKMARK","object":{mark}}}"#),
        ];
        let streaming = uri.contains("sendInitialEvents=true");
        let bytes = streaming.then(|| Bytes::from(events.join("\n") + "\n"));
        Response::new(Answer { bytes, open: Some(self.open.clone()) })
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn open_watches(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// A client whose server is a function of the URI.
pub(super) fn served(answer: impl Fn(&str) -> Response<Answer> + Send + 'static) -> Client {
    let answer = move |request: Request<Body>| ready(Ok::<_, Infallible>(answer(&request.uri().to_string())));
    Client::new(tower::service_fn(answer), "default")
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> Response<Answer> {
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"reason":"{reason}","message":"{message}"}}"#
    );
    let answer = Answer { bytes: Some(body.into()), open: None };
    Response::builder().status(code).header("content-type", "application/json").body(answer).unwrap()
}

/// A body: some bytes, then the end, or silence for as long as it is held.
pub(super) struct Answer {
    bytes: Option<Bytes>,
    open: Option<Arc<AtomicUsize>>,
}

impl Answer {
    /// The beginning of an answer; the rest never comes.
    pub(super) fn hanging(text: impl Into<Bytes>) -> Response<Self> {
        Response::new(Self { bytes: Some(text.into()), open: Some(Arc::default()) })
    }

    /// A whole answer.
    pub(super) fn whole(text: impl Into<Bytes>) -> Response<Self> {
        Response::new(Self { bytes: Some(text.into()), open: None })
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))),
            None if self.open.is_some() => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

// I14
#[tokio::test(start_paused = true)]
async fn one_question_is_one_list_and_one_watch_for_any_number_of_users() {
    let server = Server::default();
    let factory = server.factory();
    let lister = factory.informer::<ConfigMap>().lister();
    let log = Log::default();
    let handlers: Vec<_> =
        (0..20).map(|_| factory.informer::<ConfigMap>().add_handler(log.clone())).collect();
    let selected = |selector| factory.informer::<ConfigMap>().label_selector(selector).unwrap().lister();
    let _selected = (selected("a=1,b in (x)"), selected(" b=x , a==1"));
    assert!(lister.list().is_empty(), "before the start it reads as empty");
    factory.start();
    factory.wait_for_sync(SOON).await.unwrap();
    for registration in &handlers {
        registration.synced().await.unwrap();
    }
    assert_eq!((lister.len(), log.len()), (1, 20));
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert_eq!(requests.iter().filter(|uri| uri.contains("labelSelector")).count(), 1);
    factory.shutdown().await;
}

// I22
#[tokio::test(start_paused = true)]
async fn questions_that_differ_in_anything_are_not_shared() {
    let factory = Server::default().factory();
    let ask = || factory.informer::<ConfigMap>();
    let dynamic = |version: &'static str| {
        Dynamic::new(Kind {
            group: "".into(),
            version: version.into(),
            kind: "ConfigMap".into(),
            plural: "configmaps".into(),
            scope: Scope::Namespaced,
        })
    };
    let of = |informer: &SharedInformer<ConfigMap>| Arc::as_ptr(&informer.handle().core) as usize;
    let built = [
        ask().build(),
        ask().namespace("a").build(),
        ask().namespace("b").build(),
        ask().namespace("a").namespace("b").build(),
        ask().largest_object(10).build(),
        ask().label_selector("a").unwrap().build(),
        ask().field_selector("metadata.name=a").unwrap().build(),
        ask().any_version().build(),
        ask().page_size(10).build(),
        ask().keep_managed_fields().build(),
        ask().compact().build(),
        ask().transform(|_| ()).build(),
        ask().transform(|_| ()).build(),
        ask().named_transform("nothing", unchanged).unwrap().build(),
        ask().options_hook(|_| ()).build(),
        ask().named_options_hook("hook", |_| ()).unwrap().build(),
    ];
    let mut different: Vec<_> = built.iter().map(of).collect();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), built.len());

    for everywhere in
        [ask().namespace(""), ask().namespace("a").namespace(""), ask().namespace("").namespace("a")]
    {
        assert_eq!(of(&everywhere.build()), of(&built[0]), "an empty namespace means all");
    }
    let again = ask().namespace("b").namespace("a").namespace("b").build();
    assert_eq!(of(&again), of(&built[3]));
    let named = ask().named_transform("nothing", unchanged).unwrap().build();
    assert_eq!(of(&named), of(&built[13]));
    let refused = ask().named_transform("nothing", |_: &mut ConfigMap| ()).unwrap_err();
    assert_eq!(refused, NameRefused::Taken("nothing".to_owned()));

    let metadata = factory.informer::<Metadata<ConfigMap>>().build();
    let (one, two) = (factory.informer_of(dynamic("v1")).build(), factory.informer_of(dynamic("v2")).build());
    let same = factory.informer_of(dynamic("v1")).build();
    assert!(Arc::ptr_eq(one.handle(), same.handle()) && !Arc::ptr_eq(one.handle(), two.handle()));
    assert_eq!(metadata.kind(), built[0].kind());
    assert_eq!(factory.sync_states().len(), built.len() + 3);
}

fn unchanged(_: &mut ConfigMap) {}

// I22
#[tokio::test]
async fn a_function_that_captures_has_no_name() {
    let factory = Server::default().factory();
    let ask = || factory.informer::<ConfigMap>();
    // They have one type, and yet differ: a request for the second must not get the first.
    let capturing = |uid: &'static str| {
        move |map: &mut ConfigMap| map.metadata.labels = Some([("by".to_owned(), uid.to_owned())].into())
    };
    let limit = |most: u32| move |options: &mut ListOptions| options.limit = Some(most);
    let captures = NameRefused::Captures("labelled".to_owned());
    assert_eq!(ask().named_transform("labelled", capturing("a")).unwrap_err(), captures);
    assert_eq!(ask().named_options_hook("labelled", limit(5)).unwrap_err(), captures);
    let pointer: fn(&mut ConfigMap) = unchanged;
    assert_eq!(ask().named_transform("labelled", pointer).unwrap_err(), captures);
    assert!(ask().named_transform("labelled", unchanged).is_ok());
}

// I16
#[tokio::test(start_paused = true)]
async fn after_one_sharers_shutdown_whoever_asks_anew_gets_one_that_lives() {
    let server = Server::default();
    let factory = server.factory();
    let (one, other) = (factory.informer::<ConfigMap>().build(), factory.informer::<ConfigMap>().build());
    factory.start();
    factory.wait_for_sync(SOON).await.unwrap();
    one.shutdown().await;
    assert_eq!(other.sync_state().phase, SyncPhase::Stopped, "it was one informer");
    let anew = factory.informer::<ConfigMap>().build();
    factory.start();
    factory.wait_for_sync(SOON).await.unwrap();
    assert!(anew.has_synced() && anew.lister().len() == 1 && server.open_watches() == 1);
    let shared = factory.informer::<ConfigMap>().build();
    assert!(Arc::ptr_eq(anew.handle(), shared.handle()));
    factory.shutdown().await;
    assert_eq!((factory.tasks(), server.open_watches()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_watch_errors_goes_with_the_last_of_what_was_built_with_it() {
    let factory = Server::default().factory();
    let shared = factory.informer::<Secret>().build();
    let heard = Log::default();
    let handler = || {
        let heard = heard.clone();
        move |_: &WatchError| heard.push("failed".to_owned())
    };
    for _ in 0..1_000 {
        drop(factory.informer::<Secret>().on_watch_error(handler()).build());
    }
    let lister = factory.informer::<Secret>().on_watch_error(handler()).lister();
    let registration = factory.informer::<Secret>().on_watch_error(handler()).add_handler(Quiet);
    assert_eq!(shared.handle().core.health.handlers(), 2);
    factory.start();
    settle().await;
    assert_eq!(heard.take().len(), 2, "what is held hears");
    drop((lister, registration));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(heard.take().is_empty());
    factory.shutdown().await;
}

struct Quiet;

impl EventHandler<Secret> for Quiet {}

// I15
#[tokio::test(start_paused = true)]
async fn waiting_for_sync_names_who_lags_why_since_when_and_what_to_do() {
    let server = Server::default();
    let factory = server.factory();
    let (healthy, forbidden) =
        (factory.informer::<ConfigMap>().build(), factory.informer::<Secret>().build());
    factory.start();
    let late = factory.informer::<ConfigMap>().namespace("late").build();
    let error = factory.wait_for_sync(SOON).await.unwrap_err();
    assert_eq!(error.waited, SOON);
    let text = error.to_string();
    for part in [
        "secrets has not listed yet",
        "permission to list it is missing",
        "may not list",
        "in a Role or ClusterRole",
        "was never started",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    assert_eq!(error.laggards.len(), 2, "the healthy one is not named");
    assert!(healthy.has_synced() && !late.has_synced());
    let failure = forbidden.sync_state().failure.unwrap();
    assert_eq!(failure.cause, FailureCause::Forbidden);
    assert!(failure.attempts >= 2 && failure.since.elapsed() >= Duration::from_secs(4));
    assert_eq!(late.sync_state().phase, SyncPhase::NotStarted);
    assert!(forbidden.wait_for_sync(Duration::ZERO).await.is_err());
    factory.shutdown().await;
    assert_eq!(forbidden.sync_state().phase, SyncPhase::Stopped);
}

// I17
#[tokio::test(start_paused = true)]
async fn start_is_idempotent_and_picks_up_late_informers() {
    let server = Server::default();
    let factory = server.factory();
    let first = factory.informer::<ConfigMap>().build();
    factory.start();
    factory.start();
    factory.wait_for_sync(SOON).await.unwrap();
    let late = factory.informer::<ConfigMap>().namespace("late").build();
    settle().await;
    assert!(!late.has_synced());
    factory.start();
    factory.wait_for_sync(SOON).await.unwrap();
    first.start();
    settle().await;
    assert_eq!(server.requests().len(), 2);
    first.shutdown().await;
    assert!(factory.tasks() > 0, "one was stopped, the other goes on");
    assert_eq!(late.lister().namespace("late").list().len(), 1);
}

// I13
#[tokio::test(start_paused = true)]
async fn shutdown_leaves_no_task() {
    let server = Server::default();
    let factory = server.factory();
    let before = Handle::current().metrics().num_alive_tasks();
    let informer = factory.informer::<ConfigMap>().build();
    let forbidden = factory.informer::<Secret>().build();
    let handlers: Vec<_> = (0..5).map(|_| informer.add_handler(Log::default())).collect();
    factory.start();
    informer.wait_for_sync(SOON).await.unwrap();
    assert!(factory.tasks() >= 9 && server.open_watches() == 1);
    factory.shutdown().await;
    settle().await;
    assert_eq!((factory.tasks(), server.open_watches()), (0, 0));
    assert_eq!(Handle::current().metrics().num_alive_tasks(), before);
    // What is asked for now never starts.
    let after = factory.informer::<ConfigMap>().namespace("late").build();
    factory.start();
    assert_eq!((factory.tasks(), after.sync_state().phase), (0, SyncPhase::Stopped));
    drop((handlers, forbidden));
}

// I16
#[tokio::test(start_paused = true)]
async fn the_last_user_that_goes_closes_the_watch() {
    let server = Server::default();
    let factory = server.factory();
    let informer = factory.informer::<ConfigMap>().build();
    let (lister, registration) = (informer.lister(), informer.add_handler(Log::default()));
    let narrow = lister.namespace("shop");
    factory.start();
    factory.wait_for_sync(SOON).await.unwrap();
    drop(informer);
    drop(lister);
    settle().await;
    assert_eq!(server.open_watches(), 1, "a handler and a lister are left");
    drop(registration);
    settle().await;
    assert_eq!((server.open_watches(), narrow.list().len()), (1, 1));
    drop(narrow);
    settle().await;
    assert_eq!((server.open_watches(), factory.tasks(), factory.sync_states().len()), (0, 0, 0));
    // At the next request, a new one is built.
    let again = factory.informer::<ConfigMap>().lister();
    factory.start();
    factory.wait_for_sync(SOON).await.unwrap();
    assert_eq!(again.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_are_listed_one_by_one_and_read_as_one_cache() {
    let server = Server::default();
    let factory = server.factory();
    let lister = factory.informer::<ConfigMap>().namespace("shop").namespace("farm").lister();
    factory.start();
    factory.wait_for_sync(SOON).await.unwrap();
    assert!(lister.get(&key("shop/a")).is_some() && lister.get(&key("farm/a")).is_some());
    assert!(server.requests().iter().all(|uri| uri.contains("/namespaces/")));
}

/// A source of the user's own: one list, then the events it is given.
struct Own(Mutex<Option<tokio::sync::mpsc::UnboundedReceiver<WatchEvent<ConfigMap>>>>);

impl ListerWatcher<ConfigMap> for Own {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<ConfigMap>, ListWatchError> {
        Ok(ListPage { items: vec![item("a@1")], resource_version: "1".to_owned(), continue_token: None })
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        assert_eq!(options.resource_version.as_deref(), Some("1"));
        let events = self.0.lock().unwrap().take().expect("one watch");
        Ok(stream::unfold(events, |mut events| async { Some((Ok(events.recv().await?), events)) }).boxed())
    }
}

// I1
#[tokio::test(start_paused = true)]
async fn an_informer_can_be_fed_by_any_source() {
    let (events, receiver) = tokio::sync::mpsc::unbounded_channel();
    let config = ReflectorConfig { first_list: FirstList::Paged, ..ReflectorConfig::default() };
    let informer = SharedInformer::<ConfigMap>::from_source(&(), Own(Mutex::new(Some(receiver))), config);
    let log = Log::default();
    let registration = informer.add_handler(log.clone());
    informer.start();
    registration.synced().await.unwrap();
    events.send(WatchEvent::Modified(item("a@2"))).unwrap();
    events.send(WatchEvent::Deleted(item("a@3"))).unwrap();
    events.send(WatchEvent::Added(item("b@4"))).unwrap();
    settle().await;
    assert_eq!(log.take(), ["+a@1 initial list", "-a@3 final", "+b@4 watch"]);
    assert_eq!(informer.lister().list().iter().map(|object| show(&**object)).collect::<Vec<_>>(), ["b@4"]);
    informer.shutdown().await;
    assert_eq!(ConfigMap::kind_of(&()), *informer.kind());
}

/// A source that lists one object of its namespace.
struct Just(&'static str);

impl ListerWatcher<ConfigMap> for Just {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<ConfigMap>, ListWatchError> {
        Ok(ListPage { items: vec![item(self.0)], resource_version: "1".to_owned(), continue_token: None })
    }

    async fn watch(&self, _: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        Ok(stream::pending().boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn sources_of_any_sort_make_an_informer_with_namespaces_transform_and_indexes() {
    let config = ReflectorConfig { first_list: FirstList::Paged, ..ReflectorConfig::default() };
    let informer = Assembly::<ConfigMap>::new(&())
        .namespace("shop", Just("shop/a@1"))
        .namespace("farm", Just("farm/b@1"))
        .config(config)
        .transform(|map: &mut ConfigMap| {
            map.data = Some([("content".to_owned(), "changed".to_owned())].into())
        })
        .index(by_content())
        .build()
        .unwrap();
    informer.start();
    informer.wait_for_sync(SOON).await.unwrap();
    let lister = informer.lister();
    assert_eq!(lister.by_index("content", &"changed".into()).len(), 2);
    assert_eq!(lister.namespace("farm").list().len(), 1);
    informer.shutdown().await;
}

#[test]
fn parts_that_make_no_informer_are_refused() {
    let refused = |assembly: Assembly<ConfigMap>| assembly.build().unwrap_err().to_string();
    let new = || Assembly::<ConfigMap>::new(&());
    assert!(refused(new()).contains("configmaps needs a source"));
    let twice = new().namespace("shop", Just("shop/a@1")).namespace("shop", Just("shop/a@1"));
    assert!(refused(twice).contains("in namespace shop"));
    assert!(
        refused(new().namespace("shop", Just("shop/a@1")).everywhere(Just("a@1"))).contains("everywhere")
    );
    assert!(refused(new().everywhere(Just("a@1")).namespace("shop", Just("a@1"))).contains("two sources"));
    assert!(
        refused(new().everywhere(Just("a@1")).index(by_content()).index(by_content())).contains("content")
    );
}

//! ClientListWatch over an in-memory service, under paused time.

use std::time::Duration;
use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{Arc, Mutex},
    thread::ThreadId,
};

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use tokio::{
    runtime::Runtime,
    time::{Instant, advance},
};
use tower::service_fn;

use super::*;
use crate::{
    list_watch::{FetchedItem, WatchEvent, tests::panicky::Panicky},
    object::Scope,
};

type Chunk = Result<Frame<Bytes>, std::io::Error>;

/// Answers the requests of a test: a status, headers, and a body that the test feeds.
#[derive(Clone, Default)]
struct Server {
    requests: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: mpsc::UnboundedReceiver<Chunk>,
}

/// Feeds the body of one answer; it ends when this is dropped.
struct Feed(mpsc::UnboundedSender<Chunk>);

impl Feed {
    fn send(&self, text: &str) {
        self.0.unbounded_send(Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))).unwrap();
    }

    fn reset(self) {
        self.0.unbounded_send(Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))).unwrap();
    }
}

impl Server {
    fn answers(&self, status: u16, headers: &[(&'static str, &'static str)]) -> Feed {
        let (sender, body) = mpsc::unbounded();
        self.answers.lock().unwrap().push(Answer { status, headers: headers.to_vec(), body });
        Feed(sender)
    }

    fn says(&self, status: u16, text: &str) {
        self.answers(status, &[]).send(text);
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// A request that no answer is left for is never answered.
    fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let accept = request.headers()[http::header::ACCEPT].to_str().unwrap().to_owned();
                server.requests.lock().unwrap().push(format!("{} {accept}", request.uri()));
                let answer = {
                    let mut answers = server.answers.lock().unwrap();
                    (!answers.is_empty()).then(|| answers.remove(0))
                };
                let Some(answer) = answer else { return std::future::pending().await };
                let mut response = Response::builder().status(answer.status);
                for (name, value) in answer.headers {
                    response = response.header(name, value);
                }
                Ok::<_, Infallible>(response.body(StreamBody::new(answer.body)).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn config_maps(&self) -> ClientListWatch<ConfigMap> {
        self.objects()
    }

    fn objects<K: Object>(&self) -> ClientListWatch<K> {
        let kind = Kind {
            group: "".into(),
            version: "v1".into(),
            kind: "ConfigMap".into(),
            plural: "configmaps".into(),
            scope: Scope::Namespaced,
        };
        ClientListWatch::new(self.client(), kind)
    }
}

const LIST: &str = r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"7","continue":"c"},"items":
    [{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"data":5},{"metadata":{"name":"c"}}]}"#;

fn added(version: u32) -> String {
    format!(
        "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

fn is_added(event: Option<Result<WatchEvent<ConfigMap>, ListWatchError>>) -> bool {
    matches!(event, Some(Ok(WatchEvent::Added(_))))
}

// R33
#[tokio::test(start_paused = true)]
async fn a_list_is_read_in_chunks_past_one_bad_object() {
    let server = Server::default();
    let feed = server.answers(200, &[]);
    for chunk in LIST.as_bytes().chunks(7) {
        feed.send(std::str::from_utf8(chunk).unwrap());
    }
    drop(feed);
    let page = server.config_maps().list(&ListOptions::default()).await.unwrap();
    assert_eq!((page.resource_version.as_str(), page.continue_token.as_deref()), ("7", Some("c")));
    let names: Vec<_> = page.items.iter().map(|item| item.key().unwrap().to_string()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(
        matches!(&page.items[1], FetchedItem::Unreadable(unreadable) if unreadable.error.starts_with("data: "))
    );
}

// S12
#[tokio::test]
async fn all_lists_and_watches_of_a_cache_have_one_dictionary() {
    let mut source = Server::default().config_maps().source;
    source.item_form = ItemForm::Bytes;
    let item = |n: usize| {
        let data = r#""data":{"first":"the same for all","second":"the same for all as well"}"#;
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a{n}"}},{data}}}"#)
    };
    for n in 0..6 {
        let Ok(Some(FetchedItem::Raw(raw))) = source.decoder().list_item(&item(n)) else { panic!("{n}") };
        assert!(n < 2 || raw.text.len() * 2 < item(n).len(), "{n}: {}", raw.text.len());
    }
}

// R6
#[tokio::test(start_paused = true)]
async fn selectors_namespace_form_and_hook_go_with_every_request() {
    let server = Server::default();
    let source = server
        .config_maps()
        .namespace("n")
        .metadata_only()
        .label_selector("a=b")
        .field_selector("metadata.name=x")
        .options_hook(|options| options.limit = Some(9));
    server.says(200, LIST);
    source.list(&ListOptions::default()).await.unwrap();
    server.says(200, "");
    let _ = source.watch(&ListOptions::default()).await.unwrap();
    server.says(200, LIST);
    assert_eq!(source.latest_version().await.unwrap().as_deref(), Some("7"));
    let path = "/api/v1/namespaces/n/configmaps";
    // As client-go asks: a server that can't make metadata may send whole objects.
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    assert_eq!(
        server.requests(),
        [
            format!("{path}?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=9 {list}"),
            format!(
                "{path}?watch=true&labelSelector=a%3Db&fieldSelector=metadata.name%3Dx \
                 application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
            ),
            format!("{path}?limit=1 {list}"),
        ]
    );
}

// R9, R36
#[tokio::test(start_paused = true)]
async fn refusals_become_a_status_that_says_how_long_to_wait() {
    let server = Server::default();
    let source = server.config_maps();
    server.answers(429, &[("retry-after", "17")]).send("Too many requests\n");
    let error = source.watch(&ListOptions::default()).await.err().unwrap();
    assert!(
        matches!(&error, ListWatchError::Status { status, retry_after: Some(wait) }
        if status.code == 429 && wait.as_secs() == 17),
        "{error:?}"
    );
    server.says(503, r#"{"kind":"Status","code":503,"details":{"retryAfterSeconds":3}}"#);
    let error = source.list(&ListOptions::default()).await.unwrap_err();
    assert!(matches!(error, ListWatchError::Status { retry_after: Some(wait), .. } if wait.as_secs() == 3));
    server.says(410, r#"{"kind":"Status","code":410,"reason":"Expired"}"#);
    let error = source.watch(&ListOptions::default()).await.err().unwrap();
    assert_eq!(error.status().unwrap().reason, "Expired");
    server.says(403, r#"{"kind":"Status","code":403,"reason":"Forbidden"}"#);
    assert!(source.list(&ListOptions::default()).await.unwrap_err().is_forbidden());
}

// R46
#[tokio::test(start_paused = true)]
async fn what_hangs_ends_at_its_deadline() {
    let server = Server::default();
    let source = server.config_maps();
    let begun = Instant::now();
    let error = source.list(&ListOptions::default()).await.unwrap_err();
    assert!(matches!(error, ListWatchError::Deadline(_)));
    assert_eq!(begun.elapsed().as_secs(), 30);
    assert!(matches!(source.watch(&ListOptions::default()).await, Err(ListWatchError::Deadline(_))));
    let feed = server.answers(200, &[]);
    feed.send(&LIST[..50]);
    assert!(matches!(source.list(&ListOptions::default()).await, Err(ListWatchError::Deadline(_))));
    drop(feed);
    let refusal = server.answers(500, &[]);
    let error = source.list(&ListOptions::default()).await.unwrap_err();
    assert_eq!(error.status().unwrap().code, 500);
    drop(refusal);
    assert_eq!(begun.elapsed().as_secs(), 120);
}

// R46
#[tokio::test(start_paused = true)]
async fn a_refusal_that_drips_is_read_no_longer_than_its_deadline() {
    let server = Server::default();
    let feed = server.answers(503, &[]);
    tokio::spawn(async move {
        while feed.0.unbounded_send(Ok(Frame::data(Bytes::from_static(b"no ")))).is_ok() {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    });
    let begun = Instant::now();
    let error = server.config_maps().list(&ListOptions::default()).await.unwrap_err();
    assert_eq!((error.status().unwrap().message.as_str(), begun.elapsed().as_secs()), ("no no no", 30));
}

// R46
#[tokio::test(start_paused = true)]
async fn a_list_that_is_slow_but_never_silent_is_waited_for() {
    let server = Server::default();
    let feed = server.answers(200, &[]);
    tokio::spawn(async move {
        for chunk in LIST.as_bytes().chunks(10) {
            advance(Duration::from_secs(20)).await;
            feed.send(std::str::from_utf8(chunk).unwrap());
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(server.config_maps().list(&ListOptions::default()).await.unwrap().items.len(), 3);
}

// R39
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_for_two_minutes_ends_as_idle() {
    let server = Server::default();
    let feed = server.answers(200, &[]);
    let options = ListOptions { timeout: Some(Duration::from_secs(400)), ..ListOptions::default() };
    let mut watch = server.config_maps().watch(&options).await.unwrap();
    let begun = Instant::now();
    feed.send(&added(1));
    assert!(is_added(watch.next().await));
    assert!(matches!(watch.next().await, Some(Err(ListWatchError::Idle(_)))));
    assert_eq!(begun.elapsed().as_secs(), 120);
    assert!(watch.next().await.is_none());
}

// R46
#[tokio::test(start_paused = true)]
async fn a_watch_that_outlives_its_timeout_is_given_up() {
    let server = Server::default();
    let feed = server.answers(200, &[]);
    let options = ListOptions { timeout: Some(Duration::from_secs(60)), ..ListOptions::default() };
    let mut watch = server.config_maps().watch(&options).await.unwrap();
    let begun = Instant::now();
    feed.send(&added(1));
    assert!(is_added(watch.next().await));
    assert!(matches!(watch.next().await, Some(Err(ListWatchError::Deadline(_)))));
    assert_eq!(begun.elapsed().as_secs(), 90);
}

// R35
#[tokio::test(start_paused = true)]
async fn a_reset_ends_the_stream_after_the_events_before_it() {
    let server = Server::default();
    let feed = server.answers(200, &[]);
    let mut watch = server.config_maps().watch(&ListOptions::default()).await.unwrap();
    feed.send(&added(1));
    feed.send(&added(2)[..20]);
    feed.reset();
    assert!(is_added(watch.next().await));
    assert!(matches!(watch.next().await, Some(Err(ListWatchError::Connection(_)))));
    assert!(watch.next().await.is_none());

    let feed = server.answers(200, &[]);
    let mut watch = server.config_maps().watch(&ListOptions::default()).await.unwrap();
    feed.send(&added(1));
    feed.send(&added(2)[..20]);
    drop(feed);
    assert!(is_added(watch.next().await));
    assert!(matches!(watch.next().await, Some(Err(ListWatchError::CutShort))));
    assert!(watch.next().await.is_none());
}

/// Lists and watches from one chunk each, keeps one object of each, and sees what that keeps alive.
///
/// Returns how many threads decoded, where objects are decoded on arrival.
async fn keep_one(form: ItemForm) -> usize {
    let (server, objects) = (Server::default(), many());
    let source = server.objects::<Panicky>().item_form(form);
    let page =
        Bytes::from(format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, objects.join(",")));
    let feed = server.answers(200, &[]);
    feed.0.unbounded_send(Ok(Frame::data(page.clone()))).unwrap();
    drop(feed);
    let mut items = source.list(&ListOptions::default()).await.unwrap().items;
    assert_eq!(items.len(), objects.len());
    let threads: HashSet<_> = items.iter().filter_map(decoded_by).collect();
    let kept = items.swap_remove(1_000);
    drop(items);
    assert!(page.is_unique(), "{kept:?} holds the page");

    let lines: String =
        objects.iter().map(|object| format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n")).collect();
    let chunk = Bytes::from(lines);
    let feed = server.answers(200, &[]);
    feed.0.unbounded_send(Ok(Frame::data(chunk.clone()))).unwrap();
    let mut watch = source.watch(&ListOptions::default()).await.unwrap();
    let kept = watch.next().await;
    assert!(
        matches!(&kept, Some(Ok(WatchEvent::Added(item))) if matches!(item, FetchedItem::Raw(_)) == (form == ItemForm::Bytes))
    );
    assert_eq!(watch.by_ref().take(objects.len() - 1).count().await, objects.len() - 1);
    assert!(chunk.is_unique(), "{kept:?} holds its chunk");
    threads.len()
}

fn decoded_by(item: &FetchedItem<Panicky>) -> Option<ThreadId> {
    match item {
        FetchedItem::Object(object) => Some(object.thread),
        FetchedItem::Raw(_) | FetchedItem::Unreadable(_) => None,
    }
}

// R21
#[test]
fn one_kept_object_does_not_keep_its_page() {
    for form in [ItemForm::Typed, ItemForm::Bytes] {
        let typed = form == ItemForm::Typed;
        assert_eq!(one_thread().block_on(keep_one(form)), usize::from(typed));
        // The thread that reads decodes the rest; others take what comes before, and what is read is theirs to drop.
        let threads = several_threads().block_on(keep_one(form));
        assert!(threads > 1 || !typed, "one thread decoded alone");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_past_the_bound_fails_list_and_watch_by_name() {
    let server = Server::default();
    let source = server.config_maps().largest_object(20);
    server.says(200, LIST);
    let listed = source.list(&ListOptions::default()).await.unwrap_err();
    assert!(matches!(listed, ListWatchError::TooLarge { limit: 20, .. }), "{listed:?}");
    let feed = server.answers(200, &[]);
    let mut watch = source.watch(&ListOptions::default()).await.unwrap();
    feed.send(&added(1)[..21]);
    assert!(matches!(watch.next().await, Some(Err(ListWatchError::TooLarge { .. }))));
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn limits_beyond_the_end_of_time_are_none() {
    let server = Server::default();
    let feed = server.answers(200, &[]);
    let deadlines = Deadlines { watch_silence: Duration::MAX, ..Deadlines::default() };
    let options = ListOptions { timeout: Some(Duration::MAX), ..ListOptions::default() };
    let mut watch = server.config_maps().deadlines(deadlines).watch(&options).await.unwrap();
    feed.send(&added(1));
    assert!(is_added(watch.next().await));
}

fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn several_threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

/// So many objects that several threads decode them, with one in the middle that does not decode.
fn many() -> Vec<String> {
    let text = "x".repeat(300);
    let object = |at: usize| match at {
        1_500 => r#"{"metadata":{"name":"m1500","resourceVersion":"1500"},"data":5}"#.to_owned(),
        _ => format!(
            r#"{{"metadata":{{"name":"m{at}","resourceVersion":"{at}","managedFields":[{{}}]}},"data":{{"a":"{text}"}}}}"#
        ),
    };
    (0..3_000).map(object).collect()
}

fn in_pieces(text: &str, feed: &Feed) {
    let mut rest = text;
    for size in (1..).map(|at| at * 7 % 9_001 + 1) {
        let (piece, left) = rest.split_at(size.min(rest.len()));
        feed.send(piece);
        rest = left;
        if rest.is_empty() {
            return;
        }
    }
}

async fn listed_and_watched() -> (Vec<String>, Vec<String>) {
    let (server, objects) = (Server::default(), many());
    let list = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, objects.join(","));
    in_pieces(&list, &server.answers(200, &[]));
    let page = server.config_maps().list(&ListOptions::default()).await.unwrap();
    let lines: String =
        objects.iter().map(|object| format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n")).collect();
    let feed = server.answers(200, &[]);
    in_pieces(&lines, &feed);
    in_pieces("{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n{\"type\":\"MODIF", &feed);
    drop(feed);
    let events: Vec<_> = server.config_maps().watch(&ListOptions::default()).await.unwrap().collect().await;
    let list = page.items.iter().map(|item| format!("{item:?}")).collect();
    (list, events.iter().map(|event| format!("{event:?}")).collect())
}

// R34 R35
#[test]
fn several_threads_decode_what_one_does_in_the_same_order() {
    let (one, several) = (one_thread(), several_threads());
    let (list, watch) = one.block_on(listed_and_watched());
    assert_eq!((list.len(), watch.len()), (3_000, 3_002));
    assert!(list[1_500].starts_with("Unreadable") && watch[3_001].starts_with("Err(CutShort"));
    for _ in 0..3 {
        assert_eq!(several.block_on(listed_and_watched()), (list.clone(), watch.clone()));
    }
}

async fn with_touchy_objects() -> Vec<String> {
    let server = Server::default();
    let objects: Vec<_> = many()
        .into_iter()
        .enumerate()
        .map(|(at, object)| match at % 1_000 {
            // One in the middle of each batch, and the last, which the reading thread decodes.
            500 | 999 => object.replace("\"name\":\"m", "\"name\":\"panicky"),
            _ => object,
        })
        .collect();
    let list = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, objects.join(","));
    in_pieces(&list, &server.answers(200, &[]));
    let source = server.objects::<Panicky>();
    let page = source.list(&ListOptions::default()).await.unwrap();
    let lines: String =
        objects.iter().map(|object| format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n")).collect();
    in_pieces(&lines, &server.answers(200, &[]));
    let events: Vec<_> = source.watch(&ListOptions::default()).await.unwrap().collect().await;
    let watched = events.into_iter().map(|event| match event {
        Ok(WatchEvent::Added(item)) => item,
        other => panic!("{other:?}"),
    });
    page.items
        .into_iter()
        .chain(watched)
        .map(|item| match &item {
            FetchedItem::Unreadable(unreadable) => format!("{} {}", item.key().unwrap(), unreadable.error),
            _ => item.key().unwrap().to_string(),
        })
        .collect()
}

// R47
#[test]
fn a_panic_in_decoding_is_that_objects_alone() {
    let expected: Vec<_> = (0..3_000)
        .map(|at| match at % 1_000 {
            500 | 999 => format!("panicky{at} its type panicked as it was decoded"),
            _ => format!("m{at}"),
        })
        .collect();
    let expected = [expected.clone(), expected].concat();
    assert_eq!(one_thread().block_on(with_touchy_objects()), expected);
    assert_eq!(several_threads().block_on(with_touchy_objects()), expected);
}

// R48
#[tokio::test(start_paused = true)]
async fn a_syntax_error_within_an_item_fails_its_list() {
    for form in [ItemForm::Typed, ItemForm::Bytes] {
        for broken in [
            r#"{"metadata":{"name":"a""namespace":"shop"}}"#,
            r#"{"metadata":{"name":"a"},"data":{"k":tru}}"#,
            r#"{"metadata":{"name":"a","managedFields":[{"f":01}]}}"#,
            r#"{"metadata":{"name":"a"},"unknown":["\ud80"]}"#,
            "{\"metadata\":{\"name\":\"a\"},\"unknown\":\"\t\"}",
            r#"{"metadata":{"name":"a"}"#,
        ] {
            let server = Server::default();
            server.says(200, &LIST.replace(r#"{"metadata":{"name":"b"},"data":5}"#, broken));
            let error = server.config_maps().item_form(form).list(&ListOptions::default()).await.unwrap_err();
            assert!(matches!(error, ListWatchError::Unreadable(_)), "{broken}: {error:?}");
        }
    }
}

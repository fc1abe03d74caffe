//! Claims about rules and about bodies under them.

use bytes::Bytes;
use futures::channel::mpsc;
use futures::poll;
use http_body_util::BodyExt as _;
use serde_json::json;
use std::sync::Arc;
use std::task::Poll;
use tokio_util::sync::CancellationToken;

use super::*;

mod events;
mod reads;
mod whole;
mod writes;

use crate::route::{RequestInfo, Verb};
use crate::watch::{EventType, Frame, Phase};

fn info(method: &str, uri: &str) -> RequestInfo {
    RequestInfo::of(&method.parse().unwrap(), &uri.parse().unwrap())
}

fn watch_of(plural: &str) -> RequestInfo {
    info("GET", &format!("/api/v1/namespaces/a/{plural}?watch=1"))
}

fn list_of(plural: &str) -> RequestInfo {
    info("GET", &format!("/api/v1/namespaces/a/{plural}"))
}

fn frame(event: EventType, version: u64) -> Frame {
    let line = format!("{event:?}-{version:04}\n");
    Frame { bytes: Bytes::from(line), event, version, phase: Phase::Live }
}

type Feed = mpsc::UnboundedReceiver<Frame>;

/// A stream opened as the front door does it.
struct Open {
    sender: mpsc::UnboundedSender<Frame>,
    body: FaultyBody<Feed>,
}

impl Open {
    /// Sends a line of JSON about an object.
    fn tell(&self, event: EventType, name: &str, version: u64) {
        let object = json!({"kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version}});
        let line = format!("{}\n", json!({"type": event.as_str(), "object": object}));
        let bytes = Bytes::from(line);
        self.sender.unbounded_send(Frame { bytes, event, version, phase: Phase::Live }).unwrap();
    }

    fn new(faults: &Faults, info: RequestInfo, epoch: &CancellationToken) -> Self {
        let judged = faults.armed();
        let Verdict::Serve(plants) = faults.judge(&info, "agent/1", || 1) else { panic!("not served") };
        let (sender, events) = mpsc::unbounded();
        let tap = Tap::new(info, "agent/1".to_owned(), 1, plants);
        Self { sender, body: FaultyBody::events(events, faults, tap, judged, epoch.clone()) }
    }

    fn send(&self, event: EventType, version: u64) {
        self.sender.unbounded_send(frame(event, version)).unwrap();
    }

    fn added(&self, versions: impl IntoIterator<Item = u64>) {
        versions.into_iter().for_each(|version| self.send(EventType::Added, version));
    }

    /// Reads everything that arrives without waiting; returns the state after that.
    async fn read(&mut self) -> (String, End) {
        let mut text = String::new();
        let mut pauses = 0;
        loop {
            match poll!(self.body.frame()) {
                Poll::Ready(Some(Ok(frame))) => {
                    text += std::str::from_utf8(&frame.into_data().unwrap()).unwrap()
                }
                Poll::Ready(Some(Err(_))) => return (text, End::Broken),
                Poll::Ready(None) => return (text, End::Clean),
                Poll::Pending if pauses < 3 => pauses += 1,
                Poll::Pending => return (text, End::Quiet),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Broken,
    Clean,
    Quiet,
}

fn open(faults: &Faults) -> Open {
    Open::new(faults, watch_of("configmaps"), &CancellationToken::new())
}

#[tokio::test]
async fn a_cut_ends_an_open_stream_at_once() {
    let faults = Faults::default();
    let mut stream = open(&faults);
    stream.added([2]);
    assert_eq!(stream.read().await, ("Added-0002\n".to_owned(), End::Quiet));
    let armed = faults.on(Verb::Watch, "configmaps").once().then(Fault::Cut);
    stream.added([3]);
    assert_eq!(stream.read().await, (String::new(), End::Broken));
    assert_eq!(armed.fired(), 1);
    assert_eq!(faults.open_streams(), 0);
    assert_eq!(faults.log()[0].version, 2);
}

#[tokio::test]
async fn a_rule_for_once_takes_the_oldest_of_two_streams() {
    let faults = Faults::default();
    let (mut first, mut second) = (open(&faults), open(&faults));
    faults.on(Verb::Watch, "configmaps").once().then(Fault::Cut);
    assert_eq!(first.read().await.1, End::Broken);
    assert_eq!(second.read().await.1, End::Quiet);
}

#[tokio::test]
async fn a_rule_for_another_resource_leaves_a_stream_alone() {
    let faults = Faults::default();
    let mut stream = open(&faults);
    faults.on(Verb::Watch, "secrets").then(Fault::Cut);
    faults.on(Verb::List, "configmaps").then(Fault::Cut);
    faults.on(Verb::Watch, "configmaps").namespace("b").then(Fault::Cut);
    faults.on(Verb::Watch, "configmaps").user_agent("other").then(Fault::Cut);
    faults.on(Verb::Watch, "configmaps").then(Fault::Status(500));
    assert_eq!(stream.read().await.1, End::Quiet);
}

#[tokio::test]
async fn a_cut_after_events_counts_no_bookmarks() {
    let faults = Faults::default();
    faults.on(Verb::Watch, "*").once().then(Fault::Cut.after_events(2));
    let mut stream = open(&faults);
    stream.added([2]);
    stream.send(EventType::Bookmark, 3);
    stream.added([4, 5]);
    let (text, end) = stream.read().await;
    assert_eq!((text.as_str(), end), ("Added-0002\nBookmark-0003\nAdded-0004\n", End::Broken));
}

#[tokio::test]
async fn a_cut_at_an_event_comes_instead_of_it() {
    let faults = Faults::default();
    let mut stream = open(&faults);
    faults.on(Verb::Watch, "*").once().then(Fault::Cut.at_event(2));
    stream.added([2]);
    assert_eq!(stream.read().await, ("Added-0002\n".to_owned(), End::Quiet));
    stream.added([3]);
    assert_eq!(stream.read().await, (String::new(), End::Broken));
}

#[tokio::test]
async fn a_cut_at_a_byte_leaves_half_a_line() {
    let faults = Faults::default();
    faults.on(Verb::Watch, "configmaps").then(Fault::Cut.after_events(1).at_byte(7));
    let mut stream = open(&faults);
    stream.added([2, 3]);
    assert_eq!(stream.read().await, ("Added-0002\nAdded-0".to_owned(), End::Broken));
}

#[tokio::test]
async fn bytes_are_counted_across_lines() {
    let faults = Faults::default();
    let mut stream = open(&faults);
    faults.on(Verb::Watch, "configmaps").then(Fault::Cut.at_byte(13));
    stream.added([2, 3]);
    assert_eq!(stream.read().await, ("Added-0002\nAd".to_owned(), End::Broken));
}

#[tokio::test]
async fn what_silence_holds_back_goes_on_after_the_clearing() {
    let faults = Faults::default();
    let mut stream = open(&faults);
    faults.on(Verb::Watch, "configmaps").then(Fault::Silence.at_byte(4));
    stream.added([2, 3]);
    assert_eq!(stream.read().await, ("Adde".to_owned(), End::Quiet));
    faults.clear();
    assert_eq!(stream.read().await, ("d-0002\nAdded-0003\n".to_owned(), End::Quiet));
}

#[tokio::test]
async fn disarming_one_rule_lets_go_on_only_what_it_holds() {
    let faults = Faults::default();
    let (mut a, mut b) = (open(&faults), Open::new(&faults, watch_of("pods"), &CancellationToken::new()));
    let armed = faults.on(Verb::Watch, "configmaps").then(Fault::Silence);
    faults.on(Verb::Watch, "pods").then(Fault::Silence);
    a.added([2]);
    b.added([2]);
    assert_eq!((a.read().await.1, b.read().await.1), (End::Quiet, End::Quiet));
    armed.disarm();
    assert_eq!((a.read().await.0.len(), b.read().await.0.len()), (11, 0));
}

#[tokio::test]
async fn the_end_of_an_epoch_breaks_a_silent_stream() {
    let (faults, epoch) = (Faults::default(), CancellationToken::new());
    let mut stream = Open::new(&faults, watch_of("configmaps"), &epoch);
    faults.on(Verb::Watch, "configmaps").then(Fault::Silence);
    assert_eq!(stream.read().await.1, End::Quiet);
    epoch.cancel();
    assert_eq!(stream.read().await.1, End::Broken);
}

#[tokio::test]
async fn a_stream_that_ends_by_itself_ends_cleanly() {
    let faults = Faults::default();
    let Open { sender, body } = open(&faults);
    drop(sender);
    let mut stream = Open { sender: mpsc::unbounded().0, body };
    assert_eq!(stream.read().await, (String::new(), End::Clean));
}

#[tokio::test]
async fn a_whole_body_can_be_cut_at_a_byte() {
    let faults = Faults::default();
    faults.on(Verb::List, "configmaps").once().then(Fault::Cut.at_byte(3));
    let Verdict::Serve(plants) = faults.judge(&list_of("configmaps"), "", || 1) else { panic!("not served") };
    let tap = Tap::new(list_of("configmaps"), String::new(), 1, plants);
    let body = FaultyBody::planted(Bytes::from_static(b"abcdef"), &faults, tap, CancellationToken::new());
    assert_eq!(http_body::Body::size_hint(&body).exact(), Some(6));
    let mut whole = Open { sender: mpsc::unbounded().0, body };
    assert_eq!(whole.read().await, ("abc".to_owned(), End::Broken));
}

#[test]
fn events_are_no_place_in_a_plain_answer() {
    let faults = Faults::default();
    let armed = faults.on_any("*").then(Fault::Cut.after_events(1));
    assert!(matches!(faults.judge(&list_of("pods"), "", || 1), Verdict::Serve(plants) if plants.is_empty()));
    assert_eq!(armed.fired(), 0);
}

#[test]
fn a_rule_fires_as_often_as_told() {
    let fires = |rule: fn(Rule) -> Rule| -> Vec<u64> {
        let faults = Faults::default();
        rule(faults.on(Verb::List, "pods")).then(Fault::Status(503));
        (1..=5).filter(|_| matches!(faults.judge(&list_of("pods"), "", || 1), Verdict::Reply(_))).collect()
    };
    let at = |rule: fn(Rule) -> Rule| fires(rule);
    assert_eq!(at(|rule| rule.once()), [1]);
    assert_eq!(at(|rule| rule.times(2)), [1, 2]);
    assert_eq!(at(|rule| rule.nth(3)), [3]);
    assert_eq!(at(|rule| rule.always()), [1, 2, 3, 4, 5]);
    assert_eq!(at(|rule| rule.probability(0.0)), [0_u64; 0]);
    assert_eq!(at(|rule| rule.probability(1.0).times(1)), [1]);
}

#[test]
fn equal_seeds_fire_alike_and_the_log_replays_them() {
    let run = |seed: u64| -> (Vec<bool>, Vec<String>) {
        let faults = Faults::default();
        faults.on_any_write().probability(0.5).seed(seed).then(Fault::CommitThenDrop);
        let request = info("POST", "/api/v1/namespaces/a/configmaps");
        let fired =
            (0..40).map(|_| matches!(faults.judge(&request, "", || 7), Verdict::ServeThenDrop)).collect();
        (fired, faults.log().into_iter().map(|firing| firing.script).collect())
    };
    let (fired, script) = run(7);
    assert_eq!(run(7), (fired.clone(), script.clone()));
    assert_ne!(run(8).0, fired);
    let first = fired.iter().position(|fired| *fired).unwrap() + 1;
    assert_eq!(script[0], format!("faults.on_any_write().nth({first}).then(Fault::CommitThenDrop);"));
}

#[test]
fn an_overload_looks_like_the_real_one() {
    let faults = Faults::default();
    faults.on(Verb::List, "pods").then(Fault::Status(429).retry_after(2).text());
    let Verdict::Reply(response) = faults.judge(&list_of("pods"), "", || 1) else { panic!("served") };
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(response.body(), "Too many requests, please try again later.\n");
}

#[test]
fn a_held_request_waits_until_its_rule_is_gone() {
    let faults = Faults::default();
    faults.on(Verb::List, "pods").then(Fault::Silence);
    let Verdict::Hold(healed) = faults.judge(&list_of("pods"), "", || 1) else { panic!("not held") };
    assert!(!healed.is_cancelled());
    faults.clear();
    assert!(healed.is_cancelled());
}

#[test]
fn a_rule_in_json_is_the_same_rule() {
    let faults = Faults::default();
    let text = r#"{"verb": "watch", "resource": "configmaps", "namespace": "a", "nth": 2,
                   "fault": {"cut": {"afterEvents": 3, "atByte": 17}}}"#;
    serde_json::from_str::<RuleScript>(text).unwrap().arm(&faults);
    for _ in 0..2 {
        faults.judge(&watch_of("configmaps"), "", || 1);
    }
    let Verdict::Serve(plants) = faults.judge(&watch_of("configmaps"), "", || 1) else {
        panic!("not served")
    };
    assert!(plants.is_empty());
    let status = r#"{"resource": "pods", "fault": {"status": {"code": 503, "retryAfter": 1}}}"#;
    serde_json::from_str::<RuleScript>(status).unwrap().arm(&faults);
    assert!(matches!(faults.judge(&list_of("pods"), "", || 1), Verdict::Reply(r) if r.status() == 503));
    assert!(serde_json::from_str::<RuleScript>(r#"{"fault": {"explode": {}}}"#).is_err());
}

#[test]
fn the_recorder_keeps_options_and_answers() {
    let requests = Requests::default();
    let (method, uri) = ("GET".parse().unwrap(), "/api/v1/pods?limit=500&watch=0".parse().unwrap());
    let mut headers = http::HeaderMap::new();
    headers.insert("user-agent", "agent/1".parse().unwrap());
    let recorded =
        requests.arrived(&method, &uri, &headers, &Arc::new(RequestInfo::of(&method, &uri)), "viewer");
    recorded.answered(403);
    assert_eq!((requests.count(Verb::List, "pods"), requests.count(Verb::Watch, "pods")), (1, 0));
    let record = &requests.of(Verb::List, "pods")[0];
    assert_eq!((record.parameter("limit"), record.parameter("continue")), (Some("500"), None));
    assert_eq!((record.user.as_str(), record.user_agent.as_str()), ("viewer", "agent/1"));
    assert_eq!(record.status, Some(403));
    requests.clear();
    assert_eq!((requests.total(), requests.list().len()), (0, 0));
}

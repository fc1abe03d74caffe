//! Claims about a core that keeps its state: what clients see is on disk, and a restart changes nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{ApiRequest, Core, CoreConfig, Reply, Restart, Restored};
use crate::data::DataFile;
use crate::identity::User;

/// A data file of its own, deleted at the end.
struct Kept(PathBuf);

impl Kept {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("kept-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder.join("state"))
    }

    fn open(&self) -> (Core, Option<Restored>) {
        Core::open(CoreConfig { data: Some(self.0.clone()), ..CoreConfig::default() }).expect("a data file")
    }

    /// The state that a server would find if it started now, after a crash.
    fn after_a_crash(&self) -> Core {
        let copy = self.0.with_file_name("copy");
        std::fs::copy(&self.0, &copy).expect("a copy");
        Core::open(CoreConfig { data: Some(copy), ..CoreConfig::default() }).expect("a data file").0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(folder) = self.0.parent() {
            let _left = std::fs::remove_dir_all(folder);
        }
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn serve(core: &Core, method: Method, uri: &str, body: Value) -> Reply {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let uri = uri.parse().expect("a uri");
    core.serve(ApiRequest { method, uri, headers: HeaderMap::new(), body, user: User::Admin }).await
}

async fn call(core: &Core, method: Method, uri: &str, body: Value) -> (u16, Value) {
    match serve(core, method, uri, body).await {
        Reply::Full(response) => {
            (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
        }
        Reply::Stream { .. } => panic!("a stream where an answer was expected"),
    }
}

async fn get(core: &Core, uri: &str) -> (u16, Value) {
    call(core, Method::GET, uri, Value::Null).await
}

async fn make(core: &Core, name: &str) -> Value {
    let (code, made) =
        call(core, Method::POST, MAPS, json!({"metadata": {"name": name}, "data": {"k": "v"}})).await;
    assert_eq!(code, 201, "{made}");
    made
}

fn definition() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

// A2
#[tokio::test(start_paused = true)]
async fn a_restart_keeps_objects_versions_definitions_and_tokens() {
    for stop in ["cleanly", "by a crash"] {
        let kept = Kept::new("all");
        let (core, restored) = kept.open();
        assert_eq!(restored, None, "the file is new");
        let made = make(&core, "a").await;
        make(&core, "b").await;
        call(&core, Method::DELETE, &format!("{MAPS}/b"), Value::Null).await;
        assert_eq!(call(&core, Method::POST, CRDS, definition()).await.0, 201);
        core.settle();
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"n": 1.5}});
        let widgets = "/apis/example.com/v1/namespaces/default/widgets";
        let (code, widget) = call(&core, Method::POST, widgets, widget).await;
        assert_eq!(code, 201, "{widget}");
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        call(&core, Method::POST, accounts, json!({"metadata": {"name": "robot"}})).await;
        let (_, asked) =
            call(&core, Method::POST, &format!("{accounts}/robot/token"), json!({"spec": {}})).await;
        let token = asked["status"]["token"].as_str().expect("a token").to_owned();
        let version = core.resource_version();
        if stop == "cleanly" {
            core.close().await.expect("a snapshot");
            assert_eq!(
                call(&core, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await.0,
                500,
                "it is closed"
            );
        } else {
            core.abandon();
        }
        let (core, restored) = kept.open();
        assert_eq!(restored.expect("an old file").resource_version, version, "{stop}");
        assert_eq!(core.resource_version(), version);
        assert_eq!(get(&core, &format!("{MAPS}/a")).await, (200, made.clone()), "managed fields and all");
        assert_eq!(get(&core, &format!("{MAPS}/b")).await.0, 404);
        assert_eq!(get(&core, &format!("{widgets}/w")).await, (200, widget), "its definition is served");
        assert!(core.account_of(&token).is_some(), "the token holds");
        let next = make(&core, "c").await;
        assert_eq!(next["metadata"]["resourceVersion"], (version + 1).to_string());
        assert_ne!(next["metadata"]["uid"], made["metadata"]["uid"], "uids don't begin again");
    }
}

async fn first_event(core: &Core, version: u64) -> Value {
    let uri = format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=5");
    let Reply::Stream { mut events, .. } = serve(core, Method::GET, &uri, Value::Null).await else {
        panic!("a stream")
    };
    let frame = events.next().await.expect("an event");
    serde_json::from_slice(&frame.bytes).expect("JSON")
}

// A5
#[tokio::test(start_paused = true)]
async fn a_watch_from_before_a_restart_gets_the_history_that_is_there_or_410() {
    let kept = Kept::new("history");
    let (core, _) = kept.open();
    let version = core.resource_version();
    make(&core, "a").await;
    core.abandon();
    // After a crash the log is there.
    let (core, _) = kept.open();
    assert_eq!(first_event(&core, version).await["object"]["metadata"]["name"], "a");
    let newest = core.resource_version();
    core.close().await.expect("a snapshot");
    // A snapshot has no history.
    let (core, _) = kept.open();
    assert_eq!(first_event(&core, version).await["object"]["code"], 410);
    make(&core, "b").await;
    assert_eq!(
        first_event(&core, newest).await["object"]["metadata"]["name"],
        "b",
        "nothing is missing from there on"
    );
}

// A1
#[tokio::test(start_paused = true)]
async fn what_is_answered_is_on_disk() {
    let kept = Kept::new("answered");
    let (core, _) = kept.open();
    for n in 0..20 {
        make(&core, &format!("m{n}")).await;
        let again = kept.after_a_crash();
        assert_eq!(get(&again, &format!("{MAPS}/m{n}")).await.0, 200, "m{n}");
        again.abandon();
    }
}

// A1 A2
#[tokio::test(start_paused = true)]
async fn writes_that_come_together_share_a_record() {
    let kept = Kept::new("group");
    let (core, _) = kept.open();
    let names: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
    futures::future::join_all(names.iter().map(|name| make(&core, name))).await;
    core.abandon();
    let bytes = std::fs::read(&kept.0).expect("the file");
    // A record's head is not text: what is between two of them is.
    let records = bytes.windows(14).filter(|head| head[0] == b'L' && head[13] == b'{').count();
    assert!((1..100).contains(&records), "{records} records for 200 writes");
    let (core, _) = kept.open();
    let (_, list) = get(&core, MAPS).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(200));
}

// A1 A4
#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_is_refused_and_taken_back() {
    let kept = Kept::new("refused");
    let (core, _) = kept.open();
    let made = make(&core, "a").await;
    let version = core.resource_version();
    let uri = format!("{MAPS}?watch=1&resourceVersion={version}");
    let Reply::Stream { mut events, .. } = serve(&core, Method::GET, &uri, Value::Null).await else {
        panic!("a stream")
    };
    core.break_file(DataFile::take_away_writing);
    let (code, refused) = call(&core, Method::POST, MAPS, json!({"metadata": {"name": "b"}})).await;
    let says = refused["message"].as_str().unwrap_or_default();
    assert_eq!((code, &refused["reason"]), (500, &json!("InternalError")), "{refused}");
    assert!(
        says.starts_with(&format!("Internal error occurred: cannot write {}", kept.0.display())),
        "{says}"
    );
    let (code, _) = call(&core, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(code, 500);
    assert_eq!(get(&core, &format!("{MAPS}/b")).await.0, 404, "it never was");
    assert_eq!(get(&core, &format!("{MAPS}/a")).await, (200, made), "it is still there");
    assert_eq!(core.resource_version(), version);
    let told = tokio::time::timeout(Duration::from_secs(5), events.next()).await;
    assert!(matches!(told, Ok(None)), "the stream ends, and tells of nothing: {told:?}");
}

// A2
#[tokio::test(start_paused = true)]
async fn a_core_that_goes_back_is_kept_as_it_is_then() {
    let kept = Kept::new("back");
    let (core, _) = kept.open();
    let version = core.resource_version();
    make(&core, "a").await;
    core.restart(Restart::At(version)).expect("remembered");
    make(&core, "b").await;
    core.abandon();
    let (core, _) = kept.open();
    assert_eq!(get(&core, &format!("{MAPS}/a")).await.0, 404);
    assert_eq!(get(&core, &format!("{MAPS}/b")).await.0, 200);
    core.restart(Restart::Empty).expect("possible");
    make(&core, "c").await;
    core.abandon();
    let (core, _) = kept.open();
    let (_, list) = get(&core, MAPS).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
}

// A2
#[tokio::test(start_paused = true)]
async fn a_log_that_outgrows_its_state_becomes_a_snapshot() {
    let kept = Kept::new("outgrown");
    let (core, _) = kept.open();
    make(&core, "a").await;
    for n in 0..12 {
        let body = json!({"metadata": {"name": "a"}, "data": {"k": format!("{}", n % 10).repeat(1 << 20)}});
        assert_eq!(call(&core, Method::PUT, &format!("{MAPS}/a"), body).await.0, 200);
    }
    let length = std::fs::metadata(&kept.0).expect("the file").len();
    assert!(length < 10 << 20, "{length} bytes for a state of 1 MiB");
    let version = core.resource_version();
    core.abandon();
    let (core, restored) = kept.open();
    assert_eq!(restored.expect("old").resource_version, version);
    assert_eq!(get(&core, &format!("{MAPS}/a")).await.1["data"]["k"].as_str().map(str::len), Some(1 << 20));
}

#[tokio::test]
async fn a_server_without_a_file_writes_none() {
    let core = Core::new(CoreConfig::default());
    make(&core, "a").await;
    assert!(core.inner.committer.is_none());
    assert!(!core.inner.lock().store.has_unsaved(), "nothing is noted either");
    assert!(!Path::new("state").exists());
}

// A2
#[tokio::test(start_paused = true)]
async fn numbers_with_fractions_keep_their_last_digit() {
    let kept = Kept::new("fractions");
    let (core, _) = kept.open();
    assert_eq!(call(&core, Method::POST, CRDS, definition()).await.0, 201);
    core.settle();
    // The first ones are known to be misread by parsers that round too early.
    let given = [
        "122.41629403378659",
        "0.30000000000000004",
        "17.299999999999997",
        "5e-324",
        "1.7976931348623157e308",
    ];
    let mut numbers: Vec<f64> = given.iter().map(|text| text.parse().expect("a number")).collect();
    numbers.extend((1..2_000).map(|n| f64::from(n).sqrt() * 1e-7));
    let texts: Vec<String> = numbers.iter().map(|number| format!("{number:?}")).collect();
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let head = r#""apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}"#;
    let body = Bytes::from(format!("{{{head},\"spec\":{{\"n\":[{}]}}}}", texts.join(",")));
    let uri = widgets.parse().expect("a uri");
    let request =
        ApiRequest { method: Method::POST, uri, headers: HeaderMap::new(), body, user: User::Admin };
    let Reply::Full(made) = core.serve(request).await else { panic!("a stream") };
    assert_eq!(made.status(), 201);
    for core in [core, kept.after_a_crash()] {
        let Reply::Full(shown) = serve(&core, Method::GET, &format!("{widgets}/w"), Value::Null).await else {
            panic!("a stream")
        };
        let text = std::str::from_utf8(shown.body()).expect("text");
        let list =
            text.split_once("\"n\":[").and_then(|(_, rest)| rest.split_once(']')).expect("the numbers").0;
        let read: Vec<f64> = list.split(',').map(|text| text.parse().expect("a number")).collect();
        assert!(read == numbers, "a number has changed");
    }
}

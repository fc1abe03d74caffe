//! Claims about conversion webhooks: calls, stored objects, and objects shown in each version.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{ApiRequest, Core, CoreConfig, Reply};
use crate::call::{Caller, Handler, WebhookAddress};
use crate::identity::User;

const V1: &str = "/apis/example.com/v1/namespaces/default/sites";
const V2: &str = "/apis/example.com/v2/namespaces/default/sites";

/// In `v1` a site has a `host` and a `port`, in `v2` an `address` of both.
fn definition() -> Value {
    let version = |name: &str, storage: bool, spec: Value| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "selectableFields": if storage { json!([]) } else { json!([{"jsonPath": ".spec.address"}]) },
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
            }}},
        })
    };
    let text = json!({"type": "string"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "sites", "kind": "Site"},
            "versions": [
                version("v1", true, json!({"host": text, "port": text})),
                version("v2", false, json!({"address": text})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "https://hooks/convert"}, "conversionReviewVersions": ["v1"],
            }},
        },
    })
}

/// Converts as it should.
fn turned(object: &Value, into: &str) -> Value {
    let mut object = object.clone();
    let text = |object: &Value, field: &str| object["spec"][field].as_str().unwrap_or_default().to_owned();
    object["spec"] = if into.ends_with("/v2") {
        json!({"address": format!("{}:{}", text(&object, "host"), text(&object, "port"))})
    } else {
        let address = text(&object, "address");
        let (host, port) = address.split_once(':').unwrap_or((&address, ""));
        json!({"host": host, "port": port})
    };
    object["apiVersion"] = into.into();
    object["metadata"]["annotations"]["example.com/turned-into"] = into.into();
    object["metadata"]["generation"] = 99.into();
    object
}

type Asked = Arc<Mutex<Vec<(String, usize)>>>;

struct Stage {
    core: Core,
    asked: Asked,
}

impl Stage {
    async fn new() -> Self {
        Self::with(|review| {
            let into = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
            let objects = review["request"]["objects"].as_array().into_iter().flatten();
            let converted: Vec<Value> = objects.map(|object| turned(object, into)).collect();
            json!({"result": {"status": "Success"}, "convertedObjects": converted})
        })
        .await
    }

    async fn with(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let asked = Asked::default();
        let seen = asked.clone();
        let handler: Handler = Arc::new(move |review: Value| {
            let into = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default().to_owned();
            let count = review["request"]["objects"].as_array().map_or(0, Vec::len);
            seen.lock().expect("nobody panics").push((into, count));
            let mut response = answer(&review);
            if response.get("uid").is_none() {
                response["uid"] = review["request"]["uid"].clone();
            }
            let review =
                json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
            Box::pin(async move { review })
        });
        let mut caller = Caller::default();
        caller.handle(WebhookAddress::Url("https://hooks/convert".to_owned()), handler);
        let core = Core::new(CoreConfig { caller, ..CoreConfig::default() });
        let stage = Self { core, asked };
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(stage.send(Method::POST, crds, definition()).await.0, 201);
        stage.core.settle();
        stage
    }

    async fn reply(&self, method: Method, uri: &str, media: &str, body: Value) -> Reply {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let mut headers = HeaderMap::new();
        headers.insert("content-type", media.parse().expect("a media type"));
        let uri = uri.parse().expect("a path");
        self.core.serve(ApiRequest { method, uri, headers, body, user: User::Admin }).await
    }

    async fn send(&self, method: Method, uri: &str, body: Value) -> (u16, Value) {
        self.send_as(method, uri, "application/json", body).await
    }

    async fn send_as(&self, method: Method, uri: &str, media: &str, body: Value) -> (u16, Value) {
        let Reply::Full(response) = self.reply(method, uri, media, body).await else { panic!("a stream") };
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    fn asked(&self) -> Vec<(String, usize)> {
        std::mem::take(&mut self.asked.lock().expect("nobody panics"))
    }
}

fn site(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Site", "metadata": {"name": name}, "spec": spec})
}

fn asks<const N: usize>(asked: [(&str, usize); N]) -> Vec<(String, usize)> {
    asked.map(|(version, count)| (format!("example.com/{version}"), count)).to_vec()
}

// A12
#[tokio::test(start_paused = true)]
async fn an_object_is_stored_in_one_version_and_shown_in_each() {
    let stage = Stage::new().await;
    let (code, made) = stage.send(Method::POST, V2, site("v2", "a", json!({"address": "web:80"}))).await;
    assert_eq!(
        (code, &made["spec"], &made["apiVersion"]),
        (201, &json!({"address": "web:80"}), &"example.com/v2".into())
    );
    assert_eq!(made["metadata"]["generation"], 1, "metadata are not the webhook's");
    assert_eq!(
        made["metadata"]["annotations"]["example.com/turned-into"], "example.com/v2",
        "but for annotations"
    );
    assert_eq!(stage.asked(), asks([("v1", 1), ("v2", 1)]));
    let (_, stored) = stage.send(Method::GET, &format!("{V1}/a"), Value::Null).await;
    assert_eq!(stored["spec"], json!({"host": "web", "port": "80"}));
    let (_, shown) = stage.send(Method::GET, &format!("{V2}/a"), Value::Null).await;
    assert_eq!(shown, made);
    assert_eq!(stage.asked(), [], "nothing is converted twice");
    stage.send(Method::POST, V1, site("v1", "b", json!({"host": "db", "port": "5432"}))).await;
    stage.send(Method::POST, V1, site("v1", "c", json!({"host": "db", "port": "5433"}))).await;
    let (_, list) = stage.send(Method::GET, V2, Value::Null).await;
    assert_eq!(list["items"][1]["spec"], json!({"address": "db:5432"}));
    assert_eq!(stage.asked(), asks([("v2", 2)]), "a list is one question");
    let (_, list) =
        stage.send(Method::GET, &format!("{V2}?fieldSelector=spec.address%3Ddb:5433"), Value::Null).await;
    assert_eq!(
        (list["items"].as_array().map(Vec::len), &list["items"][0]["metadata"]["name"]),
        (Some(1), &"c".into())
    );
}

// A12
#[tokio::test(start_paused = true)]
async fn writes_in_another_version_keep_what_they_do_not_name() {
    let stage = Stage::new().await;
    stage.send(Method::POST, V1, site("v1", "a", json!({"host": "web", "port": "80"}))).await;
    let (_, mut shown) = stage.send(Method::GET, &format!("{V2}/a"), Value::Null).await;
    shown["spec"]["address"] = "web:81".into();
    let (code, put) = stage.send(Method::PUT, &format!("{V2}/a"), shown).await;
    assert_eq!(
        (code, &put["spec"]["address"], &put["metadata"]["generation"]),
        (200, &"web:81".into(), &2.into())
    );
    let patch = json!({"spec": {"address": "web:82"}});
    let merged =
        stage.send_as(Method::PATCH, &format!("{V2}/a"), "application/merge-patch+json", patch).await;
    assert_eq!(merged.1["spec"]["address"], "web:82");
    let applied = site("v2", "a", json!({"address": "web:83"}));
    let uri = format!("{V2}/a?fieldManager=me&force=true");
    let applied = stage.send_as(Method::PATCH, &uri, "application/apply-patch+yaml", applied).await;
    assert_eq!((applied.0, &applied.1["spec"]["address"]), (200, &"web:83".into()));
    let status = json!({"status": {"ready": true}});
    let uri = format!("{V2}/a/status");
    let status = stage.send_as(Method::PATCH, &uri, "application/merge-patch+json", status).await;
    assert_eq!(
        (&status.1["status"]["ready"], &status.1["spec"]["address"]),
        (&true.into(), &"web:83".into())
    );
    let (_, stored) = stage.send(Method::GET, &format!("{V1}/a"), Value::Null).await;
    assert_eq!(stored["spec"], json!({"host": "web", "port": "83"}));
    assert_eq!(stage.send(Method::DELETE, &format!("{V2}/a"), Value::Null).await.0, 200);
}

// A12
#[tokio::test(start_paused = true)]
async fn a_watch_shows_its_own_version() {
    let stage = Stage::new().await;
    stage.send(Method::POST, V1, site("v1", "a", json!({"host": "web", "port": "80"}))).await;
    let uri = format!("{V2}?watch=1&resourceVersion=0");
    let Reply::Stream { mut events, .. } = stage.reply(Method::GET, &uri, "", Value::Null).await else {
        panic!("no stream")
    };
    let patch = json!({"spec": {"port": "81"}});
    stage.send_as(Method::PATCH, &format!("{V1}/a"), "application/merge-patch+json", patch).await;
    stage.send(Method::DELETE, &format!("{V1}/a"), Value::Null).await;
    for (event, address) in [("ADDED", "web:80"), ("MODIFIED", "web:81"), ("DELETED", "web:81")] {
        let frame = tokio::time::timeout(Duration::from_secs(9), events.next()).await.expect("in time");
        let line: Value = serde_json::from_slice(&frame.expect("there").bytes).expect("JSON");
        assert_eq!((&line["type"], &line["object"]["spec"]["address"]), (&event.into(), &address.into()));
    }
}

// A13
#[tokio::test(start_paused = true)]
async fn a_webhook_that_fails_is_told_and_nothing_is_written() {
    let rubbish = |object: &Value, field: &str, value: &str| {
        let mut object = turned(object, "example.com/v1");
        object["metadata"][field] = value.into();
        object
    };
    type Answer = Box<dyn Fn(&Value) -> Value + Send + Sync>;
    let of = |make: Box<dyn Fn(&Value) -> Value + Send + Sync>| -> Answer {
        Box::new(
            move |review| json!({"result": {"status": "Success"}, "convertedObjects": [make(&review["request"]["objects"][0])]}),
        )
    };
    let what = "conversion webhook for example.com/v2, Kind=Site";
    let cases: [(Answer, String); 8] = [
        (
            Box::new(|_| json!({"result": {"status": "Failure", "message": "no idea"}})),
            format!("{what} failed: no idea"),
        ),
        (Box::new(|_| json!({})), format!("{what} failed: response.result.status was '', not 'Success'")),
        (
            Box::new(|_| json!({"uid": "x", "result": {"status": "Success"}})),
            format!("{what} failed: expected response.uid="),
        ),
        (
            Box::new(|_| json!({"result": {"status": "Success"}})),
            format!("{what} returned 0 objects, expected 1"),
        ),
        (
            of(Box::new(Value::clone)),
            format!(
                "{what} returned invalid object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v2)"
            ),
        ),
        (
            of(Box::new(move |object| rubbish(object, "name", "b"))),
            format!("{what} returned invalid object: must have the same name: a != b"),
        ),
        (
            of(Box::new(move |object| rubbish(object, "labels", "b"))),
            format!(
                "{what} returned invalid metadata: invalid metadata.labels of type string in converted object"
            ),
        ),
        (Box::new(|_| panic!("a bug")), format!("{what} failed: the webhook has panicked")),
    ];
    for (answer, says) in cases {
        let stage = Stage::with(answer).await;
        let (code, status) =
            stage.send(Method::POST, V2, site("v2", "a", json!({"address": "web:80"}))).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(code == 500 && message.starts_with(&says), "{code} {message}\nnot {says}");
        assert_eq!(stage.send(Method::GET, &format!("{V1}/a"), Value::Null).await.0, 404, "{says}");
    }
}

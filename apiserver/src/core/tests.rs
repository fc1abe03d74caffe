//! Claims about the whole core, through its one entry.

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, advance};

use super::*;

fn request(method: Method, uri: &str, body: &Value) -> ApiRequest {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, "wire/1".parse().expect("value"));
    if method == Method::PATCH {
        headers.insert(header::CONTENT_TYPE, "application/merge-patch+json".parse().expect("value"));
    }
    ApiRequest { method, uri: uri.parse().expect("uri"), headers, body, user: User::Admin }
}

async fn send(core: &Core, request: ApiRequest) -> (StatusCode, Value) {
    match core.serve(request).await {
        Reply::Full(response) => {
            let value = serde_json::from_slice(response.body())
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(response.body()).into_owned()));
            (response.status(), value)
        }
        Reply::Stream { .. } => panic!("a stream where an answer was expected"),
    }
}

async fn call(core: &Core, method: Method, uri: &str, body: Value) -> (u16, Value) {
    let (status, value) = send(core, request(method, uri, &body)).await;
    (status.as_u16(), value)
}

async fn watch(core: &Core, uri: &str) -> Box<WatchStream> {
    match core.serve(request(Method::GET, uri, &Value::Null)).await {
        Reply::Stream { events, .. } => events,
        Reply::Full(response) => panic!("no stream: {response:?}"),
    }
}

async fn next(stream: &mut WatchStream) -> (String, Value) {
    let frame = stream.next().await.expect("an event");
    let value: Value = serde_json::from_slice(&frame.bytes).expect("JSON");
    (value["type"].as_str().expect("type").to_owned(), value["object"].clone())
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn crd(schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

async fn with_widgets() -> Core {
    let core = Core::new(CoreConfig::default());
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    assert_eq!(call(&core, Method::POST, CRDS, crd(&schema)).await.0, 201);
    core.settle();
    core
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"n": 1}})
}

// wire 001, 303
#[tokio::test(start_paused = true)]
async fn an_object_is_created_read_updated_and_deleted() {
    let start = "2026-01-01T00:00:00Z";
    let clock = Clock::starting_at(start.parse().expect("it is a time"));
    let core = Core::new(CoreConfig { clock, ..CoreConfig::default() });
    let (code, made) = call(&core, Method::POST, MAPS, config_map("a")).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"]["creationTimestamp"], start);
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "wire");
    let mut changed = made.clone();
    changed["data"]["k"] = "2".into();
    let (code, updated) = call(&core, Method::PUT, &format!("{MAPS}/a"), changed.clone()).await;
    assert_eq!((code, &updated["data"]["k"]), (200, &json!("2")));
    changed["data"]["k"] = "3".into();
    let (code, stale) = call(&core, Method::PUT, &format!("{MAPS}/a"), changed).await;
    assert_eq!((code, &stale["reason"]), (409, &json!("Conflict")));
    let (code, gone) = call(&core, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!((code, &gone["status"]), (200, &json!("Success")));
    let (code, missing) = call(&core, Method::GET, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!((code, &missing["message"]), (404, &json!("configmaps \"a\" not found")));
}

// wire 304
#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_takes_no_version() {
    let core = Core::new(CoreConfig::default());
    let (_, made) = call(&core, Method::POST, MAPS, config_map("a")).await;
    let before = core.resource_version();
    for body in [json!({}), json!({"data": {"k": "v"}}), json!({"metadata": {"labels": {}}})] {
        let (code, same) = call(&core, Method::PATCH, &format!("{MAPS}/a"), body).await;
        assert_eq!((code, &same), (200, &made));
    }
    assert_eq!(core.resource_version(), before);
}

// wire 101, 106, 122
#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_the_state_and_its_mark() {
    let core = Core::new(CoreConfig::default());
    call(&core, Method::POST, MAPS, config_map("b")).await;
    call(&core, Method::POST, MAPS, config_map("a")).await;
    let mut stream = watch(&core, &format!("{MAPS}?watch=1&allowWatchBookmarks=true")).await;
    assert_eq!(next(&mut stream).await.1["metadata"]["name"], "a");
    assert_eq!(next(&mut stream).await.1["metadata"]["name"], "b");
    let (kind, mark) = next(&mut stream).await;
    assert_eq!(
        (kind.as_str(), &mark["metadata"]["annotations"]["k8s.io/initial-events-end"]),
        ("BOOKMARK", &json!("true"))
    );
    call(&core, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await;
    let (kind, object) = next(&mut stream).await;
    assert_eq!(
        (kind.as_str(), object["metadata"]["resourceVersion"].as_str()),
        ("DELETED", Some(core.resource_version().to_string().as_str()))
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_bookmarks_and_ends_at_its_time() {
    let core = Core::new(CoreConfig::default());
    let version = core.resource_version();
    let uri = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=90");
    let mut stream = watch(&core, &uri).await;
    let started = Instant::now();
    assert_eq!(next(&mut stream).await.0, "BOOKMARK");
    assert_eq!(started.elapsed().as_secs(), 60);
    assert!(stream.next().await.is_none());
    assert_eq!(started.elapsed().as_secs(), 90);
}

// wire 104
#[tokio::test(start_paused = true)]
async fn a_forgotten_version_is_one_error_event() {
    let core = Core::new(CoreConfig::default());
    call(&core, Method::POST, MAPS, config_map("a")).await;
    core.compact_to(core.resource_version());
    let mut stream = watch(&core, &format!("{MAPS}?watch=1&resourceVersion=1")).await;
    let (kind, status) = next(&mut stream).await;
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
    assert!(stream.next().await.is_none());
}

// wire 002
#[tokio::test(start_paused = true)]
async fn a_future_version_is_waited_for() {
    let core = Core::new(CoreConfig::default());
    call(&core, Method::POST, MAPS, config_map("a")).await;
    let future = core.resource_version() + 1;
    let uri = format!("{MAPS}/a?resourceVersion={future}");
    let started = Instant::now();
    let (code, late) = call(&core, Method::GET, &uri, Value::Null).await;
    assert_eq!((code, started.elapsed().as_secs()), (504, 3), "{late}");
    let path = format!("{MAPS}/a");
    let patch = call(&core, Method::PATCH, &path, json!({"data": {"k": "2"}}));
    let ((code, _), _) = tokio::join!(call(&core, Method::GET, &uri, Value::Null), patch);
    assert_eq!(code, 200);
}

// wire 112
#[tokio::test(start_paused = true)]
async fn entering_a_selection_is_added_and_leaving_it_deleted() {
    let core = Core::new(CoreConfig::default());
    call(&core, Method::POST, MAPS, config_map("b")).await;
    let version = core.resource_version();
    let mut stream =
        watch(&core, &format!("{MAPS}?watch=1&labelSelector=on%3D1&resourceVersion={version}")).await;
    call(&core, Method::PATCH, &format!("{MAPS}/b"), json!({"metadata": {"labels": {"on": "1"}}})).await;
    call(
        &core,
        Method::PATCH,
        &format!("{MAPS}/b"),
        json!({"metadata": {"labels": {"on": "0"}}, "data": {"k": "3"}}),
    )
    .await;
    assert_eq!(next(&mut stream).await.0, "ADDED");
    let (kind, object) = next(&mut stream).await;
    assert_eq!((kind.as_str(), &object["data"]["k"]), ("DELETED", &json!("v")));
    assert_eq!(object["metadata"]["resourceVersion"], core.resource_version().to_string());
}

// A22
#[tokio::test(start_paused = true)]
async fn field_selectors_know_the_fields_of_their_kind_and_compare_as_text() {
    let core = Core::new(CoreConfig::default());
    let pod = |name: &str, node: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
    };
    let pods = "/api/v1/namespaces/default/pods";
    for (name, node) in [("a", json!("n1")), ("b", json!("n2")), ("c", Value::Null)] {
        assert_eq!(call(&core, Method::POST, pods, pod(name, node)).await.0, 201);
    }
    let cases: [(&str, &[&str]); 8] = [
        ("spec.nodeName=n1", &["a"]),
        ("spec.nodeName!=n1", &["b", "c"]),
        ("spec.nodeName=", &["c"]),
        ("spec.nodeName==n2,metadata.name!=a", &["b"]),
        ("metadata.name=a,metadata.name=b", &[]),
        ("status.phase=Pending", &["a", "b", "c"]),
        ("spec.restartPolicy!=Always", &[]),
        ("metadata.namespace!=default", &[]),
    ];
    for (selector, expected) in cases {
        let escaped = selector.replace('=', "%3D").replace('!', "%21").replace(',', "%2C");
        let uri = format!("{pods}?fieldSelector={escaped}");
        let (code, list) = call(&core, Method::GET, &uri, Value::Null).await;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<&str> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        assert_eq!((code, names.as_slice()), (200, expected), "{selector}");
        let mut stream = watch(&core, &format!("{uri}&watch=1&resourceVersion=0")).await;
        for name in expected {
            assert_eq!(next(&mut stream).await.1["metadata"]["name"], *name, "{selector}");
        }
    }
    for (path, says) in [
        (pods, "field label not supported: spec.image"),
        (
            MAPS,
            "\"spec.image\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    ] {
        let uri = format!("{path}?fieldSelector=spec.image%3Dx");
        let (code, status) = call(&core, Method::GET, &uri, Value::Null).await;
        assert!(code == 400 && status["message"].as_str().is_some_and(|m| m.contains(says)), "{status}");
    }
}

// wire 007
#[tokio::test(start_paused = true)]
async fn pages_show_one_snapshot() {
    let core = Core::new(CoreConfig::default());
    for name in ["a", "b", "c"] {
        call(&core, Method::POST, MAPS, config_map(name)).await;
    }
    let (_, first) = call(&core, Method::GET, &format!("{MAPS}?limit=2"), Value::Null).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    call(&core, Method::DELETE, &format!("{MAPS}/c"), Value::Null).await;
    let token = first["metadata"]["continue"].as_str().expect("token");
    let (_, second) =
        call(&core, Method::GET, &format!("{MAPS}?limit=2&continue={token}"), Value::Null).await;
    assert_eq!(second["items"][0]["metadata"]["name"], "c");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    core.compact_to(core.resource_version());
    let (code, expired) =
        call(&core, Method::GET, &format!("{MAPS}?limit=2&continue={token}"), Value::Null).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
}

// wire 312
#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let core = with_widgets().await;
    let mut object = widget("x");
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    let (code, made) = call(&core, Method::POST, WIDGETS, object).await;
    assert_eq!(code, 201, "{made}");
    let (_, marked) = call(&core, Method::DELETE, &format!("{WIDGETS}/x"), Value::Null).await;
    assert_eq!(
        (&marked["metadata"]["generation"], &marked["metadata"]["deletionGracePeriodSeconds"]),
        (&json!(2), &json!(0))
    );
    let released = json!({"metadata": {"finalizers": null}});
    let (code, last) = call(&core, Method::PATCH, &format!("{WIDGETS}/x"), released).await;
    assert_eq!((code, &last["metadata"]["resourceVersion"]), (200, &marked["metadata"]["resourceVersion"]));
    assert_eq!(call(&core, Method::GET, &format!("{WIDGETS}/x"), Value::Null).await.0, 404);
}

// wire 308
#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let core = with_widgets().await;
    let mut object = widget("x");
    object["status"] = json!({"lost": true});
    let (_, made) = call(&core, Method::POST, WIDGETS, object).await;
    assert!(made.get("status").is_none());
    let status = json!({"spec": {"n": 9}, "status": {"ok": true}});
    let (_, after) = call(&core, Method::PATCH, &format!("{WIDGETS}/x/status"), status).await;
    assert_eq!(
        (&after["spec"]["n"], &after["status"]["ok"], &after["metadata"]["generation"]),
        (&json!(1), &json!(true), &json!(1))
    );
    let (_, after) =
        call(&core, Method::PATCH, &format!("{WIDGETS}/x"), json!({"spec": {"n": 2}, "status": null})).await;
    assert_eq!((&after["status"]["ok"], &after["metadata"]["generation"]), (&json!(true), &json!(2)));
}

// wire 315
#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner() {
    let core = Core::new(CoreConfig::default());
    let (_, owner) = call(&core, Method::POST, MAPS, config_map("owner")).await;
    let mut child = config_map("child");
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    child["metadata"]["ownerReferences"] = json!([reference]);
    call(&core, Method::POST, MAPS, child).await;
    advance(Duration::from_secs(1)).await;
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/child"), Value::Null).await.0, 200);
    call(&core, Method::DELETE, &format!("{MAPS}/owner"), Value::Null).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/child"), Value::Null).await.0, 404);
}

// wire 208, 321
#[tokio::test(start_paused = true)]
async fn a_namespace_empties_before_it_goes() {
    let core = Core::new(CoreConfig::default());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    call(&core, Method::POST, "/api/v1/namespaces", namespace).await;
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    call(&core, Method::POST, "/api/v1/namespaces/n/configmaps", held).await;
    let (_, going) = call(&core, Method::DELETE, "/api/v1/namespaces/n", Value::Null).await;
    assert_eq!(going["status"]["phase"], "Terminating");
    let (code, _) = call(&core, Method::POST, "/api/v1/namespaces/n/configmaps", config_map("late")).await;
    assert_eq!(code, 403);
    core.settle();
    assert_eq!(call(&core, Method::GET, "/api/v1/namespaces/n", Value::Null).await.0, 200);
    let release = json!({"metadata": {"finalizers": null}});
    call(&core, Method::PATCH, "/api/v1/namespaces/n/configmaps/held", release).await;
    core.settle();
    assert_eq!(call(&core, Method::GET, "/api/v1/namespaces/n", Value::Null).await.0, 404);
}

// wire 501, 510
#[tokio::test(start_paused = true)]
async fn a_crd_is_served_once_established_and_takes_its_objects_along() {
    let core = Core::new(CoreConfig::default());
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "default": 7}}}}});
    let (code, made) = call(&core, Method::POST, CRDS, crd(&schema)).await;
    assert_eq!((code, &made["status"]["conditions"]), (201, &Value::Null), "{made}");
    assert_eq!(call(&core, Method::GET, WIDGETS, Value::Null).await.0, 404);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (code, list) = call(&core, Method::GET, WIDGETS, Value::Null).await;
    assert_eq!((code, &list["metadata"]["continue"]), (200, &json!("")));
    let mut object = widget("x");
    object["spec"] = json!({"other": 1});
    let (_, stored) = call(&core, Method::POST, WIDGETS, object).await;
    assert_eq!(stored["spec"], json!({"n": 7}));
    let mut stream = watch(&core, &format!("{WIDGETS}?watch=1")).await;
    assert_eq!(next(&mut stream).await.0, "ADDED");
    call(&core, Method::DELETE, &format!("{CRDS}/widgets.example.com"), Value::Null).await;
    assert_eq!(next(&mut stream).await.0, "DELETED");
    assert!(stream.next().await.is_none());
    assert_eq!(call(&core, Method::GET, WIDGETS, Value::Null).await.0, 404);
}

// wire 401, 402
#[tokio::test(start_paused = true)]
async fn an_apply_creates_repeats_and_conflicts() {
    let core = Core::new(CoreConfig::default());
    let apply = |manager: &str, body: Value| {
        let mut request = request(Method::PATCH, &format!("{MAPS}/a?fieldManager={manager}"), &body);
        request.headers.insert(header::CONTENT_TYPE, "application/apply-patch+yaml".parse().expect("value"));
        request
    };
    let (code, made) = send(&core, apply("m", config_map("a"))).await;
    assert_eq!(code, 201, "{made}");
    let (code, again) = send(&core, apply("m", config_map("a"))).await;
    assert_eq!((code.as_u16(), &again), (200, &made));
    let mut other = config_map("a");
    other["data"]["k"] = "2".into();
    let (code, conflict) = send(&core, apply("n", other)).await;
    assert_eq!(code, 409);
    assert_eq!(conflict["message"], "Apply failed with 1 conflict: conflict with \"m\": .data.k");
}

#[tokio::test(start_paused = true)]
async fn a_restart_cuts_streams_and_empties_on_demand() {
    let core = Core::new(CoreConfig::default());
    let first = core.resource_version();
    call(&core, Method::POST, MAPS, config_map("a")).await;
    let mut stream = watch(&core, &format!("{MAPS}?watch=1")).await;
    core.restart(Restart::Empty).expect("nothing to look up");
    assert_eq!(next(&mut stream).await.0, "ADDED");
    assert!(stream.next().await.is_none());
    assert_eq!(core.resource_version(), first);
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/a"), Value::Null).await.0, 404);
}

// wire 202
#[tokio::test(start_paused = true)]
async fn a_named_user_may_do_what_is_granted() {
    let core = Core::new(CoreConfig::default());
    let viewer = |uri: &str| ApiRequest {
        user: User::named("viewer", Vec::new()),
        ..request(Method::GET, uri, &Value::Null)
    };
    let (code, status) = send(&core, viewer(MAPS)).await;
    let message = "configmaps is forbidden: User \"viewer\" cannot list resource \"configmaps\" in API group \"\" in the \
                   namespace \"default\"";
    assert_eq!((code.as_u16(), &status["message"]), (403, &json!(message)));
    let (user, verb, resource) = ("viewer".into(), "list".into(), "configmaps".into());
    core.allow(Grant { user, verb, resource, namespace: None });
    assert_eq!(send(&core, viewer(MAPS)).await.0, 200);
    assert_eq!(send(&core, viewer("/apis")).await.0, 200);
}

fn owned_by(name: &str, owner: &Value) -> Value {
    let mut child = config_map(name);
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    }]);
    child
}

// A21, wire 316
#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_waits_for_its_dependents() {
    let core = Core::new(CoreConfig::default());
    let (_, owner) = call(&core, Method::POST, MAPS, config_map("owner")).await;
    let mut child = owned_by("child", &owner);
    child["metadata"]["finalizers"] = json!(["example.com/f"]);
    call(&core, Method::POST, MAPS, child).await;
    let policy = json!({"propagationPolicy": "Foreground"});
    let (_, marked) = call(&core, Method::DELETE, &format!("{MAPS}/owner"), policy).await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    core.settle();
    let (_, child) = call(&core, Method::GET, &format!("{MAPS}/child"), Value::Null).await;
    assert!(child["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/owner"), Value::Null).await.0, 200);
    call(&core, Method::PATCH, &format!("{MAPS}/child"), json!({"metadata": {"finalizers": null}})).await;
    core.settle();
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/owner"), Value::Null).await.0, 404);
}

// A21, wire 317
#[tokio::test(start_paused = true)]
async fn orphans_stay_without_their_owner() {
    let core = Core::new(CoreConfig::default());
    let (_, owner) = call(&core, Method::POST, MAPS, config_map("owner")).await;
    call(&core, Method::POST, MAPS, owned_by("child", &owner)).await;
    call(&core, Method::DELETE, &format!("{MAPS}/owner?propagationPolicy=Orphan"), Value::Null).await;
    core.settle();
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/owner"), Value::Null).await.0, 404);
    let (code, child) = call(&core, Method::GET, &format!("{MAPS}/child"), Value::Null).await;
    assert_eq!((code, child["metadata"].get("ownerReferences")), (200, None));
}

// A21
#[tokio::test(start_paused = true)]
async fn the_pods_of_a_job_stay_unless_they_are_to_go() {
    let core = Core::new(CoreConfig::default());
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let container = json!({"name": "a", "image": "b"});
    let spec = json!({"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec});
    for (query, stays) in [("", true), ("?propagationPolicy=Background", false)] {
        let (code, owner) = call(&core, Method::POST, jobs, job.clone()).await;
        assert_eq!(code, 201, "{owner}");
        let mut child = owned_by("child", &owner);
        child["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1".into();
        child["metadata"]["ownerReferences"][0]["kind"] = "Job".into();
        call(&core, Method::POST, MAPS, child).await;
        call(&core, Method::DELETE, &format!("{jobs}/job{query}"), Value::Null).await;
        core.settle();
        assert_eq!(call(&core, Method::GET, &format!("{jobs}/job"), Value::Null).await.0, 404);
        let (code, child) = call(&core, Method::GET, &format!("{MAPS}/child"), Value::Null).await;
        assert_eq!(code, if stays { 200 } else { 404 }, "{query}");
        assert_eq!(child["metadata"].get("ownerReferences"), None);
        call(&core, Method::DELETE, &format!("{MAPS}/child"), Value::Null).await;
    }
}

// What a kube-apiserver 1.36.3 said.
#[tokio::test(start_paused = true)]
async fn definitions_that_can_t_be_are_refused() {
    let core = Core::new(CoreConfig::default());
    let text = json!({"type": "string"});
    let spec = |schema: Value| {
        crd(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"l": schema}}}}),
        )
    };
    let list =
        |kind: &str, items: Value| json!({"type": "array", "x-kubernetes-list-type": kind, "items": items});
    let keyed = |keys: Value, items: Value| {
        let mut list = list("map", items);
        list["x-kubernetes-list-map-keys"] = keys;
        list
    };
    let item = |key: Value| json!({"type": "object", "required": ["k"], "properties": {"k": key}});
    let schema = "spec.validation.openAPIV3Schema.properties[spec].properties[l]";
    let mut refused = vec![
        (
            spec(keyed(json!(["k"]), json!({"type": "object", "properties": {"k": text}}))),
            format!(
                "{schema}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ),
        ),
        (
            spec(keyed(json!(["z"]), item(text.clone()))),
            format!(
                "{schema}.x-kubernetes-list-map-keys: Invalid value: [\"z\"]: entries must all be names of item properties"
            ),
        ),
        (
            spec(keyed(json!(["k", "k"]), item(text.clone()))),
            format!(
                "{schema}.x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\"]: must not contain duplicate entries"
            ),
        ),
        (
            spec(keyed(json!(["k"]), text.clone())),
            format!(
                "{schema}.items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map"
            ),
        ),
        (
            spec(keyed(json!(["k"]), item(json!({"type": "string", "nullable": true})))),
            format!(
                "{schema}.items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            ),
        ),
        (
            spec(keyed(json!(["k"]), item(json!({"type": "object", "properties": {"a": text}})))),
            format!(
                "{schema}.items.properties[k].type: Invalid value: \"object\": must be a scalar type if parent array's x-kubernetes-list-type is map"
            ),
        ),
        (
            spec(json!({"type": "array", "uniqueItems": true, "items": text})),
            format!(
                "{schema}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            ),
        ),
        (
            spec(json!({"type": "object", "x-kubernetes-list-type": "set", "properties": {"a": text}})),
            format!(
                "{schema}.type: Invalid value: \"object\": must be array if x-kubernetes-list-type is specified"
            ),
        ),
        (
            spec(list("bag", text.clone())),
            format!(
                "{schema}.x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\""
            ),
        ),
        (
            spec(list("set", json!({"type": "string", "nullable": true}))),
            format!(
                "{schema}.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set"
            ),
        ),
        (
            spec(list("set", item(text.clone()))),
            format!(
                "{schema}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"
            ),
        ),
        (
            spec(json!({"type": "array", "x-kubernetes-list-map-keys": ["k"], "items": item(text.clone())})),
            format!(
                "{schema}.x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"
            ),
        ),
        (
            spec(json!({"type": "array", "x-kubernetes-map-type": "atomic", "items": text})),
            format!(
                "{schema}.type: Invalid value: \"array\": must be object if x-kubernetes-map-type is specified"
            ),
        ),
        (
            spec(json!({"type": "object", "default": {"b": 1, "c": "x"}, "properties": {"c": text}})),
            format!("{schema}.default: Invalid value: {{\"b\":1,\"c\":\"x\"}}: must not have unknown fields"),
        ),
        (
            spec(
                json!({"type": "string", "allOf": [{"x-kubernetes-validations": [{"rule": "self != ''"}]}]}),
            ),
            format!("{schema}.allOf[0].x-kubernetes-validations: Forbidden: must be empty to be structural"),
        ),
    ];
    let mut of_version = |field: &str, value: Value, why: &str| {
        let mut definition = spec(text.clone());
        definition["spec"]["versions"][0][field] = value;
        refused.push((definition, why.to_owned()));
    };
    let column = |name: &str, kind: &str, format: &str, path: &str| json!([{"name": name, "type": kind, "format": format, "jsonPath": path}]);
    let columns = "additionalPrinterColumns";
    let why = "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string";
    of_version(columns, column("A", "text", "", ".spec.a"), why);
    of_version(
        columns,
        column("A", "string", "", ""),
        "spec.additionalPrinterColumns[0].JSONPath: Required value",
    );
    of_version(
        columns,
        column("", "string", "", ".a"),
        "spec.additionalPrinterColumns[0].name: Required value",
    );
    let why = "spec.additionalPrinterColumns[0].format: Invalid value: \"odd\": must be one of byte,date,date-time,double,float,int32,int64,password";
    of_version(columns, column("A", "string", "odd", ".a"), why);
    let scale = |spec: &str, status: &str, selector: &str| json!({"scale": {"specReplicasPath": spec, "statusReplicasPath": status, "labelSelectorPath": selector}});
    let at = "spec.subresources.scale";
    for (value, why) in [
        (
            scale(".status.r", ".status.r", ".spec.s"),
            "specReplicasPath: Invalid value: \".status.r\": should be a json path under .spec",
        ),
        (
            scale(".spec.r", ".spec.r", ".spec.s"),
            "statusReplicasPath: Invalid value: \".spec.r\": should be a json path under .status",
        ),
        (
            scale(".spec.r", ".status.r", ".foo"),
            "labelSelectorPath: Invalid value: \".foo\": should be a json path under either .spec or .status",
        ),
        (
            scale("spec.r", ".status.r", ".spec.s"),
            "specReplicasPath: Invalid value: \"spec.r\": must be a simple json path starting with .",
        ),
    ] {
        of_version("subresources", value, &format!("{at}.{why}"));
    }
    for (definition, why) in refused {
        let (code, answer) = call(&core, Method::POST, CRDS, definition).await;
        let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
        let said: Vec<_> = causes
            .iter()
            .map(|cause| {
                format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())
            })
            .collect();
        assert_eq!((code, said), (422, vec![why]));
    }
    // Accepted, because an engine that is not Go's must not be seen.
    for pattern in ["^{.*}$", r"^\p{L}+$"] {
        let (code, answer) = call(
            &core,
            Method::POST,
            &format!("{CRDS}?dryRun=All"),
            spec(json!({"type": "string", "pattern": pattern})),
        )
        .await;
        assert_eq!(code, 201, "{answer}");
    }
    let rule = json!([{"rule": "self == oldSelf"}]);
    let below = json!({"type": "string", "maxLength": 9, "x-kubernetes-validations": rule});
    let atomic = json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": below}});
    let (code, answer) = call(&core, Method::POST, &format!("{CRDS}?dryRun=All"), spec(atomic)).await;
    assert_eq!(code, 201, "{answer}");
}

// A28
#[tokio::test(start_paused = true)]
async fn names_finalizers_and_old_items_are_checked_as_the_real_server_does() {
    let core = Core::new(CoreConfig::default());
    let names = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3, "pattern": "^a"}}});
    let with_rules = |rules: Value| {
        let items = json!({"type": "integer", "x-kubernetes-validations": rules});
        let list = json!({"type": "array", "items": items});
        crd(&json!({"type": "object", "properties": {"metadata": names, "list": list}}))
    };
    call(&core, Method::POST, CRDS, with_rules(json!([]))).await;
    core.settle();
    let made = |name: &str, list: &[u8]| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "list": list});
    for (name, why) in [
        ("abcd", "metadata.name: Too long: may not be more than 3 bytes"),
        ("b", "metadata.name: Invalid value: \"b\": metadata.name in body should match '^a'"),
    ] {
        let (code, answer) = call(&core, Method::POST, WIDGETS, made(name, &[])).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(code == 422 && message.ends_with(why), "{answer}");
    }
    let one = &format!("{WIDGETS}/ab");
    assert_eq!(call(&core, Method::POST, WIDGETS, made("ab", &[1])).await.0, 201);
    for (finalizer, code) in [("My Finalizer", 422), ("MyOperator.example.com/cleanup", 422), ("plain", 200)]
    {
        let patch = json!({"metadata": {"finalizers": [finalizer]}});
        assert_eq!(call(&core, Method::PATCH, one, patch).await.0, code, "{finalizer}");
    }
    let label = json!({"metadata": {"labels": {"my_company/app": "x"}}});
    assert_eq!(call(&core, Method::PATCH, one, label).await.0, 422);
    // A rule that comes later must not lock what is there.
    let mut events = watch(&core, &format!("{WIDGETS}?watch=true")).await;
    assert_eq!(next(&mut events).await.0, "ADDED");
    let versions = with_rules(json!([{"rule": "self > 5"}]))["spec"]["versions"].clone();
    call(
        &core,
        Method::PATCH,
        &format!("{CRDS}/widgets.example.com"),
        json!({"spec": {"versions": versions}}),
    )
    .await;
    core.settle();
    let released = call(&core, Method::PATCH, one, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(released.0, 200, "{}", released.1);
    assert_eq!(call(&core, Method::PATCH, one, json!({"list": [1, 2]})).await.0, 422);
    // A watch reads by the definition that it began with, so that it ends with that.
    assert!(futures::StreamExt::next(&mut events).await.is_none());
}

// wire 323
#[tokio::test(start_paused = true)]
async fn a_dry_run_leaves_no_trace() {
    let core = Core::new(CoreConfig::default());
    let before = core.resource_version();
    let (code, shown) = call(&core, Method::POST, &format!("{MAPS}?dryRun=All"), config_map("a")).await;
    assert_eq!((code, shown["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(core.resource_version(), before);
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/a"), Value::Null).await.0, 404);
}

// wire 509
#[tokio::test(start_paused = true)]
async fn every_served_version_shows_the_same_object() {
    let core = Core::new(CoreConfig::default());
    let mut definition = crd(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let mut beta = definition["spec"]["versions"][0].clone();
    beta["name"] = "v1beta1".into();
    beta["storage"] = false.into();
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(beta);
    }
    call(&core, Method::POST, CRDS, definition).await;
    core.settle();
    let (_, stored) = call(&core, Method::POST, WIDGETS, widget("x")).await;
    let (code, shown) =
        call(&core, Method::GET, &format!("{}/x", WIDGETS.replace("/v1/", "/v1beta1/")), Value::Null).await;
    assert_eq!((code, &shown["apiVersion"]), (200, &json!("example.com/v1beta1")));
    assert_eq!(shown["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
}

// wire 117
#[tokio::test(start_paused = true)]
async fn a_watch_shows_metadata_alone_where_asked() {
    let core = Core::new(CoreConfig::default());
    call(&core, Method::POST, MAPS, config_map("a")).await;
    let mut asked = request(Method::GET, &format!("{MAPS}?watch=1"), &Value::Null);
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    asked.headers.insert(header::ACCEPT, accept.parse().expect("value"));
    let Reply::Stream { mut events, .. } = core.serve(asked).await else { panic!("no stream") };
    let (_, object) = next(&mut events).await;
    assert_eq!((&object["kind"], object.get("data")), (&json!("PartialObjectMetadata"), None));
}

#[tokio::test(start_paused = true)]
async fn a_stored_raw_value_is_kept_whole() {
    let core = Core::new(CoreConfig::default());
    let revision = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"},
        "data": {"any": {"thing": [1]}}, "revision": 3,
    });
    let uri = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let (code, made) = call(&core, Method::POST, uri, revision).await;
    assert_eq!((code, &made["data"]), (201, &json!({"any": {"thing": [1]}})), "{made}");
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_give_equal_uids() {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let core = Core::new(CoreConfig::default());
        let generated = json!({"metadata": {"generateName": "x-"}});
        let (_, made) = call(&core, Method::POST, MAPS, generated).await;
        seen.push((made["metadata"]["uid"].clone(), made["metadata"]["name"].clone()));
    }
    assert_eq!(seen[0], seen[1]);
}

// wire 603
#[tokio::test(start_paused = true)]
async fn openapi_documents_refer_to_nothing_they_lack() {
    let core = with_widgets().await;
    let (_, index) = call(&core, Method::GET, "/openapi/v3", Value::Null).await;
    for path in ["api/v1", "apis/apps/v1", "apis/example.com/v1"] {
        let uri = index["paths"][path]["serverRelativeURL"].as_str().expect(path);
        let (code, document) = call(&core, Method::GET, uri, Value::Null).await;
        assert_eq!(code, 200, "{path}");
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().expect("a name");
            assert!(document["components"]["schemas"].get(name).is_some(), "{path}: {name}");
        }
    }
}

fn apply(uri: &str, body: &Value) -> ApiRequest {
    let mut request = request(Method::PATCH, uri, body);
    let apply = "application/apply-patch+yaml".parse().expect("a value");
    request.headers.insert(header::CONTENT_TYPE, apply);
    request
}

// The status patch of operators that use kube-rs.
#[tokio::test(start_paused = true)]
async fn an_apply_need_not_name_an_object_that_is_there() {
    let core = with_widgets().await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    assert_eq!(call(&core, Method::POST, WIDGETS, widget).await.0, 201);
    let nameless = json!({"apiVersion": "example.com/v1", "kind": "Widget", "status": {"ready": true}});
    let (code, made) = send(&core, apply(&format!("{WIDGETS}/w/status?fieldManager=m"), &nameless)).await;
    assert_eq!(
        (code.as_u16(), &made["status"], &made["metadata"]["name"]),
        (200, &json!({"ready": true}), &json!("w"))
    );
    let (code, refused) = send(&core, apply(&format!("{WIDGETS}/none?fieldManager=m"), &nameless)).await;
    let why = "the name of the object (none based on URL) was undeterminable: name must be provided";
    assert_eq!((code.as_u16(), &refused["message"]), (400, &json!(why)));
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_expects_a_uid_makes_no_object() {
    let core = Core::new(CoreConfig::default());
    let mut map = config_map("a");
    map["metadata"]["uid"] = "u-1".into();
    let (code, refused) = send(&core, apply(&format!("{MAPS}/a?fieldManager=m"), &map)).await;
    let why = "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid u-1, and no \
               existing object was found";
    assert_eq!((code.as_u16(), &refused["message"]), (409, &json!(why)));
}

// The request of Go clients for a port that is not set.
#[tokio::test(start_paused = true)]
async fn a_services_target_is_its_port_where_none_is_given() {
    let core = Core::new(CoreConfig::default());
    let ports = json!([{"port": 80, "name": "a", "targetPort": 0}, {"port": 81, "name": "b"}, {"port": 82, "name": "c", "targetPort": "x"}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": ports},
    });
    let (code, made) = call(&core, Method::POST, "/api/v1/namespaces/default/services", service).await;
    let targets: Vec<&Value> =
        made["spec"]["ports"].as_array().into_iter().flatten().map(|port| &port["targetPort"]).collect();
    assert_eq!((code, targets), (201, vec![&json!(80), &json!(81), &json!("x")]));
}

// As the registries of kube-apiserver 1.36 say: a client may tell by that whether an object is gone.
#[tokio::test(start_paused = true)]
async fn a_deletion_is_answered_with_the_object_where_the_real_server_does_so() {
    let core = Core::new(CoreConfig::default());
    let services = "/api/v1/namespaces/default/services";
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
    });
    assert_eq!(call(&core, Method::POST, services, service).await.0, 201);
    assert_eq!(call(&core, Method::POST, MAPS, config_map("a")).await.0, 201);
    let gone = async |uri: String| call(&core, Method::DELETE, &uri, Value::Null).await.1["kind"].clone();
    assert_eq!(gone(format!("{services}/s")).await, "Service");
    assert_eq!(gone(format!("{MAPS}/a")).await, "Status");
}

#[tokio::test(start_paused = true)]
async fn a_node_keeps_the_status_that_it_is_created_with() {
    let core = Core::new(CoreConfig::default());
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"conditions": ready, "capacity": {"cpu": "4"}},
    });
    let (code, made) = call(&core, Method::POST, "/api/v1/nodes", node).await;
    assert_eq!((code, &made["status"]["capacity"]["cpu"]), (201, &json!("4")), "{made}");
    assert_eq!(made["status"]["conditions"][0]["type"], "Ready");
}

// An operator that applies the whole object to its status must be able to take its finalizer off later.
#[tokio::test(start_paused = true)]
async fn an_apply_of_a_custom_status_owns_no_metadata() {
    let core = with_widgets().await;
    let mut whole = widget("w");
    whole["metadata"]["finalizers"] = json!(["example.com/f"]);
    let uri = format!("{WIDGETS}/w?fieldManager=m");
    assert_eq!(send(&core, apply(&uri, &whole)).await.0, StatusCode::CREATED);
    whole["status"] = json!({"ready": true});
    let (code, shown) = send(&core, apply(&format!("{WIDGETS}/w/status?fieldManager=m"), &whole)).await;
    assert_eq!((code.as_u16(), &shown["status"]["ready"]), (200, &json!(true)), "{shown}");
    let (code, after) = send(&core, apply(&uri, &widget("w"))).await;
    assert_eq!((code.as_u16(), after["metadata"].get("finalizers")), (200, None), "{after}");
}

#[tokio::test(start_paused = true)]
async fn an_update_of_metadata_is_checked() {
    let core = Core::new(CoreConfig::default());
    assert_eq!(call(&core, Method::POST, MAPS, config_map("a")).await.0, 201);
    let owner = |uid: &str, controls: bool| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid, "controller": controls});
    for metadata in [
        json!({"finalizers": ["cleanup"]}),
        json!({"annotations": {"a/b/c": "d"}}),
        json!({"ownerReferences": [owner("", false)]}),
        json!({"ownerReferences": [owner("u-1", true), owner("u-2", true)]}),
    ] {
        let patch = json!({"metadata": metadata});
        let (code, refused) = call(&core, Method::PATCH, &format!("{MAPS}/a"), patch).await;
        assert_eq!(code, 422, "{refused}");
    }
    // One that is there twice counts once.
    let (_, own) = call(&core, Method::GET, &format!("{MAPS}/a"), Value::Null).await;
    let mut reference = owner(own["metadata"]["uid"].as_str().expect("a uid"), true);
    reference["name"] = "a".into();
    let twice = json!({"metadata": {"ownerReferences": [reference, reference]}});
    let (code, after) = call(&core, Method::PATCH, &format!("{MAPS}/a"), twice).await;
    assert_eq!(
        (code, after["metadata"]["ownerReferences"].as_array().map(Vec::len)),
        (200, Some(1)),
        "{after}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dependent_goes_if_its_reference_names_another_object() {
    let core = Core::new(CoreConfig::default());
    let (_, owner) = call(&core, Method::POST, MAPS, config_map("owner")).await;
    let dependent = |name: &str, kind: &str, of: &str| {
        let mut map = config_map(name);
        let uid = &owner["metadata"]["uid"];
        map["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": kind, "name": of, "uid": uid}]);
        map
    };
    let references = [
        ("right", "ConfigMap", "owner"),
        ("wrong", "ConfigMap", "other"),
        ("secret", "Secret", "owner"),
        ("none", "Maps", "owner"),
    ];
    for (name, kind, of) in references {
        assert_eq!(call(&core, Method::POST, MAPS, dependent(name, kind, of)).await.0, 201);
    }
    core.settle();
    let there = async |name: &str| call(&core, Method::GET, &format!("{MAPS}/{name}"), Value::Null).await.0;
    let found = [there("right").await, there("wrong").await, there("secret").await, there("none").await];
    assert_eq!(found, [200, 404, 404, 200]);
}

#[tokio::test(start_paused = true)]
async fn an_event_with_a_time_of_its_own_is_checked_strictly() {
    let core = Core::new(CoreConfig::default());
    let send = async |change: Value| {
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c",
            "reportingInstance": "i", "action": "Acts", "reason": "Done", "type": "Normal",
            "regarding": {"kind": "ConfigMap", "namespace": "default", "name": "a"},
        });
        for (field, value) in change.as_object().expect("an object") {
            event[field] = value.clone();
        }
        call(&core, Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events", event).await.0
    };
    assert_eq!(send(json!({"note": "x".repeat(1_024)})).await, 201);
    for change in [
        json!({"note": "x".repeat(1_025)}),
        json!({"reason": "x".repeat(129)}),
        json!({"reportingController": "my controller"}),
    ] {
        assert_eq!(send(change.clone()).await, 422, "{change}");
    }
}

//! Claims about limits: requests beyond them are refused early, and accepted objects can be kept.

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use serde_json::{Value, json};

use super::{ApiRequest, Core, CoreConfig, Reply};
use crate::identity::User;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn send(core: &Core, method: Method, uri: &str, media: &str, body: String) -> (u16, Value) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, media.parse().expect("a value"));
    let uri = uri.parse().expect("a uri");
    let request = ApiRequest { method, uri, headers, body: Bytes::from(body), user: User::Admin };
    match core.serve(request).await {
        Reply::Full(response) => {
            (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
        }
        Reply::Stream { .. } => panic!("a stream where an answer was expected"),
    }
}

async fn call(core: &Core, method: Method, uri: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(core, method, uri, "application/json", body).await
}

async fn json_patch(core: &Core, uri: &str, steps: Value) -> (u16, Value) {
    send(core, Method::PATCH, uri, "application/json-patch+json", steps.to_string()).await
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// A core with a kind that keeps all its fields.
async fn with_widgets(config: CoreConfig) -> Core {
    let core = Core::open(config).expect("a core").0;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let (code, answer) = call(&core, Method::POST, CRDS, definition).await;
    assert!(code == 201 || code == 409, "{answer}");
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    core
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Nests a value to a depth.
fn nested(times: usize) -> Value {
    (0..times).fold(json!("x"), |below, _| json!({ "a": below }))
}

// A30
#[tokio::test(start_paused = true)]
async fn a_patch_that_grows_without_bound_is_refused_and_changes_nothing() {
    let core = with_widgets(CoreConfig::default()).await;
    call(&core, Method::POST, WIDGETS, widget("w", &json!({"a": {"b": "c"}}))).await;
    let uri = format!("{WIDGETS}/w");
    let before = call(&core, Method::GET, &uri, Value::Null).await;
    let deeper: Vec<Value> =
        (0..500).map(|_| json!({"op": "copy", "from": "/spec", "path": "/spec/a"})).collect();
    let wider: Vec<Value> = (0..40)
        .map(|time| json!({"op": "copy", "from": "/spec", "path": format!("/spec/k{time}")}))
        .collect();
    for steps in [deeper, wider] {
        let (code, answer) = json_patch(&core, &uri, Value::Array(steps)).await;
        let said = "the server rejected our request due to an error in our request";
        assert_eq!((code, answer["message"].as_str()), (422, Some(said)));
    }
    assert_eq!(call(&core, Method::GET, &uri, Value::Null).await, before);
}

// A33
#[tokio::test(start_paused = true)]
async fn whatever_depth_is_taken_is_there_after_a_restart() {
    let folder = std::env::temp_dir().join(format!("bounds-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let config = || CoreConfig { data: Some(folder.join("state")), ..CoreConfig::default() };
    let core = with_widgets(config()).await;
    let (mut taken, mut refused) = (Vec::new(), 0);
    for times in 100..127 {
        let name = format!("w{times}");
        match call(&core, Method::POST, WIDGETS, widget(&name, &nested(times))).await {
            (201, _) => taken.push(name),
            (code, answer) => {
                assert_eq!((code, answer["reason"].as_str()), (422, Some("Invalid")), "{answer}");
                refused += 1;
            }
        }
    }
    assert!(taken.len() > 5 && refused > 5, "{taken:?}");
    core.close().await.expect("all is written");
    drop(core);
    let (core, restored) = Core::open(config()).expect("the file is read again");
    assert!(restored.is_some());
    for name in taken {
        let (code, _) = call(&core, Method::GET, &format!("{WIDGETS}/{name}"), Value::Null).await;
        assert_eq!(code, 200, "{name}");
    }
    core.abandon();
    std::fs::remove_dir_all(folder).expect("it goes");
}

// A34
#[tokio::test(start_paused = true)]
async fn what_is_too_large_to_be_kept_is_refused() {
    let core = with_widgets(CoreConfig::default()).await;
    let text = |bytes: usize| "x".repeat(bytes);
    let (code, answer) = call(&core, Method::POST, WIDGETS, widget("w", &json!(text(1_600_000)))).await;
    assert_eq!((code, answer["message"].as_str()), (500, Some("etcdserver: request is too large")));
    let (code, _) = call(&core, Method::POST, WIDGETS, widget("w", &json!(text(1_400_000)))).await;
    assert_eq!(code, 201);

    let mut annotated = map("a");
    annotated["metadata"]["annotations"] = json!({"k": text(256 * 1024)});
    let (code, answer) = call(&core, Method::POST, MAPS, annotated.clone()).await;
    let cause = json!([{
        "reason": "FieldValueTooLong", "message": "Too long: may not be more than 262144 bytes",
        "field": "metadata.annotations",
    }]);
    assert_eq!((code, &answer["details"]["causes"]), (422, &cause));
    call(&core, Method::POST, MAPS, map("a")).await;
    let (code, _) = call(&core, Method::PUT, &format!("{MAPS}/a"), annotated.clone()).await;
    assert_eq!(code, 422, "an update as well");
    annotated["metadata"]["annotations"] = json!({"k": text(256 * 1024 - 1)});
    assert_eq!(call(&core, Method::PUT, &format!("{MAPS}/a"), annotated).await.0, 200);

    let secret = |bytes: usize| {
        use base64::Engine as _;
        let data = base64::engine::general_purpose::STANDARD.encode(text(bytes));
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": data}})
    };
    let secrets = "/api/v1/namespaces/default/secrets";
    let (code, answer) = call(&core, Method::POST, secrets, secret(1024 * 1024 + 1)).await;
    let cause = json!([{
        "reason": "FieldValueTooLong", "message": "Too long: may not be more than 1048576 bytes", "field": "data",
    }]);
    assert_eq!((code, &answer["details"]["causes"]), (422, &cause));
    assert_eq!(call(&core, Method::POST, secrets, secret(1024 * 1024)).await.0, 201);
}

// A34
#[tokio::test(start_paused = true)]
async fn keys_that_lead_out_of_a_folder_are_refused() {
    let core = Core::new(CoreConfig::default());
    let long = "k".repeat(254);
    for (key, why) in [
        (".", "must not be '.'"),
        ("..", "must not be '..'"),
        ("..a", "must not start with '..'"),
        (long.as_str(), "must be no more than 253 characters"),
    ] {
        for field in ["data", "binaryData"] {
            let mut map = map("m");
            map[field] = json!({ key: "eA==" });
            let (code, answer) = call(&core, Method::POST, MAPS, map).await;
            let message = format!("Invalid value: {key:?}: {why}");
            let cause = json!([{
                "reason": "FieldValueInvalid", "message": message, "field": format!("{field}[{key}]"),
            }]);
            assert_eq!((code, &answer["details"]["causes"]), (422, &cause));
        }
    }
    let mut map = map("m");
    map["data"] = json!({".a": "x", "a..b": "y", "k".repeat(253): "z"});
    assert_eq!(call(&core, Method::POST, MAPS, map).await.0, 201);
}

/// Makes maps that own each other in a circle.
async fn circle(core: &Core, names: &[&str]) {
    let mut uids = Vec::new();
    for name in names {
        let (code, made) = call(core, Method::POST, MAPS, map(name)).await;
        assert_eq!(code, 201);
        uids.push(made["metadata"]["uid"].clone());
    }
    for (at, name) in names.iter().enumerate() {
        let owner = (at + 1) % names.len();
        let mut owned = map(name);
        owned["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": names[owner], "uid": uids[owner],
            "blockOwnerDeletion": true,
        }]);
        assert_eq!(call(core, Method::PUT, &format!("{MAPS}/{name}"), owned).await.0, 200);
    }
}

// A37
#[tokio::test(start_paused = true)]
async fn owners_in_a_circle_are_deleted_in_the_foreground() {
    let foreground = json!({"propagationPolicy": "Foreground"});
    for (names, deleted) in
        [(&["a"][..], 1), (&["a", "b"][..], 1), (&["a", "b"][..], 2), (&["a", "b", "c"][..], 1)]
    {
        let core = Core::new(CoreConfig::default());
        circle(&core, names).await;
        for name in &names[..deleted] {
            let (code, _) = call(&core, Method::DELETE, &format!("{MAPS}/{name}"), foreground.clone()).await;
            assert_eq!(code, 200);
        }
        core.settle();
        for name in names {
            let (code, left) = call(&core, Method::GET, &format!("{MAPS}/{name}"), Value::Null).await;
            assert_eq!(code, 404, "{names:?}: {left}");
        }
    }
}

// A31
#[tokio::test(start_paused = true)]
async fn aliases_in_reviews_bindings_and_evictions_are_counted() {
    let core = Core::new(CoreConfig::default());
    let body = format!("a: &a\n{}b:\n{}", "  - 1\n".repeat(1_000), "  - *a\n".repeat(1_000));
    for uri in [
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/api/v1/namespaces/default/bindings",
        "/api/v1/namespaces/default/pods/p/binding",
        "/api/v1/namespaces/default/pods/p/eviction",
    ] {
        let (code, answer) = send(&core, Method::POST, uri, "application/yaml", body.clone()).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(code == 400 && message.contains("excessive aliasing"), "{uri}: {code} {message}");
    }
}

// A31
#[tokio::test(start_paused = true)]
async fn the_faults_of_one_object_are_bounded() {
    let core = Core::new(CoreConfig::default());
    let names = |word: &str| (0..2_000).map(|n| json!({"name": format!("{word}-{n}")})).collect::<Value>();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": names("wrong")}}],
            "resourceClaims": names("claim"),
        },
    });
    let (code, answer) = call(&core, Method::POST, "/api/v1/namespaces/default/pods", pod).await;
    assert_eq!(code, 422);
    let first = "spec.containers[0].resources.claims[0].name";
    assert_eq!(answer["details"]["causes"][0]["field"], json!(first.trim_end_matches(".name")));
    let length = answer.to_string().len();
    assert!(length < 3 * 1024 * 1024, "{length} bytes");
}

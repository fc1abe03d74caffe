//! Claims about webhooks: which ones are called, what they get, and how their answers are used.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{ApiRequest, Core, CoreConfig, Reply};
use crate::call::{Caller, WebhookAddress};
use crate::identity::User;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

type Seen = Arc<Mutex<Vec<Value>>>;

/// A core with webhooks at `https://hooks/NAME`; each records its calls.
struct Stage {
    caller: Caller,
    seen: Seen,
}

impl Stage {
    fn new() -> Self {
        Self { caller: Caller::default(), seen: Seen::default() }
    }

    /// Adds a webhook that answers with these fields of a response.
    fn hook(mut self, name: &str, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let (seen, own) = (self.seen.clone(), name.to_owned());
        let handler = Arc::new(move |review: Value| -> futures::future::BoxFuture<'static, Value> {
            let mut request = review["request"].clone();
            request["hook"] = own.as_str().into();
            seen.lock().expect("nobody panics").push(request);
            let mut response = answer(&review["request"]);
            response["uid"] = review["request"]["uid"].clone();
            let answer =
                json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response});
            Box::pin(async move { answer })
        });
        self.caller.handle(WebhookAddress::Url(format!("https://hooks/{name}")), handler);
        self
    }

    fn core(self) -> (Core, Seen) {
        (Core::new(CoreConfig { caller: self.caller, ..CoreConfig::default() }), self.seen)
    }
}

fn asked(seen: &Seen) -> Vec<String> {
    let seen = seen.lock().expect("nobody panics");
    let told = |request: &Value| {
        let text = |key: &str| request[key].as_str().unwrap_or_default().to_owned();
        let below = text("subResource");
        let below = if below.is_empty() { below } else { format!("/{below}") };
        format!(
            "{} {} {}{below}",
            text("hook"),
            text("operation"),
            request["resource"]["resource"].as_str().unwrap_or_default()
        )
    };
    seen.iter().map(told).collect()
}

fn patch(steps: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(steps.to_string())})
}

fn allowed(_: &Value) -> Value {
    json!({ "allowed": true })
}

async fn send(core: &Core, method: Method, uri: &str, body: Value) -> (u16, Value, Vec<String>) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut headers = HeaderMap::new();
    if method == Method::PATCH {
        headers.insert("content-type", "application/merge-patch+json".parse().expect("a value"));
    }
    let request = ApiRequest { method, uri: uri.parse().expect("a uri"), headers, body, user: User::Admin };
    match core.serve(request).await {
        Reply::Full(response) => {
            let warnings = response.headers().get_all("warning").iter();
            let warnings = warnings.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
            (
                response.status().as_u16(),
                serde_json::from_slice(response.body()).unwrap_or_default(),
                warnings,
            )
        }
        Reply::Stream { .. } => panic!("a stream where an answer was expected"),
    }
}

async fn call(core: &Core, method: Method, uri: &str, body: Value) -> (u16, Value) {
    let (code, value, _) = send(core, method, uri, body).await;
    (code, value)
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// Registers a webhook on ConfigMaps, optionally with other fields.
async fn register(core: &Core, family: &str, name: &str, fields: Value) {
    let mut hook = json!({
        "name": format!("{name}.example.com"), "clientConfig": {"url": format!("https://hooks/{name}")},
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        hook[key] = value.clone();
    }
    let body = json!({"metadata": {"name": name}, "webhooks": [hook]});
    let (code, made) =
        call(core, Method::POST, &format!("{HOOKS}/{family}webhookconfigurations"), body).await;
    assert_eq!(code, 201, "{made}");
}

// A10
#[tokio::test(start_paused = true)]
async fn a_validating_webhook_is_asked_about_each_write_and_may_refuse_it() {
    let (core, seen) = Stage::new()
        .hook("no", |request| {
            let bad = request["object"]["data"]["k"] == "bad" || request["oldObject"]["data"]["keep"] == "yes";
            let status = json!({"message": "not so", "code": 422, "reason": "Invalid"});
            json!({"allowed": !(bad && request["operation"] != "UPDATE" || request["object"]["data"]["k"] == "bad"), "status": status})
        })
        .core();
    register(&core, "validating", "no", json!({})).await;
    let (code, made) = call(&core, Method::POST, MAPS, map("a")).await;
    assert_eq!(code, 201);
    let bad = json!({"metadata": {"name": "b"}, "data": {"k": "bad"}});
    let (code, refused) = call(&core, Method::POST, MAPS, bad).await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
    assert_eq!(refused["message"], "admission webhook \"no.example.com\" denied the request: not so");
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/b"), Value::Null).await.0, 404, "it was not made");
    let one = format!("{MAPS}/a");
    assert_eq!(call(&core, Method::PATCH, &one, json!({"data": {"k": "bad"}})).await.0, 422);
    assert_eq!(call(&core, Method::PATCH, &one, json!({"data": {"keep": "yes"}})).await.0, 200);
    assert_eq!(call(&core, Method::DELETE, &one, Value::Null).await.0, 422);
    assert_eq!(
        call(&core, Method::DELETE, MAPS, Value::Null).await.0,
        422,
        "each of a collection is asked about"
    );
    assert_eq!(call(&core, Method::GET, &one, Value::Null).await.0, 200);
    let expected = ["CREATE", "CREATE", "UPDATE", "UPDATE", "DELETE", "DELETE"];
    assert_eq!(asked(&seen), expected.map(|operation| format!("no {operation} configmaps")));
    let first = seen.lock().expect("nobody panics")[0].clone();
    assert_eq!(
        first["object"]["metadata"]["uid"], made["metadata"]["uid"],
        "the object is as it is stored then"
    );
    assert_eq!(
        first["userInfo"],
        json!({"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]})
    );
    assert_eq!(
        (&first["name"], &first["namespace"], &first["dryRun"]),
        (&json!("a"), &json!("default"), &json!(false))
    );
    assert_eq!(first["options"]["kind"], "CreateOptions");
    let deletion = seen.lock().expect("nobody panics")[4].clone();
    assert_eq!((&deletion["object"], &deletion["oldObject"]["data"]["keep"]), (&Value::Null, &json!("yes")));
}

// A10
#[tokio::test(start_paused = true)]
async fn mutating_webhooks_change_the_object_in_the_order_of_their_names() {
    let add = |key: &'static str| {
        move |request: &Value| {
            let before: Vec<&String> = request["object"]["data"].as_object().expect("data").keys().collect();
            patch(
                json!([{"op": "add", "path": format!("/data/{key}"), "value": format!("after {before:?}")}]),
            )
        }
    };
    let (core, _) = Stage::new().hook("b", add("b")).hook("a", add("a")).core();
    register(&core, "mutating", "b", json!({})).await;
    register(&core, "mutating", "a", json!({})).await;
    let (code, made) = call(&core, Method::POST, MAPS, map("x")).await;
    assert_eq!((code, &made["data"]["a"]), (201, &json!("after [\"k\"]")), "{made}");
    assert_eq!(made["data"]["b"], "after [\"a\", \"k\"]");
    let fields = made["metadata"]["managedFields"].to_string();
    assert!(fields.contains("f:k") && !fields.contains("f:a"), "what a webhook adds is nobody's: {fields}");
    let (_, stored) = call(&core, Method::GET, &format!("{MAPS}/x"), Value::Null).await;
    assert_eq!(stored, made);
    // A generated name is the same in each attempt.
    let generated = json!({"metadata": {"generateName": "g-"}, "data": {}});
    assert_eq!(call(&core, Method::POST, MAPS, generated).await.0, 201);
}

// A10
#[tokio::test(start_paused = true)]
async fn a_webhook_is_asked_again_when_a_later_one_has_changed_the_object() {
    let (core, seen) = Stage::new()
        .hook("a", |request| {
            let twice = request["object"]["data"]["b"] == "1";
            let steps =
                if twice { json!([{"op": "add", "path": "/data/saw", "value": "b"}]) } else { json!([]) };
            patch(steps)
        })
        .hook("b", |_| patch(json!([{"op": "add", "path": "/data/b", "value": "1"}])))
        .core();
    register(&core, "mutating", "a", json!({"reinvocationPolicy": "IfNeeded"})).await;
    register(&core, "mutating", "b", json!({})).await;
    let (code, made) = call(&core, Method::POST, MAPS, map("x")).await;
    assert_eq!((code, &made["data"]["saw"]), (201, &json!("b")), "{made}");
    assert_eq!(asked(&seen), ["a CREATE configmaps", "b CREATE configmaps", "a CREATE configmaps"]);
}

// A11
#[tokio::test(start_paused = true)]
async fn a_failure_refuses_the_write_unless_the_policy_ignores_it() {
    let mut stage =
        Stage::new().hook("junk", |_| json!({"allowed": true, "patch": "!", "patchType": "JSONPatch"}));
    let slow: crate::call::Handler = Arc::new(|_| Box::pin(std::future::pending()));
    stage.caller.handle(WebhookAddress::Url("https://hooks/slow".to_owned()), slow);
    let panics: crate::call::Handler = Arc::new(|_| Box::pin(async { panic!("a bug") }));
    stage.caller.handle(WebhookAddress::Url("https://hooks/panics".to_owned()), panics);
    let (core, _) = stage.core();
    for (family, name, fields, why) in [
        ("mutating", "junk", json!({}), "received undecodable patch in webhook response: "),
        (
            "validating",
            "junk",
            json!({}),
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
        (
            "validating",
            "slow",
            json!({"timeoutSeconds": 3}),
            "failed to call webhook: Post \"https://hooks/slow?timeout=3s\": context deadline exceeded",
        ),
        ("mutating", "panics", json!({}), "failed to call webhook: the webhook has panicked"),
        (
            "mutating",
            "gone",
            json!({"clientConfig": {"service": {"namespace": "shop", "name": "web", "path": "/x"}}}),
            "failed to call webhook: Post \"https://web.shop.svc:443/x?timeout=10s\": service \"web\" not found",
        ),
    ] {
        let path = format!("{HOOKS}/{family}webhookconfigurations/{name}");
        register(&core, family, name, fields).await;
        let started = tokio::time::Instant::now();
        let (code, failed) = call(&core, Method::POST, MAPS, map("a")).await;
        let message = failed["message"].as_str().unwrap_or_default();
        let start = format!("Internal error occurred: failed calling webhook \"{name}.example.com\": {why}");
        assert!(code == 500 && message.starts_with(&start), "{code} {message}");
        assert!(started.elapsed() <= Duration::from_secs(3));
        let ignore = json!([{"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "application/json-patch+json".parse().expect("a value"));
        let (uri, body) = (path.parse().expect("a uri"), Bytes::from(ignore.to_string()));
        core.serve(ApiRequest { method: Method::PATCH, uri, headers, body, user: User::Admin }).await;
        let (code, made) = call(&core, Method::POST, MAPS, map("a")).await;
        assert_eq!(code, 201, "{name}: {made}");
        assert_eq!(call(&core, Method::DELETE, &path, Value::Null).await.0, 200);
        assert_eq!(call(&core, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await.0, 200);
    }
}

// A10
#[tokio::test(start_paused = true)]
async fn rules_selectors_and_conditions_choose_who_is_asked() {
    let hooks = ["rule", "scope", "object", "namespace", "condition", "status", "other"];
    let stage = hooks.into_iter().fold(Stage::new(), |stage, name| stage.hook(name, allowed));
    let (core, seen) = stage.core();
    let rule = |resources: &[&str], operations: &[&str], scope: &str| json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": resources, "scope": scope}]);
    register(&core, "validating", "rule", json!({"rules": rule(&["*"], &["CREATE"], "Namespaced")})).await;
    register(&core, "validating", "scope", json!({"rules": rule(&["*"], &["*"], "Cluster")})).await;
    register(&core, "validating", "object", json!({"objectSelector": {"matchLabels": {"ask": "yes"}}})).await;
    let there = json!({"matchExpressions": [{"key": "env", "operator": "Exists"}]});
    register(&core, "validating", "namespace", json!({ "namespaceSelector": there })).await;
    let condition =
        json!([{"name": "mine", "expression": "request.operation != 'DELETE' && object.data.k == 'ask'"}]);
    register(&core, "validating", "condition", json!({ "matchConditions": condition })).await;
    register(&core, "validating", "status", json!({"rules": rule(&["deployments/*"], &["UPDATE"], "*")}))
        .await;
    register(&core, "validating", "other", json!({"rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]})).await;
    let take = || std::mem::take(&mut *seen.lock().expect("nobody panics"));
    let names = |seen: Vec<Value>| -> Vec<String> {
        seen.iter().map(|request| request["hook"].as_str().unwrap_or_default().to_owned()).collect()
    };
    take();
    call(&core, Method::POST, MAPS, map("plain")).await;
    assert_eq!(names(take()), ["rule"]);
    let labelled = json!({"metadata": {"name": "l", "labels": {"ask": "yes"}}, "data": {"k": "ask"}});
    call(&core, Method::POST, MAPS, labelled).await;
    assert_eq!(names(take()), ["condition", "object", "rule"], "by name");
    call(&core, Method::PATCH, &format!("{MAPS}/l"), json!({"metadata": {"labels": null}})).await;
    assert_eq!(names(take()), ["condition", "object"], "the old object's labels count");
    call(
        &core,
        Method::POST,
        "/api/v1/namespaces",
        json!({"metadata": {"name": "shop", "labels": {"env": "x"}}}),
    )
    .await;
    assert_eq!(names(take()), ["scope"]);
    call(&core, Method::POST, "/api/v1/namespaces/shop/configmaps", map("a")).await;
    assert_eq!(names(take()), ["namespace", "rule"]);
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let web = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(call(&core, Method::POST, deployments, web).await.0, 201);
    take();
    let (code, _) =
        call(&core, Method::PATCH, &format!("{deployments}/web/scale"), json!({"spec": {"replicas": 3}}))
            .await;
    assert_eq!(code, 200);
    let scaled = take();
    assert_eq!((&scaled[0]["subResource"], &scaled[0]["kind"]["kind"]), (&json!("scale"), &json!("Scale")));
    assert_eq!(
        (&scaled[0]["object"]["spec"]["replicas"], &scaled[0]["oldObject"]["spec"]["replicas"]),
        (&json!(3), &json!(1))
    );
    // A webhook can't refuse changes to webhook configurations.
    call(&core, Method::DELETE, &format!("{HOOKS}/validatingwebhookconfigurations/other"), Value::Null).await;
    assert_eq!(names(take()), Vec::<String>::new());
}

// A10
#[tokio::test(start_paused = true)]
async fn a_condition_that_fails_refuses_the_write_or_skips_the_webhook() {
    let (core, seen) = Stage::new().hook("c", allowed).core();
    let condition = json!([{"name": "c", "expression": "object.spec.x == 1"}]);
    register(&core, "validating", "c", json!({"matchConditions": condition})).await;
    let (code, refused) = call(&core, Method::POST, MAPS, map("a")).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        code == 403
            && message.contains("expression 'object.spec.x == 1' resulted in error: no such key: spec"),
        "{message}"
    );
    call(&core, Method::DELETE, &format!("{HOOKS}/validatingwebhookconfigurations/c"), Value::Null).await;
    register(&core, "validating", "c", json!({"matchConditions": condition, "failurePolicy": "Ignore"}))
        .await;
    assert_eq!(call(&core, Method::POST, MAPS, map("a")).await.0, 201);
    assert!(asked(&seen).is_empty());
}

// A10
#[tokio::test(start_paused = true)]
async fn a_webhook_is_told_of_a_dry_run() {
    let (core, seen) = Stage::new().hook("pure", allowed).core();
    register(&core, "validating", "pure", json!({"sideEffects": "NoneOnDryRun"})).await;
    let dry = format!("{MAPS}?dryRun=All");
    assert_eq!(call(&core, Method::POST, &dry, map("a")).await.0, 201);
    assert_eq!(seen.lock().expect("nobody panics")[0]["dryRun"], true);
    assert_eq!(call(&core, Method::POST, MAPS, map("a")).await.0, 201);
    assert_eq!(seen.lock().expect("nobody panics")[1]["dryRun"], false);
}

// A10
#[tokio::test(start_paused = true)]
async fn warnings_reach_the_client_once() {
    let (core, _) = Stage::new()
        .hook(
            "warns",
            |_| json!({"allowed": true, "warnings": ["think twice"], "auditAnnotations": {"a": "b"}}),
        )
        .hook("also", |_| json!({"allowed": false, "warnings": ["really"]}))
        .core();
    register(&core, "mutating", "warns", json!({})).await;
    let (code, _, warnings) = send(&core, Method::POST, MAPS, map("a")).await;
    assert_eq!((code, warnings), (201, vec!["299 - \"think twice\"".to_owned()]));
    register(&core, "validating", "also", json!({})).await;
    let (code, refused, warnings) = send(&core, Method::POST, MAPS, map("b")).await;
    assert_eq!(
        (code, &refused["message"]),
        (400, &json!("admission webhook \"also.example.com\" denied the request without explanation"))
    );
    assert_eq!(warnings, ["299 - \"think twice\"", "299 - \"really\""]);
}

// A10
#[tokio::test(start_paused = true)]
async fn a_rule_for_another_version_is_met_by_the_object_in_that_version() {
    let (core, seen) = Stage::new()
        .hook("v2", |request| {
            assert_eq!(request["object"]["apiVersion"], "example.com/v2");
            patch(json!([{"op": "add", "path": "/spec/by", "value": "webhook"}]))
        })
        .core();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [version("v1", true), version("v2", false)]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(call(&core, Method::POST, definitions, definition).await.0, 201);
    core.settle();
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["widgets"]}]);
    register(&core, "mutating", "v2", json!({"rules": rules, "matchPolicy": "Exact"})).await;
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {}});
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    assert_eq!(call(&core, Method::POST, path, widget("exact")).await.0, 201);
    assert!(asked(&seen).is_empty());
    call(&core, Method::DELETE, &format!("{HOOKS}/mutatingwebhookconfigurations/v2"), Value::Null).await;
    register(&core, "mutating", "v2", json!({ "rules": rules })).await;
    let (code, made) = call(&core, Method::POST, path, widget("equivalent")).await;
    assert_eq!(
        (code, &made["apiVersion"], &made["spec"]["by"]),
        (201, &json!("example.com/v1"), &json!("webhook")),
        "{made}"
    );
    let request = seen.lock().expect("nobody panics")[0].clone();
    assert_eq!(
        (&request["resource"]["version"], &request["requestResource"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
}

// A10
#[tokio::test(start_paused = true)]
async fn a_webhook_without_an_end_is_ended() {
    let number = std::sync::atomic::AtomicU32::new(0);
    let (core, _) = Stage::new()
        .hook("a", move |_| {
            let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            patch(json!([{"op": "add", "path": "/data/n", "value": number.to_string()}]))
        })
        .core();
    register(&core, "mutating", "a", json!({"reinvocationPolicy": "IfNeeded"})).await;
    assert_eq!(call(&core, Method::POST, MAPS, map("a")).await.0, 201);
    assert_eq!(call(&core, Method::PATCH, &format!("{MAPS}/a"), json!({"data": {"x": "y"}})).await.0, 200);
}

// A40
#[tokio::test(start_paused = true)]
async fn a_webhook_does_not_write_the_status_of_what_it_changes() {
    let with_status = |_: &Value| {
        patch(json!([
            {"op": "add", "path": "/status", "value": {"phase": "Failed", "message": "by a webhook"}},
            {"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}},
        ]))
    };
    let (core, _) = Stage::new().hook("a", with_status).core();
    register(&core, "mutating", "a", json!({"rules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"],
    }]}))
    .await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, made) = call(&core, Method::POST, pods, pod).await;
    assert_eq!((code, &made["metadata"]["labels"]["by"]), (201, &json!("webhook")));
    assert_eq!((&made["status"]["phase"], made["status"].get("message")), (&json!("Pending"), None));
    let change = json!({"metadata": {"labels": {"other": "x"}}});
    let (code, changed) = call(&core, Method::PATCH, &format!("{pods}/p"), change).await;
    assert_eq!(code, 200, "{changed}");
    assert_eq!((&changed["status"]["phase"], changed["status"].get("message")), (&json!("Pending"), None));
}

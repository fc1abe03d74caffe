//! What is said of admission webhooks that fail, by the embedded server and by a real kube-apiserver: the same.

use std::time::Duration;

use serde_json::{Value, json};
use watchkeeper_apiserver::ApiServer;

use super::both::{MERGE, Real, ask, compare, told, write_down};
use super::{certificates, serve};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
const JSON: &str = "application/json";

/// Answers a review by the last part of the path: what the body is, whatever was asked.
pub(super) fn review(what: &str, review: &Value) -> String {
    let uid = &review["request"]["uid"];
    let whole = |response: Value| {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
            .to_string()
    };
    let refusing = |status: Value| whole(json!({"uid": uid, "allowed": false, "status": status}));
    let patching = |patch: &str| {
        use base64::Engine as _;
        let patch = base64::engine::general_purpose::STANDARD.encode(patch);
        whole(json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch}))
    };
    match what {
        "refuses" => refusing(json!({"message": "not on Fridays"})),
        "refuses-with-a-code" => {
            refusing(json!({"message": "too many", "code": 429, "reason": "TooManyRequests"}))
        }
        "refuses-with-a-reason" => refusing(json!({"reason": "Conflict"})),
        "refuses-with-success" => refusing(json!({"message": "odd", "code": 200})),
        "refuses-silently" => whole(json!({"uid": uid, "allowed": false})),
        "another-uid" => whole(json!({"uid": "x", "allowed": true})),
        "no-uid" => whole(json!({"allowed": true})),
        "another-version" => json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1",
                "response": {"uid": uid, "allowed": true}})
        .to_string(),
        "unknown-version" => json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v9",
                "response": {"uid": uid, "allowed": true}})
        .to_string(),
        "another-kind" => {
            json!({"kind": "Pod", "apiVersion": "v1", "response": {"uid": uid, "allowed": true}}).to_string()
        }
        "no-kind" => json!({"response": {"uid": uid, "allowed": true}}).to_string(),
        "no-response" => json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}).to_string(),
        "empty-object" => "{}".to_owned(),
        "empty" => String::new(),
        "text" => "hello there".to_owned(),
        "patch-without-type" => whole(json!({"uid": uid, "allowed": true, "patch": "W10="})),
        "type-without-patch" => whole(json!({"uid": uid, "allowed": true, "patchType": "JSONPatch"})),
        "another-type" => whole(json!({"uid": uid, "allowed": true, "patch": "W10=", "patchType": "Merge"})),
        "patch-that-is-no-patch" => patching(r#"{"op":"add"}"#),
        "patch-that-is-no-json" => patching("nothing"),
        "patch-of-what-is-not-there" => patching(r#"[{"op":"remove","path":"/data/missing"}]"#),
        "patch-below-what-is-not-there" => patching(r#"[{"op":"add","path":"/spec/a/b","value":1}]"#),
        "patch-whose-test-fails" => patching(r#"[{"op":"test","path":"/data/k","value":"other"}]"#),
        "patch-with-an-unknown-step" => patching(r#"[{"op":"grow","path":"/data/k"}]"#),
        "patch-of-the-name" => patching(r#"[{"op":"replace","path":"/metadata/name","value":"other"}]"#),
        "patch-of-a-type" => patching(r#"[{"op":"replace","path":"/data","value":"text"}]"#),
        "patch-that-makes-it-invalid" => patching(r#"[{"op":"add","path":"/data/a b","value":"c"}]"#),
        other => panic!("nobody asks for {other}"),
    }
}

/// A webhook to be asked: what it is called in the transcript, and what differs from the usual one.
struct Case {
    what: &'static str,
    family: &'static str,
    hook: Value,
}

fn cases(port: u16, authority: &str, other: &str, closed: u16) -> Vec<Case> {
    let mut all = Vec::new();
    let local = |path: &str| format!("https://localhost:{port}{path}");
    let mut add = |what, family, hook| all.push(Case { what, family, hook });
    let client = |url: String| json!({"clientConfig": {"url": url, "caBundle": authority}});
    for what in [
        "refuses",
        "refuses-with-a-code",
        "refuses-with-a-reason",
        "refuses-with-success",
        "refuses-silently",
        "another-uid",
        "no-uid",
        "another-version",
        "unknown-version",
        "another-kind",
        "no-kind",
        "no-response",
        "empty-object",
        "empty",
        "text",
        "patch-without-type",
        "type-without-patch",
        "another-type",
    ] {
        add(what, "validating", client(local(&format!("/admit/{what}"))));
    }
    for what in [
        "refuses",
        "another-uid",
        "patch-without-type",
        "type-without-patch",
        "another-type",
        "patch-that-is-no-patch",
        "patch-that-is-no-json",
        "patch-of-what-is-not-there",
        "patch-below-what-is-not-there",
        "patch-whose-test-fails",
        "patch-with-an-unknown-step",
        "patch-of-the-name",
        "patch-of-a-type",
        "patch-that-makes-it-invalid",
    ] {
        add(what, "mutating", client(local(&format!("/admit/{what}"))));
    }
    for (what, path) in [
        ("is-broken", "/broken"),
        ("is-not-there", "/nothing"),
        ("is-forbidden", "/forbidden"),
        ("is-elsewhere", "/elsewhere"),
    ] {
        add(what, "validating", client(local(path)));
    }
    let mut slow = client(local("/slow"));
    slow["timeoutSeconds"] = 1.into();
    add("is-slow", "validating", slow);
    add("does-not-listen", "validating", client(format!("https://localhost:{closed}/a")));
    add("has-another-name", "validating", client(format!("https://127.0.0.1:{port}/admit/refuses")));
    let of = |url: String, bundle: &str| json!({"clientConfig": {"url": url, "caBundle": bundle}});
    add("has-another-authority", "validating", of(local("/admit/refuses"), other));
    add("has-no-authority", "validating", json!({"clientConfig": {"url": local("/admit/refuses")}}));
    let service =
        json!({"clientConfig": {"service": {"namespace": "shop", "name": "none"}, "caBundle": authority}});
    add("has-no-service", "validating", service);
    let mut conditions = client(local("/admit/refuses"));
    conditions["matchConditions"] = json!([{"name": "c", "expression": "object.data.missing == 'x'"}]);
    add("has-a-condition-that-fails", "validating", conditions);
    all
}

/// The configurations that are refused, and why.
fn refused_configurations() -> Vec<(&'static str, Value)> {
    let url = json!({"url": "https://localhost/a"});
    vec![
        ("side effects", json!({"sideEffects": "Some"})),
        ("unknown side effects", json!({"sideEffects": "Unknown"})),
        ("no side effects told", json!({"sideEffects": null})),
        ("no versions", json!({"admissionReviewVersions": []})),
        ("unknown versions", json!({"admissionReviewVersions": ["v9"]})),
        ("not over TLS", json!({"clientConfig": {"url": "http://localhost/a"}})),
        ("a query in the URL", json!({"clientConfig": {"url": "https://localhost/a?b=c"}})),
        ("no client", json!({"clientConfig": {}})),
        (
            "two clients",
            json!({"clientConfig": {"url": url["url"], "service": {"namespace": "a", "name": "b"}}}),
        ),
        ("a bundle of something else", json!({"clientConfig": {"url": url["url"], "caBundle": "eHl6"}})),
        ("no time", json!({"timeoutSeconds": 0})),
        ("too much time", json!({"timeoutSeconds": 31})),
        ("another policy", json!({"failurePolicy": "Maybe"})),
        ("another match policy", json!({"matchPolicy": "Maybe"})),
        ("a short name", json!({"name": "h"})),
        (
            "a rule without operations",
            json!({"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}),
        ),
        (
            "a condition that does not compile",
            json!({"matchConditions": [{"name": "c", "expression": "object."}]}),
        ),
    ]
}

fn configuration(family: &str, hook: &Value, name: &str) -> Value {
    let mut whole = json!({
        "name": "h.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://localhost/a"}, "timeoutSeconds": 5,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        // Nothing but what is written here is asked about.
        "objectSelector": {"matchLabels": {"asked": "yes"}},
    });
    for (key, value) in hook.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    let kind =
        if family == "mutating" { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [whole]})
}

/// Has a write asked about, by webhooks that fail in every way; gives what came.
async fn admit(client: &kube::Client, (port, closed): (u16, u16), authority: &str, other: &str) -> String {
    let mut all = String::new();
    for (what, hook) in refused_configurations() {
        for family in ["validating", "mutating"] {
            let path = format!("{CONFIGURATIONS}/{family}webhookconfigurations?dryRun=All");
            let answer = ask(client, "POST", &path, JSON, &configuration(family, &hook, "h")).await;
            all += &told(&format!("{family}, {what}"), answer, port);
        }
    }
    let labels = json!({"asked": "yes"});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": labels}, "data": {"k": "v"}});
    let create = async || ask(client, "POST", &format!("{MAPS}?dryRun=All"), JSON, &map).await;
    for (at, case) in cases(port, authority, other, closed).into_iter().enumerate() {
        let path = format!("{CONFIGURATIONS}/{}webhookconfigurations", case.family);
        let name = format!("h{at}");
        let (code, answer) =
            ask(client, "POST", &path, JSON, &configuration(case.family, &case.hook, &name)).await;
        assert_eq!(code, 201, "{}: {answer}", case.what);
        // A real server takes a configuration up a moment later, and lets go of it as well.
        let mut said = create().await;
        for _ in 0..100 {
            if said.0 != 201 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            said = create().await;
        }
        let line = told(&format!("{}, {}", case.family, case.what), said, port);
        all += &masked(&line.replace(&format!(":{closed}"), ":CLOSED"));
        let mut ignoring = json!({"webhooks": configuration(case.family, &case.hook, &name)["webhooks"]});
        ignoring["webhooks"][0]["failurePolicy"] = "Ignore".into();
        assert_eq!(ask(client, "PATCH", &format!("{path}/{name}"), MERGE, &ignoring).await.0, 200);
        let mut passed = 0;
        for _ in 0..10 {
            passed = create().await.0;
            if passed == 201 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        all += &format!("{}, {}, passed over: {passed}\n", case.family, case.what);
        assert_eq!(ask(client, "DELETE", &format!("{path}/{name}"), JSON, &Value::Null).await.0, 200);
        for _ in 0..100 {
            if create().await.0 == 201 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    all
}

/// Hides the uid that a review has.
fn masked(line: &str) -> String {
    match line.split_once("response.uid=\"") {
        Some((before, rest)) => format!("{before}response.uid=\"UID{}", &rest[36.min(rest.len())..]),
        None => line.to_owned(),
    }
}

// A10 A11
#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_of_failing_webhooks_is_as_on_a_real_server() {
    let (authority, acceptor) = certificates();
    let (other, _) = certificates();
    let address = serve(acceptor).await;
    // What listened here is gone.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let ports = (address.port(), closed);
    if let Some((_real, client)) = Real::start().await {
        let real = admit(&client, ports, &authority, &other).await;
        write_down(&real);
        compare(&real, include_str!("admission.txt"), "kube-apiserver");
    }
    let server = ApiServer::http().start().await.unwrap();
    let came = admit(&server.client(), ports, &authority, &other).await;
    compare(&came, include_str!("admission.txt"), "the embedded server");
}

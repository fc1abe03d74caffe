//! Claims about answers that are never stored: bindings, component statuses, and reviews of tokens.

use std::time::Duration;

use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{ApiRequest, Core, CoreConfig, Reply};
use crate::identity::User;

async fn ask(core: &Core, method: Method, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { bytes::Bytes::new() } else { bytes::Bytes::from(body.to_string()) };
    let uri = path.parse().expect("a uri");
    match core.serve(ApiRequest { method, uri, headers: HeaderMap::new(), body, user: User::Admin }).await {
        Reply::Full(response) => {
            (response.status().as_u16(), serde_json::from_slice(response.body()).expect("JSON"))
        }
        Reply::Stream { .. } => panic!("a stream where an answer was expected"),
    }
}

async fn review(core: &Core, token: &str, audiences: &[&str]) -> Value {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let body = json!({"spec": {"token": token, "audiences": audiences}});
    let (code, answer) = ask(core, Method::POST, path, body).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"].clone()
}

async fn token_of_robot(core: &Core, spec: Value) -> String {
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let (code, answer) = ask(core, Method::POST, path, json!({ "spec": spec })).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

// A26, wire 609
#[tokio::test(start_paused = true)]
async fn a_reviewed_token_is_for_whom_it_was_asked_and_until_it_expires() {
    let core = Core::new(CoreConfig::default());
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    ask(&core, Method::POST, accounts, json!({"metadata": {"name": "robot"}})).await;
    let token = token_of_robot(&core, json!({})).await;
    let status = review(&core, &token, &[]).await;
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    let id = status["user"]["extra"]["authentication.kubernetes.io/credential-id"][0].as_str();
    assert!(id.is_some_and(|id| id.starts_with("JTI=")), "{status}");
    assert_eq!(status["audiences"], json!(["https://kubernetes.default.svc"]));
    let status = review(&core, &token, &["vault"]).await;
    assert_eq!((&status["authenticated"], &status["user"]), (&Value::Null, &json!({})));
    assert_eq!(
        status["error"],
        "[invalid bearer token, token audiences [\"https://kubernetes.default.svc\"] is invalid for the target \
         audiences [\"vault\"]]"
    );

    let vaults = token_of_robot(&core, json!({"audiences": ["vault"]})).await;
    assert_eq!(review(&core, &vaults, &["vault", "other"]).await["audiences"], json!(["vault"]));
    assert_eq!(review(&core, &vaults, &[]).await["authenticated"], Value::Null);
    assert_eq!(core.account_of(&vaults), None, "it is for another server");

    tokio::time::advance(Duration::from_secs(3601)).await;
    let status = review(&core, &token, &[]).await;
    assert_eq!(status["error"], "[invalid bearer token, service account token has expired]");
    assert_eq!(review(&core, "viewer-token", &[]).await["user"]["username"], "viewer");
    assert_eq!(review(&core, "viewer-token", &["vault"]).await["error"], "invalid bearer token");
}

// A27, wire 336
#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once_and_by_neither_a_dry_run_nor_a_stale_binding() {
    let core = Core::new(CoreConfig::default());
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    ask(&core, Method::POST, pods, pod).await;
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let ready = json!({"type": "Ready", "status": "False"});
    let status = json!({"status": {"nominatedNodeName": "n0", "conditions": [condition, ready]}});
    let (_, mut held) = ask(&core, Method::GET, &format!("{pods}/a"), Value::Null).await;
    held["status"] = status["status"].clone();
    let (code, answer) = ask(&core, Method::PUT, &format!("{pods}/a/status"), held).await;
    assert_eq!(code, 200, "{answer}");
    let node = |meta: Value| json!({"metadata": meta, "target": {"kind": "Node", "name": "n1"}});
    let path = format!("{pods}/a/binding");
    let named = json!({"name": "a", "annotations": {"by": "me"}, "labels": {"zone": "z"}});
    let dry = ask(&core, Method::POST, &format!("{path}?dryRun=All"), node(named.clone())).await;
    assert_eq!(dry.0, 201);
    let stale = json!({"name": "a", "resourceVersion": "1"});
    assert_eq!(ask(&core, Method::POST, &path, node(stale)).await.0, 409);
    let bindings = "/api/v1/namespaces/default/bindings";
    let (_, before) = ask(&core, Method::GET, &format!("{pods}/a"), Value::Null).await;
    assert!(before["spec"].get("nodeName").is_none(), "{before}");
    assert_eq!(ask(&core, Method::POST, bindings, node(named.clone())).await.0, 201);
    let (_, bound) = ask(&core, Method::GET, &format!("{pods}/a"), Value::Null).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(
        (&bound["metadata"]["annotations"]["by"], &bound["metadata"]["labels"]["zone"]),
        (&json!("me"), &json!("z"))
    );
    let conditions = bound["status"]["conditions"].as_array().expect("conditions");
    assert_eq!(
        (conditions.len(), &conditions[0]["status"], &conditions[1]["type"]),
        (2, &json!("True"), &json!("Ready"))
    );
    assert!(bound["status"].get("nominatedNodeName").is_none());
    let (code, answer) = ask(&core, Method::POST, &path, node(named)).await;
    assert_eq!(
        (code, answer["message"].as_str()),
        (
            409,
            Some(
                "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""
            )
        )
    );
}

// A29, wire 337
#[tokio::test(start_paused = true)]
async fn statuses_of_components_are_read_in_every_form_and_nothing_else() {
    let core = Core::new(CoreConfig::default());
    let path = "/api/v1/componentstatuses";
    let (code, list) = ask(&core, Method::GET, path, Value::Null).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(3)));
    let (code, one) = ask(&core, Method::GET, &format!("{path}/etcd-0"), Value::Null).await;
    assert_eq!(
        (code, &one["kind"], &one["conditions"][0]["message"]),
        (200, &json!("ComponentStatus"), &json!("ok"))
    );
    assert_eq!(ask(&core, Method::GET, &format!("{path}?fieldSelector=a.b%3Dc"), Value::Null).await.0, 400);
    assert_eq!(ask(&core, Method::GET, &format!("{path}?watch=true"), Value::Null).await.0, 405);
    assert_eq!(ask(&core, Method::DELETE, path, Value::Null).await.0, 405);
}

//! Claims about the flow that an answer names.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::*;
use crate::identity::service_account_groups;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(core: &Core, method: Method, uri: &str, body: Value, user: User) -> (u16, HeaderMap, Value) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request =
        ApiRequest { method, uri: uri.parse().expect("uri"), headers: HeaderMap::new(), body, user };
    match core.serve(request).await {
        Reply::Full(response) => {
            let value = serde_json::from_slice(response.body()).unwrap_or_default();
            (response.status().as_u16(), response.headers().clone(), value)
        }
        Reply::Stream { parts, .. } => (parts.status.as_u16(), parts.headers, Value::Null),
    }
}

async fn admin(core: &Core, method: Method, uri: &str, body: Value) -> Value {
    let (code, _, value) = send(core, method, uri, body, User::Admin).await;
    assert!((200..300).contains(&code), "{uri}: {value}");
    value
}

/// Returns the names of the flow schema and the level that an answer names.
async fn flow(core: &Core, uri: &str, user: User) -> Option<(String, String)> {
    let (_, headers, _) = send(core, Method::GET, uri, Value::Null, user).await;
    let mut names = Vec::new();
    for (header, plural) in [("flowschema", "flowschemas"), ("prioritylevel", "prioritylevelconfigurations")]
    {
        let uid = headers.get(format!("x-kubernetes-pf-{header}-uid"))?.to_str().expect("text").to_owned();
        let list = admin(core, Method::GET, &format!("{GROUP}/{plural}"), Value::Null).await;
        let items = list["items"].as_array().expect("a list");
        let named = items.iter().find(|item| item["metadata"]["uid"] == *uid).expect("stored");
        names.push(named["metadata"]["name"].as_str().expect("a name").to_owned());
    }
    Some((names.remove(0), names.remove(0)))
}

fn account(namespace: &str) -> User {
    User::named(format!("system:serviceaccount:{namespace}:a"), service_account_groups(namespace))
}

fn viewer() -> User {
    User::named("viewer", vec!["system:authenticated".to_owned()])
}

// A16
#[tokio::test(start_paused = true)]
async fn an_answer_names_the_flow_schema_that_is_for_it_whatever_it_says() {
    let core = Core::new(CoreConfig::default());
    let node = User::named("system:node:a", vec!["system:nodes".to_owned()]);
    let scheduler = User::named("system:kube-scheduler", Vec::new());
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    let cases = [
        (MAPS, User::Admin, "exempt", "exempt"),
        ("/api/v1/pods?watch=1&timeoutSeconds=1", User::Admin, "exempt", "exempt"),
        ("/api/v1/nothing", User::Admin, "exempt", "exempt"),
        ("/nothing", User::Admin, "exempt", "exempt"),
        ("/healthz", User::Anonymous, "probes", "exempt"),
        ("/version", User::Anonymous, "global-default", "global-default"),
        (MAPS, viewer(), "global-default", "global-default"),
        ("/api/v1/nodes/a", node.clone(), "system-node-high", "node-high"),
        ("/api/v1/nodes/a/status", node.clone(), "system-node-high", "node-high"),
        (MAPS, node, "system-nodes", "system"),
        (leases, scheduler.clone(), "system-leader-election", "leader-election"),
        (MAPS, scheduler, "kube-scheduler", "workload-high"),
        (MAPS, account("kube-system"), "kube-system-service-accounts", "workload-high"),
        (leases, account("kube-system"), "system-leader-election", "leader-election"),
        (MAPS, account("shop"), "service-accounts", "workload-low"),
    ];
    for (uri, user, schema, level) in cases {
        let named = flow(&core, uri, user.clone()).await;
        assert_eq!(named, Some((schema.to_owned(), level.to_owned())), "{uri} by {user:?}");
    }
    // Requests that may last as long as their client likes are not counted.
    assert_eq!(flow(&core, "/api/v1/namespaces/default/pods/a/log", User::Admin).await, None);
}

// A16
#[tokio::test(start_paused = true)]
async fn flow_schemas_of_users_count_by_their_precedence_while_they_are_there() {
    let core = Core::new(CoreConfig::default());
    let schema = |name: &str, level: &str, precedence: u32| {
        json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "viewer"}}],
            "resourceRules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"],
                "namespaces": ["default"]}],
        }]}})
    };
    let named = async |uri: &str| flow(&core, uri, viewer()).await.expect("named").0;
    let schemas = format!("{GROUP}/flowschemas");
    admin(&core, Method::POST, &schemas, schema("late", "workload-low", 9_000)).await;
    assert_eq!(named(MAPS).await, "late");
    admin(&core, Method::POST, &schemas, schema("early", "workload-low", 8_000)).await;
    assert_eq!(named(MAPS).await, "early");
    for other in
        ["/api/v1/configmaps", "/api/v1/namespaces/shop/configmaps", "/api/v1/namespaces/default/pods"]
    {
        assert_eq!(named(other).await, "global-default", "{other}");
    }
    admin(&core, Method::DELETE, &format!("{schemas}/early"), Value::Null).await;
    assert_eq!(named(MAPS).await, "late");
    admin(&core, Method::POST, &schemas, schema("dangling", "no-such-level", 7_000)).await;
    assert_eq!(named(MAPS).await, "late");
    let then = core.resource_version();
    admin(&core, Method::DELETE, &format!("{schemas}/late"), Value::Null).await;
    assert_eq!(named(MAPS).await, "global-default");
    core.restart(Restart::At(then)).expect("remembered");
    assert_eq!(named(MAPS).await, "late");
    core.restart(Restart::Empty).expect("always");
    assert_eq!(named(MAPS).await, "global-default");
}

//! Claims about updates that a real kube-apiserver accepts.

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use serde_json::{Value, json};

use super::*;
use crate::store::ResourceId;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn call(core: &Core, method: Method, uri: &str, media: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, media.parse().expect("a value"));
    let uri = uri.parse().expect("a uri");
    match core.serve(ApiRequest { method, uri, headers, body, user: User::Admin }).await {
        Reply::Full(response) => {
            (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
        }
        Reply::Stream { .. } => panic!("a stream where an answer was expected"),
    }
}

/// A service of a type with all that goes with it.
fn service(kind: &str) -> Value {
    let mut spec = json!({"type": kind, "selector": {"app": "a"}, "ports": [{"port": 80}]});
    match kind {
        "ExternalName" => spec["externalName"] = json!("example.com"),
        "NodePort" => spec["ports"][0]["nodePort"] = json!(30_080),
        "LoadBalancer" => {
            spec["ports"][0]["nodePort"] = json!(30_080);
            spec["loadBalancerClass"] = json!("example.com/class");
            spec["externalTrafficPolicy"] = json!("Local");
            spec["healthCheckNodePort"] = json!(30_081);
        }
        "Headless" => {
            spec["type"] = json!("ClusterIP");
            spec["clusterIP"] = json!("None");
        }
        _ => {}
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec})
}

/// Lists the fields of a service that depend on its type.
fn dependent(service: &Value) -> Vec<&'static str> {
    const FIELDS: [&str; 8] = [
        "allocateLoadBalancerNodePorts",
        "clusterIP",
        "clusterIPs",
        "externalTrafficPolicy",
        "healthCheckNodePort",
        "ipFamilies",
        "ipFamilyPolicy",
        "loadBalancerClass",
    ];
    let spec = &service["spec"];
    let mut found: Vec<_> = FIELDS.into_iter().filter(|field| spec.get(*field).is_some()).collect();
    found.extend((spec["ports"][0].get("nodePort").is_some()).then_some("nodePort"));
    found
}

// A45
#[tokio::test(start_paused = true)]
async fn a_service_may_change_its_type() {
    let changes: [(&str, &str, &[&str]); 7] = [
        ("LoadBalancer", "ClusterIP", &[]),
        ("LoadBalancer", "NodePort", &["externalTrafficPolicy", "nodePort"]),
        ("LoadBalancer", "ExternalName", &[]),
        ("NodePort", "ClusterIP", &[]),
        ("ClusterIP", "ExternalName", &[]),
        ("Headless", "ExternalName", &[]),
        ("ExternalName", "ClusterIP", &[]),
    ];
    for (from, to, left) in changes {
        for media in [MERGE, JSON, APPLY] {
            let core = Core::new(CoreConfig::default());
            let uri = format!("{SERVICES}/s");
            let (code, made) = match media {
                APPLY => {
                    let uri = format!("{uri}?fieldManager=m");
                    call(&core, Method::PATCH, &uri, APPLY, &service(from)).await
                }
                _ => call(&core, Method::POST, SERVICES, JSON, &service(from)).await,
            };
            assert_eq!(code, 201, "{from}: {made}");
            let kind = json!({"type": to, "externalName": "example.com"});
            let (code, changed) = match media {
                MERGE => call(&core, Method::PATCH, &uri, MERGE, &json!({ "spec": kind })).await,
                JSON => {
                    let mut new = made.clone();
                    new["spec"]["type"] = kind["type"].clone();
                    new["spec"]["externalName"] = kind["externalName"].clone();
                    call(&core, Method::PUT, &uri, JSON, &new).await
                }
                _ => {
                    let uri = format!("{uri}?fieldManager=m");
                    let mut new = service(from);
                    new["spec"]["type"] = kind["type"].clone();
                    new["spec"]["externalName"] = kind["externalName"].clone();
                    call(&core, Method::PATCH, &uri, APPLY, &new).await
                }
            };
            assert_eq!(code, 200, "{from} to {to} by {media}: {}", changed["message"]);
            assert_eq!(dependent(&changed), left, "{from} to {to} by {media}");
        }
    }
}

// A45
#[tokio::test(start_paused = true)]
async fn a_service_keeps_what_an_update_sets_for_another_type() {
    let core = Core::new(CoreConfig::default());
    call(&core, Method::POST, SERVICES, JSON, &service("LoadBalancer")).await;
    for (field, value) in [
        ("externalTrafficPolicy", json!("Cluster")),
        ("allocateLoadBalancerNodePorts", json!(false)),
        ("loadBalancerClass", json!("example.com/other")),
        ("healthCheckNodePort", json!(30_082)),
    ] {
        let patch = json!({"spec": {"type": "ClusterIP", field: value}});
        let (code, answer) = call(&core, Method::PATCH, &format!("{SERVICES}/s"), MERGE, &patch).await;
        let field = json!(format!("spec.{field}"));
        assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &field), "{answer}");
    }
}

// A45
#[tokio::test(start_paused = true)]
async fn what_was_stored_without_its_defaults_can_be_updated() {
    let core = Core::new(CoreConfig::default());
    let template = json!({
        "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let objects = [
        ("", "v1", "Pod", "pods", template["spec"].clone()),
        ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", claim["spec"].clone()),
        (
            "apps",
            "v1",
            "StatefulSet",
            "statefulsets",
            json!({
                "serviceName": "s", "selector": {"matchLabels": {"app": "a"}}, "template": template,
                "volumeClaimTemplates": [claim],
            }),
        ),
        (
            "batch",
            "v1",
            "Job",
            "jobs",
            json!({
                "selector": {"matchLabels": {"app": "a"}}, "manualSelector": true,
                "template": {"metadata": template["metadata"], "spec": {
                    "restartPolicy": "Never", "containers": template["spec"]["containers"]}},
            }),
        ),
    ];
    for (group, version, kind, plural, spec) in objects {
        let api = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let object = json!({"apiVersion": api, "kind": kind, "spec": spec,
            "metadata": {"name": "x", "namespace": "default", "uid": "u", "labels": {"app": "a"}}});
        let id = ResourceId::new(group, plural);
        core.inner.lock().store.put(&id, "default/x", object);
        let root = if group.is_empty() { "api" } else { "apis" };
        let uri = format!("/{root}/{api}/namespaces/default/{plural}/x");
        let patch = json!({"metadata": {"labels": {"more": "b"}}});
        let (code, answer) = call(&core, Method::PATCH, &uri, MERGE, &patch).await;
        assert_eq!(code, 200, "{kind}: {answer}");
    }
}

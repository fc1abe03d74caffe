//! Objects that every cluster begins with: its own Service, the system's priorities, its API services.

use serde_json::{Map, Value, json};

use crate::state::State;
use crate::store::ResourceId;

const PRIORITIES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// The group, the version, and their positions in the order of groups and of versions.
const SERVICES: [(&str, &str, u32, u32); 21] = [
    ("", "v1", 18_000, 1),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("apps", "v1", 17_800, 15),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v1", 17_500, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("discovery.k8s.io", "v1", 16_200, 15),
    ("events.k8s.io", "v1", 17_750, 15),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("resource.k8s.io", "v1", 16_200, 21),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
];

/// Creates missing objects without using up a version.
pub(crate) fn install(state: &mut State) {
    own_service(state);
    for (name, value, description) in PRIORITIES {
        let rest =
            json!({"value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"});
        let metadata = json!({"name": name, "generation": 1});
        add(state, ("scheduling.k8s.io", "PriorityClass", "priorityclasses"), metadata, rest);
    }
    for (group, version, priority, rank) in SERVICES {
        let mut spec = json!({"version": version, "groupPriorityMinimum": priority, "versionPriority": rank});
        if !group.is_empty() {
            spec["group"] = group.into();
        }
        let available = json!({
            "type": "Available", "status": "True", "lastTransitionTime": state.clock.seconds(),
            "reason": "Local", "message": "Local APIServices are always available",
        });
        let labels = json!({"kube-aggregator.kubernetes.io/automanaged": "onstart"});
        let metadata = json!({"name": format!("{version}.{group}"), "labels": labels});
        let rest = json!({"spec": spec, "status": {"conditions": [available]}});
        add(state, ("apiregistration.k8s.io", "APIService", "apiservices"), metadata, rest);
    }
}

fn own_service(state: &mut State) {
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let metadata = json!({"name": "kubernetes", "namespace": "default", "labels": labels});
    let spec = json!({
        "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
        "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP", "sessionAffinity": "None",
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
    });
    add(state, ("", "Service", "services"), metadata, json!({"spec": spec, "status": {"loadBalancer": {}}}));
}

fn add(state: &mut State, (group, kind, plural): (&str, &str, &str), mut metadata: Value, rest: Value) {
    let id = ResourceId::new(group, plural);
    let word = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let key = crate::object::key(&word("namespace"), &word("name"));
    if state.store.get(&id, &key).is_some() {
        return;
    }
    metadata["uid"] = state.fixed_uid(&format!("{kind}/{key}")).into();
    metadata["creationTimestamp"] = state.clock.seconds().into();
    let mut object = Map::new();
    object.insert("apiVersion".into(), crate::object::api_version(group, "v1").into());
    object.insert("kind".into(), kind.into());
    object.insert("metadata".into(), metadata);
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    state.store.preset(&id, &key, Value::Object(object));
}

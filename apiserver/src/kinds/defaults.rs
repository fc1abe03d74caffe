//! Defaults of workloads: what the real server fills into pods and their owners.

use serde_json::{Map, Value, json};

use super::maps::{maps, put};
use super::templates::{pod_spec, template};
use crate::object::{child_mut, map_mut};

/// Fills in the defaults of a kind that has some.
pub(super) fn fill(kind: &str, object: &mut Value) {
    match kind {
        "Pod" => pod(object),
        "Deployment" => deployment(object),
        "ReplicaSet" => replica_set(object),
        "StatefulSet" => stateful_set(object),
        "DaemonSet" => daemon_set(object),
        "Job" => job(object),
        "CronJob" => cron_job(object),
        "Service" => service(object),
        other => super::fill::fill(other, object),
    }
}

fn pod(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    pod_spec(spec);
    put(spec, "enableServiceLinks", json!(true));
    let on_host = spec.get("hostNetwork").is_some_and(|on_host| *on_host == true);
    for list in ["containers", "initContainers"] {
        for container in maps(spec, list) {
            request_limits(container);
            for port in maps(container, "ports").filter(|_| on_host) {
                let own = port.get("containerPort").cloned().unwrap_or_default();
                if port.get("hostPort").is_none_or(|host| host.is_null() || *host == 0) && !own.is_null() {
                    port.insert("hostPort".to_owned(), own);
                }
            }
        }
    }
}

/// Sets a container's requests to its limits, unless it sets requests.
fn request_limits(container: &mut Map<String, Value>) {
    let resources = child_mut(container, "resources");
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let requests = child_mut(resources, "requests");
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

fn deployment(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    put(spec, "replicas", json!(1));
    put(spec, "revisionHistoryLimit", json!(10));
    put(spec, "progressDeadlineSeconds", json!(600));
    let strategy = child_mut(spec, "strategy");
    put(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = child_mut(strategy, "rollingUpdate");
        put(rolling, "maxUnavailable", json!("25%"));
        put(rolling, "maxSurge", json!("25%"));
    }
    template(spec);
}

fn replica_set(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    put(spec, "replicas", json!(1));
    template(spec);
}

fn stateful_set(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    put(spec, "replicas", json!(1));
    put(spec, "revisionHistoryLimit", json!(10));
    put(spec, "podManagementPolicy", json!("OrderedReady"));
    put(spec, "serviceName", json!(""));
    put(
        spec,
        "persistentVolumeClaimRetentionPolicy",
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
    let strategy = child_mut(spec, "updateStrategy");
    put(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        put(child_mut(strategy, "rollingUpdate"), "partition", json!(0));
    }
    super::storage::claim_templates(spec);
    template(spec);
}

fn daemon_set(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    put(spec, "revisionHistoryLimit", json!(10));
    let strategy = child_mut(spec, "updateStrategy");
    put(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = child_mut(strategy, "rollingUpdate");
        put(rolling, "maxUnavailable", json!(1));
        put(rolling, "maxSurge", json!(0));
    }
    template(spec);
}

fn job(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    if !spec.contains_key("parallelism") {
        put(spec, "completions", json!(1));
    }
    put(spec, "parallelism", json!(1));
    let by_index = spec.get("backoffLimitPerIndex").is_some_and(|limit| !limit.is_null());
    put(spec, "backoffLimit", json!(if by_index { i32::MAX } else { 6 }));
    put(spec, "completionMode", json!("NonIndexed"));
    put(spec, "suspend", json!(false));
    let replaces = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    put(spec, "podReplacementPolicy", json!(replaces));
    put(spec, "manualSelector", json!(false));
    if let Some(policy) = super::maps::map(spec, "podFailurePolicy") {
        for rule in maps(policy, "rules") {
            for pattern in maps(rule, "onPodConditions") {
                put(pattern, "status", json!("True"));
            }
        }
    }
    template(spec);
    let labels = spec["template"]["metadata"].get("labels").cloned();
    let metadata = child_mut(map_mut(object), "metadata");
    if let Some(labels) = labels
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        metadata.insert("labels".into(), labels);
    }
}

fn cron_job(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    put(spec, "concurrencyPolicy", json!("Allow"));
    put(spec, "suspend", json!(false));
    put(spec, "successfulJobsHistoryLimit", json!(3));
    put(spec, "failedJobsHistoryLimit", json!(1));
    let job = child_mut(spec, "jobTemplate");
    job.entry("metadata").or_insert_with(|| json!({}));
    template(child_mut(job, "spec"));
}

/// Adds what admission adds to a new pod.
pub(super) fn admit_pod(pod: &mut Value) {
    let spec = child_mut(map_mut(pod), "spec");
    put(spec, "priority", json!(0));
    put(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    put(spec, "tolerations", json!([toleration("not-ready"), toleration("unreachable")]));
}

/// Lets a new job select its own pods by its uid, unless it sets a selector.
pub(super) fn admit_job(job: &mut Value, uid: &str) {
    let name = crate::object::name(job).to_owned();
    let spec = child_mut(map_mut(job), "spec");
    if spec.get("manualSelector").is_some_and(|manual| *manual == true) {
        return;
    }
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    put(spec, "selector", selector);
    let labels = child_mut(child_mut(child_mut(spec, "template"), "metadata"), "labels");
    for (key, value) in [("controller-uid", uid), ("job-name", name.as_str())] {
        labels.insert(format!("batch.kubernetes.io/{key}"), value.into());
        labels.insert(key.to_owned(), value.into());
    }
    let labels = labels.clone();
    let metadata = child_mut(map_mut(job), "metadata");
    if metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty) {
        metadata.insert("labels".into(), labels.into());
    }
}

/// Adds the address families of a new headless service; no addresses are given to others.
pub(super) fn admit_service(service: &mut Value) {
    let spec = child_mut(map_mut(service), "spec");
    if spec.get("clusterIP").is_none_or(|address| address != "None") {
        return;
    }
    let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    // Without a selector its endpoints may be anywhere.
    let (families, policy) = if selects {
        (json!(["IPv4"]), "SingleStack")
    } else {
        (json!(["IPv4", "IPv6"]), "RequireDualStack")
    };
    put(spec, "clusterIPs", json!(["None"]));
    put(spec, "ipFamilies", families);
    put(spec, "ipFamilyPolicy", json!(policy));
}

/// Keeps pods off a new node until it is ready.
pub(super) fn admit_node(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taints = child_mut(map_mut(node), "spec").entry("taints").or_insert_with(|| json!([]));
    if let Some(taints) = taints.as_array_mut()
        && !taints.iter().any(|there| there["key"] == taint["key"] && there["effect"] == taint["effect"])
    {
        taints.push(taint);
    }
}

/// Writes absent times of conditions as null, as the real server does for times that are not pointers.
pub(super) fn null_times(kind: &str, object: &mut Value) {
    let times: &[&str] = match kind {
        "Node" => &["lastHeartbeatTime", "lastTransitionTime"],
        "Pod" | "Job" | "PersistentVolumeClaim" => &["lastProbeTime", "lastTransitionTime"],
        "CertificateSigningRequest" => &["lastUpdateTime", "lastTransitionTime"],
        "Deployment" => &["lastUpdateTime", "lastTransitionTime"],
        "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Namespace" => &["lastTransitionTime"],
        _ => return,
    };
    let Some(Value::Object(status)) = object.get_mut("status") else { return };
    for condition in maps(status, "conditions") {
        for time in times {
            condition.entry(*time).or_insert(Value::Null);
        }
    }
}

fn toleration(condition: &str) -> Value {
    let key = format!("node.kubernetes.io/{condition}");
    json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
}

fn service(object: &mut Value) {
    let spec = child_mut(map_mut(object), "spec");
    put(spec, "type", json!("ClusterIP"));
    put(spec, "sessionAffinity", json!("None"));
    let affinity = spec.get("sessionAffinity").cloned().unwrap_or_default();
    if affinity == "None" {
        spec.remove("sessionAffinityConfig");
    } else if affinity == "ClientIP" {
        let config = child_mut(child_mut(spec, "sessionAffinityConfig"), "clientIP");
        put(config, "timeoutSeconds", json!(10_800));
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let external = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if matches!(&*kind, "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && external) {
        put(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        put(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        put(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    for port in maps(spec, "ports") {
        put(port, "protocol", json!("TCP"));
        let number = port.get("port").cloned().unwrap_or(Value::Null);
        if port.get("targetPort").is_some_and(|target| *target == json!(0)) {
            port.remove("targetPort");
        }
        put(port, "targetPort", number);
    }
}

/// Returns a pod's quality of service, by its requests and limits.
pub(super) fn qos_class(pod: &Value) -> &'static str {
    let containers = pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let resources = |container: &Value, what: &str| {
        container["resources"][what].as_object().is_some_and(|m| !m.is_empty())
    };
    if containers.iter().all(|c| !resources(c, "requests") && !resources(c, "limits")) {
        return "BestEffort";
    }
    let whole = |c: &Value| {
        let limits = &c["resources"]["limits"];
        let requests = &c["resources"]["requests"];
        limits.get("cpu").is_some()
            && limits.get("memory").is_some()
            && (requests.is_null() || requests == limits)
    };
    if containers.iter().all(whole) { "Guaranteed" } else { "Burstable" }
}

//! Defaults of kinds that are only stored.

use serde_json::{Map, Value, json};

use super::maps::{maps, put};
use super::templates::template;
use crate::object::{child_mut, map_mut};

/// Fills in the defaults of a kind that has some.
pub(super) fn fill(kind: &str, object: &mut Value) {
    let map = map_mut(object);
    match kind {
        "PersistentVolume" => {
            let spec = child_mut(map, "spec");
            put(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
            put(spec, "volumeMode", json!("Filesystem"));
        }
        "PersistentVolumeClaim" => put(child_mut(map, "spec"), "volumeMode", json!("Filesystem")),
        "RoleBinding" | "ClusterRoleBinding" => {
            const GROUP: &str = "rbac.authorization.k8s.io";
            put(child_mut(map, "roleRef"), "apiGroup", json!(GROUP));
            for subject in maps(map, "subjects") {
                if subject.get("kind").is_some_and(|kind| kind == "User" || kind == "Group") {
                    put(subject, "apiGroup", json!(GROUP));
                }
            }
        }
        "LimitRange" => super::storage::limits(child_mut(map, "spec")),
        "PodTemplate" => template(map),
        "ReplicationController" => controller(map),
        "HorizontalPodAutoscaler"
            if map.get("apiVersion").is_some_and(|version| version == "autoscaling/v1") =>
        {
            put(child_mut(map, "spec"), "minReplicas", json!(1));
        }
        "HorizontalPodAutoscaler" => autoscaler(child_mut(map, "spec")),
        "NetworkPolicy" => network_policy(child_mut(map, "spec")),
        "IngressClass" => {
            if let Some(Value::Object(parameters)) = child_mut(map, "spec").get_mut("parameters") {
                put(parameters, "scope", json!("Cluster"));
            }
        }
        "EndpointSlice" => {
            for port in maps(map, "ports") {
                port.entry("name").or_insert_with(|| json!(""));
                put(port, "protocol", json!("TCP"));
            }
        }
        "StorageClass" => {
            put(map, "reclaimPolicy", json!("Delete"));
            put(map, "volumeBindingMode", json!("Immediate"));
        }
        "CSIDriver" => driver(child_mut(map, "spec")),
        "PriorityClass" => put(map, "preemptionPolicy", json!("PreemptLowerPriority")),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            for webhook in maps(map, "webhooks") {
                hook(webhook);
                if kind.starts_with("Mutating") {
                    put(webhook, "reinvocationPolicy", json!("Never"));
                }
            }
        }
        "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy" => {
            let spec = child_mut(map, "spec");
            put(spec, "failurePolicy", json!("Fail"));
            matching(spec, "matchConstraints");
        }
        "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => {
            matching(child_mut(map, "spec"), "matchResources");
        }
        "FlowSchema" => {
            let spec = child_mut(map, "spec");
            if spec.get("matchingPrecedence").is_none_or(|given| *given == 0) {
                spec.insert("matchingPrecedence".into(), json!(1000));
            }
        }
        "PriorityLevelConfiguration" => priority_level(child_mut(map, "spec")),
        _ => {}
    }
}

fn controller(map: &mut Map<String, Value>) {
    let labels = map.get("spec").and_then(|spec| spec["template"]["metadata"].get("labels")).cloned();
    if let Some(labels) = labels {
        let metadata = child_mut(map, "metadata");
        if metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty) {
            metadata.insert("labels".into(), labels.clone());
        }
        put(child_mut(map, "spec"), "selector", labels);
    }
    let spec = child_mut(map, "spec");
    put(spec, "replicas", json!(1));
    if spec.contains_key("template") {
        template(spec);
    }
}

fn autoscaler(spec: &mut Map<String, Value>) {
    put(spec, "minReplicas", json!(1));
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        spec.insert(
            "metrics".into(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
        );
    }
    let Some(Value::Object(behavior)) = spec.get_mut("behavior") else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = child_mut(behavior, "scaleUp");
    put(up, "stabilizationWindowSeconds", json!(0));
    put(up, "selectPolicy", json!("Max"));
    put(up, "policies", json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]));
    let down = child_mut(behavior, "scaleDown");
    put(down, "selectPolicy", json!("Max"));
    put(down, "policies", json!([percent]));
}

fn network_policy(spec: &mut Map<String, Value>) {
    if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let leaves = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
        let types = if leaves { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".into(), types);
    }
    for direction in ["ingress", "egress"] {
        for rule in maps(spec, direction) {
            for port in maps(rule, "ports") {
                put(port, "protocol", json!("TCP"));
            }
        }
    }
}

fn driver(spec: &mut Map<String, Value>) {
    put(spec, "attachRequired", json!(true));
    for flag in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        put(spec, flag, json!(false));
    }
    put(spec, "fsGroupPolicy", json!("ReadWriteOnceWithFSType"));
    put(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

fn hook(webhook: &mut Map<String, Value>) {
    put(webhook, "failurePolicy", json!("Fail"));
    put(webhook, "timeoutSeconds", json!(10));
    selecting(webhook);
    for rule in maps(webhook, "rules") {
        put(rule, "scope", json!("*"));
    }
    if let Some(Value::Object(service)) =
        webhook.get_mut("clientConfig").and_then(|config| config.get_mut("service"))
    {
        put(service, "port", json!(443));
    }
}

/// Fills in what a policy's resources match.
fn matching(spec: &mut Map<String, Value>, field: &str) {
    let Some(Value::Object(resources)) = spec.get_mut(field) else { return };
    selecting(resources);
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in maps(resources, list) {
            put(rule, "scope", json!("*"));
        }
    }
}

fn selecting(map: &mut Map<String, Value>) {
    put(map, "matchPolicy", json!("Equivalent"));
    put(map, "namespaceSelector", json!({}));
    put(map, "objectSelector", json!({}));
}

fn priority_level(spec: &mut Map<String, Value>) {
    if let Some(Value::Object(exempt)) = spec.get_mut("exempt") {
        put(exempt, "nominalConcurrencyShares", json!(0));
        put(exempt, "lendablePercent", json!(0));
    }
    if let Some(Value::Object(limited)) = spec.get_mut("limited") {
        put(limited, "nominalConcurrencyShares", json!(30));
        put(limited, "lendablePercent", json!(0));
        let queuing = limited.get_mut("limitResponse").and_then(|response| response.get_mut("queuing"));
        if let Some(Value::Object(queuing)) = queuing {
            for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                if queuing.get(field).is_none_or(|given| *given == 0) {
                    queuing.insert(field.into(), json!(value));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(kind: &str, mut object: Value) -> Value {
        fill(kind, &mut object);
        object
    }

    #[test]
    fn what_is_given_is_kept_and_the_rest_filled_in() {
        let policy = filled("NetworkPolicy", json!({"spec": {"egress": [{"ports": [{"port": 1}]}]}}));
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
        let class = filled("StorageClass", json!({"reclaimPolicy": "Retain"}));
        assert_eq!(class, json!({"reclaimPolicy": "Retain", "volumeBindingMode": "Immediate"}));
        let autoscaler = filled("HorizontalPodAutoscaler", json!({"spec": {"behavior": {}}}));
        assert_eq!(autoscaler["spec"]["minReplicas"], 1);
        assert_eq!(autoscaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        assert_eq!(autoscaler["spec"]["behavior"]["scaleUp"]["policies"][0]["value"], 4);
        let hooks =
            json!({"webhooks": [{"clientConfig": {"service": {}}, "rules": [{}], "timeoutSeconds": 3}]});
        let hooks = filled("MutatingWebhookConfiguration", hooks);
        let hook = &hooks["webhooks"][0];
        assert_eq!((&hook["timeoutSeconds"], &hook["reinvocationPolicy"]), (&json!(3), &json!("Never")));
        assert_eq!(
            (&hook["clientConfig"]["service"]["port"], &hook["rules"][0]["scope"]),
            (&json!(443), &json!("*"))
        );
    }

    #[test]
    fn a_replication_controller_selects_by_its_templates_labels() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
        let controller = filled("ReplicationController", json!({"spec": {"template": template}}));
        assert_eq!(controller["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(
            (&controller["spec"]["replicas"], &controller["metadata"]["labels"]),
            (&json!(1), &json!({"a": "b"}))
        );
    }
}

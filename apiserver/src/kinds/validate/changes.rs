//! Changes: what an update may not change of a kind's specification, and may not write into its status.

use serde_json::{Map, Value};

use super::place::{Findings, Place};
use super::quantity::Quantity;
use super::statuses;
use crate::kinds::Resource;
use crate::status::Cause;

/// Reports changes of immutable fields.
pub(in crate::kinds) fn changes(resource: &Resource, before: &Value, new: &Value) -> Vec<Cause> {
    let mut faults = Findings::default();
    let parts = |first: &'static str| [first, "readyReplicas"];
    match resource.built_in().map_or("", |row| row.kind) {
        "Job" => {
            job(before, new, &mut faults);
            statuses::job(before, new, &mut faults);
        }
        "StatefulSet" => {
            stateful_set(before, new, &mut faults);
            let parts = ["readyReplicas", "currentReplicas", "updatedReplicas"];
            statuses::replicas(before, new, &parts, "status.readyReplicas", &mut faults);
        }
        "Deployment" => {
            statuses::replicas(before, new, &parts("updatedReplicas"), "readyReplicas", &mut faults);
        }
        "ReplicaSet" => {
            statuses::replicas(before, new, &parts("fullyLabeledReplicas"), "readyReplicas", &mut faults);
        }
        "PersistentVolumeClaim" => claim(before, new, &mut faults),
        "RoleBinding" | "ClusterRoleBinding" => role(before, new, &mut faults),
        "PriorityClass" if before["value"] != new["value"] => {
            Place::top(new, "value").forbidden(&mut faults, "may not be changed in an update.");
        }
        _ => {}
    }
    faults.into_causes()
}

fn job(before: &Value, new: &Value, faults: &mut Findings) {
    const FIXED: [&str; 6] = [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ];
    let (old, spec) = (&before["spec"], Place::top(new, "spec"));
    let immutable = |field: &str, faults: &mut Findings| {
        if !alike(&old[field], spec.at(field).value()) {
            spec.at(field).invalid(faults, "field is immutable");
        }
    };
    let completions = spec.at("completions");
    if spec.at("completionMode").text() != "Indexed" {
        immutable("completions", faults);
    } else if old["completions"] != *completions.value()
        && completions.is_set()
        && completions.value() != spec.at("parallelism").value()
    {
        completions.invalid(faults, "can only be modified in tandem with spec.parallelism");
    }
    // Scheduling fields may change while it is suspended.
    let may_move = old["suspend"] == true;
    let (was, is) = match may_move {
        true => (unplaced(&old["template"]), unplaced(spec.at("template").value())),
        false => (old["template"].clone(), spec.at("template").value().clone()),
    };
    if !alike(&was, &is) {
        spec.at("template").invalid(faults, "field is immutable");
    }
    for field in FIXED {
        immutable(field, faults);
    }
}

/// Returns a template without what may change while its job is suspended.
fn unplaced(template: &Value) -> Value {
    let mut template = template.clone();
    remove(&mut template, &["metadata"]);
    let spec = &mut template["spec"];
    remove(spec, &["affinity", "nodeSelector", "tolerations", "schedulingGates"]);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            remove(container, &["resources"]);
        }
    }
    template
}

fn remove(value: &mut Value, fields: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|field, _| !fields.contains(&field.as_str()));
    }
}

fn stateful_set(before: &Value, new: &Value, faults: &mut Findings) {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        remove(&mut spec, &FREE);
        spec
    };
    if !alike(&fixed(before), &fixed(new)) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                   'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        Place::top(new, "spec").forbidden(faults, why);
    }
}

fn claim(before: &Value, new: &Value, faults: &mut Findings) {
    let is_bound = new["status"]["phase"] == "Bound";
    let may_class = before["spec"]["storageClassName"].is_null();
    let may_name = before["spec"]["volumeName"].as_str().unwrap_or_default().is_empty();
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        if is_bound {
            remove(&mut spec, &["volumeAttributesClassName"]);
            if let Some(requests) = spec.get_mut("resources").and_then(|all| all.get_mut("requests")) {
                remove(requests, &["storage"]);
            }
        }
        remove(&mut spec, if may_class { &["storageClassName"] } else { &[] });
        remove(&mut spec, if may_name { &["volumeName"] } else { &[] });
        spec
    };
    if !alike(&fixed(before), &fixed(new)) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        Place::top(new, "spec").forbidden(faults, why);
    }
    let size = |object: &Value| Quantity::read(&object["spec"]["resources"]["requests"]["storage"]);
    let shrinks = size(new) < size(before);
    let has = Quantity::read(&new["status"]["capacity"]["storage"]).unwrap_or(Quantity::ZERO);
    if shrinks && size(new).is_some_and(|size| size <= has) {
        let spec = Place::top(new, "spec");
        let resources = spec.at("resources");
        let why = "field can not be less than status.capacity";
        resources.at("requests").at("storage").forbidden(faults, why);
    }
}

fn role(before: &Value, new: &Value, faults: &mut Findings) {
    if before["roleRef"] == new["roleRef"] {
        return;
    }
    // The server's own form of it has other names for its fields.
    let role = Place::top(new, "roleRef");
    let word = |field: &str| Value::from(role.at(field).text());
    let shown =
        format!("{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}", word("apiGroup"), word("kind"), word("name"));
    role.invalid_as(faults, &shown, "cannot change roleRef");
}

/// Compares like a typed server: an empty value equals an absent one, and `1` equals `1000m`.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let within = |map: &Map<String, Value>, rest: &Map<String, Value>| {
                map.iter().all(|(key, value)| alike(value, rest.get(key).unwrap_or(&Value::Null)))
            };
            within(one, other) && within(other, one)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Null, empty) | (empty, Value::Null) => match empty {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.values().all(|value| alike(value, &Value::Null)),
            Value::String(text) => text.is_empty(),
            other => other.is_null(),
        },
        (one, other) => {
            one == other || {
                let amounts = (Quantity::read(one), Quantity::read(other));
                matches!(amounts, (Some(one), Some(other)) if one == other)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // A46
    #[test]
    fn what_is_empty_is_like_what_is_absent() {
        assert!(alike(&json!({"a": [], "b": {}, "c": null, "d": ""}), &json!({})));
        assert!(alike(&json!({"cpu": "1"}), &json!({"cpu": "1000m"})));
        assert!(!alike(&json!({"a": [1]}), &json!({"a": []})));
        assert!(!alike(&json!({"a": "x"}), &json!({"a": "y"})));
        assert!(!alike(&json!({"a": 1}), &json!({})));
    }

    fn of(change: fn(&Value, &Value, &mut Findings), before: &Value, new: &Value) -> Vec<String> {
        let mut faults = Findings::default();
        change(before, new, &mut faults);
        faults.into_causes().into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    // A46
    #[test]
    fn jobs_and_claims_keep_what_they_began_with() {
        let made = json!({"spec": {"completions": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}});
        let mut other = made.clone();
        other["spec"]["template"]["spec"]["containers"][0]["name"] = json!("b");
        other["spec"]["completions"] = json!(2);
        let said = of(job, &made, &other);
        assert_eq!(said[0], "spec.completions: Invalid value: 2: field is immutable");
        assert!(said[1].starts_with("spec.template: Invalid value: {"), "{said:?}");
        let suspended =
            json!({"spec": {"suspend": true, "template": {"spec": {"nodeSelector": {"a": "b"}}}}});
        let moved = json!({"spec": {"suspend": true, "template": {"spec": {"nodeSelector": {"a": "c"}}}}});
        assert_eq!(of(job, &suspended, &moved), [""; 0]);
        let mut running = suspended.clone();
        running["spec"]["suspend"] = json!(false);
        assert_eq!(of(job, &running, &moved).len(), 1);

        let claim_of = |size: &str, phase: &str| {
            json!({
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
                "status": {"phase": phase, "capacity": {"storage": "1Gi"}},
            })
        };
        assert_eq!(of(claim, &claim_of("1Gi", "Bound"), &claim_of("2Gi", "Bound")), [""; 0]);
        assert_eq!(of(claim, &claim_of("1Gi", "Pending"), &claim_of("2Gi", "Pending")).len(), 1);
        assert_eq!(
            of(claim, &claim_of("2Gi", "Bound"), &claim_of("1Gi", "Bound")),
            ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]
        );
    }

    // A46
    #[test]
    fn a_stateful_set_changes_what_it_may() {
        let set = |field: &str, value: Value| {
            let mut set = json!({"spec": {"serviceName": "a", "replicas": 1}});
            set["spec"][field] = value;
            set
        };
        let before = set("replicas", json!(1));
        for free in ["replicas", "ordinals", "template", "minReadySeconds"] {
            assert_eq!(of(stateful_set, &before, &set(free, json!(7))), [""; 0], "{free}");
        }
        assert_eq!(of(stateful_set, &before, &set("serviceName", json!("b"))).len(), 1);
        let said = of(
            role,
            &json!({"roleRef": {"apiGroup": "g", "kind": "Role", "name": "a"}}),
            &json!({"roleRef": {"apiGroup": "g", "kind": "Role", "name": "b"}}),
        );
        let shown = r#"{"APIGroup":"g","Kind":"Role","Name":"b"}"#;
        assert_eq!(said, [format!("roleRef: Invalid value: {shown}: cannot change roleRef")]);
    }
}

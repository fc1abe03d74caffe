//! Walks into the maps of an object, and puts what is missing.

use serde_json::{Map, Value, json};

use crate::object::child_mut;

/// Fills in a pod's template.
pub(super) fn template(spec: &mut Map<String, Value>) {
    let template = child_mut(spec, "template");
    template.entry("metadata").or_insert_with(|| json!({}));
    pod_spec(child_mut(template, "spec"));
}

pub(super) fn pod_spec(spec: &mut Map<String, Value>) {
    put(spec, "restartPolicy", json!("Always"));
    put(spec, "terminationGracePeriodSeconds", json!(30));
    put(spec, "dnsPolicy", json!("ClusterFirst"));
    put(spec, "securityContext", json!({}));
    put(spec, "schedulerName", json!("default-scheduler"));
    // The older name of the field follows the newer one.
    match spec.get("serviceAccountName").and_then(Value::as_str).filter(|name| !name.is_empty()) {
        Some(name) => drop(spec.insert("serviceAccount".into(), name.into())),
        None => {
            if let Some(name) = spec.get("serviceAccount").filter(|name| *name != "").cloned() {
                spec.insert("serviceAccountName".into(), name);
            }
        }
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in maps(spec, list) {
            put(container, "resources", json!({}));
            put(container, "terminationMessagePath", json!("/dev/termination-log"));
            put(container, "terminationMessagePolicy", json!("File"));
            let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
            let tag = image.rsplit('/').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag);
            let policy = if tag.is_none_or(|tag| tag == "latest") && !image.contains('@') {
                "Always"
            } else {
                "IfNotPresent"
            };
            put(container, "imagePullPolicy", json!(policy));
            for port in maps(container, "ports") {
                put(port, "protocol", json!("TCP"));
            }
            for variable in maps(container, "env") {
                if let Some(field) = map(variable, "valueFrom").and_then(|from| map(from, "fieldRef")) {
                    put(field, "apiVersion", json!("v1"));
                }
                let amount = map(variable, "valueFrom").and_then(|from| map(from, "resourceFieldRef"));
                if let Some(amount) = amount {
                    put(amount, "divisor", json!("0"));
                }
            }
            super::life::container(container);
        }
    }
    super::storage::volumes(spec);
}

/// Gives the object in a field of a map.
pub(super) fn map<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// Sets what is absent, null or an empty text.
pub(super) fn put(map: &mut Map<String, Value>, key: &str, value: Value) {
    if map.get(key).is_none_or(|there| there.is_null() || there == "") {
        map.insert(key.to_owned(), value);
    }
}

/// Gives the objects in a list of a map.
pub(super) fn maps<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

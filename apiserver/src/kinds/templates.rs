//! Defaults of pods and their templates.

use serde_json::{Map, Value, json};

use super::maps::{map, maps, put};
use super::{life, storage};
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
            life::container(container);
        }
    }
    storage::volumes(spec);
}

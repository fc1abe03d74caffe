//! Defaults of volumes and claims.

use serde_json::{Map, Value, json};

use super::maps::{map, maps, put};
use crate::object::child_mut;

/// Fills in the volumes of a pod.
pub(super) fn volumes(spec: &mut Map<String, Value>) {
    for volume in maps(spec, "volumes") {
        if volume.iter().all(|(field, source)| field == "name" || source.is_null()) {
            volume.insert("emptyDir".to_owned(), json!({}));
        }
        for source in ["secret", "configMap", "downwardAPI", "projected"] {
            let Some(source) = map(volume, source) else { continue };
            put(source, "defaultMode", json!(0o644));
            fields(source);
            for part in maps(source, "sources") {
                if let Some(token) = map(part, "serviceAccountToken") {
                    put(token, "expirationSeconds", json!(3600));
                }
                if let Some(fields_of_pod) = map(part, "downwardAPI") {
                    fields(fields_of_pod);
                }
            }
        }
        if let Some(path) = map(volume, "hostPath") {
            path.entry("type").or_insert_with(|| json!(""));
        }
        if let Some(disk) = map(volume, "iscsi") {
            put(disk, "iscsiInterface", json!("default"));
        }
        let template = map(volume, "ephemeral").and_then(|own| map(own, "volumeClaimTemplate"));
        if let Some(template) = template {
            child_mut(template, "metadata");
            claim_spec(child_mut(template, "spec"));
        }
    }
}

/// Fills in the versions of the fields that downward API files refer to.
fn fields(source: &mut Map<String, Value>) {
    for item in maps(source, "items") {
        if let Some(field) = map(item, "fieldRef") {
            put(field, "apiVersion", json!("v1"));
        }
        if let Some(amount) = map(item, "resourceFieldRef") {
            put(amount, "divisor", json!("0"));
        }
    }
}

/// Fills in the claims that a StatefulSet makes.
pub(super) fn claim_templates(spec: &mut Map<String, Value>) {
    for claim in maps(spec, "volumeClaimTemplates") {
        put(claim, "apiVersion", json!("v1"));
        put(claim, "kind", json!("PersistentVolumeClaim"));
        child_mut(claim, "metadata");
        claim_spec(child_mut(claim, "spec"));
        put(child_mut(claim, "status"), "phase", json!("Pending"));
    }
}

/// Fills in the requests of a claim.
pub(super) fn claim_spec(spec: &mut Map<String, Value>) {
    child_mut(spec, "resources");
    put(spec, "volumeMode", json!("Filesystem"));
}

/// Fills in the limits of a namespace from each other.
pub(super) fn limits(spec: &mut Map<String, Value>) {
    for limit in maps(spec, "limits") {
        if limit.get("type").is_none_or(|kind| kind != "Container") {
            continue;
        }
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let given = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            if given.is_empty() {
                continue;
            }
            let filled = child_mut(limit, to);
            for (name, amount) in given {
                filled.entry(name).or_insert(amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_of_an_ephemeral_volume_is_filled_in() {
        let mut pod = json!({"volumes": [
            {"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Block"}}}},
        ]});
        let Value::Object(spec) = &mut pod else { unreachable!("it is a map") };
        volumes(spec);
        // Only claims of a stateful set have a kind and a status.
        let filled = |spec: Value| json!({"volumeClaimTemplate": {"metadata": {}, "spec": spec}});
        let first = json!({"accessModes": ["ReadWriteOnce"], "resources": {}, "volumeMode": "Filesystem"});
        assert_eq!(pod["volumes"][0], json!({"name": "a", "ephemeral": filled(first)}));
        let second = json!({"resources": {}, "volumeMode": "Block"});
        assert_eq!(pod["volumes"][1], json!({"name": "b", "ephemeral": filled(second)}));
    }
}

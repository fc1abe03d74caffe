//! Objects in failure messages: what helps, and never a secret.

use serde_json::Value;

/// The objects a message shows whole.
const SHOWN: usize = 10;

/// The annotation in which clients keep a whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Writes an object of a kind as indented YAML, without managedFields and secret data.
pub(super) fn show(kind: &str, object: &Value) -> String {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    if kind == "Secret" {
        for field in ["data", "stringData"] {
            if let Some(values) = object[field].as_object_mut() {
                values.values_mut().for_each(|value| *value = "(not shown)".into());
            }
        }
    }
    let yaml = serde_yaml_ng::to_string(&object).unwrap_or_else(|_| object.to_string());
    yaml.lines().map(|line| format!("    {line}\n")).collect()
}

/// Writes the last state.
pub(super) fn show_all(kind: &str, objects: &[Value]) -> String {
    match objects {
        [] => "  last seen: nothing, it is not there\n".to_owned(),
        [one] => format!("  last seen, at version {}:\n{}", version(one), show(kind, one)),
        many => {
            let shown: String =
                many.iter().take(SHOWN).map(|one| format!("  -\n{}", show(kind, one))).collect();
            format!("  last seen, {} objects (the first {SHOWN} shown):\n{shown}", many.len())
        }
    }
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or("?")
}

//! The annotation by which `kubectl apply` remembers what it applied.

use serde_json::Value;

use crate::schema::Schema;

use super::compare::Difference;
use super::set::FieldSet;
use super::typed;

/// The manager for which the annotation counts.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()
}

/// Collects the fields that kubectl applied from the client and that have not changed since.
pub(super) fn unchanged_since_applied(schema: &Schema, live: &Value) -> FieldSet {
    let Some(applied) = annotation(live).and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return FieldSet::default();
    };
    let root = schema.root();
    if !applied.is_object() || typed::check(root, &applied).is_err() {
        return FieldSet::default();
    }
    let difference = Difference::between(root, &applied, live);
    typed::fields(root, &applied).difference(&difference.modified.union(&difference.removed))
}

/// Rewrites the annotation, if the object has one, from the applied fields.
pub(super) fn remember(object: &mut Value, applied: &Value) {
    if annotation(object).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(ANNOTATION);
        }
    }
    let text = format!("{}\n", sorted(&applied));
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.to_owned(), Value::from(text));
    }
}

/// Writes JSON with its keys in order, whatever order the maps keep.
fn sorted(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(sorted).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let fields = names
                .into_iter()
                .map(|name| format!("{}:{}", Value::from(name.as_str()), sorted(&fields[name])));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

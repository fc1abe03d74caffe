//! Fields that selectors may name, and their text.

use serde_json::Value;

use super::{Resource, Served};
use crate::object;

/// Returns whether a field selector may name a path.
///
/// # Errors
/// The server's words for an unknown path.
pub(crate) fn known_field(resource: &Resource, served: &Served, path: &str) -> Result<(), String> {
    let by_name = path == "metadata.name" || path == "metadata.namespace";
    if by_name || served.selectable.iter().any(|known| known == path) {
        return Ok(());
    }
    if resource.is_custom() || !served.selectable.is_empty() {
        return Err(format!("field label not supported: {path}"));
    }
    Err(format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""))
}

/// Returns a field's text as selectors compare it; absent fields have their kind's empty value.
pub(crate) fn field_text(object: &Value, path: &str) -> String {
    match object::at(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Object(source)) if path == "source" => {
            source.get("component").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        Some(_) | None => match path {
            "spec.hostNetwork" | "spec.unschedulable" => "false".to_owned(),
            "spec.restartPolicy" if object.get("kind").is_some_and(|k| k == "Pod") => "Always".to_owned(),
            "spec.schedulerName" => "default-scheduler".to_owned(),
            "status.phase" if object.get("kind").is_some_and(|k| k == "Pod") => "Pending".to_owned(),
            "status.successful" | "status.replicas" => "0".to_owned(),
            _ => String::new(),
        },
    }
}

//! Removes what a schema does not know.

use serde_json::Value;

use super::node::{JsonType, NodeRef};

/// Removes unknown fields, at any depth.
pub(super) fn unknown(node: NodeRef<'_>, value: &mut Value) {
    walk(node, value, &mut String::new(), &mut None);
}

/// Lists the paths of unknown fields in their order, parents before children.
pub(super) fn list_unknown(node: NodeRef<'_>, value: &Value) -> Vec<String> {
    let mut found = Some(Vec::new());
    walk(node, &mut value.clone(), &mut String::new(), &mut found);
    found.unwrap_or_default()
}

fn walk(node: NodeRef<'_>, value: &mut Value, path: &mut String, found: &mut Option<Vec<String>>) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                push(path, &name);
                match (node.field(&name), fields.get_mut(&name)) {
                    (Some(child), Some(value)) => walk(child, value, path, found),
                    _ => {
                        fields.remove(&name);
                        if let Some(found) = found {
                            found.push(path.clone());
                        }
                    }
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let item = node.item();
            for (index, value) in items.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(item, value, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn push(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Removes nulls from declared fields that may not be null.
///
/// Nulls among undeclared fields and in lists stay: they have no schema that could refuse them.
pub(super) fn nulls(node: NodeRef<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                !value.is_null() || node.property(name).is_none_or(|child| allows_null(child))
            });
            for (name, value) in fields.iter_mut() {
                if let Some(child) = node.field(name) {
                    nulls(child, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|value| nulls(node.item(), value)),
        _ => {}
    }
}

/// Returns whether a null may stay at this node.
pub(super) fn allows_null(node: NodeRef<'_>) -> bool {
    node.node().nullable || node.kind() == JsonType::Any
}

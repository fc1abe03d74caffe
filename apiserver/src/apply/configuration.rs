//! Configurations of policies: a part of an object that is merged into it, without owners.

use serde_json::Value;

use super::merge::merge;
use super::typed::check;
use crate::schema::{ListKind, MapKind, NodeRef};

/// Merges a part of an object into the object.
///
/// # Errors
/// The part does not fit the schema, or would replace a list or object as a whole that it only means to change.
pub(crate) fn configure(root: NodeRef<'_>, object: &Value, part: &Value) -> Result<Value, String> {
    check(root, part).map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomic = Vec::new();
    find_atomic(root, part, "", &mut atomic);
    if !atomic.is_empty() {
        let atomic = atomic.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {atomic}"
        ));
    }
    Ok(merge(root, Some(object), Some(part)).unwrap_or_default())
}

/// Lists the paths of lists and objects that are one value.
fn find_atomic(node: NodeRef<'_>, value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if node.map() == MapKind::Atomic {
                found.push(path.to_owned());
            }
            for (name, value) in fields {
                if let Some(below) = node.property(name) {
                    find_atomic(below, value, &format!("{path}.{name}"), found);
                }
            }
        }
        Value::Array(items) => {
            if *node.list() == ListKind::Atomic {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                find_atomic(node.item(), item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

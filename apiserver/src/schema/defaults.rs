//! Fills in defaults.

use serde_json::Value;

use super::node::NodeRef;
use super::prune::allows_null;

/// Sets absent fields, and nulls that may not be, to their defaults.
///
/// A default is only added to an existing parent: nothing appears below an absent object.
pub(super) fn apply(node: NodeRef<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, child) in node.properties() {
                let Some(default) = &child.node().default else { continue };
                let absent = match fields.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !allows_null(child),
                };
                if absent {
                    fields.insert(name.to_owned(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = node.field(name) {
                    apply(child, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|value| apply(node.item(), value)),
        _ => {}
    }
}

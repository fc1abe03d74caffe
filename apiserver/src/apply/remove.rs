//! Takes fields out of an object.

use serde_json::{Map, Value};

use crate::schema::NodeRef;

use super::set::{FieldSet, PathElement, SetShape};

/// Removes the fields of a set from a value.
///
/// A map or list that loses all its items, and is not in the set itself, becomes null.
pub(super) fn remove(node: NodeRef<'_>, value: &Value, fields: &FieldSet) -> Value {
    match (SetShape::of(node, Some(value), None), value) {
        (SetShape::Map, Value::Object(map)) => {
            let mut left = Map::new();
            for (name, value) in map {
                let element = PathElement::field(name);
                if !fields.has(&element) {
                    let below = node.field(name);
                    left.insert(name.clone(), remove_below(below, value, fields, &element));
                }
            }
            if left.is_empty() && !map.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (SetShape::List, Value::Array(items)) => {
            let mut left = Vec::new();
            for item in items {
                let element = PathElement::item(node, item);
                if !fields.has(&element) {
                    left.push(remove_below(Some(node.item()), item, fields, &element));
                }
            }
            if left.is_empty() && !items.is_empty() { Value::Null } else { Value::Array(left) }
        }
        _ => value.clone(),
    }
}

fn remove_below(node: Option<NodeRef<'_>>, value: &Value, fields: &FieldSet, element: &PathElement) -> Value {
    match (node, fields.below(element)) {
        (Some(node), Some(below)) if !below.is_empty() => remove(node, value, below),
        _ => value.clone(),
    }
}

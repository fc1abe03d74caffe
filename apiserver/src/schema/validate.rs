//! Checks objects against a schema, in the words of the real server.

mod formats;
mod keywords;
mod lists;
mod place;

use std::collections::HashSet;

use serde_json::Value;

pub(super) use self::lists::Counterparts;
pub(super) use self::place::join;

use self::place::ValuePlace;

use super::error::FieldError;
use super::node::NodeRef;
use super::prune::allows_null;
use crate::selector::{check_label_key, check_label_value};

/// Checks a value; what equals the old one passes.
pub(super) fn check(node: NodeRef<'_>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    check_part(node, "", new, old)
}

/// Checks a part of an object that has the path `prefix`.
pub(super) fn check_part(
    node: NodeRef<'_>,
    prefix: &str,
    new: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut errors = check_values(node, prefix, new, old);
    lists::check(node, prefix, new, old, &mut errors);
    errors
}

/// Checks a part of an object of a built-in kind, whose lists may contain duplicate keys.
pub(super) fn check_values(
    node: NodeRef<'_>,
    prefix: &str,
    new: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(node, ValuePlace { prefix, name: "" }, new, old, &mut errors);
    // An alternative may say again what the schema says itself.
    let mut told = HashSet::new();
    errors.retain(|error| told.insert(error.to_string()));
    errors
}

fn walk(
    node: NodeRef<'_>,
    place: ValuePlace<'_>,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(new) || (new.is_null() && allows_null(node)) {
        return;
    }
    keywords::check(node, place, new, errors);
    if node.node().embedded {
        embedded(place, new, errors);
    }
    let child = |name: &str| join(place.name, name);
    match new {
        Value::Object(fields) => {
            for (name, value) in fields {
                if is_meta(node, name) {
                    if let Some(names) = node.names() {
                        let old = old.and_then(|old| old.get(name));
                        walk(names, ValuePlace { name: &child(name), ..place }, value, old, errors);
                    }
                    continue;
                }
                let Some(below) = node.field(name) else { continue };
                let old = old.and_then(|old| old.get(name));
                walk(below, ValuePlace { name: &child(name), ..place }, value, old, errors);
            }
        }
        Value::Array(items) if node.node().items.is_some() => {
            let old = Counterparts::of(node, old);
            for (index, value) in items.iter().enumerate() {
                let name = child(&format!("[{index}]"));
                walk(node.item(), ValuePlace { name: &name, ..place }, value, old.find(value), errors);
            }
        }
        _ => {}
    }
}

/// Returns whether a field belongs to every object, and is checked elsewhere.
fn is_meta(node: NodeRef<'_>, name: &str) -> bool {
    (node.node().resource || node.node().embedded) && name == "metadata"
}

/// Checks that an embedded resource has a kind, and checks its labels.
fn embedded(place: ValuePlace<'_>, value: &Value, errors: &mut Vec<FieldError>) {
    let Value::Object(fields) = value else { return };
    for name in ["apiVersion", "kind"] {
        let given = fields.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if !given {
            errors.push(FieldError::required(place.child(name), ""));
        }
    }
    let at = place.child("metadata.labels");
    for (key, label) in value["metadata"]["labels"].as_object().into_iter().flatten() {
        if let Err(why) = check_label_key(key) {
            errors.push(FieldError::invalid(&at, &Value::from(key.as_str()), &why));
        }
        if let Err(why) = check_label_value(label.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(&at, label, &why));
        }
    }
}

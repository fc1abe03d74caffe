//! Lists of sets and maps: no item may be there twice.

use serde_json::{Map, Value};

use super::super::error::FieldError;
use super::super::node::{ListKind, NodeRef};
use super::place::join;

/// Finds the old item of which a new one is the next state.
///
/// Only items with keys have one: those of other lists have no identity.
pub(in crate::schema) fn counterpart<'a>(
    node: NodeRef<'_>,
    item: &Value,
    old: &'a Value,
) -> Option<&'a Value> {
    let ListKind::Map(keys) = node.list() else { return None };
    let key = identity(node, keys, item);
    old.as_array()?.iter().find(|old| identity(node, keys, old) == key)
}

/// Reports the items of sets and map lists that repeat an earlier one.
pub(super) fn check(
    node: NodeRef<'_>,
    path: &str,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(new) {
        return;
    }
    match new {
        Value::Object(fields) => {
            for (name, value) in fields {
                let Some(below) = node.field(name) else { continue };
                let old = old.and_then(|old| old.get(name));
                check(below, &join(path, name), value, old, errors);
            }
        }
        Value::Array(items) => {
            repeated(node, path, items, errors);
            for (index, item) in items.iter().enumerate() {
                let old = old.and_then(|old| counterpart(node, item, old));
                check(node.item(), &format!("{path}[{index}]"), item, old, errors);
            }
        }
        _ => {}
    }
}

fn repeated(node: NodeRef<'_>, path: &str, items: &[Value], errors: &mut Vec<FieldError>) {
    let identities: Vec<Value> = match node.list() {
        ListKind::Atomic => return,
        ListKind::Set => items.to_vec(),
        ListKind::Map(keys) => items.iter().map(|item| identity(node, keys, item)).collect(),
    };
    for (index, identity) in identities.iter().enumerate() {
        if identities[..index].contains(identity) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), identity));
        }
    }
}

/// Collects the keys of a list's item.
fn identity(node: NodeRef<'_>, keys: &[String], item: &Value) -> Value {
    let mut found = Map::new();
    for key in keys {
        if let Some(value) = item.get(key).or_else(|| node.key_default(key)) {
            found.insert(key.clone(), value.clone());
        }
    }
    Value::Object(found)
}

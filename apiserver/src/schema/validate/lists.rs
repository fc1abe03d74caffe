//! Lists of sets and maps: no item may be there twice.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::super::error::FieldError;
use super::super::node::{ListKind, NodeRef};
use super::place::join;

/// The items of an old list, by their identities.
///
/// Only items with keys have one: those of other lists have no identity.
pub(in crate::schema) struct Counterparts<'n, 'a> {
    node: NodeRef<'n>,
    old: HashMap<String, &'a Value>,
}

impl<'n, 'a> Counterparts<'n, 'a> {
    pub(in crate::schema) fn of(node: NodeRef<'n>, old: Option<&'a Value>) -> Self {
        let mut found = HashMap::new();
        if let ListKind::Map(keys) = node.list() {
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                found.entry(identity(node, keys, item).to_string()).or_insert(item);
            }
        }
        Self { node, old: found }
    }

    /// Finds the old state of a new item.
    pub(in crate::schema) fn find(&self, item: &Value) -> Option<&'a Value> {
        let ListKind::Map(keys) = self.node.list() else { return None };
        self.old.get(&identity(self.node, keys, item).to_string()).copied()
    }
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
            let old = Counterparts::of(node, old);
            for (index, item) in items.iter().enumerate() {
                check(node.item(), &format!("{path}[{index}]"), item, old.find(item), errors);
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
    let mut seen = HashSet::new();
    for (index, identity) in identities.iter().enumerate() {
        if !seen.insert(identity.to_string()) {
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

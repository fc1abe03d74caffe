//! Reads the applied fields against the schema.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::schema::{JsonType, NodeRef};

use super::compare::is_bare;
use super::set::{FieldSet, PathElement, SetShape, show};

/// Collects the fields that a value gives: its leaves.
pub(super) fn fields(node: NodeRef<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(node, value, &mut Vec::new(), &mut set);
    set
}

fn collect(node: NodeRef<'_>, value: &Value, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    match (SetShape::of(node, Some(value), None), value) {
        (SetShape::Map, Value::Object(map)) => {
            for (name, value) in map {
                let Some(below) = node.field(name) else { continue };
                path.push(PathElement::field(name));
                collect(below, value, path, set);
                let empty = value.is_null() || (value.is_object() && is_bare(Some(value)));
                if empty || node.property(name).is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (SetShape::List, Value::Array(items)) => {
            for item in items {
                path.push(PathElement::item(node, item));
                collect(node.item(), item, path, set);
                set.insert(path);
                path.pop();
            }
        }
        (SetShape::Leaf, _) => set.insert(path),
        _ => {}
    }
}

/// Returns what of a value does not fit the schema, as far as ownership needs it.
///
/// # Errors
///
/// All that does not fit, each with its path.
pub(super) fn check(node: NodeRef<'_>, value: &Value) -> Result<(), String> {
    let mut errors = Vec::new();
    walk(node, value, &mut Vec::new(), &mut errors);
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(many.iter().fold("errors:".to_owned(), |text, error| format!("{text}\n  {error}"))),
    }
}

fn walk(node: NodeRef<'_>, value: &Value, path: &mut Vec<PathElement>, errors: &mut Vec<String>) {
    if let Some(expected) = mismatch(node, value) {
        errors.push(format!(
            "{}: expected {expected}, got &value.valueUnstructured{{Value:{}}}",
            show(path),
            go_syntax(value)
        ));
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                path.push(PathElement::field(name));
                match node.field(name) {
                    Some(below) => walk(below, value, path, errors),
                    None => errors.push(format!("{}: field not declared in schema", show(path))),
                }
                path.pop();
            }
        }
        Value::Array(items) => list(node, items, path, errors),
        _ => {}
    }
}

fn list(node: NodeRef<'_>, items: &[Value], path: &mut Vec<PathElement>, errors: &mut Vec<String>) {
    let keyed = SetShape::of(node, Some(&Value::Array(Vec::new())), None) == SetShape::List;
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let element = if keyed { PathElement::item(node, item) } else { PathElement::Index(index) };
        if keyed && seen.contains(&element) {
            errors.push(format!("{}: duplicate entries for key {element}", show(path)));
        }
        path.push(element.clone());
        seen.insert(element);
        walk(node.item(), item, path, errors);
        path.pop();
    }
}

fn mismatch(node: NodeRef<'_>, value: &Value) -> Option<&'static str> {
    if value.is_null() {
        return None;
    }
    let (fits, expected) = match node.kind() {
        JsonType::Any | JsonType::IntOrString => return None,
        JsonType::Object => (value.is_object(), "map"),
        JsonType::Array => (value.is_array(), "list"),
        JsonType::String => (value.is_string(), "string"),
        JsonType::Integer | JsonType::Number => (value.is_number(), "numeric (int or float)"),
        JsonType::Boolean => (value.is_boolean(), "boolean"),
    };
    (!fits).then_some(expected)
}

/// Shows a value as Go source.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name:?}:{}", go_syntax(value)));
            format!("map[string]interface {{}}{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

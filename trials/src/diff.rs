//! What changed of an object, as short YAML.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::world::CHOSEN;

/// The most lines of one difference.
const LINES: usize = 12;
/// The fields at the top of every object.
const HEAD: [&str; 2] = ["apiVersion", "kind"];

/// Lists what differs, a line each: `-` was there, `+` is there, a blank leads there.
///
/// What servers choose is left out; `None` is an object that is not there.
pub(crate) fn lines(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    cut(all_lines(before, after))
}

/// Lists all that differs, however long that is.
pub(crate) fn all_lines(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let (before, after) = (before.map(shown), after.map(shown));
    let empty = Value::Object(Map::new());
    let mut out = Vec::new();
    fields(before.as_ref().unwrap_or(&empty), after.as_ref().unwrap_or(&empty), 0, &mut out);
    out
}

/// Cuts a difference to what somebody reads.
pub(crate) fn cut(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LINES {
        let more = lines.len() - LINES + 1;
        lines.truncate(LINES - 1);
        lines.push(format!("  … {more} lines more"));
    }
    lines
}

/// An object without what tells nothing.
fn shown(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|name, _| !HEAD.contains(&name.as_str()));
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !CHOSEN.contains(&name.as_str()) && name != "name" && name != "namespace");
        if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
            owners.iter_mut().for_each(|owner| *owner = in_short(owner));
        }
    }
    object
}

/// An owner reference in one line.
fn in_short(owner: &Value) -> Value {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let controls = if owner["controller"] == true { ", controls it" } else { "" };
    format!("{} {} (UID {}{controls})", text("kind"), text("name"), text("uid")).into()
}

fn fields(before: &Value, after: &Value, depth: usize, out: &mut Vec<String>) {
    let none = Map::new();
    let (old, new) = (before.as_object().unwrap_or(&none), after.as_object().unwrap_or(&none));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        field(name, old.get(name), new.get(name), depth, out);
    }
}

fn field(name: &str, before: Option<&Value>, after: Option<&Value>, depth: usize, out: &mut Vec<String>) {
    if before == after {
        return;
    }
    let indent = "  ".repeat(depth);
    match (before, after) {
        (Some(Value::Object(_)), Some(Value::Object(_))) => {
            let at = out.len();
            fields(before.unwrap_or(&Value::Null), after.unwrap_or(&Value::Null), depth + 1, out);
            if out.len() > at {
                out.insert(at, format!("  {indent}{name}:"));
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            out.push(format!("  {indent}{name}:"));
            for (sign, items, others) in [('-', old, new), ('+', new, old)] {
                for item in items.iter().filter(|item| !others.contains(item)) {
                    out.extend(yaml(&Value::Array(vec![item.clone()]), depth + 1, sign));
                }
            }
        }
        _ => {
            for (sign, value) in [('-', before), ('+', after)] {
                if let Some(value) = value.filter(|value| !is_empty(value)) {
                    let named = Map::from_iter([(name.to_owned(), value.clone())]);
                    out.extend(yaml(&Value::Object(named), depth, sign));
                }
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn yaml(value: &Value, depth: usize, sign: char) -> Vec<String> {
    let text = serde_yaml_ng::to_string(value).unwrap_or_default();
    let indent = "  ".repeat(depth);
    text.lines().map(|line| format!("{sign} {indent}{line}")).collect()
}

/// Names the fields outside the status that differ, to the second level within the metadata.
pub(crate) fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    const KEPT_BY_SERVERS: [&str; 6] =
        ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];
    let empty = serde_json::Map::new();
    let (old, new) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut fields = Vec::new();
    for key in keys {
        if key == "metadata" {
            let (old, new) = (old[key].as_object().unwrap_or(&empty), &after["metadata"]);
            let new = new.as_object().unwrap_or(&empty);
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let changed = names
                .into_iter()
                .filter(|name| !KEPT_BY_SERVERS.contains(&name.as_str()) && old.get(*name) != new.get(*name));
            fields.extend(changed.map(|name| format!("metadata.{name}")));
        } else if key != "status" && old.get(key) != new.get(key) {
            fields.push(key.clone());
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_shows_the_way_to_it() {
        let object = |replicas: i32, version: &str| {
            json!({ "kind": "Site", "metadata": { "name": "a", "resourceVersion": version },
                "spec": { "domain": "a.example", "replicas": replicas } })
        };
        let told = lines(Some(&object(2, "7")), Some(&object(3, "8")));
        assert_eq!(told, ["  spec:", "-   replicas: 2", "+   replicas: 3"]);
        assert!(lines(Some(&object(2, "7")), Some(&object(2, "8"))).is_empty(), "versions tell nothing");
    }

    #[test]
    fn items_of_lists_come_and_go() {
        let object = |finalizers: &[&str]| json!({ "metadata": { "finalizers": finalizers } });
        let told = lines(Some(&object(&["a/b"])), Some(&object(&["a/b", "c/d"])));
        assert_eq!(told, ["  metadata:", "    finalizers:", "+     - c/d"]);
    }

    #[test]
    fn an_owner_takes_one_line() {
        let owner =
            json!({ "apiVersion": "a/v1", "kind": "Site", "name": "a", "uid": "7", "controller": true });
        let told = lines(None, Some(&json!({ "metadata": { "ownerReferences": [owner] } })));
        assert_eq!(told, ["+ metadata:", "+   ownerReferences:", "+   - Site a (UID 7, controls it)"]);
    }

    #[test]
    fn what_is_made_shows_whole_and_short() {
        let told = lines(None, Some(&json!({ "metadata": { "name": "a" }, "data": { "text": "one" } })));
        assert_eq!(told, ["+ data:", "+   text: one"]);
        let many: Map<String, Value> = (0..40).map(|at| (format!("f{at}"), at.into())).collect();
        let told = lines(None, Some(&json!({ "data": many })));
        assert_eq!(told.len(), LINES);
        assert_eq!(told[LINES - 1], "  … 30 lines more");
    }
}

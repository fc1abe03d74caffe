//! Merge patches of a status: what changed, and what must not get lost in lists that a patch replaces whole.
//!
//! A merge patch leaves alone the fields that it does not name, but replaces lists. A list is therefore sent with
//! what the server holds in its elements beyond what the caller's type knows.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value};

use super::identity::Elements;

/// Computes the merge patch that turns one value into the other; `None` where they are equal.
///
/// Both are read through the caller's type. `raw` is the old one as the server holds it, or null where that is not
/// known: elements of lists keep what it has and the type does not know.
pub(crate) fn difference(old: &Value, new: &Value, raw: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else { return Some(kept(old, new, raw)) };
    let mut patch = Map::new();
    for (name, value) in after {
        if let Some(changed) =
            difference(before.get(name).unwrap_or(&Value::Null), value, &raw[name.as_str()])
        {
            patch.insert(name.clone(), changed);
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Applies a merge patch, as RFC 7396 has it.
pub(crate) fn merged(target: Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut fields = match target {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    for (name, change) in changes {
        match change {
            Value::Null => drop(fields.remove(name)),
            change => {
                let inner = fields.remove(name).unwrap_or_default();
                fields.insert(name.clone(), merged(inner, change));
            }
        }
    }
    Value::Object(fields)
}

/// Returns whether two values agree in everything that a merge patch replaces whole.
pub(super) fn replaces_the_same(patch: &Value, base: &Value, found: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields
            .iter()
            .all(|(name, inner)| replaces_the_same(inner, &base[name.as_str()], &found[name.as_str()])),
        _ => base == found,
    }
}

/// Returns whether a patch replaces a list whose elements may hold what the caller's type does not know.
pub(super) fn replaces_elements(patch: &Value, base: &Value) -> bool {
    match (patch, base) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().any(|(name, inner)| replaces_elements(inner, &base[name.as_str()]))
        }
        (Value::Array(_), Value::Array(elements)) => elements.iter().any(is_nested),
        _ => false,
    }
}

/// Lists the fields of a patch that an answer does not have: those that the server dropped.
///
/// Empty values count as had: many types leave them out.
pub(super) fn dropped(patch: &Value, answer: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    note_dropped(patch, answer, "status", &mut fields);
    fields
}

fn note_dropped(sent: &Value, found: &Value, path: &str, fields: &mut Vec<String>) {
    match (sent, found) {
        (Value::Object(sent), Value::Object(found)) => {
            for (name, inner) in sent {
                note_dropped(
                    inner,
                    found.get(name).unwrap_or(&Value::Null),
                    &format!("{path}.{name}"),
                    fields,
                );
            }
        }
        (Value::Array(sent), Value::Array(found)) if sent.len() == found.len() => {
            for (at, (inner, found)) in sent.iter().zip(found).enumerate() {
                note_dropped(inner, found, &format!("{path}[{at}]"), fields);
            }
        }
        (sent, Value::Null) if !is_empty(sent) => fields.push(path.to_owned()),
        _ => {}
    }
}

/// Returns whether a value is empty: an encoder may leave it out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// Writes the new value with what the raw one has and the old one, its typed form, does not.
fn kept(old: &Value, new: &Value, raw: &Value) -> Value {
    match (old, new, raw) {
        _ if old == new && !raw.is_null() => raw.clone(),
        (Value::Object(old), Value::Object(new), Value::Object(raw)) => {
            let mut whole = raw.clone();
            whole.retain(|name, _| !old.contains_key(name));
            for (name, value) in new {
                let of = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                whole.insert(name.clone(), kept(&of(old), value, &of(raw)));
            }
            Value::Object(whole)
        }
        (Value::Array(old), Value::Array(new), Value::Array(raw)) => {
            Value::Array(kept_elements(old, new, raw))
        }
        _ => new.clone(),
    }
}

/// Finds for each new element the old one that it is, or was, and keeps what that one's raw form has.
fn kept_elements(old: &[Value], new: &[Value], raw: &[Value]) -> Vec<Value> {
    let raw = raw_forms(old, raw);
    let mut same: HashMap<&Value, VecDeque<usize>> = HashMap::new();
    for (at, element) in old.iter().enumerate() {
        same.entry(element).or_default().push_back(at);
    }
    let elements = Elements::of(old, new);
    let mut whole = Vec::with_capacity(new.len());
    for element in new {
        let unchanged = same.get_mut(element).and_then(VecDeque::pop_front);
        whole.push(match unchanged.or_else(|| elements.find(element)) {
            Some(at) => raw[at].map_or_else(|| element.clone(), |raw| kept(&old[at], element, raw)),
            None => element.clone(),
        });
    }
    whole
}

/// Finds the raw form of each element of a list that was read through a type, which may have put it in another order.
fn raw_forms<'a>(typed: &'a [Value], raw: &'a [Value]) -> Vec<Option<&'a Value>> {
    let elements = Elements::of(raw, typed);
    let find = |(at, element): (usize, &'a Value)| {
        let here = || raw.get(at).filter(|raw| may_be(element, raw));
        elements.find(element).map(|at| &raw[at]).or_else(here)
    };
    typed.iter().enumerate().map(find).collect()
}

/// Returns whether an element can be what a raw one reads as.
fn may_be(typed: &Value, raw: &Value) -> bool {
    match (typed, raw) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().all(|(name, value)| raw.get(name).is_none_or(|raw| is_nested(raw) || raw == value))
        }
        (Value::Array(_), Value::Array(_)) => true,
        _ => typed == raw,
    }
}

fn is_nested(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;

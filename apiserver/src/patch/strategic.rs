//! Strategic merge patch, for built-in kinds.
//!
//! A merge patch that merges lists as well: those of maps by their merge key, those of scalars by value. Directives
//! (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) say what merging cannot.

use serde_json::{Map, Value};

use crate::schema::{NodeRef, Schema};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// Why a strategic merge patch cannot be applied: 500.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StrategicError {
    /// An item lacks the key by which its list is merged.
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// Shows the item.
        item: String,
        /// Names the key.
        key: String,
    },
    /// A `$patch` directive is none of delete, merge and replace.
    #[error("unknown patch type: {directive} in map: {map}")]
    UnknownDirective {
        /// Names the directive.
        directive: String,
        /// Shows the map that has it.
        map: String,
    },
}

/// Applies a strategic merge patch, by the list keys of the schema.
pub(crate) fn strategic_patch(
    target: &mut Value,
    patch: &Value,
    schema: &Schema,
) -> Result<(), StrategicError> {
    let mut fields = take_object(target);
    if let Value::Object(changes) = patch {
        merge_map(schema.root(), &mut fields, changes)?;
    }
    *target = Value::Object(fields);
    Ok(())
}

fn take_object(value: &mut Value) -> Map<String, Value> {
    match value.take() {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn merge_map(
    node: NodeRef<'_>,
    fields: &mut Map<String, Value>,
    changes: &Map<String, Value>,
) -> Result<(), StrategicError> {
    match changes.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            *fields = without_directives(changes);
            return Ok(());
        }
        Some("delete") => {
            fields.clear();
            return Ok(());
        }
        Some(other) => {
            return Err(StrategicError::UnknownDirective {
                directive: other.to_owned(),
                map: go_print(&Value::Object(changes.clone())),
            });
        }
    }
    if let Some(Value::Array(kept)) = changes.get(RETAIN) {
        fields.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, change) in changes {
        if !name.starts_with('$') {
            merge_field(node, fields, name, change, changes)?;
        }
    }
    for name in changes.keys() {
        let listed = name.strip_prefix(ORDER).or_else(|| name.strip_prefix(DELETE));
        if let Some(listed) = listed
            && !changes.contains_key(listed)
            && fields.get(listed).is_some_and(Value::is_array)
        {
            merge_field(node, fields, listed, &Value::Array(Vec::new()), changes)?;
        }
    }
    Ok(())
}

fn merge_field(
    node: NodeRef<'_>,
    fields: &mut Map<String, Value>,
    name: &str,
    change: &Value,
    changes: &Map<String, Value>,
) -> Result<(), StrategicError> {
    let below = node.field(name);
    match (change, fields.get_mut(name)) {
        (Value::Null, _) => {
            fields.remove(name);
        }
        (Value::Object(change), Some(Value::Object(current))) => match below {
            Some(below) => merge_map(below, current, change)?,
            None => *current = without_directives(change),
        },
        // Nothing to merge with: the directive wins over what else the map holds.
        (Value::Object(change), None) if change.contains_key(PATCH) => {}
        (Value::Array(change), Some(Value::Array(current))) => {
            let item = below.map(NodeRef::item);
            let order = changes.get(&format!("{ORDER}{name}")).and_then(Value::as_array);
            let deleted = changes.get(&format!("{DELETE}{name}")).and_then(Value::as_array);
            match (below.and_then(NodeRef::merge_key), item) {
                (Some(key), Some(item)) if !key.is_empty() => {
                    *current = merge_maps(item, key, current, change, order)?;
                }
                (Some(_), _) => *current = merge_scalars(current, change, deleted, order),
                _ => *current = change.clone(),
            }
        }
        (change, _) => {
            fields.insert(name.to_owned(), cleaned(change));
        }
    }
    Ok(())
}

fn merge_maps(
    item: NodeRef<'_>,
    key: &str,
    current: &[Value],
    change: &[Value],
    order: Option<&Vec<Value>>,
) -> Result<Vec<Value>, StrategicError> {
    let directive = |value: &Value| value.get(PATCH).and_then(Value::as_str).map(str::to_owned);
    if change.iter().any(|value| directive(value).as_deref() == Some("replace")) {
        let rest = change.iter().filter(|value| directive(value).is_none());
        return Ok(rest.map(cleaned).collect());
    }
    let mut merged: Vec<Value> = current.to_vec();
    let mut touched = Vec::new();
    for value in change {
        let id = value
            .get(key)
            .ok_or_else(|| StrategicError::NoMergeKey { item: go_print(value), key: key.to_owned() })?;
        match (directive(value).as_deref(), merged.iter_mut().find(|old| old.get(key) == Some(id))) {
            (Some("delete"), _) => merged.retain(|old| old.get(key) != Some(id)),
            (_, Some(old)) => {
                let mut fields = take_object(old);
                merge_map(item, &mut fields, value.as_object().unwrap_or(&Map::new()))?;
                *old = Value::Object(fields);
                touched.push(id.clone());
            }
            (_, None) => {
                merged.push(cleaned(value));
                touched.push(id.clone());
            }
        }
    }
    let ids = |values: &[Value]| values.iter().filter_map(|value| value.get(key).cloned()).collect();
    let order = order.map_or(touched, |order| ids(order));
    let known: Vec<Value> = ids(current);
    Ok(arranged(merged, &known, &order, Some(key)))
}

fn merge_scalars(
    current: &[Value],
    change: &[Value],
    deleted: Option<&Vec<Value>>,
    order: Option<&Vec<Value>>,
) -> Vec<Value> {
    let mut merged = current.to_vec();
    if let Some(deleted) = deleted {
        merged.retain(|value| !deleted.contains(value));
    }
    for value in change {
        if !merged.contains(value) {
            merged.push(value.clone());
        }
    }
    let order = order.map_or_else(|| change.to_vec(), Clone::clone);
    arranged(merged, current, &order, None)
}

/// Orders a merged list: what `order` names keeps that order, the rest the one it had.
///
/// Where both could come next, what was not there before comes first.
fn arranged(merged: Vec<Value>, known: &[Value], order: &[Value], key: Option<&str>) -> Vec<Value> {
    let place = |list: &[Value], value: &Value| {
        let id = match key {
            Some(key) => value.get(key)?,
            None => value,
        };
        list.iter().position(|known| known == id)
    };
    let (mut named, rest): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|value| place(order, value).is_some());
    named.sort_by_key(|value| place(order, value));
    let mut rest = rest.into_iter().peekable();
    let mut result = Vec::new();
    for value in named {
        if let Some(at) = place(known, &value) {
            while let Some(before) = rest.next_if(|other| place(known, other) < Some(at)) {
                result.push(before);
            }
        }
        result.push(value);
    }
    result.extend(rest);
    result
}

/// Copies a value of a patch without directives and nulls.
fn cleaned(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(without_directives(fields)),
        Value::Array(items) => {
            let items = items.iter().filter(|item| item.get(PATCH).is_none());
            Value::Array(items.map(cleaned).collect())
        }
        other => other.clone(),
    }
}

fn without_directives(fields: &Map<String, Value>) -> Map<String, Value> {
    let kept = fields.iter().filter(|(name, value)| !name.starts_with('$') && !value.is_null());
    kept.map(|(name, value)| (name.clone(), cleaned(value))).collect()
}

/// Shows a value as Go prints it.
fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_print).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            let fields = names.into_iter().map(|name| format!("{name}:{}", go_print(&fields[name])));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;

//! Strategic merge patch, for built-in kinds.
//!
//! A merge patch that merges lists as well: those of maps by their merge key, those of scalars by value. Directives
//! (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) say what merging cannot.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::schema::{NodeRef, Schema};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// Why a strategic merge patch can't be applied: 500.
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
    /// The items of a patch have another order than `$setElementOrder`, or are missing from it.
    #[error(
        "The order in patch list:\n{list}\n doesn't match {ORDER} list:\n{order}\n",
        ORDER = "$setElementOrder"
    )]
    OtherOrder {
        /// Shows the list of the patch.
        list: String,
        /// Shows the order.
        order: String,
    },
    /// A `$patch` directive is not delete, merge or replace.
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
        // There is nothing to merge with: the directive wins over the rest of the map.
        (Value::Object(change), None) if change.contains_key(PATCH) => {}
        (Value::Array(change), Some(Value::Array(current))) => {
            let item = below.map(NodeRef::item);
            let order = changes.get(&format!("{ORDER}{name}")).and_then(Value::as_array);
            let deleted = changes.get(&format!("{DELETE}{name}")).and_then(Value::as_array);
            match (below.and_then(NodeRef::merge_key), item) {
                (Some(key), Some(item)) if !key.is_empty() => {
                    *current = merge_maps(item, key, current, change, order)?;
                }
                (Some(_), _) => *current = merge_scalars(current, change, deleted, order)?,
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
    let kept = change.iter().filter(|value| directive(value).as_deref() != Some("delete"));
    check_order(kept, change, order, Some(key))?;
    let mut merged: Vec<Option<Value>> = current.iter().cloned().map(Some).collect();
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, old) in current.iter().enumerate() {
        places.entry(identity(old, Some(key))).or_default().push(at);
    }
    for value in change {
        if value.get(key).is_none() {
            return Err(StrategicError::NoMergeKey { item: go_print(value), key: key.to_owned() });
        }
        let id = identity(value, Some(key));
        match (directive(value).as_deref(), places.get(&id).and_then(|places| places.first())) {
            (Some("delete"), _) => {
                for at in places.remove(&id).into_iter().flatten() {
                    merged[at] = None;
                }
            }
            (_, Some(at)) => {
                let mut fields = merged[*at].as_mut().map(take_object).unwrap_or_default();
                merge_map(item, &mut fields, value.as_object().unwrap_or(&Map::new()))?;
                merged[*at] = Some(Value::Object(fields));
            }
            (_, None) => {
                places.insert(id, vec![merged.len()]);
                merged.push(Some(cleaned(value)));
            }
        }
    }
    let touched = || change.iter().filter(|value| directive(value).as_deref() != Some("delete"));
    let order = match order {
        Some(order) => index(order.iter().filter(|value| value.get(key).is_some()), Some(key)),
        None => index(touched(), Some(key)),
    };
    Ok(arranged(merged.into_iter().flatten(), &index(current, Some(key)), &order, Some(key)))
}

fn merge_scalars(
    current: &[Value],
    change: &[Value],
    deleted: Option<&Vec<Value>>,
    order: Option<&Vec<Value>>,
) -> Result<Vec<Value>, StrategicError> {
    check_order(change, change, order, None)?;
    let known = index(current, None);
    let deleted = index(deleted.into_iter().flatten(), None);
    let mut merged = current.to_vec();
    merged.retain(|value| !deleted.contains_key(&identity(value, None)));
    let mut there = index(&merged, None);
    for value in change {
        let next = there.len();
        there.entry(identity(value, None)).or_insert_with(|| {
            merged.push(value.clone());
            next
        });
    }
    let order = index(order.map_or(change, Vec::as_slice), None);
    Ok(arranged(merged, &known, &order, None))
}

/// Identifies the items of a list: by their merge key, or by their whole value.
fn identity(value: &Value, key: Option<&str>) -> String {
    key.map_or_else(|| value.to_string(), |key| value.get(key).map(Value::to_string).unwrap_or_default())
}

/// Returns the first place of each item of a list.
fn index<'v>(list: impl IntoIterator<Item = &'v Value>, key: Option<&str>) -> HashMap<String, usize> {
    let mut places = HashMap::new();
    for (at, value) in list.into_iter().enumerate() {
        places.entry(identity(value, key)).or_insert(at);
    }
    places
}

/// Checks that the items of a patch come in the order that it gives, and are all in there.
fn check_order<'v>(
    kept: impl IntoIterator<Item = &'v Value>,
    change: &[Value],
    order: Option<&Vec<Value>>,
    key: Option<&str>,
) -> Result<(), StrategicError> {
    let Some(order) = order.filter(|order| !order.is_empty()) else { return Ok(()) };
    let mut rest = order.iter().map(|value| identity(value, key));
    let fits = kept.into_iter().all(|value| {
        let id = identity(value, key);
        rest.any(|next| next == id)
    });
    if fits {
        return Ok(());
    }
    let list = go_print(&Value::Array(change.to_vec()));
    Err(StrategicError::OtherOrder { list, order: go_print(&Value::Array(order.clone())) })
}

/// Orders a merged list: what `order` names keeps that order, the rest the one it had.
///
/// If both could come next, a new item comes first.
fn arranged(
    merged: impl IntoIterator<Item = Value>,
    known: &HashMap<String, usize>,
    order: &HashMap<String, usize>,
    key: Option<&str>,
) -> Vec<Value> {
    let merged = merged.into_iter().map(|value| (identity(&value, key), value));
    let (mut named, rest): (Vec<_>, Vec<_>) = merged.partition(|(id, _)| order.contains_key(id));
    named.sort_by_key(|(id, _)| order.get(id));
    let mut rest = rest.into_iter().peekable();
    let mut result = Vec::new();
    for (id, value) in named {
        if let Some(at) = known.get(&id) {
            while let Some((_, before)) = rest.next_if(|(other, _)| known.get(other) < Some(at)) {
                result.push(before);
            }
        }
        result.push(value);
    }
    result.extend(rest.map(|(_, value)| value));
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

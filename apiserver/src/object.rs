//! Objects: reading and setting metadata of untyped values.

use serde_json::{Map, Value};

/// Reads one field of the metadata.
pub fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// Reads one text field of the metadata; empty when it is absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    meta(object, field).and_then(Value::as_str).unwrap_or_default()
}

/// Reads the name; empty if it is absent.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// Reads the namespace; empty for cluster-scoped objects.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// Reads the uid.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// Returns the metadata for writing, and adds it if it is absent.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(map_mut(object), "metadata")
}

/// Returns a value as a map; replaces a value that is not a map.
pub fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object just above")
}

/// Returns a map inside a map; replaces a value that is not a map.
pub(crate) fn child_mut<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    map_mut(map.entry(key).or_insert(Value::Null))
}

/// Sets one field of the metadata.
pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    meta_mut(object).insert(field.to_owned(), value.into());
}

/// Removes one field of the metadata.
pub fn remove(object: &mut Value, field: &str) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove(field)
}

/// Copies one field of the metadata from an older state, absence included.
pub fn carry(from: &Value, to: &mut Value, field: &str) {
    match meta(from, field) {
        Some(value) => set(to, field, value.clone()),
        None => drop(remove(to, field)),
    }
}

/// Copies one top-level field from an older state, absence included.
pub(crate) fn carry_top(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => drop(map_mut(to).insert(field.to_owned(), value.clone())),
        None => drop(map_mut(to).remove(field)),
    }
}

/// Reads the finalizers in their order.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = meta(object, "finalizers").and_then(Value::as_array);
    list.map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Sets the finalizers; an empty list removes the field.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        remove(object, "finalizers");
    } else {
        set(object, "finalizers", finalizers.to_vec());
    }
}

/// Returns whether deletion has begun.
pub fn is_deleting(object: &Value) -> bool {
    meta(object, "deletionTimestamp").is_some_and(|v| !v.is_null())
}

/// Reads one label.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    meta(object, "labels")?.get(key)?.as_str()
}

/// Reads the value at a dotted path, e.g. `spec.nodeName`.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(object, |value, part| value.get(part))
}

/// One entry of `ownerReferences`, as far as garbage collection needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The owner's group and version.
    pub api_version: &'a str,
    /// The owner's kind.
    pub kind: &'a str,
    /// The owner's name.
    pub name: &'a str,
    /// The owner's uid.
    pub uid: &'a str,
    /// Whether a foreground deletion of the owner waits for this object.
    pub blocks: bool,
}

/// Reads the owner references.
pub fn owners(object: &Value) -> Vec<Owner<'_>> {
    let list = meta(object, "ownerReferences").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map(|entry| Owner {
            api_version: entry["apiVersion"].as_str().unwrap_or_default(),
            kind: entry["kind"].as_str().unwrap_or_default(),
            name: entry["name"].as_str().unwrap_or_default(),
            uid: entry["uid"].as_str().unwrap_or_default(),
            blocks: entry["blockOwnerDeletion"].as_bool().unwrap_or(false),
        })
        .collect()
}

/// Drops empty labels, annotations and lists of the metadata, which the API leaves out.
pub fn tidy(object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.retain(|key, value| match value {
            _ if key == "managedFields" => !value.is_null(),
            Value::Null => false,
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        });
    }
}

/// Writes the storage key: `namespace/name`, or the name alone.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Splits `group/version`; the core group has no slash.
pub(crate) fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Joins a group and a version.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn setting_metadata_makes_it() {
        let mut object = json!({});
        set(&mut object, "name", "a");
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
        assert_eq!(remove(&mut object, "name"), Some(json!("a")));
    }

    #[test]
    fn tidy_drops_what_is_empty() {
        let mut object =
            json!({"metadata": {"name": "a", "labels": {}, "finalizers": [], "annotations": null}});
        tidy(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn a_path_reads_through_maps() {
        let object = json!({"spec": {"a": {"b": 1}}});
        assert_eq!(at(&object, ".spec.a.b"), Some(&json!(1)));
        assert_eq!(at(&object, "spec.x.b"), None);
    }
}

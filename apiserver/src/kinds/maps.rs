//! Walks into the maps of an object, and adds missing ones.

use serde_json::{Map, Value};

/// Returns the object in a field of a map.
pub(super) fn map<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// Sets a value that is absent, null or an empty text.
pub(super) fn put(map: &mut Map<String, Value>, key: &str, value: Value) {
    if map.get(key).is_none_or(|there| there.is_null() || there == "") {
        map.insert(key.to_owned(), value);
    }
}

/// Returns the objects in a list of a map.
pub(super) fn maps<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

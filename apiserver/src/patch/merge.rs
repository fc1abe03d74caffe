//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Applies a merge patch: null removes a field, objects merge, other values replace.
///
/// A patch that is not an object would replace the whole document; callers refuse it before.
pub(crate) fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge_patch(fields.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(mut target: Value, patch: Value) -> Value {
        merge_patch(&mut target, &patch);
        target
    }

    #[test]
    fn null_removes_objects_merge_and_lists_are_replaced() {
        // wire 327
        let target = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        let patch = json!({"a": {"b": null, "d": 3}, "l": [3]});
        assert_eq!(merged(target, patch), json!({"a": {"c": 2, "d": 3}, "l": [3]}));
    }

    #[test]
    fn nulls_in_a_new_object_leave_it_empty() {
        // wire 327
        assert_eq!(merged(json!({}), json!({"n": {"m": null}})), json!({"n": {}}));
    }

    #[test]
    fn an_object_replaces_a_scalar() {
        assert_eq!(merged(json!({"a": 1}), json!({"a": {"b": 2}})), json!({"a": {"b": 2}}));
    }
}

//! The JSON patch between two values.

use serde_json::{Value, json};

/// Computes the JSON patch (RFC 6902) that turns one value into another one.
///
/// Lists of the same length are compared element by element, others are replaced.
pub(super) fn json_patch(old: &Value, new: &Value) -> Vec<Value> {
    let mut steps = Vec::new();
    note_steps(old, new, &mut String::new(), &mut steps);
    steps
}

fn note_steps(old: &Value, new: &Value, path: &mut String, steps: &mut Vec<Value>) {
    let length = path.len();
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            for (name, old) in before {
                extend(path, name);
                match after.get(name) {
                    Some(new) => note_steps(old, new, path, steps),
                    None => steps.push(json!({"op": "remove", "path": path})),
                }
                path.truncate(length);
            }
            for (name, value) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
                extend(path, name);
                steps.push(json!({"op": "add", "path": path, "value": value}));
                path.truncate(length);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (at, (old, new)) in before.iter().zip(after).enumerate() {
                extend(path, &at.to_string());
                note_steps(old, new, path, steps);
                path.truncate(length);
            }
        }
        _ => steps.push(json!({"op": "replace", "path": path, "value": new})),
    }
}

fn extend(path: &mut String, name: &str) {
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_what_changes_and_nothing_else() {
        let old = json!({"a": 1, "b": {"c/d": [1, {"e~": 2}]}, "gone": 1, "list": [1], "same": [1, 2]});
        let new = json!({"a": 2, "b": {"c/d": [1, {"e~": 3}]}, "list": [1, 2], "new": {}, "same": [1, 2]});
        let wanted = json!([
            {"op": "replace", "path": "/a", "value": 2},
            {"op": "replace", "path": "/b/c~1d/1/e~0", "value": 3},
            {"op": "remove", "path": "/gone"},
            {"op": "replace", "path": "/list", "value": [1, 2]},
            {"op": "add", "path": "/new", "value": {}},
        ]);
        let mut found = json_patch(&old, &new);
        found.sort_by_key(|step| step["path"].to_string());
        assert_eq!(Value::Array(found), wanted);
        assert_eq!(json_patch(&old, &old), [] as [Value; 0]);
    }
}

//! JSON patch (RFC 6902), with the liberties that the real server takes.

use json_patch::{Patch, PatchOperation};
use serde_json::{Map, Value, json};

use crate::limits::{self, PATCH_OPERATIONS};

/// Why a JSON patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonPatchError {
    /// The patch is not a list of objects: 400.
    #[error("error decoding patch: json: cannot unmarshal {0} into Go value of type {1}")]
    Malformed(&'static str, &'static str),
    /// The patch has too many operations: 413.
    #[error(
        "Request entity too large: The allowed maximum operations in a JSON patch is {PATCH_OPERATIONS}, got {0}"
    )]
    TooLarge(usize),
    /// An operation failed, such as a test or a path that is not there: 422.
    #[error("the server rejected our request due to an error in our request")]
    Rejected,
    /// The operations would copy or move too much, or nest too deeply: 422.
    #[error("the server rejected our request due to an error in our request")]
    Excessive,
}

/// Applies a JSON patch to a document, completely or not at all.
///
/// Four things are let pass that the RFC forbids: `replace` of a map's absent key adds it, a path without a leading
/// `/` loses all before its first `/`, `add` without a value writes null, and `test` takes a map's absent key for
/// null: clients add the first finalizer by that.
pub(crate) fn json_patch(document: &mut Value, patch: &Value) -> Result<(), JsonPatchError> {
    let operations =
        patch.as_array().ok_or(JsonPatchError::Malformed(go_type(patch), "[]handlers.jsonPatchOp"))?;
    if operations.len() > PATCH_OPERATIONS {
        return Err(JsonPatchError::TooLarge(operations.len()));
    }
    let (mut result, mut allowance) = (document.clone(), Allowance::default());
    for operation in operations {
        let fields = operation
            .as_object()
            .ok_or(JsonPatchError::Malformed(go_type(operation), "handlers.jsonPatchOp"))?;
        apply(&mut result, fields, &mut allowance)?;
    }
    *document = result;
    Ok(())
}

/// The remaining budget of a patch.
struct Allowance {
    /// Bytes to copy.
    copies: usize,
    /// Values to move.
    moves: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { copies: limits::PATCH_COPIES, moves: limits::PATCH_MOVES }
    }
}

impl Allowance {
    /// Takes what an operation needs; `None` if that is too much.
    fn take(&mut self, document: &Value, operation: &PatchOperation) -> Option<()> {
        let at = |pointer: &str| document.pointer(pointer);
        // An item that is put into a list, or taken out of it, moves all that follow.
        let behind = |path: &str| {
            let place =
                path.rsplit_once('/').and_then(|(parent, index)| Some((at(parent)?.as_array()?, index)));
            place.map_or(0, |(list, index)| list.len().saturating_sub(index.parse().unwrap_or(list.len())))
        };
        let path = operation.path().as_str();
        let (value, shifted) = match operation {
            PatchOperation::Add(add) => (Some(&add.value), behind(path)),
            PatchOperation::Replace(replace) => (Some(&replace.value), 0),
            PatchOperation::Copy(copy) => (at(copy.from.as_str()), behind(path)),
            PatchOperation::Move(moved) => {
                let from = moved.from.as_str();
                (at(from), behind(path) + behind(from))
            }
            PatchOperation::Remove(_) => (None, behind(path)),
            PatchOperation::Test(_) => (None, 0),
        };
        if let (PatchOperation::Copy(_), Some(value)) = (operation, value) {
            self.copies = self.copies.checked_sub(limits::size(value))?;
        }
        let (depth, values) = value.map_or((0, 0), limits::depth_and_values);
        self.moves = self.moves.checked_sub(values + shifted)?;
        (path.matches('/').count() + depth <= limits::DEPTH).then_some(())
    }
}

/// Applies a JSON patch as [`json_patch`] does.
///
/// # Errors
/// The reason, which clients do not see.
pub(crate) fn json_patch_of_webhook(document: &mut Value, patch: &Value) -> Result<(), String> {
    let (mut result, mut allowance) = (document.clone(), Allowance::default());
    for operation in patch.as_array().into_iter().flatten() {
        let malformed = JsonPatchError::Malformed(go_type(operation), "handlers.jsonPatchOp");
        let fields = operation.as_object().ok_or_else(|| malformed.to_string())?;
        apply(&mut result, fields, &mut allowance).map_err(|error| match error {
            JsonPatchError::Rejected => why(&result, operation),
            other => other.to_string(),
        })?;
    }
    *document = result;
    Ok(())
}

/// Describes why an operation can't be carried out, in the server's words.
fn why(document: &Value, operation: &Value) -> String {
    let text = |key: &str| operation[key].as_str().unwrap_or_default();
    let (op, path) = (text("op"), text("path"));
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
    let there = document.pointer(parent).is_some_and(|parent| parent.is_object() || parent.is_array());
    match op {
        "add" if !there => {
            format!("add operation does not apply: doc is missing path: {path:?}: missing value")
        }
        "remove" if !there => {
            format!("remove operation does not apply: doc is missing path: {path:?}: missing value")
        }
        "remove" => {
            format!(
                "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
            )
        }
        "replace" if !there => {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        }
        "replace" => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
        "test" if !there => format!("test operation does not apply: is missing path: {path}: missing value"),
        "test" => format!("testing value {path} failed: test failed"),
        "move" | "copy" => {
            let from = text("from");
            format!("{op} operation does not apply: doc is missing from path: {from}: missing value")
        }
        "add" => format!(
            "error in add for path: '{path}': Unable to access invalid index: {key}: invalid index referenced"
        ),
        other => format!("Unexpected kind: {other}"),
    }
}

/// Lists the fields of operations that JSON patch does not know, such as `[0].extra`.
pub(crate) fn unknown_patch_fields(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    let known = |name: &str| matches!(name, "op" | "path" | "from" | "value");
    operations
        .flat_map(|(index, operation)| {
            let names = operation.as_object().into_iter().flat_map(Map::keys);
            names.filter(|name| !known(name)).map(move |name| format!("[{index}].{name}"))
        })
        .collect()
}

fn apply(
    document: &mut Value,
    operation: &Map<String, Value>,
    allowance: &mut Allowance,
) -> Result<(), JsonPatchError> {
    let mut operation = operation.clone();
    for name in ["path", "from"] {
        if let Some(Value::String(path)) = operation.get_mut(name) {
            *path = rooted(path);
        }
    }
    let op = operation.get("op").and_then(Value::as_str).unwrap_or_default();
    let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
    let adds = op == "replace" && is_absent_key(document, path);
    let lacks_value = matches!(op, "add" | "replace" | "test") && !operation.contains_key("value");
    let is_null = lacks_value || operation.get("value") == Some(&Value::Null);
    if op == "test" && is_null && is_absent_key(document, path) {
        return Ok(());
    }
    if adds {
        operation.insert("op".to_owned(), json!("add"));
    }
    if lacks_value {
        operation.insert("value".to_owned(), Value::Null);
    }
    let operation: PatchOperation =
        serde_json::from_value(Value::Object(operation)).map_err(|_| JsonPatchError::Rejected)?;
    allowance.take(document, &operation).ok_or(JsonPatchError::Excessive)?;
    json_patch::patch(document, &Patch(vec![operation])).map_err(|_| JsonPatchError::Rejected)
}

/// Drops the text before the first `/`.
fn rooted(path: &str) -> String {
    match path.find('/') {
        Some(start) => path[start..].to_owned(),
        None => path.to_owned(),
    }
}

/// Returns whether a path names a key that its map does not have.
fn is_absent_key(document: &Value, path: &str) -> bool {
    let Some((parent, key)) = path.rsplit_once('/') else { return false };
    let key = key.replace("~1", "/").replace("~0", "~");
    match document.pointer(parent) {
        Some(Value::Object(fields)) => !fields.contains_key(&key),
        _ => false,
    }
}

/// Names the type of a value as Go's decoder does.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Value {
        json!({"metadata": {"labels": {"a/b": "1"}}, "data": {"x": "1", "y": "2"}})
    }

    fn patched(patch: Value) -> Result<Value, JsonPatchError> {
        let mut document = map();
        json_patch(&mut document, &patch)?;
        Ok(document)
    }

    #[test]
    fn operations_apply_in_order() -> anyhow::Result<()> {
        // wire 326
        let patch = json!([
            {"op": "replace", "path": "/data/x", "value": "9"},
            {"op": "test", "path": "/data/x", "value": "9"},
            {"op": "copy", "path": "/data/w", "from": "/data/x"},
            {"op": "move", "path": "/data/v", "from": "/data/y"},
            {"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"},
        ]);
        let result = patched(patch)?;
        assert_eq!(result["data"], json!({"x": "9", "w": "9", "v": "2"}));
        assert_eq!(result["metadata"]["labels"], json!({"a/b": "2"}));
        Ok(())
    }

    #[test]
    fn replace_of_an_absent_key_adds_it() -> anyhow::Result<()> {
        // wire 326
        let result = patched(json!([{"op": "replace", "path": "/data/none", "value": "1"}]))?;
        assert_eq!(result["data"]["none"], "1");
        Ok(())
    }

    #[test]
    fn an_absent_key_is_null_to_a_test() -> anyhow::Result<()> {
        let add = json!({"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]});
        let test = |value: Value| json!({"op": "test", "path": "/metadata/finalizers", "value": value});
        assert_eq!(patched(json!([test(Value::Null), add]))?["metadata"]["finalizers"], json!(["a/b"]));
        assert_eq!(patched(json!([add, test(Value::Null)])), Err(JsonPatchError::Rejected));
        assert_eq!(patched(json!([test(json!([])), add])), Err(JsonPatchError::Rejected));
        let deeper = json!({"op": "test", "path": "/none/x", "value": null});
        assert_eq!(patched(json!([deeper])), Err(JsonPatchError::Rejected));
        Ok(())
    }

    #[test]
    fn a_path_without_a_slash_is_one_key_below() -> anyhow::Result<()> {
        // wire 326
        let result = patched(json!([{"op": "add", "path": "data/x", "value": "1"}]))?;
        assert_eq!(result["x"], "1");
        Ok(())
    }

    #[test]
    fn add_without_a_value_writes_null() -> anyhow::Result<()> {
        // wire 326: the typed server then reads the null as an empty string.
        let result = patched(json!([{"op": "add", "path": "/data/x"}]))?;
        assert_eq!(result["data"]["x"], Value::Null);
        Ok(())
    }

    #[test]
    fn what_cannot_be_done_is_rejected() {
        // wire 326
        for operation in [
            json!({"op": "test", "path": "/data/x", "value": "no"}),
            json!({"op": "remove", "path": "/data/none"}),
            json!({"op": "add", "path": "/none/x", "value": "1"}),
            json!({"op": "bogus", "path": "/data/x"}),
        ] {
            assert_eq!(patched(json!([operation])), Err(JsonPatchError::Rejected));
        }
    }

    // A24
    #[test]
    fn a_failed_patch_changes_nothing() {
        let mut document = map();
        let patch = json!([{"op": "remove", "path": "/data/x"}, {"op": "remove", "path": "/data/x"}]);
        assert!(json_patch(&mut document, &patch).is_err());
        assert_eq!(document, map());
    }

    // A24
    #[test]
    fn a_patch_must_be_a_short_list() {
        // wire 326
        let error = patched(json!({"op": "add"})).map_err(|error| error.to_string());
        let text = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
        assert_eq!(error, Err(text.to_owned()));
        let many = vec![json!({"op": "test", "path": "/data/x", "value": "1"}); 10_001];
        assert_eq!(patched(Value::Array(many)), Err(JsonPatchError::TooLarge(10_001)));
    }

    #[test]
    fn fields_that_no_operation_has_are_listed() {
        // wire 324
        let patch = json!([{"op": "add", "path": "/data/z", "value": "1", "extra": 1}]);
        assert_eq!(unknown_patch_fields(&patch), ["[0].extra"]);
    }

    /// Copies a map into itself, again and again: each time it is twice as deep, or twice as large.
    fn doubling(times: usize, path: impl Fn(usize) -> String) -> Value {
        let copies = (0..times).map(|time| json!({"op": "copy", "from": "/data", "path": path(time)}));
        Value::Array(copies.collect())
    }

    // A30
    #[test]
    fn copies_that_double_a_documents_depth_are_refused() {
        let deeper = doubling(400, |time| format!("/data{}", "/a".repeat(1 << time.min(6))));
        assert_eq!(patched(deeper), Err(JsonPatchError::Excessive));
        let few = doubling(5, |time| format!("/data{}", "/a".repeat(time + 1)));
        assert!(patched(few).is_ok());
    }

    // A30
    #[test]
    fn copies_that_double_a_documents_size_are_refused() {
        let larger = doubling(30, |time| format!("/data/k{time}"));
        assert_eq!(patched(larger), Err(JsonPatchError::Excessive));
        assert!(patched(doubling(10, |time| format!("/data/k{time}"))).is_ok());
    }

    // A30
    #[test]
    fn moves_that_nest_ever_deeper_are_refused() {
        let mut steps = vec![json!({"op": "add", "path": "/a", "value": {}})];
        for time in 0..200 {
            let (inner, outer) = if time % 2 == 0 { ("/a", "/b") } else { ("/b", "/a") };
            steps.push(json!({"op": "add", "path": outer, "value": {}}));
            steps.push(json!({"op": "move", "from": inner, "path": format!("{outer}{inner}")}));
        }
        assert_eq!(patched(Value::Array(steps)), Err(JsonPatchError::Excessive));
    }

    // A30
    #[test]
    fn operations_that_shift_a_long_list_are_bounded() {
        let mut steps = vec![json!({"op": "add", "path": "/l", "value": vec![0; 20_000]})];
        steps.extend(vec![json!({"op": "move", "from": "/l/0", "path": "/l/0"}); 9_000]);
        assert_eq!(patched(Value::Array(steps.clone())), Err(JsonPatchError::Excessive));
        steps.truncate(100);
        assert!(patched(Value::Array(steps)).is_ok());
    }

    // A30
    #[test]
    fn operations_that_shift_nothing_are_not_charged_for_the_list() {
        let list = json!({"op": "add", "path": "/l", "value": vec![0; 20_000]});
        for step in [
            json!({"op": "replace", "path": "/l/0", "value": 1}),
            json!({"op": "add", "path": "/l/-", "value": 1}),
            json!({"op": "copy", "from": "/l/0", "path": "/l/-"}),
            json!({"op": "remove", "path": "/l/19990"}),
            json!({"op": "test", "path": "/l/0", "value": 0}),
        ] {
            let times = if step["op"] == "remove" { 9 } else { 5_000 };
            let mut steps = vec![list.clone()];
            steps.extend(vec![step.clone(); times]);
            assert!(patched(Value::Array(steps)).is_ok(), "{step}");
        }
        let mut steps = vec![list];
        steps.extend((0..5_000).map(|at| json!({"op": "remove", "path": format!("/l/{}", 19_999 - at)})));
        assert!(patched(Value::Array(steps)).is_ok(), "removed from the end");
    }
}

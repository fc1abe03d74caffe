//! What conversions lose, kept in an annotation, and how it is restored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::writes::merge::{difference, merged};

/// How often it is tried which values can be restored: a user can write any number of others into the annotation.
const ATTEMPTS: usize = 16;

/// The annotation with what the version of an object does not know.
///
/// Its value is JSON: for each other version the lost values. It is written and read by conversions alone.
#[doc(hidden)]
pub const LOST_ANNOTATION: &str = "watchkeeper.dev/conversions";

/// A value that a conversion can't express.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LostValue {
    /// The place of the value: a JSON pointer through members of objects.
    pub(super) path: String,
    /// The value; absent if the way back makes one where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub(super) lost: Option<Value>,
    /// The value that the way back gives; absent if it gives none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub(super) back: Option<Value>,
}

/// Reads a value that is there, even if it is null.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// The lost values of an object, by the version that they are restored in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct LostValues(BTreeMap<String, Vec<LostValue>>);

impl LostValues {
    /// Reads the annotation of an object. One that can't be read is ignored: a user may have changed it.
    pub(super) fn of(object: &Value) -> Self {
        let text = object["metadata"]["annotations"][LOST_ANNOTATION].as_str();
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Takes out what is restored in a version.
    pub(super) fn take(&mut self, version: &str) -> Vec<LostValue> {
        self.0.remove(version).unwrap_or_default()
    }

    /// Sets what is restored in a version.
    pub(super) fn set(&mut self, version: &str, values: Vec<LostValue>) {
        if values.is_empty() {
            self.0.remove(version);
        } else {
            self.0.insert(version.to_owned(), values);
        }
    }

    /// Returns the text of the annotation; `None` if nothing is lost.
    pub(super) fn text(&self) -> Option<String> {
        if self.0.is_empty() { None } else { serde_json::to_string(self).ok() }
    }
}

/// Lists where an object and the same one after the way there and back differ.
pub(super) fn losses(before: &Value, back: &Value) -> Vec<LostValue> {
    let mut found = Vec::new();
    note_losses(before, back, &mut String::new(), &mut found);
    found
}

/// Returns whether one way back loses nothing that another way does not lose as well.
pub(super) fn loses_no_more(before: &Value, other: &Value, back: &Value) -> bool {
    let lost = losses(before, other);
    let is_lost = |path: &str| {
        let within = |known: &LostValue| {
            path.strip_prefix(&known.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        lost.iter().any(within)
    };
    losses(before, back).iter().all(|value| is_lost(&value.path))
}

fn note_losses(before: &Value, back: &Value, path: &mut String, found: &mut Vec<LostValue>) {
    let (Value::Object(had), Value::Object(has)) = (before, back) else { return };
    let added = has.keys().filter(|name| !had.contains_key(*name));
    for name in had.keys().chain(added) {
        let length = path.len();
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        match (had.get(name), has.get(name)) {
            (before, back) if before == back => {}
            (Some(before @ Value::Object(_)), Some(back @ Value::Object(_))) => {
                note_losses(before, back, path, found);
            }
            (before, back) => {
                found.push(LostValue { path: path.clone(), lost: before.cloned(), back: back.cloned() });
            }
        }
        path.truncate(length);
    }
}

/// Restores lost values in an object, where it still has what the way back gave then.
pub(super) fn restore(object: &mut Value, values: Vec<LostValue>) {
    for LostValue { path, lost, back } in values {
        let Some((parent, name)) = path.rsplit_once('/') else { continue };
        let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) else { continue };
        let name = name.replace("~1", "/").replace("~0", "~");
        let restored = match (lost, back, parent.get(&name)) {
            (lost, back, now) if back.as_ref() == now => lost,
            (Some(lost), Some(back), Some(now)) if is_nested(&lost) => Some(edited(&lost, &back, now)),
            (_, _, now) => now.cloned(),
        };
        match restored {
            Some(value) => drop(parent.insert(name, value)),
            None => drop(parent.remove(&name)),
        }
    }
}

/// Restores as many of some values as can be restored together; returns what `attempt` makes of them.
///
/// Most often that is all of them. Otherwise those are looked for that can't be, by halves.
pub(super) fn restored<T>(values: &[LostValue], attempt: impl Fn(Vec<LostValue>) -> Option<T>) -> Option<T> {
    let (mut kept, mut result, mut left) = (Vec::new(), None, vec![values]);
    for _ in 0..ATTEMPTS {
        let Some(part) = left.pop().filter(|part| !part.is_empty()) else { break };
        let both = [&kept, part].concat();
        match attempt(both.clone()) {
            Some(made) => (kept, result) = (both, Some(made)),
            None if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                left.extend([second, first]);
            }
            None => {}
        }
    }
    result
}

/// Applies to the lost value what was changed in the one that the way back gave.
fn edited(lost: &Value, back: &Value, now: &Value) -> Value {
    match difference(back, now, lost) {
        Some(patch) => merged(lost.clone(), &patch),
        None => lost.clone(),
    }
}

fn is_nested(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Loses what `back` lacks of `before`, sets `now` as what is there after an edit, and restores.
    fn restored(before: Value, back: Value, mut now: Value) -> Value {
        let mut values = LostValues::default();
        values.set("v1", losses(&before, &back));
        let text = values.text().unwrap();
        let object = json!({"metadata": {"annotations": {LOST_ANNOTATION: text}}});
        let mut read = LostValues::of(&object);
        assert_eq!(read, values);
        restore(&mut now, read.take("v1"));
        assert_eq!(read.text(), None);
        now
    }

    #[test]
    fn a_lost_value_comes_back_unless_its_field_was_changed() {
        let before = json!({"spec": {"a": 1, "b/c": {"d": [1]}, "e": 5, "tls": {"min": 2, "on": true}}});
        let back = json!({"spec": {"a": 1, "e": 0, "tls": {"on": true}, "new": null}});
        assert_eq!(restored(before.clone(), back.clone(), back.clone()), before);
        let edited = json!({"spec": {"a": 2, "e": 7, "new": 3}});
        let wanted = json!({"spec": {"a": 2, "b/c": {"d": [1]}, "e": 7, "new": 3}});
        assert_eq!(restored(before.clone(), back.clone(), edited), wanted, "`tls` was removed");
        assert_eq!(restored(before, back, json!({})), json!({}));
    }

    #[test]
    fn elements_of_a_list_keep_what_they_lost() {
        let before =
            json!({"ports": [{"name": "a", "port": 1, "app": "x"}, {"name": "b", "port": 2, "app": "y"}]});
        let back = json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]});
        let now = json!({"ports": [{"name": "b", "port": 3}, {"name": "c", "port": 4}]});
        let wanted = json!({"ports": [{"name": "b", "port": 3, "app": "y"}, {"name": "c", "port": 4}]});
        assert_eq!(restored(before, back, now), wanted);
    }

    #[test]
    fn an_annotation_that_cannot_be_read_is_ignored() {
        for text in [json!("{"), json!(7), json!("[]"), json!("{\"v1\": 3}")] {
            let object = json!({"metadata": {"annotations": {LOST_ANNOTATION: text}}});
            assert_eq!(LostValues::of(&object), LostValues::default());
        }
        // Paths that lead nowhere change nothing.
        let mut object = json!({"spec": [1]});
        let value = |path: &str| LostValue { path: path.to_owned(), lost: Some(json!(1)), back: None };
        restore(&mut object, ["", "/", "spec", "/spec/0", "/spec/0/a", "//a"].map(value).to_vec());
        assert_eq!(object, json!({"spec": [1], "": 1}));
    }
}

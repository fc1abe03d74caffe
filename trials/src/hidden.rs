//! Fields that a recording does not have: a replay compares nothing of them.

use serde_json::Value;

/// A field of a kind; a step `*` is any key or item.
#[derive(Clone, Debug)]
pub(crate) struct HiddenField {
    group: String,
    plural: String,
    steps: Vec<String>,
}

impl HiddenField {
    /// Reads the fields that a line of settings names; `None`: it names none.
    pub(crate) fn all(line: &Value) -> Option<Vec<Self>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let field = |field: &Value| Self {
            group: text(&field["group"]),
            plural: text(&field["plural"]),
            steps: field["steps"].as_array().into_iter().flatten().map(text).collect(),
        };
        Some(line["hidden"].as_array()?.iter().map(field).collect())
    }
}

/// Returns an object of a kind as a recording shows it.
pub(crate) fn shown(fields: &[HiddenField], group: &str, plural: &str, object: &Value) -> Value {
    let mut shown = object.clone();
    let of_kind = fields.iter().filter(|field| field.group == group && field.plural == plural);
    of_kind.for_each(|field| hide(&mut shown, &field.steps));
    shown
}

fn hide(value: &mut Value, steps: &[String]) {
    match (steps.split_first(), value) {
        (None, value) => empty(value),
        (Some((step, rest)), Value::Object(fields)) if step == "*" => {
            fields.values_mut().for_each(|value| hide(value, rest));
        }
        (Some((step, rest)), Value::Array(items)) if step == "*" || step.parse::<usize>().is_ok() => {
            items.iter_mut().for_each(|value| hide(value, rest));
        }
        (Some((step, rest)), Value::Object(fields)) => {
            if let Some(value) = fields.get_mut(step) {
                hide(value, rest);
            }
        }
        _ => {}
    }
}

/// Puts nothing in the place of what a value says, as the recorder does.
fn empty(value: &mut Value) {
    match value {
        Value::Null => {}
        Value::Bool(says) => *says = false,
        Value::Number(_) => *value = Value::from(0),
        Value::String(text) => text.clear(),
        Value::Array(items) => items.iter_mut().for_each(empty),
        Value::Object(fields) => fields.values_mut().for_each(empty),
    }
}

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
        (None, Value::Null) => {}
        (None, value) => *value = Value::String(String::new()),
        (Some((step, rest)), Value::Object(fields)) if step == "*" => {
            fields.values_mut().for_each(|value| hide(value, rest));
        }
        (Some((step, rest)), Value::Array(items)) if step == "*" => {
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

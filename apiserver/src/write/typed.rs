//! Types: what a server with types for its kinds can't decode, in its words.

use serde_json::Value;

use super::Target;
use crate::object;
use crate::schema::{FieldError, FieldReason};

/// The fields that must have six decimals of a second: group, path.
const MICRO_TIMES: [(&str, &str); 4] = [
    ("coordination.k8s.io", "spec.renewTime"),
    ("coordination.k8s.io", "spec.acquireTime"),
    ("events.k8s.io", "eventTime"),
    ("", "eventTime"),
];

/// Finds the first value a typed decoder would refuse.
pub(super) fn fault(target: &Target, object: &Value) -> Option<String> {
    if let Some(fault) = metadata_fault(object) {
        return Some(fault);
    }
    if target.resource.is_custom() {
        return None;
    }
    let group = target.resource.group();
    for (_, path) in MICRO_TIMES.iter().filter(|(of, _)| *of == group) {
        if let Some(text) = object::at(object, path).and_then(Value::as_str)
            && let Some(why) = micro_fault(text)
        {
            return Some(why);
        }
    }
    let errors = target.served.schema.validate(object, None);
    let error = errors
        .into_iter()
        .find(|error| error.reason == FieldReason::TypeInvalid && error.field != "<nil>")?;
    Some(in_words(target, object, &error))
}

fn metadata_fault(object: &Value) -> Option<String> {
    for field in ["labels", "annotations"] {
        for value in
            object::meta(object, field).and_then(Value::as_object).into_iter().flat_map(|map| map.values())
        {
            if !value.is_string() && !value.is_null() {
                let what = name(value);
                return Some(format!(
                    "json: cannot unmarshal {what} into Go struct field ObjectMeta.{field} of type string"
                ));
            }
        }
    }
    None
}

fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn micro_fault(text: &str) -> Option<String> {
    let refused = |at: &str, part: &str| {
        Some(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {at:?} as {part:?}"
        ))
    };
    if text.parse::<jiff::Timestamp>().is_err() {
        return refused(text, "2006");
    }
    let rest = text.get(19..).unwrap_or_default();
    let digits = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    if digits == 6 { None } else { refused(rest, ".000000") }
}

fn in_words(target: &Target, object: &Value, error: &FieldError) -> String {
    let path = error.field.replace(['[', ']'], ".");
    let value = object::at(object, &path).unwrap_or(&Value::Null);
    let expected = error
        .message
        .split("must be of type ")
        .nth(1)
        .and_then(|rest| rest.split(':').next())
        .unwrap_or("string");
    match (expected, value) {
        ("byte", _) => "illegal base64 data at input byte 0".to_owned(),
        ("date-time", Value::String(text)) => {
            format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
            )
        }
        _ => {
            let kind = &target.resource.kind;
            let mut parts: Vec<&str> = error.field.split('.').collect();
            let is_map = matches!(parts[0], "data" | "binaryData" | "stringData");
            if is_map {
                parts.truncate(1);
            }
            let owner = if parts.len() > 1 { format!("{kind}{}", capital(parts[0])) } else { kind.clone() };
            let wanted = match expected {
                "object" if is_map => "map[string]string",
                "integer" => "int32",
                "boolean" => "bool",
                "object" => "struct",
                other => other,
            };
            let shown = match value {
                Value::Number(number) if expected == "integer" => format!("number {number}"),
                other => name(other).to_owned(),
            };
            format!(
                "json: cannot unmarshal {shown} into Go struct field {owner}.{} of type {wanted}",
                parts.join(".")
            )
        }
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Turns nulls in maps of strings into what a typed decoder makes of them.
pub(super) fn empty_nulls(target: &Target, object: &mut Value) {
    if target.resource.is_custom() {
        return;
    }
    let maps = ["data", "stringData"].into_iter().filter_map(|key| Some((key, object.get(key)?.is_object())));
    let keys: Vec<&str> = maps.filter(|(_, is_map)| *is_map).map(|(key, _)| key).collect();
    for key in keys {
        for value in
            object::child_mut(object::map_mut(object), key).values_mut().filter(|value| value.is_null())
        {
            *value = "".into();
        }
    }
}

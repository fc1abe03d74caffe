//! The keywords of a schema that say what a value must be.

use regex::Regex;
use serde_json::{Map, Value};

use super::super::error::{FieldError, FieldReason};
use super::super::node::{JsonType, NodeRef};
use super::formats;
use super::place::{ValuePlace, join};

/// Checks a value against the keywords of its node, without its children.
pub(super) fn check(node: NodeRef<'_>, place: ValuePlace<'_>, value: &Value, errors: &mut Vec<FieldError>) {
    let rules = &node.node().rules;
    types(node.kind(), place, value, errors);
    combined(rules, place, value, errors);
    plain(rules, place, value, errors);
}

/// Names a value's type as errors do.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns whether a number is whole: `2.0` is.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn types(kind: JsonType, place: ValuePlace<'_>, value: &Value, errors: &mut Vec<FieldError>) {
    let (fits, wanted) = match kind {
        JsonType::Any => return,
        JsonType::Object => (value.is_object(), "object"),
        JsonType::Array => (value.is_array(), "array"),
        JsonType::String => (value.is_string(), "string"),
        JsonType::Integer => (is_integer(value), "integer"),
        JsonType::Number => (value.is_number(), "number"),
        JsonType::Boolean => (value.is_boolean(), "boolean"),
        JsonType::IntOrString => (value.is_string() || is_integer(value), "integer,string"),
    };
    if fits {
        return;
    }
    let detail = format!("{} must be of type {wanted}", place.body());
    errors.push(FieldError::type_invalid(place.field(), type_name(value), &detail));
    if kind == JsonType::Integer && value.is_number() {
        errors.push(checked(place, "type integer (default format)"));
    }
}

/// Reports a number outside its format's range, without a field.
fn checked(place: ValuePlace<'_>, what: &str) -> FieldError {
    unnamed(&format!("Checked value must be of {what} in {}", place.name))
}

fn unnamed(detail: &str) -> FieldError {
    FieldError {
        reason: FieldReason::Invalid,
        field: "<nil>".to_owned(),
        message: format!("Invalid value: \"\": {detail}"),
    }
}

fn plain(rules: &Map<String, Value>, place: ValuePlace<'_>, value: &Value, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(text) => string(rules, place, text, errors),
        Value::Number(_) => number(rules, place, value, errors),
        Value::Array(items) => sizes(rules, place, items.len(), ["minItems", "maxItems"], errors),
        Value::Object(fields) => object(rules, place, fields, errors),
        Value::Bool(_) | Value::Null => {}
    }
    if let Some(Value::Array(allowed)) = rules.get("enum")
        && !allowed.contains(value)
    {
        errors.push(FieldError::not_supported(place.field(), value, allowed));
    }
}

fn invalid(place: ValuePlace<'_>, value: &Value, detail: &str, errors: &mut Vec<FieldError>) {
    let detail = format!("{} {detail}", place.body());
    errors.push(FieldError::invalid(place.field(), value, &detail));
}

fn string(rules: &Map<String, Value>, place: ValuePlace<'_>, text: &str, errors: &mut Vec<FieldError>) {
    let value = Value::from(text);
    let length = text.chars().count() as u64;
    if let Some(most) = rules.get("maxLength").and_then(Value::as_u64)
        && length > most
    {
        errors.push(FieldError::too_long(place.field(), most));
    }
    if let Some(least) = rules.get("minLength").and_then(Value::as_u64)
        && length < least
    {
        invalid(place, &value, &format!("should be at least {least} chars long"), errors);
    }
    // A value that is too long is not matched as well.
    let too_long = errors.last().is_some_and(|error| error.reason == FieldReason::TooLong);
    if let Some(pattern) = rules.get("pattern").and_then(Value::as_str)
        && !too_long
        && Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))
    {
        invalid(place, &value, &format!("should match '{pattern}'"), errors);
    }
    if let Some(format) = rules.get("format").and_then(Value::as_str)
        && !formats::accepts(format, text)
    {
        let detail = format!("{} must be of type {format}", place.body());
        errors.push(FieldError::type_invalid(place.field(), text, &detail));
    }
}

fn number(rules: &Map<String, Value>, place: ValuePlace<'_>, value: &Value, errors: &mut Vec<FieldError>) {
    let Some(number) = value.as_f64() else { return };
    if let Some(format) = rules.get("format").and_then(Value::as_str)
        && !formats::holds(format, number)
    {
        let kind = rules.get("type").and_then(Value::as_str).unwrap_or("number");
        errors.push(checked(place, &format!("type {kind} with format {format}")));
    }
    let strict = |name| rules.get(name).and_then(Value::as_bool).unwrap_or(false);
    let bound = |name| rules.get(name).and_then(|bound| Some((bound, bound.as_f64()?)));
    if let Some((text, step)) = bound("multipleOf")
        && step != 0.0
        && (number / step).fract() != 0.0
    {
        invalid(place, value, &format!("should be a multiple of {text}"), errors);
    }
    if let Some((text, most)) = bound("maximum") {
        if strict("exclusiveMaximum") && number >= most {
            invalid(place, value, &format!("should be less than {text}"), errors);
        } else if number > most {
            invalid(place, value, &format!("should be less than or equal to {text}"), errors);
        }
    }
    if let Some((text, least)) = bound("minimum") {
        if strict("exclusiveMinimum") && number <= least {
            invalid(place, value, &format!("should be greater than {text}"), errors);
        } else if number < least {
            invalid(place, value, &format!("should be greater than or equal to {text}"), errors);
        }
    }
}

fn sizes(
    rules: &Map<String, Value>,
    place: ValuePlace<'_>,
    found: usize,
    [least, most]: [&str; 2],
    errors: &mut Vec<FieldError>,
) {
    let limit = |name| rules.get(name).and_then(Value::as_u64);
    let unit = if least == "minItems" { "items" } else { "properties" };
    if let Some(least) = limit(least)
        && (found as u64) < least
    {
        invalid(place, &Value::from(found), &format!("should have at least {least} {unit}"), errors);
    }
    if let Some(most) = limit(most)
        && found as u64 > most
    {
        errors.push(FieldError::too_many(place.field(), found, most));
    }
}

fn object(
    rules: &Map<String, Value>,
    place: ValuePlace<'_>,
    fields: &Map<String, Value>,
    errors: &mut Vec<FieldError>,
) {
    sizes(rules, place, fields.len(), ["minProperties", "maxProperties"], errors);
    let required = rules.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            errors.push(FieldError::required(join(&place.field(), name), ""));
        }
    }
}

/// Checks `allOf`, `anyOf`, `oneOf` and `not`.
fn combined(rules: &Map<String, Value>, place: ValuePlace<'_>, value: &Value, errors: &mut Vec<FieldError>) {
    if rules.contains_key("x-kubernetes-int-or-string") {
        // Their `anyOf` only repeats the type.
        return;
    }
    let tried = |keyword: &str| -> Option<Vec<Vec<FieldError>>> {
        let alternatives = rules.get(keyword)?.as_array()?;
        Some(alternatives.iter().map(|schema| alternative(schema, place, value)).collect())
    };
    let name = place.name;
    if let Some(mut tried) = tried("anyOf")
        && tried.iter().all(|found| !found.is_empty())
    {
        errors.push(unnamed(&format!("\"{name}\" must validate at least one schema (anyOf)")));
        errors.append(&mut fewest(&mut tried));
    }
    if let Some(mut tried) = tried("oneOf") {
        let valid = tried.iter().filter(|found| found.is_empty()).count();
        let text = format!("\"{name}\" must validate one and only one schema (oneOf).");
        if valid == 0 {
            errors.push(unnamed(&format!("{text} Found none valid")));
            errors.append(&mut fewest(&mut tried));
        } else if valid > 1 {
            errors.push(unnamed(&format!("{text} Found {valid} valid alternatives")));
        }
    }
    if let Some(tried) = tried("allOf") {
        let is_none = tried.iter().all(|found| !found.is_empty());
        let mut failed: Vec<FieldError> = tried.into_iter().flatten().collect();
        if !failed.is_empty() {
            let none = if is_none { ". None validated" } else { "" };
            errors.push(unnamed(&format!("\"{name}\" must validate all the schemas (allOf){none}")));
            errors.append(&mut failed);
        }
    }
    if let Some(schema) = rules.get("not")
        && alternative(schema, place, value).is_empty()
    {
        errors.push(unnamed(&format!("\"{name}\" must not validate the schema (not)")));
    }
}

fn fewest(tried: &mut Vec<Vec<FieldError>>) -> Vec<FieldError> {
    tried.drain(..).min_by_key(Vec::len).unwrap_or_default()
}

/// Checks a value against a schema that only restricts: one of an alternative.
fn alternative(schema: &Value, place: ValuePlace<'_>, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Value::Object(rules) = schema else { return errors };
    let kind = match rules.get("type").and_then(Value::as_str) {
        Some("object") => JsonType::Object,
        Some("array") => JsonType::Array,
        Some("string") => JsonType::String,
        Some("integer") => JsonType::Integer,
        Some("number") => JsonType::Number,
        Some("boolean") => JsonType::Boolean,
        _ => JsonType::Any,
    };
    types(kind, place, value, &mut errors);
    combined(rules, place, value, &mut errors);
    plain(rules, place, value, &mut errors);
    if let (Some(Value::Object(properties)), Value::Object(fields)) = (rules.get("properties"), value) {
        for (name, schema) in properties {
            let Some(value) = fields.get(name) else { continue };
            let name = join(place.name, name);
            errors.extend(alternative(schema, ValuePlace { name: &name, ..place }, value));
        }
    }
    if let (Some(schema), Value::Array(items)) = (rules.get("items"), value) {
        for (index, value) in items.iter().enumerate() {
            let name = format!("{}[{index}]", place.name);
            errors.extend(alternative(schema, ValuePlace { name: &name, ..place }, value));
        }
    }
    errors
}

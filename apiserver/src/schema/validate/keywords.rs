//! The keywords of a schema that say what a value must be.

use serde_json::{Map, Value};

use super::super::error::{FieldError, FieldReason};
use super::super::node::{JsonType, NodeRef};
use super::super::pattern;
use super::formats;
use super::place::{ValuePlace, join};

/// Checks a value against the keywords of its node, without its children.
pub(super) fn check(node: NodeRef<'_>, place: ValuePlace<'_>, value: &Value, errors: &mut Vec<FieldError>) {
    let rules = &node.node().rules;
    types(node.kind(), rules, place, value, errors);
    if !value.is_null() {
        combined(rules, place, value, errors);
    }
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

fn types(
    kind: JsonType,
    rules: &Map<String, Value>,
    place: ValuePlace<'_>,
    value: &Value,
    errors: &mut Vec<FieldError>,
) {
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
    // For a whole number with a format, the error names that format and the format of the value.
    let format = rules.get("format").and_then(Value::as_str);
    let (wanted, found) = match (format, value) {
        (Some(format @ ("int32" | "int64")), Value::Number(_)) if kind == JsonType::Integer => {
            (format, "float64")
        }
        (Some(format @ ("int32" | "int64")), Value::Bool(_) | Value::Object(_))
            if kind == JsonType::Integer =>
        {
            (format, "")
        }
        _ => (wanted, type_name(value)),
    };
    let detail = format!("{} must be of type {wanted}", place.body());
    errors.push(FieldError::type_invalid(place.field(), found, &detail));
}

/// Reports a number outside its type's or format's range, without a field.
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
    // If neither the length nor the pattern fits, only the length is reported.
    let mut fits = true;
    if let Some(most) = rules.get("maxLength").and_then(Value::as_u64)
        && length > most
    {
        fits = false;
        errors.push(FieldError::too_long(place.field(), most));
    }
    if let Some(least) = rules.get("minLength").and_then(Value::as_u64)
        && fits
        && length < least
    {
        fits = false;
        invalid(place, &value, &format!("should be at least {least} chars long"), errors);
    }
    if let Some(pattern) = rules.get("pattern").and_then(Value::as_str)
        && fits
        && let Ok(Some(regex)) = pattern::compiled(pattern)
        && !regex.is_match(text)
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
    let kind = rules.get("type").and_then(Value::as_str).unwrap_or_default();
    // A format of another type is passed over.
    let is_own = |format: &&str| match kind {
        "integer" => matches!(*format, "int32" | "int64"),
        "number" => matches!(*format, "float" | "double"),
        _ => true,
    };
    let format = rules.get("format").and_then(Value::as_str).filter(is_own);
    if kind == "integer" && !is_integer(value) {
        let of = format.map_or("(default format)".to_owned(), |format| format!("with format {format}"));
        errors.push(checked(place, &format!("type integer {of}")));
    } else if let Some(format) = format
        && !formats::holds(format, number)
    {
        errors.push(checked(place, &format!("type {kind} with format {format}")));
    }
    let strict = |name| rules.get(name).and_then(Value::as_bool).unwrap_or(false);
    let bound = |name| {
        let bound = rules.get(name)?;
        let number = bound.as_f64()?;
        // A server stores 1.0 as 1, and shows it like that.
        Some((if bound.is_f64() { number.to_string() } else { bound.to_string() }, number))
    };
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
            errors.push(FieldError::required(place.child(name), ""));
        }
    }
}

/// What an alternative says of a value.
#[derive(Default)]
struct Alternative {
    errors: Vec<FieldError>,
    /// How many checks a real server counts: of several that fail, it tells the errors of the one with most.
    matched: usize,
}

/// Checks `allOf`, `anyOf`, `oneOf` and `not`; returns how many checks of the alternatives count.
fn combined(
    rules: &Map<String, Value>,
    place: ValuePlace<'_>,
    value: &Value,
    errors: &mut Vec<FieldError>,
) -> usize {
    let tried = |keyword: &str| -> Option<Vec<Alternative>> {
        let alternatives = rules.get(keyword)?.as_array()?;
        Some(alternatives.iter().map(|schema| alternative(schema, place, value)).collect())
    };
    let name = place.name;
    let mut matched = 0;
    if let Some(tried) = tried("anyOf").filter(|tried| !tried.is_empty()) {
        if tried.iter().all(|one| !one.errors.is_empty()) {
            errors.push(unnamed(&format!("\"{name}\" must validate at least one schema (anyOf)")));
        }
        matched += tell(best(tried), errors);
    }
    if let Some(tried) = tried("oneOf").filter(|tried| !tried.is_empty()) {
        let valid = tried.iter().filter(|one| one.errors.is_empty()).count();
        let text = format!("\"{name}\" must validate one and only one schema (oneOf).");
        match valid {
            0 => errors.push(unnamed(&format!("{text} Found none valid"))),
            1 => {}
            more => errors.push(unnamed(&format!("{text} Found {more} valid alternatives"))),
        }
        if valid <= 1 {
            matched += tell(best(tried), errors);
        }
    }
    if let Some(tried) = tried("allOf") {
        let failed = tried.iter().filter(|one| !one.errors.is_empty()).count();
        let none = if failed == tried.len() { ". None validated" } else { "" };
        for one in tried {
            matched += tell(one, errors);
        }
        if failed > 0 {
            errors.push(unnamed(&format!("\"{name}\" must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(schema) = rules.get("not")
        && alternative(schema, place, value).errors.is_empty()
    {
        errors.push(unnamed(&format!("\"{name}\" must not validate the schema (not)")));
    }
    matched
}

/// Moves an alternative's errors to the others; returns how many of its checks count.
fn tell(mut one: Alternative, errors: &mut Vec<FieldError>) -> usize {
    errors.append(&mut one.errors);
    one.matched
}

/// Returns the first alternative that is valid; if none is, the first of those that matched most.
fn best(tried: Vec<Alternative>) -> Alternative {
    let better = |best: Alternative, next: Alternative| {
        let is_better = next.errors.is_empty() || next.matched > best.matched;
        if !best.errors.is_empty() && is_better { next } else { best }
    };
    tried.into_iter().reduce(better).unwrap_or_default()
}

/// Checks a value against a schema that only restricts: one of an alternative.
fn alternative(schema: &Value, place: ValuePlace<'_>, value: &Value) -> Alternative {
    let mut errors = Vec::new();
    let Value::Object(rules) = schema else { return Alternative::default() };
    let kind = match rules.get("type").and_then(Value::as_str) {
        Some("object") => JsonType::Object,
        Some("array") => JsonType::Array,
        Some("string") => JsonType::String,
        Some("integer") => JsonType::Integer,
        Some("number") => JsonType::Number,
        Some("boolean") => JsonType::Boolean,
        _ => JsonType::Any,
    };
    types(kind, rules, place, value, &mut errors);
    let mut matched = usize::from(errors.is_empty());
    if !value.is_null() {
        let is_typed = kind != JsonType::Any || rules.contains_key("format");
        matched = if is_typed { matched + 1 } else { 0 };
        // One for the schema, one for `enum`, two for the keywords that combine, and those of the value's type.
        matched += 4 + match value {
            Value::Null | Value::Bool(_) => 0,
            Value::String(_) => 1 + usize::from(rules.contains_key("format")),
            Value::Number(_) | Value::Array(_) => 2,
            Value::Object(_) => 1,
        };
        matched += combined(rules, place, value, &mut errors);
    }
    plain(rules, place, value, &mut errors);
    if let (Some(Value::Object(properties)), Value::Object(fields)) = (rules.get("properties"), value) {
        for (name, schema) in properties {
            let Some(value) = fields.get(name) else { continue };
            let name = join(place.name, name);
            matched += tell(alternative(schema, ValuePlace { name: &name, ..place }, value), &mut errors);
        }
    }
    if let (Some(schema), Value::Array(items)) = (rules.get("items"), value) {
        for (index, value) in items.iter().enumerate() {
            let name = format!("{}[{index}]", place.name);
            matched += tell(alternative(schema, ValuePlace { name: &name, ..place }, value), &mut errors);
        }
    }
    Alternative { errors, matched }
}

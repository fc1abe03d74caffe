//! Reads objects of built-in kinds as a server with types does.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::node::{JsonType, NodeRef};

/// Drops what no type holds: unknown fields and nulls.
///
/// # Errors
///
/// The first value of another type, in the words of the server's decoder.
pub(super) fn decode(node: NodeRef<'_>, value: &mut Value) -> Result<(), String> {
    let at = DecodePlace { owner: node.node().definition.as_str(), path: String::new() };
    walk(node, &at, value)
}

/// Names the place of a value: the innermost struct, and the fields that lead to it.
struct DecodePlace<'a> {
    owner: &'a str,
    path: String,
}

fn walk(node: NodeRef<'_>, at: &DecodePlace<'_>, value: &mut Value) -> Result<(), String> {
    check(node, at, value)?;
    match value {
        Value::Object(fields) => {
            // A null map value is the zero of its type; a null field counts as absent.
            fields.retain(|name, value| match node.property(name) {
                Some(_) => !value.is_null(),
                None => node.additional().is_some() || node.is_free(),
            });
            for (name, value) in fields.iter_mut() {
                let Some(below) = node.field(name) else { continue };
                let is_field = node.property(name).is_some();
                if value.is_null() {
                    *value = below.zero();
                }
                if !is_field {
                    walk(below, at, value)?;
                    continue;
                }
                let owner = match node.node().definition.as_str() {
                    "" => at.owner,
                    definition => definition,
                };
                let path = format!("{}.{name}", at.path);
                walk(below, &DecodePlace { owner, path }, value)?;
            }
        }
        Value::Array(items) => {
            for value in items {
                if value.is_null() {
                    *value = node.item().zero();
                }
                walk(node.item(), at, value)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn check(node: NodeRef<'_>, at: &DecodePlace<'_>, value: &Value) -> Result<(), String> {
    let fits = match node.kind() {
        JsonType::Any | JsonType::IntOrString => true,
        JsonType::Object => value.is_object(),
        JsonType::Array => value.is_array(),
        JsonType::String => value.is_string(),
        JsonType::Integer => value.is_i64() || value.is_u64(),
        JsonType::Number => value.is_number(),
        JsonType::Boolean => value.is_boolean(),
    };
    if !fits && !value.is_null() {
        let found = found(node.kind(), value);
        let (owner, path, wanted) = (at.owner, &at.path, go_type(node));
        return Err(format!(
            "json: cannot unmarshal {found} into Go struct field {owner}{path} of type {wanted}"
        ));
    }
    match value {
        Value::String(text) => content(node, text),
        _ => Ok(()),
    }
}

/// Names the type that was found, and the value of a number that is not an integer.
fn found(wanted: JsonType, value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if wanted == JsonType::Integer => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

fn format_of(node: NodeRef<'_>) -> &str {
    node.node().rules.get("format").and_then(Value::as_str).unwrap_or_default()
}

fn go_type(node: NodeRef<'_>) -> String {
    match node.kind() {
        JsonType::String => "string".to_owned(),
        JsonType::Boolean => "bool".to_owned(),
        JsonType::Integer if format_of(node) == "int64" => "int64".to_owned(),
        JsonType::Integer => "int32".to_owned(),
        JsonType::Number => "float64".to_owned(),
        JsonType::Array => format!("[]{}", go_type(node.item())),
        JsonType::Object => match (node.node().definition.as_str(), node.additional()) {
            ("", Some(value)) => format!("map[string]{}", go_type(value)),
            ("", None) => "map[string]interface {}".to_owned(),
            (definition, _) => format!("v1.{definition}"),
        },
        JsonType::Any | JsonType::IntOrString => "interface {}".to_owned(),
    }
}

/// Checks texts that encode bytes or times.
fn content(node: NodeRef<'_>, text: &str) -> Result<(), String> {
    match node.node().definition.as_str() {
        "MicroTime" => time(text, Fraction::Micros),
        "Time" => time(text, Fraction::Any),
        "Quantity" if !is_quantity(text) => {
            let form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
            Err(format!("quantities must match the regular expression '{form}'"))
        }
        _ if format_of(node) == "byte" => match STANDARD.decode(text) {
            Ok(_) => Ok(()),
            Err(error) => {
                let at = match error {
                    base64::DecodeError::InvalidByte(at, _) => at,
                    _ => text.len() / 4 * 4,
                };
                Err(format!("illegal base64 data at input byte {at}"))
            }
        },
        _ => Ok(()),
    }
}

/// Returns whether a text is an amount: a number, perhaps with a suffix.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let is_number = number.bytes().any(|c| c.is_ascii_digit()) && number.matches('.').count() < 2;
    let is_power = suffix.strip_prefix(['e', 'E']).is_some_and(|power| power.parse::<i32>().is_ok());
    is_number && (is_power || SUFFIXES.contains(&suffix))
}

/// How a time's seconds are divided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fraction {
    /// Not at all, or by any number of digits.
    Any,
    /// By exactly six digits.
    Micros,
}

fn time(text: &str, fraction: Fraction) -> Result<(), String> {
    let layout = match fraction {
        Fraction::Any => "2006-01-02T15:04:05Z07:00",
        Fraction::Micros => "2006-01-02T15:04:05.000000Z07:00",
    };
    let fails = |rest: &str, wanted: &str| {
        Err(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {wanted:?}"))
    };
    let seconds = "0000-00-00T00:00:00";
    let shaped = |letter: char, model: char| {
        if model == '0' { letter.is_ascii_digit() } else { letter == model }
    };
    let starts = text.len() >= seconds.len() && text.chars().zip(seconds.chars()).all(|(a, b)| shaped(a, b));
    if !starts {
        return fails(text, "2006");
    }
    let rest = &text[seconds.len()..];
    let digits = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    if fraction == Fraction::Micros && digits < 6 {
        return fails(rest, ".000000");
    }
    let zone = if digits == 0 { rest } else { &rest[digits + 1..] };
    let offset = zone.starts_with(['+', '-']) && zone.len() == 6 && zone.as_bytes()[3] == b':';
    if zone != "Z" && !offset {
        return fails(zone, "Z07:00");
    }
    Ok(())
}

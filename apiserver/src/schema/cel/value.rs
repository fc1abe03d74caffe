//! Values: JSON as rules see it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use serde_json::{Number, Value};

use super::library::evaluate;
use super::types::declares_metadata;
use super::{Parsed, escaped, has_two_names, parse};
use crate::schema::node::{JsonType, NodeRef};

/// The numbers from which on a float does not hold every integer.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns a value as its node declares it.
pub(super) fn of(node: NodeRef<'_>, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match node.kind() {
            JsonType::Number => Cel::Float(number.as_f64().unwrap_or_default()),
            JsonType::Integer => Cel::Int(whole(number)),
            _ => plain_number(number),
        },
        Value::String(text) => formatted(node, text),
        Value::Array(items) => {
            let item = node.item();
            Cel::List(Arc::new(items.iter().map(|value| of(item, value)).collect()))
        }
        Value::Object(fields) => object(node, fields),
    }
}

fn object(node: NodeRef<'_>, fields: &serde_json::Map<String, Value>) -> Cel {
    let whole = node.node().resource || node.node().embedded;
    let is_map = node.properties().next().is_none() && node.node().additional.is_some();
    let mut map = HashMap::with_capacity(fields.len());
    for (name, value) in fields {
        let below = node.field(name);
        let value = match (value, below) {
            (Value::Object(metadata), _) if whole && name == "metadata" && !declares_metadata(node) => {
                names(metadata)
            }
            (value, Some(below)) => of(below, value),
            (value, None) => plain(value),
        };
        if !is_map && has_two_names(name) {
            map.insert(Key::String(Arc::new(name.clone())), value.clone());
        }
        let key = if is_map { name.clone() } else { escaped(name) };
        map.insert(Key::String(Arc::new(key)), value);
    }
    Cel::Map(Map { map: Arc::new(map) })
}

/// Returns the parts of metadata that rules may see: the names.
fn names(metadata: &serde_json::Map<String, Value>) -> Cel {
    let seen = ["name", "generateName"].into_iter().filter_map(|name| {
        let value = metadata.get(name)?;
        Some((Key::String(Arc::new(name.to_owned())), plain(value)))
    });
    Cel::Map(Map { map: Arc::new(seen.collect()) })
}

/// Converts a value whose schema is unknown.
pub(super) fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => plain_number(number),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(plain).collect())),
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| (Key::String(Arc::new(name.clone())), plain(value)));
            Cel::Map(Map { map: Arc::new(fields.collect()) })
        }
    }
}

/// Converts a result to JSON; what JSON does not have becomes a text.
pub(super) fn json(value: &Cel) -> Value {
    match value {
        Cel::Bool(flag) => Value::Bool(*flag),
        Cel::Int(number) => (*number).into(),
        Cel::UInt(number) => (*number).into(),
        Cel::Float(number) if number.fract() == 0.0 && number.abs() < EXACT => (*number as i64).into(),
        Cel::Float(number) => (*number).into(),
        Cel::String(text) => text.as_str().into(),
        Cel::Bytes(bytes) => STANDARD.encode(bytes.as_slice()).into(),
        Cel::List(items) => items.iter().map(json).collect(),
        Cel::Map(map) => {
            let entry = |(key, value): (&Key, &Cel)| match key {
                Key::String(text) => (text.as_str().to_owned(), json(value)),
                other => (other.to_string(), json(value)),
            };
            Value::Object(map.map.iter().map(entry).collect())
        }
        Cel::Duration(duration) => format!("{}s", duration.as_seconds_f64()).into(),
        Cel::Timestamp(time) => time.to_rfc3339().into(),
        Cel::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
            Some(optional) => optional.value().map_or(Value::Null, json),
            None => Value::Null,
        },
        Cel::Null | Cel::Function(..) => Value::Null,
    }
}

fn plain_number(number: &Number) -> Cel {
    match number.as_i64() {
        Some(whole) => Cel::Int(whole),
        None => Cel::Float(number.as_f64().unwrap_or_default()),
    }
}

fn whole(number: &Number) -> i64 {
    number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64)
}

fn formatted(node: NodeRef<'_>, text: &str) -> Cel {
    let format = node.node().rules.get("format").and_then(Value::as_str).unwrap_or_default();
    let special = match (node.kind(), format) {
        (JsonType::String, "byte") => STANDARD.decode(text).ok().map(|bytes| Cel::Bytes(Arc::new(bytes))),
        (JsonType::String, "date-time") => time(text),
        (JsonType::String, "date") => time(&format!("{text}T00:00:00Z")),
        (JsonType::String, "duration") => duration(text),
        _ => None,
    };
    special.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// Reads a time by the library's own function, which defines its form.
fn time(text: &str) -> Option<Cel> {
    static READ: LazyLock<Parsed> = LazyLock::new(|| parse("timestamp(text)"));
    read(&READ, text)
}

fn duration(text: &str) -> Option<Cel> {
    static READ: LazyLock<Parsed> = LazyLock::new(|| parse("duration(text)"));
    read(&READ, text)
}

fn read(by: &Parsed, text: &str) -> Option<Cel> {
    let text = Cel::String(Arc::new(text.to_owned()));
    evaluate(by.as_ref().ok()?, [("text", text)]).ok()
}

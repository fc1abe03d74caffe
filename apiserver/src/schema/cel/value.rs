//! Values: JSON as rules see it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::{Number, Value};

use super::library::evaluate;
use super::types::declares_metadata;
use super::{Parsed, escaped, has_two_names, parse};
use crate::schema::node::{JsonType, NodeRef};

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

//! Writing: JSON into bytes as Go's types would write them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::MAGIC;
use super::wire::{put_bytes, put_double, put_number};
use crate::facts::{Count, Field, Form, Message, Presence, Special, facts};

/// Writes an object in its envelope; `None` for a kind with unknown fields.
pub(crate) fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = facts().kind(api_version, kind)?;
    Some(envelope(api_version, kind, &body(message, object.as_object()?)))
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut named = Vec::new();
    put_bytes(&mut named, 1, api_version.as_bytes());
    put_bytes(&mut named, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    put_bytes(&mut out, 1, &named);
    put_bytes(&mut out, 2, raw);
    // How the bytes are encoded: not at all.
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    out
}

/// Writes one event of a watch, its length before it; `None` where its object has no fields.
pub(crate) fn event(line: &Value) -> Option<Vec<u8>> {
    let mut object = Vec::new();
    put_bytes(&mut object, 1, &encode(&line["object"])?);
    let mut event = Vec::new();
    put_bytes(&mut event, 1, line["type"].as_str().unwrap_or_default().as_bytes());
    put_bytes(&mut event, 2, &object);
    let mut out = u32::try_from(event.len()).ok()?.to_be_bytes().to_vec();
    out.extend_from_slice(&event);
    Some(out)
}

fn body(message: &Message, object: &Map<String, Value>) -> Vec<u8> {
    let mut out = Vec::new();
    for field in &message.fields {
        match (field.presence, field.form) {
            (Presence::Inlined, Form::Message(inner)) => {
                put_bytes(&mut out, field.number, &body(facts().at(inner), object));
            }
            _ => put(field, object.get(field.name).unwrap_or(&Value::Null), &mut out),
        }
    }
    out
}

fn put(field: &Field, value: &Value, out: &mut Vec<u8>) {
    match (field.count, value) {
        (Count::One, Value::Null) if field.presence == Presence::Given => {}
        (Count::One, value) => one(field, field.number, value, out),
        (Count::List, Value::Array(items)) => {
            items.iter().for_each(|item| one(field, field.number, item, out))
        }
        (Count::Map, Value::Object(map)) => {
            for (key, value) in sorted(map) {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                one(field, 2, value, &mut entry);
                put_bytes(out, field.number, &entry);
            }
        }
        _ => {}
    }
}

fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

/// Writes one value; a value of another type becomes the zero of this one.
fn one(field: &Field, number: u32, value: &Value, out: &mut Vec<u8>) {
    match field.form {
        Form::Text => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Form::Flag => put_number(out, number, u64::from(value.as_bool().unwrap_or_default())),
        Form::Int32 | Form::Int64 => put_number(out, number, integer(value) as u64),
        Form::Double => put_double(out, number, value.as_f64().unwrap_or_default()),
        // Absent bytes are not empty ones.
        Form::Bytes if value.is_null() => {}
        Form::Bytes => {
            put_bytes(out, number, &STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default());
        }
        Form::Message(message) => put_bytes(out, number, &nested(facts().at(message), value)),
        Form::Special(special) => put_bytes(out, number, &special_body(special, value)),
    }
}

/// Reads an integer; one with a fraction of zero is one as well.
fn integer(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_f64().map(|number| number as i64)).unwrap_or_default()
}

fn nested(message: &Message, value: &Value) -> Vec<u8> {
    if let Value::Object(object) = value
        && message.fields.iter().all(|field| !field.name.is_empty() || field.presence == Presence::Inlined)
    {
        return body(message, object);
    }
    let mut out = Vec::new();
    for field in &message.fields {
        let fits = match (field.count, field.form) {
            (Count::List, _) => value.is_array(),
            (_, Form::Flag) => !value.is_null(),
            _ => value.is_object(),
        };
        if field.form == Form::Flag && value.is_object() {
            // A schema allows what it describes.
            put_number(&mut out, field.number, 1);
        } else if field.name.is_empty() && fits {
            put(field, value, &mut out);
        } else if !field.name.is_empty() {
            put(field, &Value::Null, &mut out);
        }
    }
    out
}

fn special_body(special: Special, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match (special, value) {
        (_, Value::Null) => {}
        (Special::Json, value) => put_bytes(&mut out, 1, value.to_string().as_bytes()),
        (Special::Time | Special::MicroTime, value) => {
            let stamp: Option<Timestamp> = value.as_str().and_then(|text| text.parse().ok());
            if let Some(stamp) = stamp {
                let nanos = if special == Special::MicroTime { stamp.subsec_nanosecond() } else { 0 };
                put_number(&mut out, 1, stamp.as_second() as u64);
                put_number(&mut out, 2, i64::from(nanos) as u64);
            }
        }
        (Special::Quantity, Value::String(text)) => put_bytes(&mut out, 1, text.as_bytes()),
        (Special::Quantity, value) => put_bytes(&mut out, 1, value.to_string().as_bytes()),
        (Special::IntOrString, Value::String(text)) => {
            put_number(&mut out, 1, 1);
            put_number(&mut out, 2, 0);
            put_bytes(&mut out, 3, text.as_bytes());
        }
        (Special::IntOrString, value) => {
            put_number(&mut out, 1, 0);
            put_number(&mut out, 2, integer(value) as u64);
            put_bytes(&mut out, 3, b"");
        }
    }
    out
}

//! Reading: bytes into JSON as Go's types would write it.

use std::cell::Cell;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use super::wire::{Raw, Reader};
use super::{DEPTH, MAGIC, ProtoError};
use crate::facts::{Count, Field, Form, Message, Presence, Special, facts};
use crate::limits;

/// Reads an object in an envelope; adds `kind` and `apiVersion`, by default the expected ones.
///
/// # Errors
/// The reason why it is not an object.
pub(crate) fn decode(body: &[u8], (api_version, kind): (&str, &str)) -> Result<Value, ProtoError> {
    let values = Cell::new(limits::VALUES);
    enveloped(body, Room { depth: DEPTH, values: &values }, (api_version, kind))
}

/// The remaining budget of a body. An empty message needs far more memory than its two bytes.
#[derive(Clone, Copy)]
struct Room<'c> {
    /// The messages that may lie in each other.
    depth: u32,
    /// The values of the whole body.
    values: &'c Cell<usize>,
}

impl Room<'_> {
    /// Enters a message.
    fn down(self) -> Result<Self, ProtoError> {
        let depth = self.depth.checked_sub(1).ok_or(ProtoError::TooDeep)?;
        Ok(Self { depth, ..self })
    }

    /// Counts values.
    fn take(self, count: usize) -> Result<(), ProtoError> {
        self.values.set(self.values.get().checked_sub(count).ok_or(ProtoError::TooMany)?);
        Ok(())
    }
}

fn enveloped(body: &[u8], room: Room<'_>, expected: (&str, &str)) -> Result<Value, ProtoError> {
    if body.is_empty() {
        return Err(ProtoError::Empty);
    }
    let inner = body.strip_prefix(MAGIC).ok_or(ProtoError::NoPrefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut envelope = Reader::new(inner);
    while let Some(field) = envelope.field()? {
        match field {
            (1, Raw::Bytes(bytes)) => {
                let mut words = Reader::new(bytes);
                while let Some(word) = words.field()? {
                    match word {
                        (1, Raw::Bytes(text)) => api_version = lossy(text),
                        (2, Raw::Bytes(text)) => kind = lossy(text),
                        _ => {}
                    }
                }
            }
            (2, Raw::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    if kind.is_empty() {
        kind = expected.1.to_owned();
    }
    if api_version.is_empty() {
        api_version = expected.0.to_owned();
    }
    let Some(message) = facts().kind(&api_version, &kind) else {
        return Err(ProtoError::Unknown { api_version, kind });
    };
    let mut object = Map::new();
    object.insert("kind".into(), kind.into());
    object.insert("apiVersion".into(), api_version.into());
    into_map(message, raw, room, &mut object)?;
    Ok(Value::Object(object))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads a message's fields into a map that may hold some already.
fn into_map(
    message: &Message,
    bytes: &[u8],
    room: Room<'_>,
    into: &mut Map<String, Value>,
) -> Result<(), ProtoError> {
    let room = room.down()?;
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        let Some(field) = message.numbered(number) else { continue };
        match (field.presence, field.form, raw) {
            (Presence::Inlined, Form::Message(inner), Raw::Bytes(bytes)) => {
                into_map(facts().at(inner), bytes, room, into)?;
            }
            _ => put(field, raw, room, into)?,
        }
    }
    Ok(())
}

fn put(field: &Field, raw: Raw<'_>, room: Room<'_>, into: &mut Map<String, Value>) -> Result<(), ProtoError> {
    match field.count {
        Count::One => {
            let there = into.remove(field.name);
            let value = one(field, raw, room, there)?;
            if field.presence != Presence::NotEmpty || !is_empty(&value) {
                into.insert(field.name.into(), value);
            }
        }
        Count::List => {
            let mut items = Vec::new();
            match (field.form, raw) {
                // Numbers may be packed.
                (Form::Int32 | Form::Int64 | Form::Flag, Raw::Bytes(packed)) => {
                    let mut packed = Reader::new(packed);
                    while !packed.is_empty() {
                        let number = Raw::Number(packed.varint()?);
                        items.push(one(field, number, room, None)?);
                    }
                }
                _ => items.push(one(field, raw, room, None)?),
            }
            match into.entry(field.name).or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(list) => list.extend(items),
                other => *other = Value::Array(items),
            }
        }
        Count::Map => {
            let (key, value) = entry(field, raw, room)?;
            match into.entry(field.name).or_insert_with(|| Value::Object(Map::new())) {
                Value::Object(map) => drop(map.insert(key, value)),
                other => *other = Value::Object(Map::from_iter([(key, value)])),
            }
        }
    }
    Ok(())
}

/// Reads one entry of a map; an absent value is the zero of its type.
fn entry(field: &Field, raw: Raw<'_>, room: Room<'_>) -> Result<(String, Value), ProtoError> {
    let Raw::Bytes(bytes) = raw else { return Err(wrong(field)) };
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some(part) = reader.field()? {
        match part {
            (1, Raw::Bytes(text)) => key = lossy(text),
            (2, raw) => value = Some(one(field, raw, room, value.take())?),
            _ => {}
        }
    }
    let value = match (value, field.form) {
        (Some(value), _) => value,
        (None, Form::Int32 | Form::Int64 | Form::Double | Form::Flag) => {
            one(field, Raw::Number(0), room, None)?
        }
        (None, _) => one(field, Raw::Bytes(&[]), room, None)?,
    };
    Ok((key, value))
}

fn wrong(field: &Field) -> ProtoError {
    let what = match field.form {
        Form::Text => "string",
        Form::Flag => "boolean",
        Form::Int32 | Form::Int64 => "integer",
        Form::Double => "number",
        Form::Bytes => "byte string",
        Form::Special(Special::Json) => "JSON value",
        Form::Special(Special::Time | Special::MicroTime) => "time",
        Form::Special(Special::Quantity | Special::IntOrString) | Form::Message(_) => "message",
    };
    ProtoError::Value(field.name, what)
}

fn one(field: &Field, raw: Raw<'_>, room: Room<'_>, there: Option<Value>) -> Result<Value, ProtoError> {
    room.take(1)?;
    Ok(match (field.form, raw) {
        (Form::Text, Raw::Bytes(bytes)) => Value::String(lossy(bytes)),
        (Form::Flag, Raw::Number(number)) => Value::Bool(number != 0),
        // Go cuts as well.
        (Form::Int32, Raw::Number(number)) => Value::from(number as i32),
        (Form::Int64, Raw::Number(number)) => Value::from(number as i64),
        (Form::Double, Raw::Fixed64(bits)) => {
            Number::from_f64(f64::from_bits(bits)).map(Value::Number).ok_or_else(|| wrong(field))?
        }
        (Form::Double, Raw::Number(0)) => Value::from(0.0),
        (Form::Bytes, Raw::Bytes(bytes)) => Value::String(STANDARD.encode(bytes)),
        (Form::Message(message), Raw::Bytes(bytes)) => nested(facts().at(message), bytes, room, there)?,
        (Form::Special(special), Raw::Bytes(bytes)) => match special {
            Special::Json => json(field, bytes, room)?,
            Special::Time | Special::MicroTime => time(field, special, bytes)?,
            Special::Quantity => Value::String(quantity(bytes)?),
            Special::IntOrString => int_or_string(field, bytes)?,
        },
        _ => return Err(wrong(field)),
    })
}

fn nested(
    message: &Message,
    bytes: &[u8],
    room: Room<'_>,
    there: Option<Value>,
) -> Result<Value, ProtoError> {
    let mut map = match there {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    if message.fields.iter().any(|field| field.name.is_empty() && field.presence != Presence::Inlined)
        || message.is_list()
    {
        return either(message, bytes, room);
    }
    into_map(message, bytes, room, &mut map)?;
    Ok(Value::Object(map))
}

/// Reads a message that is one of its fields in JSON: a list, a schema, a boolean.
fn either(message: &Message, bytes: &[u8], room: Room<'_>) -> Result<Value, ProtoError> {
    let room = room.down()?;
    let (mut alone, mut flag, mut list) = (None, None, Vec::new());
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        let Some(field) = message.numbered(number) else { continue };
        match (field.count, field.form) {
            (Count::List, _) => list.push(one(field, raw, room, None)?),
            (_, Form::Flag) => flag = Some(one(field, raw, room, None)?),
            _ => alone = Some(one(field, raw, room, alone.take())?),
        }
    }
    if !list.is_empty() || message.is_list() {
        return Ok(Value::Array(list));
    }
    let has_flag = message.fields.iter().any(|field| field.form == Form::Flag);
    Ok(alone.or(flag).unwrap_or(if has_flag { Value::Bool(false) } else { Value::Null }))
}

/// Reads JSON kept as bytes; also reads an object in its own envelope.
fn json(field: &Field, bytes: &[u8], room: Room<'_>) -> Result<Value, ProtoError> {
    let room = room.down()?;
    let mut reader = Reader::new(bytes);
    let mut value = Value::Null;
    while let Some(part) = reader.field()? {
        let (1, Raw::Bytes(raw)) = part else { continue };
        value = if raw.is_empty() {
            Value::Null
        } else if raw.starts_with(MAGIC) {
            enveloped(raw, room, ("", ""))?
        } else {
            room.take(limits::count(raw))?;
            serde_json::from_slice(raw).map_err(|_| wrong(field))?
        };
    }
    Ok(value)
}

/// Reads a time; the one before all times is null.
fn time(field: &Field, special: Special, bytes: &[u8]) -> Result<Value, ProtoError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut reader = Reader::new(bytes);
    while let Some(part) = reader.field()? {
        match part {
            (1, Raw::Number(number)) => seconds = number as i64,
            (2, Raw::Number(number)) => nanos = number as i32,
            _ => {}
        }
    }
    // From the year 0 to the year 9999, as the text has room for.
    const SECONDS: std::ops::Range<i64> = -62_167_219_200..253_402_300_800;
    if !SECONDS.contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
        return Err(wrong(field));
    }
    let stamp = Timestamp::new(seconds, nanos).map_err(|_| wrong(field))?;
    let format = if special == Special::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    Ok(Value::String(stamp.strftime(format).to_string()))
}

fn quantity(bytes: &[u8]) -> Result<String, ProtoError> {
    let mut text = String::from("0");
    let mut reader = Reader::new(bytes);
    while let Some(part) = reader.field()? {
        if let (1, Raw::Bytes(bytes)) = part {
            text = lossy(bytes);
        }
    }
    Ok(text)
}

fn int_or_string(field: &Field, bytes: &[u8]) -> Result<Value, ProtoError> {
    let (mut kind, mut number, mut text) = (0, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some(part) = reader.field()? {
        match part {
            (1, Raw::Number(value)) => kind = value,
            (2, Raw::Number(value)) => number = value as i32,
            (3, Raw::Bytes(bytes)) => text = lossy(bytes),
            _ => {}
        }
    }
    match kind {
        0 => Ok(Value::from(number)),
        1 => Ok(Value::String(text)),
        _ => Err(wrong(field)),
    }
}

/// Returns whether a value is the zero of its type.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

//! Objects kept as bytes: what is cut from them on arrival, and how they are decoded later.

use super::{
    decode,
    item::{Identity, Unreadable},
    json,
    lean::{ManagedFields, TypeNames},
    scrub,
    text::ObjectText,
};
use crate::object::{Object, ObjectKey};

/// Says in which form items travel, and so in which form a cache keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ItemForm {
    /// Decoded on arrival.
    #[default]
    Typed,
    /// As bytes, with no more decoded than says who the object is (compact informers).
    Bytes,
}

/// An object as bytes of its own, and whose they are.
#[derive(Clone, Debug)]
pub struct RawObject {
    /// Whose bytes these are.
    pub key: ObjectKey,
    /// The object as JSON.
    pub text: ObjectText,
}

impl RawObject {
    /// Takes the JSON of one object, as it is.
    ///
    /// # Errors
    /// It is no object with a name.
    pub fn new(json: impl Into<Box<str>>) -> Result<Self, Box<Unreadable>> {
        match ObjectText::read(json.into()) {
            Ok((key, text)) => Ok(Self { key, text }),
            Err(json) => {
                let identity = decode::identity(json.as_bytes());
                Err(Box::new(Unreadable { identity, error: decode::NO_NAME.to_owned() }))
            }
        }
    }

    /// Encodes an object.
    ///
    /// # Errors
    /// It can't be encoded, or has no name.
    pub fn of<K: Object>(object: &K) -> Result<Self, Box<Unreadable>> {
        match serde_json::to_string(object) {
            Ok(json) => Self::new(json),
            Err(error) => {
                let identity = Identity { key: ObjectKey::of_meta(object.meta()), ..Identity::default() };
                let error = format!("can't be encoded: {}", scrub::without_content(&error));
                Err(Box::new(Unreadable { identity, error }))
            }
        }
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// An object that does not decode, with the path of the failure and without its content.
    pub fn decode<K: Object>(&self) -> Result<K, Box<Unreadable>> {
        self.text.decode()
    }

    /// Reads who the object is.
    pub fn identity(&self) -> Identity {
        decode::identity(self.text.json().as_bytes())
    }
}

/// A copy of an object's bytes without what is not kept, and the type that they say it has.
///
/// Nothing keeps the buffer that the object came in.
pub(super) struct LeanBytes {
    bytes: Vec<u8>,
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
}

impl LeanBytes {
    /// Copies an object; a type that is not said is filled in.
    ///
    /// What is malformed is copied as it is, so that it does not decode.
    pub(super) fn of(object: &[u8], names: TypeNames<'_>, managed_fields: ManagedFields) -> Self {
        let mut lean = Vec::with_capacity(object.len() + 64);
        let (mut api_version, mut kind) = (None, None);
        let mut members = json::members(object);
        for (key, value) in &mut members {
            if managed_fields == ManagedFields::Drop && json::key_is(key, "metadata") {
                push_key(&mut lean, 0, key);
                push_without_managed_fields(&mut lean, value);
                continue;
            }
            if json::key_is(key, "apiVersion") {
                api_version = Some(value);
            } else if json::key_is(key, "kind") {
                kind = Some(value);
            }
            push_key(&mut lean, 0, key);
            lean.extend_from_slice(value);
        }
        let said = |value: Option<&[u8]>| value.and_then(|value| serde_json::from_slice(value).ok());
        let (said_api_version, said_kind) = (said(api_version), said(kind));
        if !members.ended_well() {
            return Self { bytes: object.to_vec(), api_version: said_api_version, kind: said_kind };
        }
        for (value, key, name) in [(api_version, "apiVersion", names.api_version), (kind, "kind", names.kind)]
        {
            if value.is_none() {
                push_key(&mut lean, 0, key.as_bytes());
                lean.extend_from_slice(format!("\"{name}\"").as_bytes());
            }
        }
        lean.push(b'}');
        Self { bytes: lean, api_version: said_api_version, kind: said_kind }
    }

    /// Takes the bytes as an object; `None` where they are no text, or no object with a name.
    pub(super) fn into_raw(self) -> Option<RawObject> {
        let json = String::from_utf8(self.bytes).ok()?;
        ObjectText::read(json.into_boxed_str()).ok().map(|(key, text)| RawObject { key, text })
    }
}

fn push_without_managed_fields(lean: &mut Vec<u8>, metadata: &[u8]) {
    let start = lean.len();
    let mut members = json::members(metadata);
    for (key, value) in &mut members {
        if !json::key_is(key, "managedFields") {
            push_key(lean, start, key);
            lean.extend_from_slice(value);
        }
    }
    if !members.ended_well() {
        lean.truncate(start);
        lean.extend_from_slice(metadata);
        return;
    }
    if lean.len() == start {
        lean.push(b'{');
    }
    lean.push(b'}');
}

/// Begins a member of the object that began at a place.
fn push_key(object: &mut Vec<u8>, start: usize, key: &[u8]) {
    object.push(if object.len() == start { b'{' } else { b',' });
    object.push(b'"');
    object.extend_from_slice(key);
    object.extend_from_slice(b"\":");
}

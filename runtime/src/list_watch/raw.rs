//! Objects kept as bytes: what is cut from them on arrival, and how they are decoded later.

use bytes::Bytes;

use super::{
    decode::{self, path_of_failure},
    item::{RawObject, Unreadable},
    json,
    lean::{Context, ManagedFields, TypeNames},
    scrub,
};
use crate::object::Object;

/// Says in which form items travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ItemForm {
    /// Decoded on arrival.
    #[default]
    Typed,
    /// As bytes, with no more decoded than says who the object is.
    Bytes,
}

impl RawObject {
    /// Decodes the object.
    ///
    /// # Errors
    /// An object that does not decode, with the path of the failure and without its content.
    pub fn decode<K: Object>(&self) -> Result<K, Box<Unreadable>> {
        serde_json::from_slice(&self.json).map_err(|error| {
            // The type was filled in on arrival, and managedFields were dealt with.
            let context = Context {
                names: TypeNames { api_version: "", kind: "" },
                managed_fields: ManagedFields::Keep,
                of_another_type: false.into(),
            };
            let reason = scrub::without_content(&error);
            let error = match path_of_failure::<K>(&self.json, &context) {
                Some(path) => format!("{path}: {reason}"),
                None => reason,
            };
            Box::new(Unreadable { identity: self.identity.clone(), error })
        })
    }
}

/// Takes an object as bytes of its own: nothing keeps the buffer that it came in.
pub(super) fn raw_object(object: &[u8], context: &Context<'_>) -> RawObject {
    let mut lean = Vec::with_capacity(object.len());
    let (mut has_api_version, mut has_kind) = (false, false);
    for (key, value) in json::members(object) {
        has_api_version |= json::key_is(key, "apiVersion");
        has_kind |= json::key_is(key, "kind");
        if context.managed_fields == ManagedFields::Drop && json::key_is(key, "metadata") {
            push_member(&mut lean, key, &without_managed_fields(value));
        } else {
            push_member(&mut lean, key, value);
        }
    }
    let fill_in = [
        (!has_api_version, "apiVersion", context.names.api_version),
        (!has_kind, "kind", context.names.kind),
    ];
    for (missing, key, value) in fill_in {
        if missing {
            push_member(&mut lean, key.as_bytes(), format!("\"{value}\"").as_bytes());
        }
    }
    close(&mut lean);
    RawObject { identity: decode::identity(object), json: Bytes::from(lean.into_boxed_slice()) }
}

fn without_managed_fields(metadata: &[u8]) -> Vec<u8> {
    if json::members(metadata).next().is_none() {
        return metadata.to_vec();
    }
    let mut lean = Vec::with_capacity(metadata.len());
    for (key, value) in json::members(metadata) {
        if !json::key_is(key, "managedFields") {
            push_member(&mut lean, key, value);
        }
    }
    close(&mut lean);
    lean
}

fn push_member(object: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    object.push(if object.is_empty() { b'{' } else { b',' });
    object.push(b'"');
    object.extend_from_slice(key);
    object.extend_from_slice(b"\":");
    object.extend_from_slice(value);
}

fn close(object: &mut Vec<u8>) {
    if object.is_empty() {
        object.push(b'{');
    }
    object.push(b'}');
}

//! Watches an object's members while its type reads them: which it has, and which it has twice.
//!
//! A text is so read once: it becomes its type, and what says who and of what type it is has been seen.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, IntoDeserializer, MapAccess, Visitor},
    forward_to_deserialize_any,
};

/// What becomes of `metadata.managedFields`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ManagedFields {
    /// Left out before decoding: they take up more room than most objects.
    #[default]
    Drop,
    /// Decoded and kept.
    Keep,
}

const METADATA: u16 = 1;
const MANAGED_FIELDS: u16 = 2;

/// What has been seen of an object.
#[derive(Debug)]
pub(super) struct SeenMembers {
    managed_fields: ManagedFields,
    met: u16,
    /// Whether the object says something twice that says who or of what type it is.
    pub(super) twice: bool,
    /// The bit of the key that was read last.
    last: u16,
}

impl SeenMembers {
    pub(super) fn new(managed_fields: ManagedFields) -> Self {
        Self { managed_fields, met: 0, twice: false, last: 0 }
    }

    /// Notes a member that says who or of what type the object is, or another one.
    fn note(&mut self, key: &str, in_metadata: bool) {
        let bit = match (in_metadata, key) {
            (false, "metadata") => METADATA,
            (true, "managedFields") => MANAGED_FIELDS,
            (false, "apiVersion") => 4,
            (false, "kind") => 8,
            (true, "name") => 16,
            (true, "namespace") => 32,
            (true, "uid") => 64,
            (true, "resourceVersion") => 128,
            (true, "labels") => 256,
            (true, "ownerReferences") => 512,
            (true, "deletionTimestamp") => 1024,
            (true, "finalizers") => 2048,
            _ => 0,
        };
        self.twice |= self.met & bit != 0;
        self.met |= bit;
        self.last = bit;
    }
}

/// A part of serde's machinery that notes the members of an object, or of its metadata, as they pass.
///
/// Any value but a map is refused.
pub(super) struct Noting<'s, T> {
    inner: T,
    seen: &'s mut SeenMembers,
    in_metadata: bool,
}

impl<'s, T> Noting<'s, T> {
    pub(super) fn new(inner: T, seen: &'s mut SeenMembers) -> Self {
        Self { inner, seen, in_metadata: false }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Noting<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let Self { inner, seen, in_metadata } = self;
        inner.deserialize_map(Noting { inner: visitor, seen, in_metadata })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Visits the map that holds the members.
impl<'de, V: Visitor<'de>> Visitor<'de> for Noting<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self { inner, seen, in_metadata } = self;
        inner.visit_map(Noting { inner: map, seen, in_metadata })
    }
}

/// Shows the type each member; managedFields that are dropped are shown as null.
impl<'de, A: MapAccess<'de>> MapAccess<'de> for Noting<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(MemberKey(key)) = self.inner.next_key()? else { return Ok(None) };
        self.seen.note(&key, self.in_metadata);
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.seen.last {
            METADATA => {
                self.inner.next_value_seed(Noting { inner: seed, seen: self.seen, in_metadata: true })
            }
            MANAGED_FIELDS if self.seen.managed_fields == ManagedFields::Drop => {
                self.inner.next_value::<IgnoredAny>()?;
                seed.deserialize(().into_deserializer())
            }
            _ => self.inner.next_value_seed(seed),
        }
    }
}

/// Reads the metadata.
impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Noting<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, metadata: D) -> Result<S::Value, D::Error> {
        let Self { inner, seen, in_metadata } = self;
        inner.deserialize(Noting { inner: metadata, seen, in_metadata })
    }
}

/// A key, which is copied only if it is written with escapes.
#[derive(Deserialize)]
struct MemberKey<'a>(#[serde(borrow)] Cow<'a, str>);

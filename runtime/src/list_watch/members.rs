//! Watches an object's members while its type reads them: which it has, and which it has twice.
//!
//! A text is so read once: it becomes its type, and what says who and of what type it is has been seen.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor},
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

const API_VERSION: u16 = 1;
const KIND: u16 = 2;
const METADATA: u16 = 4;
const NAME: u16 = 8;
const MANAGED_FIELDS: u16 = 16;

/// Returns the bit of a member that says who or of what type an object is.
fn bit(key: &str, in_metadata: bool) -> u16 {
    match (in_metadata, key) {
        (false, "apiVersion") => API_VERSION,
        (false, "kind") => KIND,
        (false, "metadata") => METADATA,
        (true, "name") => NAME,
        (true, "managedFields") => MANAGED_FIELDS,
        (true, "namespace") => 32,
        (true, "uid") => 64,
        (true, "resourceVersion") => 128,
        (true, "labels") => 256,
        (true, "ownerReferences") => 512,
        (true, "deletionTimestamp") => 1024,
        (true, "finalizers") => 2048,
        _ => 0,
    }
}

/// How an object is read: the type that it may leave out, and whether managedFields are left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOptions<'a> {
    /// apiVersion and kind, for an object that does not say them.
    pub(super) type_names: Option<(&'a str, &'a str)>,
    pub(super) managed_fields: ManagedFields,
}

impl ReadOptions<'_> {
    /// Reads an object as it is written.
    pub(super) const AS_WRITTEN: Self = Self { type_names: None, managed_fields: ManagedFields::Keep };
}

/// What has been seen of an object.
#[derive(Debug, Default)]
pub(super) struct SeenMembers {
    met: u16,
    twice: bool,
    /// How many of apiVersion and kind were filled in.
    pub(super) filled_in: usize,
}

impl SeenMembers {
    /// Returns whether the object has a name, and says nothing twice that says who or of what type it is.
    pub(super) fn is_unambiguous(&self) -> bool {
        !self.twice && self.met & (METADATA | NAME) == METADATA | NAME
    }

    fn note(&mut self, bit: u16) {
        self.twice |= self.met & bit != 0;
        self.met |= bit;
    }
}

/// Deserializes an object, or its metadata, from a map; any other value is refused.
pub(super) struct ObjectReader<'s, D> {
    inner: D,
    level: MemberLevel<'s>,
}

/// Which members are read, and what becomes of them.
struct MemberLevel<'s> {
    options: ReadOptions<'s>,
    seen: &'s mut SeenMembers,
    in_metadata: bool,
}

impl<'s, D> ObjectReader<'s, D> {
    pub(super) fn new(inner: D, options: ReadOptions<'s>, seen: &'s mut SeenMembers) -> Self {
        Self { inner, level: MemberLevel { options, seen, in_metadata: false } }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectReader<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(MembersVisitor { visitor, level: self.level })
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
struct MembersVisitor<'s, V> {
    visitor: V,
    level: MemberLevel<'s>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for MembersVisitor<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(SeenMap { inner, level: self.level, last: 0, filled_in: None })
    }
}

/// The members, as the type reads them.
struct SeenMap<'s, A> {
    inner: A,
    level: MemberLevel<'s>,
    /// The bit of the key that was read last.
    last: u16,
    /// The value of a member that was filled in.
    filled_in: Option<&'s str>,
}

impl<A> SeenMap<'_, A> {
    /// Returns a member of the type that the object did not say.
    fn missing(&mut self) -> Option<&'static str> {
        let (api_version, kind) = self.level.options.type_names.filter(|_| !self.level.in_metadata)?;
        let members = [(API_VERSION, "apiVersion", api_version), (KIND, "kind", kind)];
        let (bit, key, value) = members.into_iter().find(|(bit, ..)| self.level.seen.met & bit == 0)?;
        self.level.seen.note(bit);
        self.level.seen.filled_in += 1;
        self.filled_in = Some(value);
        Some(key)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SeenMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = &mut Some(seed);
        loop {
            let key = KeySeed { seed, level: &mut self.level, last: &mut self.last };
            match self.inner.next_key_seed(key)? {
                Some(Some(key)) => return Ok(Some(key)),
                Some(None) => drop(self.inner.next_value::<IgnoredAny>()?),
                None => break,
            }
        }
        let missing = self.missing().zip(seed.take());
        missing.map(|(key, seed)| seed.deserialize(key.into_deserializer())).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if let Some(value) = self.filled_in.take() {
            return seed.deserialize(value.into_deserializer());
        }
        if self.last != METADATA {
            return self.inner.next_value_seed(seed);
        }
        let level = MemberLevel { options: self.level.options, seen: self.level.seen, in_metadata: true };
        self.inner.next_value_seed(MetadataSeed { seed, level })
    }
}

/// Reads a key; `None` for one that the type is not shown.
struct KeySeed<'k, 's, S> {
    /// Taken once a key is shown.
    seed: &'k mut Option<S>,
    level: &'k mut MemberLevel<'s>,
    last: &'k mut u16,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<'_, '_, S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for KeySeed<'_, '_, S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        *self.last = bit(key, self.level.in_metadata);
        self.level.seen.note(*self.last);
        if *self.last == MANAGED_FIELDS && self.level.options.managed_fields == ManagedFields::Drop {
            return Ok(None);
        }
        self.seed.take().map(|seed| seed.deserialize(key.into_deserializer())).transpose()
    }
}

/// Reads the metadata, whose members are watched too.
struct MetadataSeed<'s, S> {
    seed: S,
    level: MemberLevel<'s>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for MetadataSeed<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(ObjectReader { inner, level: self.level })
    }
}

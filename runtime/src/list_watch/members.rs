//! Watches an object's members go by as its type takes them from a deserializer: which it has, and which it has twice.
//!
//! So a text is read once: an event of 1.7 KB takes 51,000 instructions; with the scanner's pass before it, it took 62,000.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};

use super::places::Member;

/// What becomes of `metadata.managedFields`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ManagedFields {
    /// Left out before decoding: they take up more room than most objects.
    #[default]
    Drop,
    /// Decoded and kept.
    Keep,
}

/// What has been seen of an object that is being read.
#[derive(Debug)]
pub(super) struct Seen {
    managed_fields: ManagedFields,
    members: u16,
    twice: u16,
}

impl Seen {
    /// Has seen nothing yet; says what becomes of managedFields.
    pub(super) fn nothing(managed_fields: ManagedFields) -> Self {
        Self { managed_fields, members: 0, twice: 0 }
    }

    /// Returns whether the object has each of these members, and says nothing twice of who or what it is.
    pub(super) fn has_once(&self, members: &[Member]) -> bool {
        self.twice == 0 && members.iter().all(|member| self.members & member.bit() != 0)
    }

    fn note(&mut self, member: Member) {
        self.twice |= self.members & member.bit();
        self.members |= member.bit();
    }
}

/// Reads an object; what is no map is refused.
pub(super) struct Whole<'s, D> {
    pub(super) inner: D,
    pub(super) seen: &'s mut Seen,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Whole<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(OfWhole { visitor, seen: self.seen })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Visits the members of an object.
struct OfWhole<'s, V> {
    visitor: V,
    seen: &'s mut Seen,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for OfWhole<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Outer { inner, seen: self.seen, member: Member::Other })
    }
}

/// The members of an object.
struct Outer<'s, A> {
    inner: A,
    seen: &'s mut Seen,
    /// The one whose key was read last.
    member: Member,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Outer<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let noted = |key: &str| {
            self.member = Member::outer(key.as_bytes());
            self.seen.note(self.member);
            Kept::Yes
        };
        Ok(self.inner.next_key_seed(Key { seed: &mut Some(seed), noted })?.flatten())
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seen = (self.member == Member::Metadata).then_some(&mut *self.seen);
        self.inner.next_value_seed(Value { seed, seen })
    }
}

/// Whether a member is shown to the type.
#[derive(PartialEq)]
enum Kept {
    Yes,
    No,
}

/// Reads a key, and hands it on where it is kept.
struct Key<'s, S, F> {
    /// There, until a key is kept.
    seed: &'s mut Option<S>,
    noted: F,
}

impl<'de, S: DeserializeSeed<'de>, F: FnOnce(&str) -> Kept> DeserializeSeed<'de> for Key<'_, S, F> {
    /// `None` for a key that is not kept.
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, S: DeserializeSeed<'de>, F: FnOnce(&str) -> Kept> Visitor<'de> for Key<'_, S, F> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        if (self.noted)(key) == Kept::No {
            return Ok(None);
        }
        self.seed.take().map(|seed| seed.deserialize(key.into_deserializer())).transpose()
    }
}

/// Reads the value of a member; of the metadata, their members are seen.
struct Value<'s, S> {
    seed: S,
    seen: Option<&'s mut Seen>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Value<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(Part { inner, seen: self.seen })
    }
}

/// Reads a member's value: as the deserializer does, but that the metadata's members are seen.
struct Part<'s, D> {
    inner: D,
    seen: Option<&'s mut Seen>,
}

macro_rules! as_the_inner_one {
    ($($method:ident($($name:ident: $of:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $of,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($name,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Part<'_, D> {
    type Error = D::Error;

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(OfPart { visitor, seen: self.seen })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, OfPart { visitor, seen: self.seen })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        match self.seen {
            Some(_) => self.deserialize_map(visitor),
            None => self.inner.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(OfPart { visitor, seen: self.seen })
    }

    as_the_inner_one! {
        deserialize_bool(); deserialize_i8(); deserialize_i16(); deserialize_i32(); deserialize_i64();
        deserialize_i128(); deserialize_u8(); deserialize_u16(); deserialize_u32(); deserialize_u64();
        deserialize_u128(); deserialize_f32(); deserialize_f64(); deserialize_char(); deserialize_str();
        deserialize_string(); deserialize_bytes(); deserialize_byte_buf(); deserialize_unit();
        deserialize_unit_struct(name: &'static str); deserialize_newtype_struct(name: &'static str);
        deserialize_seq(); deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier(); deserialize_ignored_any();
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Visits a member's value.
struct OfPart<'s, V> {
    visitor: V,
    seen: Option<&'s mut Seen>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for OfPart<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Inner { inner, seen: self.seen })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(inner)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Part { inner, seen: self.seen })
    }
}

/// The members of a member; those of the metadata are seen.
struct Inner<'s, A> {
    inner: A,
    seen: Option<&'s mut Seen>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Inner<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(seen) = self.seen.as_deref_mut() else { return self.inner.next_key_seed(seed) };
        let seed = &mut Some(seed);
        loop {
            let noted = |key: &str| {
                let member = Member::inner(key.as_bytes());
                seen.note(member);
                match (member, seen.managed_fields) {
                    (Member::ManagedFields, ManagedFields::Drop) => Kept::No,
                    _ => Kept::Yes,
                }
            };
            match self.inner.next_key_seed(Key { seed, noted })? {
                Some(None) => drop(self.inner.next_value::<IgnoredAny>()?),
                key => return Ok(key.flatten()),
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}

//! A deserializer that leaves out managedFields and looks at an object's type on the way.
//!
//! It wraps the root of an object and its `metadata`; everything below is decoded by the inner deserializer
//! directly, so that the rest costs nothing.

use std::{borrow::Cow, cell::RefCell, fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, EnumAccess, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};

/// Says what becomes of `metadata.managedFields`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ManagedFields {
    /// Left out before decoding: they take up more room than most objects.
    #[default]
    Drop,
    /// Decoded and kept.
    Keep,
}

/// The type of an object: what it should be, for those that do not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypeNames<'a> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
}

/// The type that an object says it has.
#[derive(Debug, Default)]
pub(super) struct TypeFound {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
}

/// What goes with the decoding of one object.
#[derive(Debug)]
pub(super) struct Context<'a> {
    /// What lists leave out of their items, and is filled in.
    pub(super) names: TypeNames<'a>,
    pub(super) managed_fields: ManagedFields,
    /// Set only where it differs from `names`.
    pub(super) other_type: RefCell<TypeFound>,
}

/// Decodes an object, or its metadata.
#[derive(Debug)]
pub(super) struct Lean<'a, D> {
    inner: D,
    place: Place,
    context: &'a Context<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Root,
    Metadata,
}

impl<'a, D> Lean<'a, D> {
    pub(super) fn root(inner: D, context: &'a Context<'a>) -> Self {
        Self { inner, place: Place::Root, context }
    }

    fn around<V>(&self, visitor: V) -> LeanVisitor<'a, V> {
        LeanVisitor { inner: visitor, place: self.place, context: self.context }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Lean<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.around(visitor);
        self.inner.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.around(visitor);
        self.inner.deserialize_option(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.around(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier
    }
}

struct LeanVisitor<'a, V> {
    inner: V,
    place: Place,
    context: &'a Context<'a>,
}

macro_rules! pass_on {
    ($($method:ident: $value:ty),* $(,)?) => {$(
        fn $method<E: de::Error>(self, value: $value) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for LeanVisitor<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    pass_on! {
        visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64,
        visit_str: &str, visit_borrowed_str: &'de str, visit_string: String,
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Lean { inner, place: self.place, context: self.context })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Lean { inner, place: self.place, context: self.context })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let missing = match self.place {
            Place::Root => TypeMembers { api_version: true, kind: true },
            Place::Metadata => TypeMembers::default(),
        };
        let map = LeanMap { inner, place: self.place, context: self.context, value: Coming::Other, missing };
        self.inner.visit_map(map)
    }
}

/// Which members of the type have not been met yet.
#[derive(Clone, Copy, Debug, Default)]
struct TypeMembers {
    api_version: bool,
    kind: bool,
}

struct LeanMap<'a, A> {
    inner: A,
    place: Place,
    context: &'a Context<'a>,
    value: Coming,
    missing: TypeMembers,
}

/// What the next value is.
#[derive(Clone, Copy, Debug)]
enum Coming {
    ApiVersion(Origin),
    Kind(Origin),
    Metadata,
    Other,
}

#[derive(Clone, Copy, Debug)]
enum Origin {
    Document,
    FilledIn,
}

impl<A> LeanMap<'_, A> {
    fn coming(&mut self, key: &str) -> Coming {
        match (self.place, key) {
            (Place::Root, "metadata") => Coming::Metadata,
            (Place::Root, "apiVersion") => {
                self.missing.api_version = false;
                Coming::ApiVersion(Origin::Document)
            }
            (Place::Root, "kind") => {
                self.missing.kind = false;
                Coming::Kind(Origin::Document)
            }
            _ => Coming::Other,
        }
    }

    /// Names the next member that the document leaves out.
    fn fill_in(&mut self) -> Option<&'static str> {
        if std::mem::take(&mut self.missing.api_version) {
            self.value = Coming::ApiVersion(Origin::FilledIn);
            Some("apiVersion")
        } else if std::mem::take(&mut self.missing.kind) {
            self.value = Coming::Kind(Origin::FilledIn);
            Some("kind")
        } else {
            None
        }
    }

    fn is_dropped(&self, key: &str) -> bool {
        self.place == Place::Metadata
            && self.context.managed_fields == ManagedFields::Drop
            && key == "managedFields"
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for LeanMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        loop {
            let Some(key) = self.inner.next_key_seed(KeyText)? else {
                return self.fill_in().map(|key| seed.deserialize(Text::new(Cow::Borrowed(key)))).transpose();
            };
            if self.is_dropped(&key) {
                self.inner.next_value::<IgnoredAny>()?;
                continue;
            }
            self.value = self.coming(&key);
            return seed.deserialize(Text::new(key)).map(Some);
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let names = self.context.names;
        match self.value {
            Coming::Other => self.inner.next_value_seed(seed),
            Coming::Metadata => self.inner.next_value_seed(MetadataSeed { seed, context: self.context }),
            Coming::ApiVersion(Origin::FilledIn) => {
                seed.deserialize(Text::new(Cow::Owned(names.api_version.to_owned())))
            }
            Coming::Kind(Origin::FilledIn) => seed.deserialize(Text::new(Cow::Owned(names.kind.to_owned()))),
            Coming::ApiVersion(Origin::Document) => {
                let text = self.inner.next_value::<Option<Spelled<'de>>>()?.map(|spelled| spelled.0);
                if text.as_deref().is_some_and(|text| text != names.api_version) {
                    self.context.other_type.borrow_mut().api_version = text.as_deref().map(str::to_owned);
                }
                deserialize_text(seed, text)
            }
            Coming::Kind(Origin::Document) => {
                let text = self.inner.next_value::<Option<Spelled<'de>>>()?.map(|spelled| spelled.0);
                if text.as_deref().is_some_and(|text| text != names.kind) {
                    self.context.other_type.borrow_mut().kind = text.as_deref().map(str::to_owned);
                }
                deserialize_text(seed, text)
            }
        }
    }
}

fn deserialize_text<'de, S: DeserializeSeed<'de>, E: de::Error>(
    seed: S,
    text: Option<Cow<'de, str>>,
) -> Result<S::Value, E> {
    match text {
        Some(text) => seed.deserialize(Text::new(text)),
        None => seed.deserialize(().into_deserializer()),
    }
}

struct MetadataSeed<'a, S> {
    seed: S,
    context: &'a Context<'a>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for MetadataSeed<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.seed.deserialize(Lean { inner, place: Place::Metadata, context: self.context })
    }
}

/// A string that is borrowed where it holds no escapes.
#[derive(serde::Deserialize)]
struct Spelled<'a>(#[serde(borrow)] Cow<'a, str>);

struct KeyText;

impl<'de> DeserializeSeed<'de> for KeyText {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeyText {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(key.to_owned()))
    }

    fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(key))
    }
}

/// Hands on a string that has been read already.
struct Text<'de, E> {
    text: Cow<'de, str>,
    error: PhantomData<E>,
}

impl<'de, E> Text<'de, E> {
    fn new(text: Cow<'de, str>) -> Self {
        Self { text, error: PhantomData }
    }
}

impl<'de, E: de::Error> Deserializer<'de> for Text<'de, E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.text {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, E> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, E> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de, E: de::Error> EnumAccess<'de> for Text<'de, E> {
    type Error = E;
    type Variant = <de::value::CowStrDeserializer<'de, E> as EnumAccess<'de>>::Variant;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), E> {
        de::value::CowStrDeserializer::new(self.text).variant_seed(seed)
    }
}

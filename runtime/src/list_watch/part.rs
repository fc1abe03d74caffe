//! Decodes a few fields of an object's text: what the type does not name is passed over, and not read.
//!
//! `serde_json` reads all of what it ignores, which took two thirds of what an index of a part cost an event.

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor,
        value::{BorrowedStrDeserializer, StringDeserializer},
    },
};
use serde_json::Error;

use super::{
    cut::{Cutter, plain},
    json::{Json, unescaped},
    scan::is_blank,
};

/// Decodes a value that is known to be well-formed into a type that names a few of its members.
///
/// # Errors
/// They do not decode.
pub(super) fn part<P: DeserializeOwned>(json: Json<'_>) -> Result<P, Error> {
    P::deserialize(Value(&mut Reader { text: json.as_str(), at: 0 }))
}

/// Walks a well-formed text.
struct Reader<'de> {
    text: &'de str,
    at: usize,
}

impl<'de> Reader<'de> {
    fn rest(&self) -> &'de [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Passes over blanks; returns what follows.
    fn next(&mut self) -> Option<u8> {
        self.at += self.rest().iter().take_while(|byte| is_blank(**byte)).count();
        self.rest().first().copied()
    }

    /// Passes over a byte if it is what follows.
    fn take(&mut self, byte: u8) -> Result<(), Error> {
        if self.next() != Some(byte) {
            return Err(malformed());
        }
        self.at += 1;
        Ok(())
    }

    /// Passes over a value, and returns it.
    fn value(&mut self) -> Result<&'de str, Error> {
        let first = self.next();
        let rest = self.rest();
        let length = match first {
            Some(b'"') => end_of_string(rest),
            Some(b'{' | b'[') => Cutter::default().end(rest),
            _ => Some(rest.iter().take_while(|byte| !ends_a_word(**byte)).count()),
        };
        let value = length.and_then(|length| self.text.get(self.at..self.at + length));
        let value = value.ok_or_else(malformed)?;
        self.at += value.len();
        Ok(value)
    }
}

/// Counts the bytes of a string, its quotes included.
fn end_of_string(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at = plain(text, at);
        match text.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

fn ends_a_word(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']') || is_blank(byte)
}

/// What the scanner has read does not come to this.
fn malformed() -> Error {
    Error::custom("it is no JSON")
}

/// The value that comes next.
struct Value<'r, 'de>(&'r mut Reader<'de>);

/// What is no structure is left to `serde_json`.
macro_rules! as_serde_json {
    ($($method:ident($($name:ident: $of:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $of,)* visitor: V) -> Result<V::Value, Error> {
            serde_json::Deserializer::from_str(self.0.value()?).$method($($name,)* visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'_, 'de> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.0.next() != Some(b'{') {
            return serde_json::Deserializer::from_str(self.0.value()?)
                .deserialize_struct(name, fields, visitor);
        }
        self.0.at += 1;
        let mut members = Members { reader: self.0, place: Place::First };
        let read = visitor.visit_map(&mut members)?;
        match members.place {
            Place::End => Ok(read),
            Place::First | Place::Later => Err(Error::custom("its type did not read it to its end")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.next() {
            Some(b'n') => self.0.value().and_then(|_| visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.value()?;
        visitor.visit_unit()
    }

    as_serde_json! {
        deserialize_any(); deserialize_bool(); deserialize_i8(); deserialize_i16(); deserialize_i32();
        deserialize_i64(); deserialize_i128(); deserialize_u8(); deserialize_u16(); deserialize_u32();
        deserialize_u64(); deserialize_u128(); deserialize_f32(); deserialize_f64(); deserialize_char();
        deserialize_str(); deserialize_string(); deserialize_bytes(); deserialize_byte_buf();
        deserialize_unit(); deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq(); deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize); deserialize_map();
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
    }
}

/// The members of a structure.
struct Members<'r, 'de> {
    reader: &'r mut Reader<'de>,
    place: Place,
}

/// How far the members have been walked.
enum Place {
    First,
    Later,
    End,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        match (&self.place, self.reader.next()) {
            (Place::End, _) => return Ok(None),
            (_, Some(b'}')) => {
                self.reader.at += 1;
                self.place = Place::End;
                return Ok(None);
            }
            (Place::First, _) => self.place = Place::Later,
            (Place::Later, _) => self.reader.take(b',')?,
        }
        let key = self.reader.value()?;
        let key = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).ok_or_else(malformed)?;
        if !key.contains('\\') {
            return seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some);
        }
        let key: StringDeserializer<Error> = unescaped(key).ok_or_else(malformed)?.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        self.reader.take(b':')?;
        seed.deserialize(Value(self.reader))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
    use serde::Deserialize;
    use serde_json::{Value as Any, json, value::RawValue};

    use super::*;

    /// Whatever a part may be made of.
    #[derive(Debug, Deserialize, PartialEq)]
    struct Whole {
        a: Option<Inner>,
        #[serde(default)]
        b: Vec<Inner>,
        c: Option<BTreeMap<u64, Any>>,
        d: Option<Choice>,
        #[serde(rename = "e\"é")]
        e: Option<Tuple>,
        f: Option<Rest>,
        g: Option<Any>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner {
        name: String,
        inner: Option<Box<Inner>>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    enum Choice {
        One,
        Two { x: f64 },
        Three(u128, bool),
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Tuple(i64, Option<char>);

    #[derive(Debug, Deserialize, PartialEq)]
    struct Rest {
        known: Option<u8>,
        #[serde(flatten)]
        rest: BTreeMap<String, Any>,
    }

    fn read(text: &str) -> Option<Whole> {
        let json = Json::read(text.as_bytes()).unwrap();
        let read = part(json).ok();
        assert_eq!(read, serde_json::from_str::<Whole>(text).ok(), "{text}");
        read
    }

    #[test]
    fn a_part_reads_as_it_does_from_all_of_the_text() {
        let read_to = |text: &str, name: &str| {
            assert_eq!(read(text).unwrap().a.unwrap().name, name, "{text}");
        };
        read_to(r#"{"a":{"name":"x"}}"#, "x");
        read_to(
            r#" { "z" : [ "}" , "\"]" , { } ] , "\u0061" : { "n\u0061me" : "\u0078" , "o" : -1.5e3 } } "#,
            "x",
        );
        read_to("{\"z\":1,\"a\":\n{\"o\":true\t,\"name\":\"x\",\"inner\":null}\n,\"zz\":\"\\\\\"}", "x");
        for refused in [
            r#"{"a":{"name":"x","name":"y"}}"#,
            r#"{"a":{"name":1}}"#,
            r#"{"a":{}}"#,
            r#"{"a":[]}"#,
            r#"{"a":"x"}"#,
            "[]",
            "7",
            "null",
            r#"{"a":{"name":"\ud800"}}"#,
        ] {
            assert!(read(refused).is_none(), "{refused}");
        }
    }

    #[test]
    fn what_is_kept_raw_is_the_text_as_it_stands() {
        #[derive(Deserialize)]
        struct Raw {
            raw: Box<RawValue>,
        }
        let text = r#"{"o":{},"raw": {"a" : [1, 2]} ,"p":[]}"#;
        let read: Raw = part(Json::part(text)).unwrap();
        assert_eq!(read.raw.get(), r#"{"a" : [1, 2]}"#);
    }

    #[test]
    fn a_text_that_is_not_what_it_should_be_is_refused() {
        for text in [
            "",
            "{",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":{",
            "{\"a\":{\"name\":\"x\"",
            "{a:1}",
            "{\"a\\",
            "{\"a\" 1}",
        ] {
            assert!(part::<Whole>(Json::part(text)).is_err(), "{text}");
        }
    }

    fn json() -> impl Strategy<Value = Any> {
        let leaf = prop_oneof![
            Just(Any::Null),
            any::<bool>().prop_map(Any::from),
            any::<i64>().prop_map(Any::from),
            any::<f64>().prop_map(Any::from),
            "[a-z\"\\\\{}\\[\\],:é\t]{0,6}".prop_map(Any::from),
            Just(json!("One")),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            let key = prop_oneof![
                Just("a".to_owned()),
                Just("b".to_owned()),
                Just("c".to_owned()),
                Just("d".to_owned()),
                Just("e\"é".to_owned()),
                Just("f".to_owned()),
                Just("name".to_owned()),
                Just("inner".to_owned()),
                Just("Two".to_owned()),
                Just("7".to_owned()),
                "[a-z\\\\\"{]{0,3}",
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Any::from),
                prop::collection::btree_map(key, inner, 0..6)
                    .prop_map(|members| Any::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_read_in_part_is_what_serde_json_reads(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            read(&text);
            let within = format!(r#"{{"z":{text} ,"a":{{"o":{text},"name":"x","p":{text}}},"zz" : {text}}}"#);
            assert_eq!(read(&within).and_then(|whole| whole.a).map(|inner| inner.name), Some("x".to_owned()));
        }
    }
}

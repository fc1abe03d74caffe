//! Reads JSON with `serde_json`: what is checked, what is borrowed, and what may be of another type.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, Unexpected},
};
use serde_json::value::RawValue;

/// A member as it is written; `None` if it is absent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Raw<'a>(pub(super) Option<&'a RawValue>);

/// Says that a text is not one JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

/// Checks that a text is one JSON value.
pub(super) fn check(text: &str) -> Result<(), NotJson> {
    serde_json::from_str::<&RawValue>(text).map(drop).map_err(|_| NotJson)
}

/// Reads an object into a struct; refuses arrays, which serde's derive accepts.
pub(super) fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    match text.trim_start().starts_with('[') {
        true => Err(Error::invalid_type(Unexpected::Seq, &"an object")),
        false => serde_json::from_str(text),
    }
}

/// Reads a member as it is written, null included.
impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|written| Self(Some(written)))
    }
}

/// Decodes a member; `None` if it is absent or of another type.
pub(super) fn decoded<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Option<T> {
    serde_json::from_str(raw.0?.get()).ok()
}

/// Reads a member that is a string, null or absent; `None` if it is anything else.
pub(super) fn text_or_empty(raw: Raw<'_>) -> Option<String> {
    match raw.0 {
        Some(_) => decoded::<Option<String>>(raw).map(Option::unwrap_or_default),
        None => Some(String::new()),
    }
}

/// Reads the elements of an array that can be read.
pub(super) fn elements<T: DeserializeOwned>(raw: Raw<'_>) -> Vec<T> {
    let elements: Vec<&RawValue> = decoded(raw).unwrap_or_default();
    elements.into_iter().filter_map(|element| decoded(Raw(Some(element)))).collect()
}

/// Returns whether JSON allows a byte between its tokens.
pub(super) fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

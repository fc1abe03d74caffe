//! Objects kept as bytes, to be decoded later.

use std::sync::Arc;

use super::{
    dictionary::Dictionary,
    error::{Identity, Unreadable},
    json::{self, NotJson},
    read::ObjectParts,
    scrub,
    text::ObjectText,
};
use crate::{
    object::{AnyObject, Object, ObjectKey},
    users_code::contained,
};

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
    /// It is not well-formed, or not an object with a name.
    pub fn new(json: impl AsRef<str>) -> Result<Self, Box<Unreadable>> {
        Self::compressed(json.as_ref(), None)
    }

    fn compressed(json: &str, dictionary: Option<&Arc<Dictionary>>) -> Result<Self, Box<Unreadable>> {
        let refused = |error: String| Box::new(Unreadable { identity: Identity::default(), error });
        let parts = ObjectParts::of(json).map_err(|error| match json::check(json) {
            Ok(()) => refused(scrub::without_content(&error)),
            Err(NotJson) => refused("it is not well-formed JSON".to_owned()),
        })?;
        Self::found(json, &parts, dictionary)
    }

    /// Takes the text of an object whose parts have been found.
    pub(super) fn found(
        json: &str,
        parts: &ObjectParts<'_>,
        dictionary: Option<&Arc<Dictionary>>,
    ) -> Result<Self, Box<Unreadable>> {
        match parts.metadata.key() {
            Ok(key) => Ok(Self { key, text: ObjectText::new(json, &parts.metadata, dictionary) }),
            Err(error) => {
                let identity = parts.metadata.identity();
                Err(Box::new(Unreadable { identity, error: error.to_owned() }))
            }
        }
    }

    /// Encodes an object.
    ///
    /// # Errors
    /// It can't be encoded, or has no name.
    pub fn of<K: AnyObject + ?Sized>(object: &K) -> Result<Self, Box<Unreadable>> {
        Self::encoded(object, None)
    }

    /// Encodes an object of the same kind.
    pub(crate) fn of_same_kind(&self, object: &dyn AnyObject) -> Result<Self, Box<Unreadable>> {
        Self::encoded(object, self.text.dictionary())
    }

    fn encoded<K: AnyObject + ?Sized>(
        object: &K,
        dictionary: Option<&Arc<Dictionary>>,
    ) -> Result<Self, Box<Unreadable>> {
        let encoded = contained(|| object.to_json());
        let error = match encoded {
            Some(Ok(json)) => return Self::compressed(&String::from_utf8_lossy(&json), dictionary),
            Some(Err(error)) => scrub::without_content(&error),
            None => "its type panicked".to_owned(),
        };
        let identity = Identity { key: ObjectKey::of_meta(object.metadata()), ..Identity::default() };
        Err(Box::new(Unreadable { identity, error: format!("can't be encoded: {error}") }))
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
        self.text.identity()
    }
}

//! Objects kept as bytes, to be decoded later.

use super::{
    identity::{Identity, Unreadable},
    json::Json,
    packed::Packing,
    places::{LARGEST, Places},
    read, scrub,
    text::ObjectText,
};
use crate::{
    object::{Object, ObjectKey},
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
    /// It is not well-formed, or no object with a name.
    pub fn new(json: impl AsRef<str>) -> Result<Self, Box<Unreadable>> {
        let refused = match Json::read(json.as_ref().as_bytes()) {
            Ok(json) if json.as_str().len() <= LARGEST => {
                return Self::found(json.as_str(), &Places::of(json), Packing::None);
            }
            Ok(_) => "it is larger than 4 GiB",
            Err(_) => "it is not well-formed JSON",
        };
        Err(Box::new(Unreadable { identity: Identity::default(), error: refused.to_owned() }))
    }

    /// Takes the text of an object whose places have been found.
    pub(super) fn found(json: &str, places: &Places, packing: Packing) -> Result<Self, Box<Unreadable>> {
        let unreadable =
            |error: String| Box::new(Unreadable { identity: read::identity(json, places), error });
        let key = read::checked_key(json, places).map_err(unreadable)?;
        match ObjectText::found(json, places, packing) {
            Some(text) => Ok(Self { key, text }),
            None => Err(unreadable("metadata: the UID or version is spelled with escapes".to_owned())),
        }
    }

    /// Encodes an object.
    ///
    /// # Errors
    /// It can't be encoded, or has no name.
    pub fn of<K: Object>(object: &K) -> Result<Self, Box<Unreadable>> {
        let encoded = contained(|| serde_json::to_string(object));
        let error = match encoded {
            Some(Ok(json)) => return Self::new(json),
            Some(Err(error)) => scrub::without_content(&error),
            None => "its type panicked".to_owned(),
        };
        let identity = Identity { key: ObjectKey::of_meta(object.meta()), ..Identity::default() };
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

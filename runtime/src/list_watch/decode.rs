//! Makes an item of one object's text: in one pass if the object is usual, or from its parts.

use std::{borrow::Cow, sync::Arc};

use super::{
    dictionary::Dictionary,
    error::{Identity, Unreadable},
    item::{AnyItem, FetchedItem},
    json::{self, NotJson},
    keeps::Keeps,
    members::{ManagedFields, SeenMembers},
    raw::{ItemForm, RawObject},
    read::{NO_NAME, ObjectParts, ObjectType},
    scrub,
};
use crate::object::Kind;

/// How much of each object is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Representation {
    /// The whole object.
    #[default]
    Whole,
    /// `PartialObjectMetadata`: apiVersion, kind and metadata.
    Metadata,
}

/// Decodes the objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    /// The type that typed objects become.
    object: ObjectType,
    api_version: String,
    kind: String,
    representation: Representation,
    managed_fields: ManagedFields,
    form: ItemForm,
    /// What the cache keeps; `None`: everything.
    keeps: Option<Keeps>,
    dictionary: Arc<Dictionary>,
    /// How an object of the kind begins that says its type first, as API servers write it.
    openings: Arc<[String; 2]>,
}

/// Why a text is not an object of the kind, readable or not.
#[derive(Debug)]
pub(super) enum NotAnObject {
    /// It is not one JSON value.
    NotJson,
    /// It is an object of another kind; the error names its type.
    OfAnotherKind(Box<Unreadable>),
}

impl From<NotJson> for NotAnObject {
    fn from(_: NotJson) -> Self {
        Self::NotJson
    }
}

impl Decoder {
    pub(super) fn new(
        object: ObjectType,
        kind: &Kind,
        representation: Representation,
        managed_fields: ManagedFields,
    ) -> Self {
        let mut decoder = Self {
            object,
            api_version: kind.api_version(),
            kind: kind.kind.to_string(),
            representation,
            managed_fields,
            form: ItemForm::Typed,
            keeps: None,
            dictionary: Arc::default(),
            openings: Arc::default(),
        };
        let (api_version, kind) = decoder.type_names();
        decoder.openings = Arc::new([
            format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\","),
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\","),
        ]);
        decoder
    }

    /// Returns it for objects in a form; bytes are compressed with a dictionary.
    pub(super) fn with_form(self, form: ItemForm, dictionary: &Arc<Dictionary>) -> Self {
        Self { form, dictionary: dictionary.clone(), ..self }
    }

    pub(super) fn with_keeps(self, keeps: Option<Keeps>) -> Self {
        Self { keeps, ..self }
    }

    /// Returns the version of an object that the cache does not keep.
    pub(super) fn dropped(&self, text: &str) -> Option<String> {
        self.keeps.as_ref()?.dropped(text)
    }

    /// Decodes an object.
    ///
    /// # Errors
    /// The text is not one JSON value, or is an object of another kind.
    pub(super) fn decode(&self, text: &str) -> Result<AnyItem, NotAnObject> {
        self.decode_usual(text).map_or_else(|| self.decode_parts(text), Ok)
    }

    /// Decodes an item of a list; an object of another kind becomes an unreadable item. `None`: it is not kept.
    ///
    /// # Errors
    /// The text is not one JSON value.
    pub(super) fn list_item(&self, text: &str) -> Result<Option<AnyItem>, NotJson> {
        if self.dropped(text).is_some() {
            return Ok(None);
        }
        match self.decode(text) {
            Ok(item) => Ok(Some(item)),
            Err(NotAnObject::NotJson) => Err(NotJson),
            Err(NotAnObject::OfAnotherKind(mut found)) => {
                found.error = format!("it is a {}, not a {} of {}", found.error, self.kind, self.api_version);
                Ok(Some(FetchedItem::Unreadable(found)))
            }
        }
    }

    /// Decodes a typed object in one pass if it is as API servers send it; `None` for any other.
    pub(super) fn decode_usual(&self, text: &str) -> Option<AnyItem> {
        if self.form != ItemForm::Typed {
            return None;
        }
        let text = match text.strip_prefix('{') {
            _ if self.openings.iter().any(|opening| text.starts_with(opening)) => Cow::Borrowed(text),
            // Items of lists do not say their type.
            Some(rest) if rest.starts_with("\"metadata\":") => {
                Cow::Owned([self.openings[0].as_str(), rest].concat())
            }
            _ => return None,
        };
        let mut seen = SeenMembers::new(self.managed_fields);
        let item = FetchedItem::Object((self.object.usual)(&text, &mut seen)?);
        (item.is_named() && !seen.twice).then_some(item)
    }

    fn decode_parts(&self, text: &str) -> Result<AnyItem, NotAnObject> {
        let parts = match ObjectParts::of(text) {
            Ok(parts) => parts,
            Err(error) => {
                json::check(text)?;
                return Ok(unreadable(Identity::default(), scrub::without_content(&error)));
            }
        };
        if let Some(found) = self.foreign_type(&parts) {
            let identity = parts.metadata.identity();
            return Err(NotAnObject::OfAnotherKind(Box::new(Unreadable { identity, error: found })));
        }
        let lean = parts.lean(text, self.type_names(), self.managed_fields);
        Ok(match self.form {
            ItemForm::Typed => self.typed_item(&lean, &parts),
            ItemForm::Bytes => {
                let raw = RawObject::found(&lean, &parts, Some(&self.dictionary));
                raw.map_or_else(FetchedItem::Unreadable, |raw| FetchedItem::Raw(Box::new(raw)))
            }
        })
    }

    /// Returns the type that an object says it has, if that is not the one asked for.
    ///
    /// Where metadata is asked for, a server may send whole objects.
    fn foreign_type(&self, parts: &ObjectParts<'_>) -> Option<String> {
        let (api_version, kind) = parts.type_names();
        let is = |(wanted_version, wanted_kind): (&str, &str)| {
            api_version.as_deref().is_none_or(|found| found == wanted_version)
                && kind.as_deref().is_none_or(|found| found == wanted_kind)
        };
        if is(self.type_names()) || is((&self.api_version, &self.kind)) {
            return None;
        }
        let kind = kind.unwrap_or_else(|| "object".to_owned());
        Some(match api_version {
            Some(api_version) => format!("{kind} of {api_version}"),
            None => kind,
        })
    }

    fn typed_item(&self, text: &str, parts: &ObjectParts<'_>) -> AnyItem {
        let key = parts.metadata.key().map_err(str::to_owned);
        match key.and_then(|_| (self.object.whole)(text)).map(FetchedItem::Object) {
            Ok(item) if item.is_named() => item,
            Ok(_) => unreadable(parts.metadata.identity(), NO_NAME.to_owned()),
            Err(error) => unreadable(parts.metadata.identity(), error),
        }
    }

    fn type_names(&self) -> (&str, &str) {
        match self.representation {
            Representation::Whole => (&self.api_version, &self.kind),
            Representation::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
        }
    }
}

fn unreadable(identity: Identity, error: String) -> AnyItem {
    FetchedItem::Unreadable(Box::new(Unreadable { identity, error }))
}

#[cfg(test)]
mod tests;

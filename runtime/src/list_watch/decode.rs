//! Makes an item of one object's text: in one pass if the object is usual, or from its parts.

use std::{borrow::Cow, sync::Arc};

use super::{
    dictionary::Dictionary,
    error::{Identity, Unreadable},
    item::FetchedItem,
    json::{self, NotJson},
    members::{ManagedFields, SeenMembers},
    raw::{ItemForm, RawObject},
    read::{NO_NAME, ObjectParts, typed, typed_or_why},
    scrub,
};
use crate::object::{Kind, Object};

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
    api_version: String,
    kind: String,
    representation: Representation,
    managed_fields: ManagedFields,
    form: ItemForm,
    dictionary: Arc<Dictionary>,
    /// How an object of the kind begins that says its type first, as API servers write it.
    openings: Arc<[String; 2]>,
}

/// What came of decoding an object.
#[derive(Debug)]
pub(super) enum Decoded<K> {
    /// An object of the kind, readable or not.
    Item(FetchedItem<K>),
    /// An object of another kind; the error names its type.
    OfAnotherKind(Box<Unreadable>),
}

impl Decoder {
    pub(super) fn new(kind: &Kind, representation: Representation, managed_fields: ManagedFields) -> Self {
        let mut decoder = Self {
            api_version: kind.api_version(),
            kind: kind.kind.to_string(),
            representation,
            managed_fields,
            form: ItemForm::Typed,
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

    pub(super) fn with_form(self, form: ItemForm) -> Self {
        Self { form, ..self }
    }

    /// Decodes an object.
    ///
    /// # Errors
    /// The text is not one JSON value.
    pub(super) fn decode<K: Object>(&self, text: &str) -> Result<Decoded<K>, NotJson> {
        match self.decode_usual(text) {
            Some(item) => Ok(Decoded::Item(item)),
            None => self.decode_parts(text),
        }
    }

    /// Decodes an item of a list; an object of another kind becomes an unreadable item.
    ///
    /// # Errors
    /// The text is not one JSON value.
    pub(super) fn list_item<K: Object>(&self, text: &str) -> Result<FetchedItem<K>, NotJson> {
        Ok(match self.decode(text)? {
            Decoded::Item(item) => item,
            Decoded::OfAnotherKind(mut found) => {
                found.error = format!("it is a {}, not a {} of {}", found.error, self.kind, self.api_version);
                FetchedItem::Unreadable(found)
            }
        })
    }

    /// Decodes a typed object in one pass if it is as API servers send it; `None` for any other.
    pub(super) fn decode_usual<K: Object>(&self, text: &str) -> Option<FetchedItem<K>> {
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
        let item = FetchedItem::Object(Arc::new(typed::<K>(&text, &mut seen)?));
        (item.is_named() && !seen.twice).then_some(item)
    }

    fn decode_parts<K: Object>(&self, text: &str) -> Result<Decoded<K>, NotJson> {
        let parts = match ObjectParts::of(text) {
            Ok(parts) => parts,
            Err(error) => {
                json::check(text)?;
                return Ok(Decoded::Item(unreadable(Identity::default(), scrub::without_content(&error))));
            }
        };
        if let Some(found) = self.foreign_type(&parts) {
            let identity = parts.metadata.identity();
            return Ok(Decoded::OfAnotherKind(Box::new(Unreadable { identity, error: found })));
        }
        let lean = parts.lean(text, self.type_names(), self.managed_fields);
        Ok(Decoded::Item(match self.form {
            ItemForm::Typed => typed_item(&lean, &parts),
            ItemForm::Bytes => {
                let raw = RawObject::found(&lean, &parts, Some(&self.dictionary));
                raw.map_or_else(FetchedItem::Unreadable, |raw| FetchedItem::Raw(Box::new(raw)))
            }
        }))
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

    fn type_names(&self) -> (&str, &str) {
        match self.representation {
            Representation::Whole => (&self.api_version, &self.kind),
            Representation::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
        }
    }
}

fn typed_item<K: Object>(text: &str, parts: &ObjectParts<'_>) -> FetchedItem<K> {
    let key = parts.metadata.key().map_err(str::to_owned);
    match key.and_then(|_| typed_or_why::<K>(text)).map(|object| FetchedItem::Object(Arc::new(object))) {
        Ok(item) if item.is_named() => item,
        Ok(_) => unreadable(parts.metadata.identity(), NO_NAME.to_owned()),
        Err(error) => unreadable(parts.metadata.identity(), error),
    }
}

fn unreadable<K>(identity: Identity, error: String) -> FetchedItem<K> {
    FetchedItem::Unreadable(Box::new(Unreadable { identity, error }))
}

#[cfg(test)]
mod tests;

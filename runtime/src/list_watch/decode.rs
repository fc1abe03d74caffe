//! Makes an item of one object's text, and says who it is where that fails.
//!
//! Leaving `managedFields` out of the text before it is decoded takes a third fewer instructions than decoding them and
//! throwing them away: 102,000 in place of 157,000 for a Pod of 2.5 KB, of which they are half, the search included.

use std::{borrow::Cow, sync::Arc};

use super::{
    identity::Unreadable,
    item::Item,
    json::{Flaw, Json},
    members::{ManagedFields, Seen},
    packed::Packing,
    places::{Member, Places, Span, is_too_deep},
    raw::{ItemForm, RawObject},
    read::{NO_NAME, admitted, identity, typed, typed_or_why},
};
use crate::object::{Kind, Object};

/// How an object begins that does not say its type, as items of lists do.
const UNTYPED: &str = "{\"metadata\":";

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
///
/// What it is given is well-formed, and its places have been found: see [`Finder`](super::places::Finder).
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    api_version: String,
    kind: String,
    representation: Representation,
    managed_fields: ManagedFields,
    form: ItemForm,
    packing: Packing,
    /// How an object of the kind begins that says its type first, as API servers write it.
    openings: Arc<[String; 2]>,
}

/// Where the type of an item of a list comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type {
    Said,
    FilledIn,
}

/// What came of decoding an object.
#[derive(Debug)]
pub(super) enum Decoded<K> {
    /// An object of the kind, readable or not.
    Item(Item<K>),
    /// An object of another kind; its type.
    OfAnotherKind(String),
}

impl Decoder {
    pub(super) fn new(kind: &Kind, representation: Representation, managed_fields: ManagedFields) -> Self {
        let mut decoder = Self {
            api_version: kind.api_version(),
            kind: kind.kind.to_string(),
            representation,
            managed_fields,
            form: ItemForm::Typed,
            packing: Packing::of(kind),
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

    /// Appends an object to others, without what is not kept and with the type that it does not say.
    ///
    /// Returns its places, counted from where it begins there.
    pub(super) fn push_stripped(&self, object: &str, places: &Places, objects: &mut String) -> Places {
        let Some(open) = object.strip_suffix('}').filter(|_| !places.metadata.is_empty()) else {
            objects.push_str(object);
            return *places;
        };
        let left_out = places.managed_fields.range();
        let stripped = match self.managed_fields {
            ManagedFields::Drop if !left_out.is_empty() => {
                objects.extend([&open[..left_out.start], &open[left_out.end..]]);
                places.without_managed_fields()
            }
            _ => {
                objects.push_str(open);
                *places
            }
        };
        // Its places are known from what was said, not from what is filled in.
        let (api_version, kind) = self.type_names();
        if places.api_version.is_empty() {
            objects.extend([",\"apiVersion\":\"", api_version, "\""]);
        }
        if places.kind.is_empty() {
            objects.extend([",\"kind\":\"", kind, "\""]);
        }
        objects.push('}');
        stripped
    }

    /// Returns whether an object is kept as it is: nothing is left out of it, and its type is said.
    pub(super) fn is_stripped(&self, places: &Places) -> bool {
        let complete = !places.api_version.is_empty() && !places.kind.is_empty();
        complete && (places.managed_fields.is_empty() || self.managed_fields == ManagedFields::Keep)
    }

    /// Says how the items of a list begin that are decoded at once; those of built-in kinds leave out their type.
    pub(super) fn usual_openings(&self) -> Vec<String> {
        match self.form {
            ItemForm::Typed => self.openings.iter().cloned().chain([UNTYPED.to_owned()]).collect(),
            ItemForm::Bytes => Vec::new(),
        }
    }

    /// Appends an item of a list to others, with the type that it leaves out.
    pub(super) fn push_typed(&self, item: &str, items: &mut String) -> Type {
        if item.starts_with(UNTYPED) {
            items.extend([&self.openings[0], &item[1..]]);
            return Type::FilledIn;
        }
        items.push_str(item);
        Type::Said
    }

    /// Decodes an item of a list that was pushed so, which may not even be well-formed.
    pub(super) fn typed_item<K: Object>(&self, item: &str, of: Type) -> Result<Item<K>, Flaw> {
        if let Some(item) = self.decode_at_once(item) {
            return Ok(item);
        }
        let said = match of {
            Type::Said => Cow::from(item),
            Type::FilledIn => format!("{{{}", &item[self.openings[0].len()..]).into(),
        };
        let said = Json::read(said.as_bytes())?;
        let mut stripped = String::new();
        let places = self.push_stripped(said.as_str(), &Places::of(said), &mut stripped);
        Ok(self.list_item(&stripped, &places))
    }

    /// Decodes an object in one pass, if it is one as API servers send them; nothing is known of the text.
    ///
    /// `None` for any other, and for what is kept as bytes: the long way tells what is to be made of it.
    pub(super) fn decode_at_once<K: Object>(&self, object: &str) -> Option<Item<K>> {
        let begins_with = |opening: &String| object.starts_with(opening);
        if self.form != ItemForm::Typed || !self.openings.iter().any(begins_with) {
            return None;
        }
        let mut seen = Seen::nothing(self.managed_fields);
        let decoded = typed::<K>(object, &mut seen).ok()?;
        let named = decoded.meta().name.as_deref().is_some_and(|name| !name.is_empty());
        let members = [Member::ApiVersion, Member::Kind, Member::Metadata, Member::Name];
        let usual = named && seen.has_once(&members) && !is_too_deep(object);
        usual.then(|| Item::Object(Arc::new(decoded)))
    }

    /// Decodes an object of a list; an object of another kind becomes an unreadable item.
    pub(super) fn list_item<K: Object>(&self, stripped: &str, places: &Places) -> Item<K> {
        match self.decode(stripped, places) {
            Decoded::Item(item) => item,
            Decoded::OfAnotherKind(found) => {
                let error = format!("it is a {found}, not a {} of {}", self.kind, self.api_version);
                unreadable(stripped, places, error)
            }
        }
    }

    /// Decodes a stripped object, or takes its bytes.
    pub(super) fn decode<K: Object>(&self, stripped: &str, places: &Places) -> Decoded<K> {
        if let Some(found) = self.foreign_type(stripped, places) {
            return Decoded::OfAnotherKind(found);
        }
        Decoded::Item(match self.form {
            ItemForm::Typed => decode_typed(stripped, places),
            ItemForm::Bytes => RawObject::found(stripped, places, self.packing)
                .map_or_else(Item::Unreadable, |raw| Item::Raw(Box::new(raw))),
        })
    }

    /// Returns the type that an object says it has, if that is not the one asked for.
    fn foreign_type(&self, stripped: &str, places: &Places) -> Option<String> {
        let is = |said: Span, name: &str| said.of(stripped).is_none_or(|said| is_text(said, name));
        if is(places.api_version, &self.api_version) && is(places.kind, &self.kind) {
            return None;
        }
        let said = |said: Span| said.of(stripped).and_then(Json::decode::<String>);
        let (api_version, kind) = (said(places.api_version), said(places.kind));
        let foreign = !self.accepts(api_version.as_deref(), kind.as_deref());
        foreign.then(|| spelled(api_version, kind))
    }

    fn type_names(&self) -> (&str, &str) {
        match self.representation {
            Representation::Whole => (&self.api_version, &self.kind),
            Representation::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
        }
    }

    /// Returns whether a type, as far as it is said, is the one asked for.
    ///
    /// Where metadata is asked for, a server that sends whole objects will do.
    fn accepts(&self, api_version: Option<&str>, kind: Option<&str>) -> bool {
        let is = |(api_version_wanted, kind_wanted): (&str, &str)| {
            api_version.is_none_or(|found| found == api_version_wanted)
                && kind.is_none_or(|found| found == kind_wanted)
        };
        is(self.type_names()) || is((&self.api_version, &self.kind))
    }
}

fn decode_typed<K: Object>(stripped: &str, places: &Places) -> Item<K> {
    let decoded = admitted(places).and_then(|()| typed_or_why::<K>(stripped));
    match decoded {
        Ok(object) if object.meta().name.as_deref().is_some_and(|name| !name.is_empty()) => {
            Item::Object(Arc::new(object))
        }
        Ok(_) => unreadable(stripped, places, NO_NAME.to_owned()),
        Err(error) => unreadable(stripped, places, error),
    }
}

fn is_text(json: Json<'_>, text: &str) -> bool {
    json.as_str().strip_prefix('"').and_then(|json| json.strip_suffix('"')) == Some(text)
}

fn spelled(api_version: Option<String>, kind: Option<String>) -> String {
    let kind = kind.unwrap_or_else(|| "object".to_owned());
    match api_version {
        Some(api_version) => format!("{kind} of {api_version}"),
        None => kind,
    }
}

fn unreadable<K>(json: &str, places: &Places, error: String) -> Item<K> {
    Item::Unreadable(Box::new(Unreadable { identity: identity(json, places), error }))
}

#[cfg(test)]
mod tests;

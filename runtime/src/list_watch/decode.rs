//! Decodes one object from its bytes, and reads who it is where that fails.

use std::{cell::Cell, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{
    item::{Identity, Item, Unreadable},
    json,
    lean::{Context, Lean, ManagedFields, TypeNames},
    one_pass::cut,
    raw::{ItemForm, LeanBytes},
    scrub,
};
use crate::object::{Kind, Object, ObjectKey};

/// Longest path inside an object that an error repeats.
const LONGEST_PATH: usize = 200;

pub(super) const NO_NAME: &str = "metadata.name: missing";

/// Says how much of each object is asked for.
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
        Self {
            api_version: kind.api_version(),
            kind: kind.kind.to_string(),
            representation,
            managed_fields,
            form: ItemForm::Typed,
        }
    }

    pub(super) fn with_form(self, form: ItemForm) -> Self {
        Self { form, ..self }
    }

    /// Decodes an object whose kind is known from where it stood; what is wrong with it is told in the item.
    pub(super) fn list_item<K: Object>(&self, object: &[u8]) -> Item<K> {
        match self.decode(object) {
            Decoded::Item(item) => item,
            Decoded::OfAnotherKind(found) => Item::Unreadable(Box::new(Unreadable {
                identity: identity(object),
                error: format!("it is a {found}, not a {} of {}", self.kind, self.api_version),
            })),
        }
    }

    /// Decodes an object, or takes its bytes.
    pub(super) fn decode<K: Object>(&self, object: &[u8]) -> Decoded<K> {
        match self.form {
            ItemForm::Typed => self.decode_typed(object),
            ItemForm::Bytes => self.take_bytes(object),
        }
    }

    fn take_bytes<K>(&self, object: &[u8]) -> Decoded<K> {
        if let Some(cut) = cut(object, self.type_names(), self.managed_fields) {
            return match self.accepts(cut.api_version, cut.kind) {
                true => Decoded::Item(Item::Raw(Box::new(cut.object))),
                false => {
                    Decoded::OfAnotherKind(spelled(cut.api_version.map(Into::into), cut.kind.map(Into::into)))
                }
            };
        }
        let lean = LeanBytes::of(object, self.type_names(), self.managed_fields);
        if !self.accepts(lean.api_version.as_deref(), lean.kind.as_deref()) {
            return Decoded::OfAnotherKind(spelled(lean.api_version, lean.kind));
        }
        match lean.into_raw() {
            Some(raw) => Decoded::Item(Item::Raw(Box::new(raw))),
            None => unreadable(object, NO_NAME.to_owned()),
        }
    }

    fn decode_typed<K: Object>(&self, object: &[u8]) -> Decoded<K> {
        let context = self.context();
        let decoded = decode_lean::<K>(object, &context);
        if (decoded.is_err() || context.of_another_type.get())
            && let Some(found) = self.foreign_type(object)
        {
            return Decoded::OfAnotherKind(found);
        }
        match decoded {
            Ok(decoded) if ObjectKey::of_meta(decoded.meta()).is_none() => {
                unreadable(object, NO_NAME.to_owned())
            }
            Ok(decoded) => Decoded::Item(Item::Object(Arc::new(decoded))),
            Err(error) => self.failed::<K>(object, &error),
        }
    }

    /// Returns the type that an object says it has, if that is not the one asked for.
    fn foreign_type(&self, object: &[u8]) -> Option<String> {
        let (api_version, kind) =
            (json::text_member(object, "apiVersion"), json::text_member(object, "kind"));
        let foreign = !self.accepts(api_version.as_deref(), kind.as_deref());
        foreign.then(|| spelled(api_version, kind))
    }

    fn failed<K: Object>(&self, object: &[u8], error: &serde_json::Error) -> Decoded<K> {
        let reason = scrub::without_content(error);
        match path_of_failure::<K>(object, &self.context()) {
            Some(path) => unreadable(object, format!("{path}: {reason}")),
            None => unreadable(object, reason),
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            names: self.type_names(),
            managed_fields: self.managed_fields,
            of_another_type: Cell::new(false),
        }
    }

    fn type_names(&self) -> TypeNames<'_> {
        match self.representation {
            Representation::Whole => TypeNames { api_version: &self.api_version, kind: &self.kind },
            Representation::Metadata => {
                TypeNames { api_version: "meta.k8s.io/v1", kind: "PartialObjectMetadata" }
            }
        }
    }

    /// Tells whether a type, as far as it is said, is the one asked for.
    ///
    /// Where metadata is asked for, a server that sends whole objects will do.
    fn accepts(&self, api_version: Option<&str>, kind: Option<&str>) -> bool {
        let names = self.type_names();
        let is = |api_version_wanted: &str, kind_wanted: &str| {
            api_version.is_none_or(|found| found == api_version_wanted)
                && kind.is_none_or(|found| found == kind_wanted)
        };
        is(names.api_version, names.kind) || is(&self.api_version, &self.kind)
    }
}

/// Decodes once more, slowly, to learn where it fails.
pub(super) fn path_of_failure<K: DeserializeOwned>(object: &[u8], context: &Context<'_>) -> Option<String> {
    let mut json = serde_json::Deserializer::from_slice(object);
    let error = serde_path_to_error::deserialize::<_, K>(Lean::root(&mut json, context)).err()?;
    let path: String = error.path().to_string().chars().take(LONGEST_PATH).collect();
    (path != "." && !path.is_empty()).then_some(path)
}

fn decode_lean<K: DeserializeOwned>(object: &[u8], context: &Context<'_>) -> serde_json::Result<K> {
    let mut json = serde_json::Deserializer::from_slice(object);
    let decoded = K::deserialize(Lean::root(&mut json, context))?;
    json.end()?;
    Ok(decoded)
}

fn spelled(api_version: Option<String>, kind: Option<String>) -> String {
    let kind = kind.unwrap_or_else(|| "object".to_owned());
    match api_version {
        Some(api_version) => format!("{kind} of {api_version}"),
        None => kind,
    }
}

fn unreadable<K>(object: &[u8], error: String) -> Decoded<K> {
    Decoded::Item(Item::Unreadable(Box::new(Unreadable { identity: identity(object), error })))
}

/// Reads who an object is, each member for itself: one that can't be read hides no other.
pub(super) fn identity(object: &[u8]) -> Identity {
    let Some(metadata) = json::member(object, "metadata") else { return Identity::default() };
    Identity {
        key: key(metadata),
        uid: json::text_member(metadata, "uid"),
        resource_version: json::text_member(metadata, "resourceVersion"),
        deletion_timestamp: json::text_member(metadata, "deletionTimestamp"),
        finalizers: elements(json::member(metadata, "finalizers")),
        owners: owners(json::member(metadata, "ownerReferences")),
    }
}

pub(super) fn owners(array: Option<&[u8]>) -> Vec<OwnerReference> {
    let mut owners: Vec<OwnerReference> = elements(array);
    owners.retain(|owner| !owner.name.is_empty() && !owner.uid.is_empty());
    owners
}

fn key(metadata: &[u8]) -> Option<ObjectKey> {
    let name = json::text_member(metadata, "name").filter(|name| !name.is_empty())?;
    let namespace = match json::member(metadata, "namespace") {
        Some(namespace) => serde_json::from_slice::<Option<String>>(namespace).ok()?,
        None => None,
    };
    Some(ObjectKey::new(namespace.unwrap_or_default(), name))
}

/// Reads the elements of an array that can be read.
pub(super) fn elements<T: DeserializeOwned>(array: Option<&[u8]>) -> Vec<T> {
    let raw: Option<Vec<&RawValue>> = array.and_then(|array| serde_json::from_slice(array).ok());
    let elements = raw.unwrap_or_default().into_iter();
    elements.filter_map(|element| serde_json::from_str(element.get()).ok()).collect()
}

#[cfg(test)]
mod tests;

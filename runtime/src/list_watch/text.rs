//! An object's JSON, and where in it stands what is read without decoding the rest.

use std::{borrow::Cow, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;

use super::{
    identity::{Identity, Unreadable},
    json::{Borrowed, Json},
    packed::{Packed, Packing},
    part,
    places::{Places, Span},
    read, scrub,
};
use crate::object::{Object, Version};

/// An object as well-formed JSON, exact-sized, with the places of its metadata.
///
/// UID, version, labels and owners are found without a search; other metadata by a search within the metadata. What
/// stands outside is not looked at.
#[derive(Clone)]
pub struct ObjectText {
    json: Packed,
    metadata: Span,
    uid: Span,
    version: Span,
    labels: Span,
    owners: Span,
}

impl ObjectText {
    /// Takes the text of an object whose places have been found; `None` where UID or version are spelled with escapes.
    pub(super) fn found(json: &str, places: &Places, packing: Packing) -> Option<Self> {
        let plain = |span: Span| match span.of(json).map(Json::as_str) {
            Some(text) if text.starts_with('"') => (!text.contains('\\')).then(|| span.unquoted()),
            _ => Some(Span::default()),
        };
        let (uid, version) = (plain(places.uid)?, plain(places.version)?);
        let Places { metadata, labels, owners, .. } = *places;
        let json = match packing {
            Packing::None => Packed::plain(json),
            Packing::Names => Packed::from(json, metadata.range().end),
        };
        Some(Self { json, metadata, uid, version, labels, owners })
    }

    /// Returns the object as JSON: put together anew where member names are kept as codes, which takes half a microsecond.
    pub fn json(&self) -> Cow<'_, str> {
        self.json.json()
    }

    /// Returns whether another says the same, byte for byte.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // The version is nearly always what differs, and was just looked at.
        self.resource_version() == other.resource_version() && self.json == other.json
    }

    /// Counts the bytes that it is kept in.
    pub(crate) fn len(&self) -> usize {
        self.json.as_str().len()
    }

    /// Returns the UID, where there is one.
    pub fn uid(&self) -> Option<&str> {
        self.plain(self.uid)
    }

    /// Returns the resource version, where there is one.
    pub fn resource_version(&self) -> Option<&str> {
        self.plain(self.version)
    }

    /// Returns the resource version, where it can be compared.
    pub fn version(&self) -> Option<Version> {
        self.resource_version()?.parse().ok()
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        self.labels.of(self.json.as_str())?.member(key)?.decode::<Borrowed<'_>>().map(|value| value.0)
    }

    /// Returns the owners that can be read.
    pub fn owners(&self) -> Vec<OwnerReference> {
        read::owners(self.owners.of(self.json.as_str()))
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> Vec<String> {
        read::elements(self.of_metadata("finalizers"))
    }

    /// Returns when deletion was asked for, as RFC 3339 text.
    pub fn deletion_timestamp(&self) -> Option<String> {
        self.of_metadata("deletionTimestamp")?.decode()
    }

    /// Decodes the metadata alone.
    ///
    /// # Errors
    /// It does not decode; the text says why, without content.
    pub fn metadata(&self) -> Result<ObjectMeta, String> {
        serde_json::from_str(&self.json.as_str()[self.metadata.range()])
            .map_err(|error| format!("metadata: {}", scrub::without_content(&error)))
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// The object does not decode, or its type panics on it; the error has the path of the failure, and no content.
    pub fn decode<K: Object>(&self) -> Result<K, Box<Unreadable>> {
        read::typed_or_why(&self.json())
            .map_err(|error| Box::new(Unreadable { identity: self.identity(), error }))
    }

    /// Reads who the object is, each member for itself: one that can't be read hides no other.
    pub(super) fn identity(&self) -> Identity {
        let json = self.json();
        read::identity(&json, &Places::of(Json::part(&json)))
    }

    /// Decodes some fields of the object into a type that has no others.
    ///
    /// # Errors
    /// They do not decode; the text says why, without content.
    pub fn part<P: DeserializeOwned>(&self) -> Result<P, String> {
        part::part(Json::part(&self.json())).map_err(|error| scrub::without_content(&error))
    }

    fn plain(&self, span: Span) -> Option<&str> {
        Some(&self.json.as_str()[span.range()]).filter(|text| !text.is_empty())
    }

    fn of_metadata(&self, name: &str) -> Option<Json<'_>> {
        self.metadata.of(self.json.as_str())?.member(name)
    }
}

/// Shows no content.
impl fmt::Debug for ObjectText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uid, version) = (self.uid(), self.resource_version());
        f.debug_struct("ObjectText").field("uid", &uid).field("resource_version", &version).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{list_watch::RawObject, object::ObjectKey};

    fn read(json: &str) -> (ObjectKey, ObjectText) {
        let RawObject { key, text } = RawObject::new(json).unwrap();
        (key, text)
    }

    #[test]
    fn metadata_is_read_where_it_stands() {
        let (key, text) = read(
            r#"{"spec":{"metadata":{"name":"x"}},"metadata":{"uid":"u-1","labels":{"a":"b","e":"\u0066"},
            "namespace":"shop","n\u0061me":"web","resourceVersion":"17","finalizers":["f",3,"g"],
            "ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"p","controller":true},{"name":1}],
            "deletionTimestamp":"2026-01-02T03:04:05Z","generation":4}}"#,
        );
        assert_eq!(key, ObjectKey::new("shop", "web"));
        assert_eq!((text.uid(), text.version()), (Some("u-1"), Some(Version(17))));
        assert_eq!((text.label("a").as_deref(), text.label("e").as_deref()), (Some("b"), Some("f")));
        assert_eq!(text.label("none"), None);
        assert_eq!(text.finalizers(), ["f", "g"]);
        assert_eq!(text.owners().iter().map(|owner| &*owner.name).collect::<Vec<_>>(), ["o"]);
        assert_eq!(text.deletion_timestamp().as_deref(), Some("2026-01-02T03:04:05Z"));
        assert!(text.metadata().is_err(), "the owner without a UID does not decode");
    }

    #[test]
    fn what_is_absent_or_of_the_wrong_type_reads_as_absent() {
        let (key, text) = read(r#"{"metadata":{"name":"a","uid":null,"resourceVersion":7,"labels":[1]}}"#);
        assert_eq!(key, ObjectKey::cluster("a"));
        assert_eq!((text.uid(), text.resource_version(), text.label("a")), (None, None, None));
        assert!(text.owners().is_empty() && text.finalizers().is_empty());
        for json in ["", "[]", "{}", r#"{"metadata":[]}"#, r#"{"metadata":{"name":""}}"#] {
            assert!(RawObject::new(json).is_err(), "{json}");
        }
    }

    // R42
    #[test]
    fn debug_shows_no_content() {
        let (_, text) = read(r#"{"metadata":{"name":"a","uid":"u"},"data":"hunter2"}"#);
        assert!(!format!("{text:?}").contains("hunter2"));
    }
}

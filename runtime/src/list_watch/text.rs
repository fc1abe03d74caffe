//! An object's JSON, compressed, and what is at hand without decompressing it.

use std::{collections::BTreeMap, hash::BuildHasher, sync::Arc};

use foldhash::quality::FixedState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    dictionary::{Compressed, Dictionary},
    error::{Identity, Unreadable},
    json::{Raw, decoded, elements},
    read::{self, MetadataParts, ObjectParts, ObjectType},
    scrub,
};
use crate::object::{AnyObject, Object, Version};

/// An object as well-formed JSON, compressed.
///
/// UID and version are at hand. Everything else is decompressed and read when it is asked for.
#[derive(Clone)]
pub struct ObjectText {
    text: Compressed,
    /// The UID, and behind it the version.
    ids: Box<str>,
    uid: u32,
    labels: LabelFilter,
}

impl ObjectText {
    /// Takes the text of an object whose parts have been found.
    pub(super) fn new(text: &str, parts: &MetadataParts<'_>, dictionary: Option<&Arc<Dictionary>>) -> Self {
        let mut ids = parts.uid().unwrap_or_default();
        let uid = u32::try_from(ids.len()).unwrap_or_default();
        ids.push_str(&parts.resource_version().unwrap_or_default());
        let text = match dictionary {
            Some(dictionary) => dictionary.compress(text),
            None => Compressed::alone(text),
        };
        Self { text, ids: ids.into(), uid, labels: labels(parts).iter().collect() }
    }

    /// Returns the object as JSON.
    pub fn json(&self) -> String {
        self.text.text()
    }

    /// Returns whether another says the same, byte for byte.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // The version is nearly always what differs, and is at hand.
        self.ids == other.ids && self.text == other.text
    }

    /// Counts the bytes that it is kept in.
    pub(crate) fn len(&self) -> usize {
        self.text.len() + self.ids.len()
    }

    /// Returns what others of its kind are compressed with.
    pub(super) fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.text.dictionary()
    }

    /// Returns the UID, if it has one.
    pub fn uid(&self) -> Option<&str> {
        self.ids.get(..self.uid as usize).filter(|uid| !uid.is_empty())
    }

    /// Returns the resource version, if it has one.
    pub fn resource_version(&self) -> Option<&str> {
        self.ids.get(self.uid as usize..).filter(|version| !version.is_empty())
    }

    /// Returns the resource version, if it can be compared.
    pub fn version(&self) -> Option<Version> {
        self.resource_version()?.parse().ok()
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<String> {
        self.read(labels).remove(key)
    }

    /// Returns a digest of the labels, which rules out most selectors without decompressing anything.
    pub(crate) fn label_filter(&self) -> LabelFilter {
        self.labels
    }

    /// Returns the owners that can be read.
    pub fn owners(&self) -> Vec<OwnerReference> {
        self.read(|parts| parts.owners())
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> Vec<String> {
        self.read(|parts| elements(parts.finalizers))
    }

    /// Returns when deletion was asked for, as RFC 3339 text.
    pub fn deletion_timestamp(&self) -> Option<String> {
        self.read(|parts| decoded(parts.deletion_timestamp))
    }

    /// Decodes the metadata alone.
    ///
    /// # Errors
    /// It does not decode; the text says why, without content.
    pub fn metadata(&self) -> Result<ObjectMeta, String> {
        #[derive(Deserialize)]
        struct OfMetadata {
            metadata: ObjectMeta,
        }
        let decoded = serde_json::from_str(&self.json());
        let decoded = decoded.map(|OfMetadata { metadata }| metadata);
        decoded.map_err(|error| format!("metadata: {}", scrub::without_content(&error)))
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// The object does not decode, or its type panics on it; the error has the path of the failure, and no content.
    pub fn decode<K: Object>(&self) -> Result<K, Box<Unreadable>> {
        read::typed_or_why(&self.json())
            .map_err(|error| Box::new(Unreadable { identity: self.identity(), error }))
    }

    /// Decodes the object into a type that is then forgotten.
    pub(crate) fn decode_as(&self, object: ObjectType) -> Result<Arc<dyn AnyObject>, Box<Unreadable>> {
        (object.whole)(&self.json())
            .map_err(|error| Box::new(Unreadable { identity: self.identity(), error }))
    }

    /// Reads who the object is, each member by itself: one that can't be read hides no other.
    pub(crate) fn identity(&self) -> Identity {
        self.read(|parts| parts.identity())
    }

    /// Decodes some fields of the object into a type that has no others.
    ///
    /// # Errors
    /// They do not decode; the text says why, without content.
    pub fn part<P: DeserializeOwned>(&self) -> Result<P, String> {
        serde_json::from_str(&self.json()).map_err(|error| scrub::without_content(&error))
    }

    fn read<T>(&self, read: impl FnOnce(&MetadataParts<'_>) -> T) -> T {
        let json = self.json();
        read(&ObjectParts::of(&json).unwrap_or_default().metadata)
    }
}

/// Reads the labels whose values are strings.
fn labels(parts: &MetadataParts<'_>) -> BTreeMap<String, String> {
    let labels: BTreeMap<String, &RawValue> = decoded(parts.labels).unwrap_or_default();
    labels.into_iter().filter_map(|(key, value)| Some((key, decoded(Raw(Some(value)))?))).collect()
}

// Shows no content.
impl_debug!(ObjectText, this => uid: this.uid(), resource_version: this.resource_version());

/// Digests labels into 64 bits: a bit of another digest is missing only if one of its labels is.
///
/// It is kept next to each stored object, so that a scan does not touch most of what does not match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelFilter(u64);

impl LabelFilter {
    /// Digests one label into four bits, seldom fewer: few labels then look alike.
    pub(crate) fn of(key: &str, value: &str) -> Self {
        // The same in every run: labels made to collide only cost a scan what it saves.
        let hash = FixedState::with_seed(0).hash_one((key, value));
        Self([0, 6, 12, 18].iter().fold(0, |bits, shift| bits | 1 << (hash >> shift & 63)))
    }

    #[inline]
    pub(crate) fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl<'l> FromIterator<(&'l String, &'l String)> for LabelFilter {
    fn from_iter<I: IntoIterator<Item = (&'l String, &'l String)>>(labels: I) -> Self {
        Self(labels.into_iter().fold(0, |bits, (key, value)| bits | Self::of(key, value).0))
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
    fn what_is_absent_or_of_another_type_reads_as_absent() {
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

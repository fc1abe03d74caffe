//! An object's JSON, and where in it stands what is read without decoding the rest.

use std::{borrow::Cow, fmt, ops::Range};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;

use super::{
    decode,
    item::Unreadable,
    json,
    lean::{Context, ManagedFields, TypeNames},
    scrub,
};
use crate::object::{Object, ObjectKey, Version};

/// An object as JSON text, exact-sized, with the places of its metadata.
///
/// UID, version, labels and owners are found without a search; other metadata by a search within the metadata. What
/// stands outside is not looked at.
#[derive(Clone)]
pub struct ObjectText {
    json: Box<str>,
    places: Places,
}

#[derive(Clone, Copy)]
struct Places {
    metadata: Span,
    uid: Span,
    version: Span,
    labels: Span,
    owners: Span,
}

/// Where in an object's text its metadata stand, and some of their members.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) whole: Range<usize>,
    pub(super) uid: Option<Range<usize>>,
    pub(super) version: Option<Range<usize>>,
    pub(super) labels: Option<Range<usize>>,
    pub(super) owners: Option<Range<usize>>,
}

/// A part of the text; an empty one stands for what is not there.
#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Finds the place of a slice of the text.
    fn of(part: &[u8], text: &str) -> Self {
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        Self { start: short(start), end: short(start + part.len()) }
    }

    /// Leaves out the quotes of a string that holds no escapes; empty for anything else.
    fn unquoted(self, text: &str) -> Self {
        let plain = text[self.range()].strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        match plain {
            Some(plain) if !plain.contains('\\') => Self { start: self.start + 1, end: self.end - 1 },
            _ => Self::default(),
        }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl From<&Range<usize>> for Span {
    fn from(range: &Range<usize>) -> Self {
        Self { start: short(range.start), end: short(range.end) }
    }
}

/// Texts of 4 GiB are refused before.
fn short(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Places {
    fn find(json: &str) -> Option<(ObjectKey, Self)> {
        u32::try_from(json.len()).ok()?;
        let metadata = json::member(json.as_bytes(), "metadata")?;
        let [mut uid, mut version, mut labels, mut owners] = [Span::default(); 4];
        let (mut name, mut namespace) = (None, None);
        for (key, value) in json::members(metadata) {
            let place = Span::of(value, json);
            if json::key_is(key, "name") {
                name = serde_json::from_slice::<Cow<'_, str>>(value).ok();
            } else if json::key_is(key, "namespace") {
                namespace = serde_json::from_slice::<Option<Cow<'_, str>>>(value).ok()?;
            } else if json::key_is(key, "uid") {
                uid = place.unquoted(json);
            } else if json::key_is(key, "resourceVersion") {
                version = place.unquoted(json);
            } else if json::key_is(key, "labels") {
                labels = place;
            } else if json::key_is(key, "ownerReferences") {
                owners = place;
            }
        }
        let name = name.filter(|name| !name.is_empty())?;
        let key = ObjectKey::new(namespace.unwrap_or_default(), name);
        let metadata = Span::of(metadata, json);
        Some((key, Self { metadata, uid, version, labels, owners }))
    }
}

impl ObjectText {
    /// Finds the places in a text; gives back what is no object with a name.
    pub(super) fn read(json: Box<str>) -> Result<(ObjectKey, Self), Box<str>> {
        match Places::find(&json) {
            Some((key, places)) => Ok((key, Self { json, places })),
            None => Err(json),
        }
    }

    /// Takes a text whose places have been found, less than 4 GiB of it.
    pub(super) fn found(json: Box<str>, at: &Metadata) -> Self {
        let span = |range: &Option<Range<usize>>| range.as_ref().map(Span::from).unwrap_or_default();
        let places = Places {
            metadata: Span::from(&at.whole),
            uid: span(&at.uid).unquoted(&json),
            version: span(&at.version).unquoted(&json),
            labels: span(&at.labels),
            owners: span(&at.owners),
        };
        Self { json, places }
    }

    /// Returns the object as JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the UID, where there is one.
    pub fn uid(&self) -> Option<&str> {
        self.text(self.places.uid)
    }

    /// Returns the resource version, where there is one.
    pub fn resource_version(&self) -> Option<&str> {
        self.text(self.places.version)
    }

    /// Returns the resource version, where it can be compared.
    pub fn version(&self) -> Option<Version> {
        self.resource_version()?.parse().ok()
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        serde_json::from_slice::<Borrowed<'_>>(json::member(self.bytes(self.places.labels), key)?)
            .ok()
            .map(|value| value.0)
    }

    /// Returns the owners that can be read.
    pub fn owners(&self) -> Vec<OwnerReference> {
        match self.text(self.places.owners) {
            Some(array) => decode::owners(Some(array.as_bytes())),
            None => Vec::new(),
        }
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> Vec<String> {
        decode::elements(json::member(self.bytes(self.places.metadata), "finalizers"))
    }

    /// Returns when deletion was asked for, as RFC 3339 text.
    pub fn deletion_timestamp(&self) -> Option<String> {
        json::text_member(self.bytes(self.places.metadata), "deletionTimestamp")
    }

    /// Decodes the metadata alone.
    ///
    /// # Errors
    /// It does not decode; the text says why, without content.
    pub fn metadata(&self) -> Result<ObjectMeta, String> {
        serde_json::from_slice(self.bytes(self.places.metadata))
            .map_err(|error| format!("metadata: {}", scrub::without_content(&error)))
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// It does not decode; the path of the failure is told, and no content.
    pub fn decode<K: Object>(&self) -> Result<K, Box<Unreadable>> {
        serde_json::from_str(&self.json).map_err(|error| {
            // The type was filled in on arrival, and managedFields were dealt with.
            let context = Context {
                names: TypeNames { api_version: "", kind: "" },
                managed_fields: ManagedFields::Keep,
                of_another_type: false.into(),
            };
            let reason = scrub::without_content(&error);
            let error = match decode::path_of_failure::<K>(self.json.as_bytes(), &context) {
                Some(path) => format!("{path}: {reason}"),
                None => reason,
            };
            Box::new(Unreadable { identity: decode::identity(self.json.as_bytes()), error })
        })
    }

    /// Decodes some fields of the object into a type that has no others.
    ///
    /// # Errors
    /// They do not decode; the text says why, without content.
    pub fn part<P: DeserializeOwned>(&self) -> Result<P, String> {
        serde_json::from_str(&self.json).map_err(|error| scrub::without_content(&error))
    }

    fn bytes(&self, span: Span) -> &[u8] {
        self.json[span.range()].as_bytes()
    }

    fn text(&self, span: Span) -> Option<&str> {
        Some(&self.json[span.range()]).filter(|text| !text.is_empty())
    }
}

/// A string that is borrowed where it holds no escapes.
#[derive(serde::Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

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

    fn read(json: &str) -> (ObjectKey, ObjectText) {
        ObjectText::read(json.into()).unwrap()
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
            assert!(ObjectText::read(json.into()).is_err(), "{json}");
        }
    }

    // R42
    #[test]
    fn debug_shows_no_content() {
        let (_, text) = read(r#"{"metadata":{"name":"a","uid":"u"},"data":"hunter2"}"#);
        assert!(!format!("{text:?}").contains("hunter2"));
    }
}

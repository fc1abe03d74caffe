//! Reads an object: into its type, or only what says who it is.

use std::{any::TypeId, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::value::RawValue;

use super::{
    error::Identity,
    json::{self, Raw, decoded, elements},
    members::{ManagedFields, Noting, SeenMembers},
    scrub,
};
use crate::{
    object::{AnyObject, Object, ObjectKey},
    users_code::contained,
};

/// Longest path inside an object that an error repeats.
const LONGEST_PATH: usize = 200;

pub(super) const NO_NAME: &str = "metadata.name: missing";

/// Decodes a text into its type in one pass, and notes its members; `None` if that fails.
pub(super) fn typed<K: DeserializeOwned>(text: &str, seen: &mut SeenMembers) -> Option<K> {
    let decode = || {
        let mut inner = serde_json::Deserializer::from_str(text);
        let decoded = K::deserialize(Noting::new(&mut inner, seen))?;
        inner.end().map(|()| decoded)
    };
    contained(decode)?.ok()
}

/// Decodes a text into its type, a user's; a panic of the type is a failure like others.
///
/// # Errors
/// Why it does not decode, with the path of the failure and without content.
pub(super) fn typed_or_why<K: DeserializeOwned>(text: &str) -> Result<K, String> {
    let typed = typed(text, &mut SeenMembers::new(ManagedFields::Keep));
    typed.map_or_else(|| typed_slowly(text), Ok)
}

/// Decodes a text into its type, slowly, to find where it fails.
pub(super) fn typed_slowly<K: DeserializeOwned>(text: &str) -> Result<K, String> {
    let decode = || {
        let mut inner = serde_json::Deserializer::from_str(text);
        let decoded = serde_path_to_error::deserialize(&mut inner).map_err(why)?;
        inner.end().map(|()| decoded).map_err(|error| scrub::without_content(&error))
    };
    contained(decode).unwrap_or_else(|| Err("its type panicked as it was decoded".to_owned()))
}

fn why(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path: String = error.path().to_string().chars().take(LONGEST_PATH).collect();
    let reason = scrub::without_content(error.inner());
    if path == "." || path.is_empty() { reason } else { format!("{path}: {reason}") }
}

/// How texts become objects of one type, which is then forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectType {
    pub(crate) id: TypeId,
    /// Names the type, for messages.
    pub(crate) name: &'static str,
    /// Decodes a text in one pass, and notes its members; `None` if that fails.
    pub(super) usual: fn(&str, &mut SeenMembers) -> Option<Arc<dyn AnyObject>>,
    /// Decodes a text, or says why that fails.
    pub(super) whole: fn(&str) -> Result<Arc<dyn AnyObject>, String>,
}

impl ObjectType {
    pub(crate) fn of<K: Object>() -> Self {
        Self {
            id: TypeId::of::<K>(),
            name: std::any::type_name::<K>(),
            usual: |text, seen| Some(Arc::new(typed::<K>(text, seen)?)),
            whole: |text| Ok(Arc::new(typed_or_why::<K>(text)?)),
        }
    }
}

/// What says who and of what type an object is, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ObjectParts<'a> {
    api_version: Raw<'a>,
    kind: Raw<'a>,
    /// The metadata's; all absent if the metadata is not an object.
    #[serde(borrow, deserialize_with = "metadata")]
    pub(super) metadata: MetadataParts<'a>,
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MetadataParts<'de>, D::Error> {
    let metadata = <&RawValue>::deserialize(deserializer)?.get();
    match metadata.starts_with('{') {
        true => serde_json::from_str(metadata).map_err(Error::custom),
        false => Ok(MetadataParts::default()),
    }
}

/// The members of an object's metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct MetadataParts<'a> {
    name: Raw<'a>,
    namespace: Raw<'a>,
    uid: Raw<'a>,
    resource_version: Raw<'a>,
    pub(super) labels: Raw<'a>,
    pub(super) annotations: Raw<'a>,
    pub(super) owner_references: Raw<'a>,
    managed_fields: Raw<'a>,
    pub(super) deletion_timestamp: Raw<'a>,
    pub(super) finalizers: Raw<'a>,
}

impl<'a> ObjectParts<'a> {
    /// Finds the parts of an object, and checks that all of its text is JSON.
    ///
    /// # Errors
    /// It is not JSON, not an object, or says something twice that says who or of what type it is.
    pub(super) fn of(text: &'a str) -> Result<Self, serde_json::Error> {
        json::object(text)
    }

    /// Returns apiVersion and kind, as far as the object says them.
    pub(super) fn type_names(&self) -> (Option<String>, Option<String>) {
        (decoded(self.api_version), decoded(self.kind))
    }

    /// Returns the object's text as a compact cache keeps it: without managedFields, and with its type.
    pub(super) fn lean(&self, text: &str, types: (&str, &str), managed_fields: ManagedFields) -> String {
        let mut lean = String::with_capacity(text.len());
        let (start, end) = (text.find('{').map_or(0, |at| at + 1), text.len());
        lean.push('{');
        for (said, key, value) in [(self.api_version, "apiVersion", types.0), (self.kind, "kind", types.1)] {
            if said.0.is_none() {
                lean.extend(["\"", key, "\":\"", value, "\","]);
            }
        }
        match self.metadata.managed_fields.0 {
            Some(value) if managed_fields == ManagedFields::Drop => {
                let cut = member_around(text, value.get());
                lean.extend([&text[start..cut.start], &text[cut.end..end]]);
            }
            _ => lean.push_str(&text[start..end]),
        }
        lean
    }
}

/// Finds a member with its comma, in a text in which its value is written; its key holds no escaped quote.
fn member_around(text: &str, value: &str) -> std::ops::Range<usize> {
    let start = value.as_ptr() as usize - text.as_ptr() as usize;
    let end = start + value.len();
    let key = text[..start].trim_end().trim_end_matches(':').trim_end().trim_end_matches('"');
    let key = key.rfind('"').unwrap_or_default();
    let (before, after) = (text[..key].trim_end(), text[end..].trim_start());
    match (before.strip_suffix(','), after.strip_prefix(',')) {
        (Some(before), _) => before.len()..end,
        (None, Some(after)) => key..text.len() - after.len(),
        (None, None) => key..end,
    }
}

impl MetadataParts<'_> {
    pub(super) fn uid(&self) -> Option<String> {
        decoded(self.uid)
    }

    pub(super) fn resource_version(&self) -> Option<String> {
        decoded(self.resource_version)
    }

    /// Reads the key.
    ///
    /// # Errors
    /// It has no name, or what it has is not one.
    pub(super) fn key(&self) -> Result<ObjectKey, &'static str> {
        let unreadable = "metadata: name or namespace can't be read";
        if self.name.0.is_none() {
            return Err(NO_NAME);
        }
        let name: String = decoded(self.name).ok_or(unreadable)?;
        let namespace = json::text_or_empty(self.namespace).ok_or(unreadable)?;
        if name.is_empty() { Err(unreadable) } else { Ok(ObjectKey::new(namespace, name)) }
    }

    /// Reads who the object is, each member by itself: one that can't be read hides no other.
    pub(super) fn identity(&self) -> Identity {
        Identity {
            key: self.key().ok(),
            uid: self.uid(),
            resource_version: self.resource_version(),
            deletion_timestamp: decoded(self.deletion_timestamp),
            finalizers: elements(self.finalizers),
            owners: self.owners(),
        }
    }

    /// Reads the owners that can be read.
    pub(super) fn owners(&self) -> Vec<OwnerReference> {
        let mut owners: Vec<OwnerReference> = elements(self.owner_references);
        owners.retain(|owner| !owner.name.is_empty() && !owner.uid.is_empty());
        owners
    }
}

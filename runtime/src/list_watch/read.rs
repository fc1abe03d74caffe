//! Reads what an object says of itself, where its places are known.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{
    identity::Identity,
    json::{Borrowed, Json},
    members::{ManagedFields, Seen, Whole},
    places::{Places, Refused},
    scrub,
};
use crate::{object::ObjectKey, users_code::contained};

/// Longest path inside an object that an error repeats.
const LONGEST_PATH: usize = 200;

pub(super) const NO_NAME: &str = "metadata.name: missing";

/// Decodes a text into its type, a user's; a panic there is a failure like others.
pub(super) fn typed<K: DeserializeOwned>(json: &str, seen: &mut Seen) -> Result<K, Failure> {
    let decode = || {
        let mut inner = serde_json::Deserializer::from_str(json);
        let decoded = K::deserialize(Whole { inner: &mut inner, seen })?;
        inner.end().map(|()| decoded)
    };
    let decoded = contained(decode);
    decoded.ok_or(Failure::Panic)?.map_err(Failure::Refused)
}

/// Why a text does not become its type.
#[derive(Debug)]
pub(super) enum Failure {
    Panic,
    Refused(serde_json::Error),
}

/// Decodes a well-formed text into its type.
///
/// # Errors
/// Why it does not decode, with the path of the failure and without content.
pub(super) fn typed_or_why<K: DeserializeOwned>(json: &str) -> Result<K, String> {
    typed(json, &mut Seen::nothing(ManagedFields::Keep)).map_err(|failure| match failure {
        Failure::Panic => "its type panicked as it was decoded".to_owned(),
        Failure::Refused(error) => {
            let reason = scrub::without_content(&error);
            match path_of_failure::<K>(json) {
                Some(path) => format!("{path}: {reason}"),
                None => reason,
            }
        }
    })
}

/// Decodes once more, slowly, to learn where it fails.
fn path_of_failure<K: DeserializeOwned>(json: &str) -> Option<String> {
    let mut json = serde_json::Deserializer::from_str(json);
    let error = serde_path_to_error::deserialize::<_, K>(&mut json).err()?;
    let path: String = error.path().to_string().chars().take(LONGEST_PATH).collect();
    (path != "." && !path.is_empty()).then_some(path)
}

/// Reads the key of an object of which something may be made.
///
/// # Errors
/// Why nothing may be made of it.
pub(super) fn checked_key(json: &str, places: &Places) -> Result<ObjectKey, String> {
    admitted(places)?;
    key(json, places).ok_or_else(|| "metadata: name or namespace can't be read".to_owned())
}

/// Returns whether something may be made of an object.
pub(super) fn admitted(places: &Places) -> Result<(), String> {
    let refused = match places.refused {
        Some(Refused::Ambiguous) => "it says twice who or of what type it is",
        Some(Refused::TooDeep) => "it is nested too deep",
        None if places.name.is_empty() => NO_NAME,
        None => return Ok(()),
    };
    Err(refused.to_owned())
}

/// Reads who an object is, each member for itself: one that can't be read hides no other.
///
/// Where the object contradicts itself, that is nobody.
pub(super) fn identity(json: &str, places: &Places) -> Identity {
    if places.refused == Some(Refused::Ambiguous) {
        return Identity::default();
    }
    let text = |member: Option<Json<'_>>| member.and_then(Json::decode);
    let of_metadata = |name| places.metadata.of(json).and_then(|metadata| metadata.member(name));
    Identity {
        key: key(json, places),
        uid: text(places.uid.of(json)),
        resource_version: text(places.version.of(json)),
        deletion_timestamp: text(of_metadata("deletionTimestamp")),
        finalizers: elements(of_metadata("finalizers")),
        owners: owners(places.owners.of(json)),
    }
}

pub(super) fn owners(array: Option<Json<'_>>) -> Vec<OwnerReference> {
    let mut owners: Vec<OwnerReference> = elements(array);
    owners.retain(|owner| !owner.name.is_empty() && !owner.uid.is_empty());
    owners
}

fn key(json: &str, places: &Places) -> Option<ObjectKey> {
    let name = places.name.of(json)?.decode::<Borrowed<'_>>()?.0;
    let namespace = match places.namespace.of(json) {
        Some(namespace) => namespace.decode::<Option<Borrowed<'_>>>()?,
        None => None,
    };
    let namespace = namespace.map(|namespace| namespace.0).unwrap_or_default();
    (!name.is_empty()).then(|| ObjectKey::new(namespace, name))
}

/// Reads the elements of an array that can be read.
pub(super) fn elements<T: DeserializeOwned>(array: Option<Json<'_>>) -> Vec<T> {
    let raw: Option<Vec<&RawValue>> = array.and_then(Json::decode);
    let elements = raw.unwrap_or_default().into_iter();
    elements.filter_map(|element| serde_json::from_str(element.get()).ok()).collect()
}

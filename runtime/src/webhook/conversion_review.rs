//! Reads a review of conversions: each of its objects by itself, so that one that can't be read is named.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{object::ObjectKey, plain::plain};

/// The objects of a review, as they are written.
pub(super) type ObjectTexts<'a> = Option<Vec<&'a RawValue>>;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ConversionReview<'a> {
    api_version: Value,
    kind: Value,
    request: Option<ConversionRequest<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ConversionRequest<'a> {
    uid: Value,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: Value,
    objects: ObjectTexts<'a>,
}

/// What names an object; the rest may be nested too deeply.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Named {
    api_version: String,
    kind: String,
    metadata: NamedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedMetadata {
    namespace: String,
    name: String,
}

/// Reads a review, and returns its objects apart from it.
pub(super) fn read(body: &[u8]) -> serde_json::Result<(Value, ObjectTexts<'_>)> {
    let ConversionReview { api_version, kind, request } = serde_json::from_slice(body)?;
    let ConversionRequest { uid, desired_api_version, objects } = request.unwrap_or_default();
    let request = json!({"uid": uid, "desiredAPIVersion": desired_api_version});
    Ok((json!({"apiVersion": api_version, "kind": kind, "request": request}), objects))
}

/// Reads one object.
///
/// # Errors
/// Names the object, and says why it can't be read.
pub(super) fn object(raw: &RawValue) -> Result<Value, String> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let Named { api_version, kind, metadata } = serde_json::from_str(raw.get()).unwrap_or_default();
        let key = ObjectKey::new(metadata.namespace, metadata.name);
        format!("{} {key} of {} can't be read: {error}", plain(&kind), plain(&api_version))
    })
}

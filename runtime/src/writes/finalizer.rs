//! Finalizers, added and removed by JSON patch with guards, so that concurrent edits lose nothing.

use http::Method;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    WriteError,
    request::{Content, Request, Target},
    writer::Writer,
};

/// How often a removal that met a concurrent edit looks again.
const LOOKS: usize = 3;
/// What the server says when a `test` of a JSON patch fails.
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

/// Adds a finalizer; returns the object that has it, or `None` where the object is gone.
///
/// # Errors
/// A concurrent edit is [`WriteError::Conflict`].
pub(crate) async fn add_finalizer<K: DeserializeOwned>(
    writer: &Writer,
    target: &Target,
    meta: &ObjectMeta,
    finalizer: &str,
) -> Result<Option<K>, WriteError> {
    let present = meta.finalizers.as_deref().unwrap_or_default();
    let mut patch = vec![json!({ "op": "test", "path": "/metadata/uid", "value": meta.uid })];
    if present.is_empty() {
        // There is no list to test: only the version tells that nobody else has just made one.
        patch.push(
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version }),
        );
        patch.push(json!({ "op": "add", "path": "/metadata/finalizers", "value": [finalizer] }));
    } else {
        patch.push(json!({ "op": "test", "path": "/metadata/finalizers", "value": present }));
        patch.push(json!({ "op": "add", "path": "/metadata/finalizers/-", "value": finalizer }));
    }
    match send(writer, target, Value::Array(patch)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a finalizer from the object with this UID; one that is not there is removed already.
///
/// # Errors
/// [`WriteError::Conflict`] where concurrent edits kept it from being removed.
pub(crate) async fn remove_finalizer(
    writer: &Writer,
    target: &Target,
    meta: &ObjectMeta,
    finalizer: &str,
) -> Result<(), WriteError> {
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    let uid = meta.uid.clone().unwrap_or_default();
    for _ in 0..LOOKS {
        let Some(at) = finalizers.iter().position(|present| present == finalizer) else { return Ok(()) };
        let patch = json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "test", "path": format!("/metadata/finalizers/{at}"), "value": finalizer },
            { "op": "remove", "path": format!("/metadata/finalizers/{at}") },
        ]);
        match send::<Value>(writer, target, patch).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        let Some(found) = writer.fetch(target).await? else { return Ok(()) };
        if found["metadata"]["uid"] != json!(uid) {
            return Ok(());
        }
        finalizers = serde_json::from_value(found["metadata"]["finalizers"].clone()).unwrap_or_default();
    }
    Err(WriteError::conflict(target.to_string(), "its finalizers keep changing"))
}

async fn send<T: DeserializeOwned>(writer: &Writer, target: &Target, patch: Value) -> Result<T, WriteError> {
    let request = Request {
        verb: "patch the finalizers of",
        method: Method::PATCH,
        target,
        subresource: "",
        query: writer.query(),
        content: Content::JsonPatch(patch),
    };
    request.send(writer.client()).await.map(|answer| answer.object).map_err(|error| match error {
        WriteError::Refused { object, status, .. } if status.code == 422 && status.message == TEST_FAILED => {
            WriteError::conflict(object, "its finalizers or its version changed")
        }
        error => error,
    })
}

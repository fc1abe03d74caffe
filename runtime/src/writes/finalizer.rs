//! Finalizers, added and removed by JSON patch with guards, so that concurrent edits lose nothing.

use futures::future::BoxFuture;
use http::Method;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    WriteError,
    expectation::Expectation,
    request::{Answer, Content, Path, Request, Target},
    writer::{Proof, Writer},
};
use crate::object::Version;

/// What these requests are, in messages.
const VERB: &str = "patch the finalizers of";
/// How often a removal that met a concurrent edit looks again.
const LOOKS: usize = 3;
/// What the server says of a finalizer that would be new on an object whose deletion has begun.
const TOO_LATE: &str = "no new finalizers can be added if the object is being deleted";
/// What the server says when a `test` of a JSON patch fails.
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

/// Adds a finalizer; returns the object that has it, or `None` where the object is gone or about to go.
///
/// # Errors
/// A concurrent edit is [`WriteError::Conflict`]: the key waits until its cache shows the edit.
pub(crate) async fn add_finalizer<K: DeserializeOwned>(
    writer: &Writer,
    target: &Target,
    meta: &ObjectMeta,
    finalizer: &str,
) -> Result<Option<K>, WriteError> {
    let Some(answer) = add(writer, target, meta, finalizer).await? else { return Ok(None) };
    serde_json::from_value(answer).map(Some).map_err(|error| WriteError::Codec {
        verb: VERB,
        object: Box::new(target.clone()),
        problem: format!("the answer does not decode (line {})", error.line()),
    })
}

/// Knows no type of the user's, and is boxed, as all here: it is compiled once.
fn add<'a>(
    writer: &'a Writer,
    target: &'a Target,
    meta: &'a ObjectMeta,
    finalizer: &'a str,
) -> BoxFuture<'a, Result<Option<Value>, WriteError>> {
    Box::pin(async move {
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
            Ok(answer) => {
                let tested = meta.resource_version.clone().filter(|_| present.is_empty());
                let proof = tested.map_or(Proof::None, Proof::Carried);
                writer.learn(&target.key, target, &answer, &proof, None);
                Ok(Some(answer.object))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(WriteError::Invalid { status, .. }) if status.message.contains(TOO_LATE) => {
                tracing::debug!(object = %target, "its deletion began: no finalizer is added");
                Ok(None)
            }
            Err(error) => {
                if let Some(base) = Version::of_meta(meta).filter(|_| error.is_conflict()) {
                    writer.wait_for(&target.key, target, &Expectation::NewerThan(base));
                    // A cache that shows something else than there is would be in conflict for ever.
                    writer.fetch(target).await?;
                }
                Err(error)
            }
        }
    })
}

/// What became of a finalizer that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It is off the object, by this request or before it.
    Released,
    /// The server says that there is no such object.
    NotFound,
}

/// Removes a finalizer from the object with this UID; one that is not there is removed already.
///
/// # Errors
/// [`WriteError::Conflict`] where concurrent edits kept it from being removed.
pub(crate) fn remove_finalizer<'a>(
    writer: &'a Writer,
    target: &'a Target,
    meta: &'a ObjectMeta,
    finalizer: &'a str,
) -> BoxFuture<'a, Result<Removed, WriteError>> {
    Box::pin(async move {
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        let uid = meta.uid.clone().unwrap_or_default();
        for _ in 0..LOOKS {
            let Some(at) = finalizers.iter().position(|present| present == finalizer) else {
                return Ok(Removed::Released);
            };
            let patch = json!([
                { "op": "test", "path": "/metadata/uid", "value": uid },
                { "op": "test", "path": format!("/metadata/finalizers/{at}"), "value": finalizer },
                { "op": "remove", "path": format!("/metadata/finalizers/{at}") },
            ]);
            match send(writer, target, patch).await {
                Ok(_) => {
                    let finalizer = finalizer.to_owned();
                    writer.wait_for(&target.key, target, &Expectation::Released { uid, finalizer });
                    return Ok(Removed::Released);
                }
                Err(error) if error.is_not_found() => return Ok(Removed::NotFound),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
            let Some(found) = writer.fetch(target).await? else { return Ok(Removed::NotFound) };
            if found["metadata"]["uid"] != json!(uid) {
                return Ok(Removed::Released);
            }
            finalizers = serde_json::from_value(found["metadata"]["finalizers"].clone()).unwrap_or_default();
        }
        Err(WriteError::conflict(target, "its finalizers keep changing"))
    })
}

async fn send(writer: &Writer, target: &Target, patch: Value) -> Result<Answer, WriteError> {
    let request = Request {
        verb: VERB,
        method: Method::PATCH,
        target,
        path: Path::Object,
        query: writer.query(),
        content: Content::JsonPatch(patch),
    };
    writer.write(&target.key, request).await.map_err(|error| match error {
        WriteError::Invalid { object, status, .. } if status.message == TEST_FAILED => {
            WriteError::conflict(&object, "its finalizers or its version changed")
        }
        error => error,
    })
}

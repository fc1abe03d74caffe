//! Finalizers, added and removed by JSON patch with guards, so that concurrent edits lose nothing.

use futures::future::BoxFuture;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    WriteError,
    child::decode,
    request::{ApiResponse, ApiVerb, MediaType, ObjectRequest, Target},
    writer::Writer,
};
use crate::{keys::Expectation, object::Version};

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
    let added = add(writer, target, meta, finalizer).await?;
    added.map(|answer| decode(VERB, target, answer)).transpose()
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
        // Without a list to test, only the version proves that no one has just added one.
        let tested = meta.resource_version.as_deref().filter(|_| present.is_empty());
        let test = |path: &str, value: Value| json!({ "op": "test", "path": path, "value": value });
        let add = |path: &str, value: Value| json!({ "op": "add", "path": path, "value": value });
        let (expected, added) = match present.is_empty() {
            true => (
                test("/metadata/resourceVersion", json!(meta.resource_version)),
                add("/metadata/finalizers", json!([finalizer])),
            ),
            false => (
                test("/metadata/finalizers", json!(present)),
                add("/metadata/finalizers/-", json!(finalizer)),
            ),
        };
        let uid = test("/metadata/uid", json!(meta.uid));
        match send(writer, target, json!([uid, expected, added])).await {
            Ok(answer) => {
                writer.learn(&target.key, target, &answer, tested, None);
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

async fn send(writer: &Writer, target: &Target, patch: Value) -> Result<ApiResponse, WriteError> {
    let request = ObjectRequest::new(VERB, ApiVerb::Patch, target, MediaType::JsonPatch, patch);
    writer.write(&target.key, request).await.map_err(|error| match error {
        WriteError::Invalid { object, status, .. } if status.message == TEST_FAILED => {
            WriteError::conflict(&object, "its finalizers or its version changed")
        }
        error => error,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http::{Method, Response, StatusCode};
    use kube::client::Body;
    use prometheus_client::metrics::counter::Counter;

    use super::*;
    use crate::{
        keys::Keys,
        object::{Kind, ObjectKey, Scope},
        writes::{Author, Counters, Rights, Sender},
    };

    /// What a server does with a patch of one object, whose tests and removals it knows.
    fn patched(object: &mut Value, patch: &Value) -> (StatusCode, Value) {
        let steps = patch.as_array().unwrap();
        let at = |object: &Value, step: &Value| object.pointer(step["path"].as_str().unwrap()).cloned();
        let refused =
            steps.iter().any(|step| step["op"] == "test" && at(object, step).as_ref() != step.get("value"));
        if refused {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
                "message": TEST_FAILED,
            });
            return (StatusCode::UNPROCESSABLE_ENTITY, status);
        }
        object["metadata"]["finalizers"] = json!([]);
        (StatusCode::OK, object.clone())
    }

    /// A writer to a server that holds one object.
    fn writer(object: &Arc<Mutex<Value>>) -> Arc<Writer> {
        let object = object.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let object = object.clone();
            async move {
                let is_patch = request.method() == Method::PATCH;
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut object = object.lock().unwrap();
                let (code, answer) = match is_patch {
                    true => patched(&mut object, &serde_json::from_slice(&body).unwrap()),
                    false => (StatusCode::OK, object.clone()),
                };
                let body = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let sender = Sender::new(kube::Client::new(service, "default"));
        let author =
            Author { controller: "test".into(), field_manager: "test".into(), declared: Rights::default() };
        let counters = Counters { overdue: Counter::default(), contradicted: Counter::default() };
        Writer::new(sender, author, Vec::new(), Keys::alone(), false, counters)
    }

    // W24
    #[tokio::test(start_paused = true)]
    async fn a_successor_of_the_same_name_keeps_its_finalizer() {
        const FINALIZER: &str = "example.dev/kept";
        let kind = Kind {
            group: "".into(),
            version: "v1".into(),
            kind: "Pod".into(),
            plural: "pods".into(),
            scope: Scope::Namespaced,
        };
        let target = Target { kind, key: ObjectKey::new("shop", "pod") };
        let cleaned = ObjectMeta {
            uid: Some("first".into()),
            finalizers: Some(vec![FINALIZER.into()]),
            ..ObjectMeta::default()
        };
        for (there, left) in [("first", 0), ("second", 1)] {
            let meta =
                json!({ "name": "pod", "uid": there, "resourceVersion": "7", "finalizers": [FINALIZER] });
            let object = Arc::new(Mutex::new(json!({ "metadata": meta })));
            let removed = remove_finalizer(&writer(&object), &target, &cleaned, FINALIZER).await;
            assert_eq!(removed.unwrap(), Removed::Released);
            let finalizers = object.lock().unwrap()["metadata"]["finalizers"].clone();
            assert_eq!(finalizers.as_array().map(Vec::len), Some(left), "{there}");
        }
    }
}

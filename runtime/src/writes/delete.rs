//! Deletion of the object that was read, and of no other of its name.

use http::Method;
use serde_json::{Value, json};

use super::{
    TypedObject, WriteError,
    pending_writes::Expectation,
    request::{Content, Path, Request, Target},
    writer::Writer,
};
use crate::{
    informer::typed_kind,
    object::{ObjectKey, Version},
};

/// Deletes an object by name and UID; one that is gone already is no error.
pub(crate) async fn delete<C: TypedObject>(
    writer: &Writer,
    key: &ObjectKey,
    object: &C,
) -> Result<(), WriteError> {
    let target = Target { kind: typed_kind::<C>(), key: ObjectKey::of(object) };
    let Some(uid) = object.meta().uid.clone().filter(|uid| !uid.is_empty()) else {
        return Err(WriteError::Unidentified { object: Box::new(target.clone()) });
    };
    let request = Request {
        verb: "delete",
        method: Method::DELETE,
        target: &target,
        path: Path::Object,
        query: String::new(),
        content: Content::Json(json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid },
        })),
    };
    let expectation = match writer.write::<Value>(key, request).await {
        Ok(answer) => left(&answer.object, &uid),
        // Gone, or another object bears the name by now.
        Err(error) if error.is_not_found() => Expectation::Gone { uid },
        Err(error) if error.is_conflict() => {
            writer.note_gone(&target, &uid);
            Expectation::Gone { uid }
        }
        Err(error) => return Err(error),
    };
    writer.forget_applied(&target);
    writer.forget_answer(key, &target);
    writer.wait_for(key, &target, &expectation);
    Ok(())
}

/// Tells whether the object is there still, marked as deleted: the server shows it then.
fn left(answer: &Value, uid: &str) -> Expectation {
    let (meta, uid) = (&answer["metadata"], uid.to_owned());
    let version = meta["resourceVersion"].as_str().and_then(|version| version.parse::<Version>().ok());
    match version.filter(|_| meta["deletionTimestamp"].is_string()) {
        Some(version) => Expectation::Marked { uid, version },
        None => Expectation::Gone { uid },
    }
}

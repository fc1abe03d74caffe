//! Deletion of the object that was read, and of no other of its name.

use http::Method;
use serde_json::{Value, json};

use super::{
    TypedObject, WriteError,
    parking::Goal,
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
        return Err(WriteError::Unidentified { object: target.to_string() });
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
    let goal = match writer.write::<Value>(key, request).await {
        Ok(answer) => left(&answer.object, &uid),
        // Gone, or another object bears the name by now.
        Err(error) if error.is_not_found() => Goal::Gone { uid },
        Err(error) if error.is_conflict() => {
            writer.contradict(&target, &uid);
            Goal::Gone { uid }
        }
        Err(error) => return Err(error),
    };
    writer.forget_applied(&target);
    writer.forget_answer(key, &target);
    writer.wait_for(key, &target, &goal);
    Ok(())
}

/// Tells whether the object is there still, marked as deleted: the server shows it then.
fn left(answer: &Value, uid: &str) -> Goal {
    let (meta, uid) = (&answer["metadata"], uid.to_owned());
    let version = meta["resourceVersion"].as_str().and_then(|version| version.parse::<Version>().ok());
    match version.filter(|_| meta["deletionTimestamp"].is_string()) {
        Some(version) => Goal::Marked { uid, version },
        None => Goal::Gone { uid },
    }
}

//! Status patches: the difference to what the caller saw, on the version the caller saw.

use http::Method;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{
    WriteError,
    parking::Goal,
    request::{Answer, Content, Path, Request, Target},
    writer::{Proof, Writer, version_of},
};
use crate::object::{Kind, Object, ObjectKey, Version};

/// How often a patch that met a stranger's change elsewhere in the object is sent again.
const RESENDS: usize = 3;

/// The state that a patch is computed from.
struct Base {
    uid: String,
    resource_version: String,
    status: Value,
}

/// Patches the status of `object` to `status`; sends nothing where they are equal.
///
/// All states are read through the object's type and the status' own: what these do not know is nobody's to remove.
pub(crate) async fn patch_status<K: Object, S: Serialize + DeserializeOwned>(
    writer: &Writer,
    key: &ObjectKey,
    kind: Kind,
    object: &K,
    status: &S,
) -> Result<(), WriteError> {
    let target = Target { kind, key: ObjectKey::of(object) };
    let wanted = encode(&target, status)?;
    let base = base::<K, S>(writer, key, &target, object)?;
    let Some(difference) = difference(&base.status, &wanted) else { return Ok(()) };
    if base.resource_version.is_empty() {
        return Err(WriteError::Unversioned { object: target.to_string() });
    }
    let mut version = base.resource_version.clone();
    for _ in 0..=RESENDS {
        match send(writer, key, &target, &base.uid, &version, &difference).await {
            Ok(answer) => {
                let now = through_object::<K>(&answer.object);
                writer.learn(key, &target, &answer, &Proof::Carried(version), now);
                return Ok(());
            }
            Err(error) if error.is_conflict() => {
                let resend = resend_on::<K, S>(writer, key, &target, &base, &difference, error).await;
                version =
                    resend.inspect_err(|error| wait_for_stranger(writer, key, &target, &base, error))?;
            }
            Err(error) => return Err(explain(writer, &target, &base.uid, error).await),
        }
    }
    let error = WriteError::conflict(target.to_string(), "it keeps changing");
    wait_for_stranger(writer, key, &target, &base, &error);
    Err(error)
}

/// Sees to it that the next run begins with what this one did not know.
fn wait_for_stranger(writer: &Writer, key: &ObjectKey, target: &Target, base: &Base, error: &WriteError) {
    if let Ok(version) = base.resource_version.parse()
        && error.is_conflict()
    {
        writer.wait_for(key, target, &Goal::Past(version));
    }
}

fn encode(target: &Target, value: &impl Serialize) -> Result<Value, WriteError> {
    serde_json::to_value(value).map_err(|error| WriteError::Codec {
        verb: "patch the status of",
        object: target.to_string(),
        problem: format!("can't be written as JSON: {error}"),
    })
}

/// Reads an answer's status through the object's type.
fn through_object<K: Object>(answer: &Value) -> Option<Value> {
    let object: K = serde_json::from_value(answer.clone()).ok()?;
    serde_json::to_value(object).ok().map(|mut whole| whole["status"].take())
}

/// Reads a status through the type of the one that is wanted; one that this can't read stays as it is.
fn through_status<S: Serialize + DeserializeOwned>(status: Value) -> Value {
    let read = serde_json::from_value::<S>(status.clone()).and_then(serde_json::to_value);
    read.unwrap_or(status)
}

/// Takes what the caller saw, or this key's later answer for the same UID: never a newer cached object.
fn base<K: Object, S: Serialize + DeserializeOwned>(
    writer: &Writer,
    key: &ObjectKey,
    target: &Target,
    object: &K,
) -> Result<Base, WriteError> {
    let meta = object.meta();
    let uid = meta.uid.clone().unwrap_or_default();
    let resource_version = meta.resource_version.clone().unwrap_or_default();
    let seen = resource_version.parse::<Version>().ok();
    let later = writer
        .last_answer(key, target)
        .filter(|answer| answer.uid == uid && answer.resource_version.parse::<Version>().ok() > seen);
    if let Some(answer) = later
        && let Some(status) = answer.status
    {
        let status = through_status::<S>(status);
        return Ok(Base { uid, resource_version: answer.resource_version, status });
    }
    let mut whole = encode(target, object)?;
    let status = through_status::<S>(whole["status"].take());
    Ok(Base { uid, resource_version, status })
}

async fn send(
    writer: &Writer,
    key: &ObjectKey,
    target: &Target,
    uid: &str,
    version: &str,
    difference: &Value,
) -> Result<Answer<Value>, WriteError> {
    let request = Request {
        verb: "patch the status of",
        method: Method::PATCH,
        target,
        path: Path::Status,
        query: writer.query(),
        content: Content::MergePatch(json!({
            "metadata": { "uid": uid, "resourceVersion": version },
            "status": difference,
        })),
    };
    writer.write(key, request).await
}

/// Finds out what was not found: the object, or its status subresource. The server says the same of both.
async fn explain(writer: &Writer, target: &Target, uid: &str, error: WriteError) -> WriteError {
    let WriteError::NotFound { verb, object, status } = error else { return error };
    match writer.fetch(target).await {
        Ok(Some(found)) if found["metadata"]["uid"] == uid => {
            WriteError::NoStatusSubresource { object, kind: target.kind.to_string() }
        }
        _ => WriteError::NotFound { verb, object, status },
    }
}

/// Returns the version to send the patch on again, if nothing that it replaces has changed.
async fn resend_on<K: Object, S: Serialize + DeserializeOwned>(
    writer: &Writer,
    key: &ObjectKey,
    target: &Target,
    base: &Base,
    difference: &Value,
    refused: WriteError,
) -> Result<String, WriteError> {
    writer.forget_answer(key, target);
    let Some(found) = writer.fetch(target).await? else { return Err(refused) };
    let text = |field: &str| found["metadata"][field].as_str().unwrap_or_default().to_owned();
    if text("uid") == base.uid && version_of(&found) < base.resource_version.parse().ok() {
        writer.went_back(key, target);
        return Err(refused);
    }
    let reads = through_object::<K>(&found).map(through_status::<S>);
    let same = reads.is_some_and(|status| replaces_the_same(difference, &base.status, &status));
    if text("uid") == base.uid && same { Ok(text("resourceVersion")) } else { Err(refused) }
}

/// Computes the merge patch that turns one value into the other; `None` where they are equal.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for (name, value) in after {
        if let Some(changed) = difference(before.get(name).unwrap_or(&Value::Null), value) {
            patch.insert(name.clone(), changed);
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Tells whether two values agree in everything that a merge patch replaces whole.
fn replaces_the_same(patch: &Value, base: &Value, found: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.iter().all(|(name, inner)| {
            let null = &Value::Null;
            let (before, now) = (base.get(name).unwrap_or(null), found.get(name).unwrap_or(null));
            replaces_the_same(inner, before, now)
        }),
        _ => base == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_holds_what_changed_and_nulls_what_went() {
        let old = json!({ "a": 1, "b": { "c": 1, "d": 2 }, "e": [1], "f": "x" });
        let new = json!({ "a": 1, "b": { "c": 2, "d": 2 }, "e": [1, 2] });
        let patch = difference(&old, &new).unwrap();
        assert_eq!(patch, json!({ "b": { "c": 2 }, "e": [1, 2], "f": null }));
        assert_eq!(difference(&old, &old), None);
        assert_eq!(difference(&Value::Null, &new), Some(new));
    }

    #[test]
    fn a_patch_may_be_resent_only_over_what_it_replaces_unchanged() {
        let patch = json!({ "mine": { "n": 2 }, "list": [2] });
        let base = json!({ "mine": { "n": 1 }, "list": [1] });
        let elsewhere = json!({ "mine": { "n": 1, "x": 9 }, "list": [1], "theirs": true });
        let clash = json!({ "mine": { "n": 1 }, "list": [1, 5] });
        assert!(replaces_the_same(&patch, &base, &elsewhere));
        assert!(!replaces_the_same(&patch, &base, &clash));
    }
}

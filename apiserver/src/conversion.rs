//! Conversion: webhooks turn objects of custom kinds from one version into another.
//!
//! A request ends and begins again once its webhook has answered, as with admission. What a webhook has made of a stored
//! object stays with it: that object never changes, so the webhook is asked once for each version of it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::call::Caller;
use crate::kinds::{Conversion, Resource, Served};
use crate::object;
use crate::selector::{check_label_key, check_label_value};
use crate::session::{Answer, Call};
use crate::state::State;
use crate::status::Status;
use crate::store::Stored;

/// How long a webhook may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The most objects in one review.
const AT_ONCE: usize = 500;

/// Converts stored objects to a version.
///
/// # Errors
/// The webhook fails, or its answer is waited for.
pub(crate) fn prepare<'a>(
    state: &mut State,
    served: &Served,
    objects: impl IntoIterator<Item = &'a Arc<Stored>>,
) -> Result<(), Status> {
    let Some(conversion) = &served.conversion else { return Ok(()) };
    let objects: Vec<&Arc<Stored>> =
        objects.into_iter().filter(|stored| is_missing(served, stored)).collect();
    let mut waits = false;
    for part in objects.chunks(AT_ONCE) {
        let values: Vec<Value> = part.iter().map(|stored| Value::clone(&stored.value())).collect();
        match ask(state, conversion, &served.api_version(), &values)? {
            None => waits = true,
            Some(converted) => {
                for (stored, value) in part.iter().zip(converted) {
                    stored.note_converted(served.id, value);
                }
            }
        }
    }
    if waits { Err(Status::waiting()) } else { Ok(()) }
}

/// Returns whether a stored object has to be converted for a version, and is not yet.
pub(crate) fn is_missing(served: &Served, stored: &Stored) -> bool {
    served.converts(stored) && stored.converted(served.id).is_none()
}

/// Turns an object of a version into the stored form; where a webhook does it, also gives what that becomes when it is
/// shown again.
///
/// # Errors
/// The webhook fails, or its answer is waited for.
pub(crate) fn unshown(
    state: &mut State,
    resource: &Resource,
    served: &Served,
    shown: Value,
) -> Result<(Value, Option<Value>), Status> {
    let storage = resource.storage_version();
    let Some(conversion) = served.conversion.as_ref().filter(|_| storage.version != served.version) else {
        return Ok((served.unshow(shown, storage), None));
    };
    let mut turn = |value: Value, into: &Served| {
        let converted = ask(state, conversion, &into.api_version(), &[value])?.ok_or_else(Status::waiting)?;
        Ok(converted.into_iter().next().unwrap_or_default())
    };
    let mut stored: Value = turn(shown, storage)?;
    storage.schema.prune(&mut stored);
    storage.schema.default(&mut stored);
    let again = turn(stored.clone(), served)?;
    Ok((stored, Some(again)))
}

/// Records the converted form of a stored object, if it is known.
pub(crate) fn note(served: &Served, stored: &Stored, again: Option<Value>) {
    if let Some(mut again) = again {
        object::set(&mut again, "resourceVersion", stored.version.to_string());
        stored.note_converted(served.id, again);
    }
}

/// Takes over what an object was shown as, for a state of it that differs in what the server writes alone.
pub(crate) fn carry(served: &Served, before: &Stored, after: &Stored) {
    if !is_missing(served, after) {
        return;
    }
    if let Some(shown) = before.converted(served.id)
        && let Ok(value) = restored(&after.value(), Value::clone(&shown))
    {
        after.note_converted(served.id, value);
    }
}

/// Converts stored objects to a version, for callers that can wait.
///
/// # Errors
/// In words: the webhook fails.
pub(crate) async fn convert(caller: &Caller, served: &Served, objects: &[Arc<Stored>]) -> Result<(), String> {
    let Some(conversion) = &served.conversion else { return Ok(()) };
    for part in objects.chunks(AT_ONCE) {
        let values: Vec<Value> = part.iter().map(|stored| Value::clone(&stored.value())).collect();
        let call = review(conversion, &served.api_version(), "watch", &values)?;
        let answer = caller.call(&call).await;
        let converted = converted(conversion, &served.api_version(), "watch", &values, answer)?;
        for (stored, value) in part.iter().zip(converted) {
            stored.note_converted(served.id, value);
        }
    }
    Ok(())
}

/// Converts an object to a version by the webhook of its kind; `None` while its answer is pending.
///
/// # Errors
/// The webhook fails.
pub(crate) fn turned(state: &mut State, into: &Served, object: &Value) -> Result<Option<Value>, Status> {
    let Some(conversion) = into.conversion.clone() else { return Ok(Some(object.clone())) };
    let converted = ask(state, &conversion, &into.api_version(), std::slice::from_ref(object))?;
    Ok(converted.and_then(|converted| converted.into_iter().next()))
}

/// Calls a webhook; `None` while its answer is pending.
fn ask(
    state: &mut State,
    conversion: &Conversion,
    into: &str,
    objects: &[Value],
) -> Result<Option<Vec<Value>>, Status> {
    let uid = state.make_uid();
    let call = review(conversion, into, &uid, objects).map_err(Status::internal)?;
    let Some((uid, answer)) = state.session.answer(call) else { return Ok(None) };
    converted(conversion, into, &uid, objects, answer).map(Some).map_err(Status::internal)
}

/// Returns the version of reviews that both sides know.
fn review_version(conversion: &Conversion) -> Option<&str> {
    conversion.review_versions.iter().map(String::as_str).find(|version| matches!(*version, "v1" | "v1beta1"))
}

fn review(conversion: &Conversion, into: &str, uid: &str, objects: &[Value]) -> Result<Call, String> {
    let version = review_version(conversion).ok_or("no supported conversion review versions")?;
    let objects = Value::Array(objects.to_vec());
    Ok(Call {
        key: format!("conversion {} {into} {objects}", conversion.client),
        client: conversion.client.clone(),
        review: json!({
            "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": into, "objects": objects},
        }),
        timeout: TIMEOUT,
    })
}

/// Names the type of an object as the server prints it.
fn type_of(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

/// Reads a webhook's answer.
///
/// # Errors
/// In the server's words: it has failed, or has not done as it should.
fn converted(
    conversion: &Conversion,
    into: &str,
    uid: &str,
    given: &[Value],
    answer: Answer,
) -> Result<Vec<Value>, String> {
    let what = given.first().map(type_of).unwrap_or_default();
    let failed = |why: String| format!("conversion webhook for {what} failed: {why}");
    let answer = answer.map_err(failed)?;
    let objects = success(conversion, uid, &answer).map_err(failed)?;
    if objects.len() != given.len() {
        let (got, wanted) = (objects.len(), given.len());
        return Err(format!("conversion webhook for {what} returned {got} objects, expected {wanted}"));
    }
    let checked = given.iter().zip(objects).map(|(original, object)| one(&what, into, original, object));
    checked.collect()
}

/// Returns the objects of a successful answer.
fn success<'a>(conversion: &Conversion, uid: &str, answer: &'a Value) -> Result<&'a [Value], String> {
    let is_v1 = review_version(conversion) == Some("v1");
    let (group, version) = object::group_version(answer["apiVersion"].as_str().unwrap_or_default());
    let kind = answer["kind"].as_str().unwrap_or_default();
    let wanted = "apiextensions.k8s.io/v1, Kind=ConversionReview";
    if is_v1 && (group, version, kind) != ("apiextensions.k8s.io", "v1", "ConversionReview") {
        return Err(format!("expected webhook response of {wanted}, got {group}/{version}, Kind={kind}"));
    }
    let response = answer.get("response").filter(|response| response.is_object());
    let response = response.ok_or("no response provided")?;
    let given = response["uid"].as_str().unwrap_or_default();
    if is_v1 && given != uid {
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let text = |field: &str| response["result"][field].as_str().unwrap_or_default();
    match (text("status"), text("message")) {
        ("Success", _) => Ok(response["convertedObjects"].as_array().map(Vec::as_slice).unwrap_or_default()),
        (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

/// Checks one converted object, and gives it back its metadata.
fn one(what: &str, into: &str, original: &Value, object: &Value) -> Result<Value, String> {
    let first = format!("conversion webhook for {what} returned invalid");
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let version = text(object, "apiVersion");
    if version != into {
        return Err(format!(
            "{first} object at index 0: invalid groupVersion (expected {into}, received {version})"
        ));
    }
    let (expected, kind) = (text(original, "kind"), text(object, "kind"));
    if kind != expected {
        return Err(format!(
            "{first} object at index 0: invalid kind (expected {expected}, received {kind})"
        ));
    }
    for (field, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (object::text(original, field), object::text(object, field));
        if before != after {
            return Err(format!("{first} object: must have the same {word}: {before} != {after}"));
        }
    }
    restored(original, object.clone()).map_err(|why| format!("{first} metadata: {why}"))
}

/// Returns a converted object the metadata it had but for labels and annotations, which are the webhook's.
fn restored(original: &Value, mut converted: Value) -> Result<Value, String> {
    let Some(given) = converted.get("metadata") else {
        return Err("missing metadata in converted object".to_owned());
    };
    let Value::Object(given) = given.clone() else {
        return Err(format!("invalid metadata of type {} in converted object", go_type(given)));
    };
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(Value::Object(texts)) => {
                check_texts(field, texts, metadata.get(field))?;
                metadata.insert(field.to_owned(), Value::Object(texts.clone()));
            }
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{field} of type {} in converted object",
                    go_type(other)
                ));
            }
        }
    }
    object::map_mut(&mut converted).insert("metadata".to_owned(), Value::Object(metadata));
    Ok(converted)
}

fn check_texts(field: &str, texts: &Map<String, Value>, before: Option<&Value>) -> Result<(), String> {
    if let Some((key, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
        let kind = go_type(value);
        return Err(format!("metadata.{field}[{key}] must be a string, but is {kind} in converted object"));
    }
    if field == "labels" && before.and_then(Value::as_object) != Some(texts) {
        for (key, value) in texts {
            let text = value.as_str().unwrap_or_default();
            check_label_key(key).map_err(|why| format!("metadata.labels: Invalid value: {key:?}: {why}"))?;
            check_label_value(text)
                .map_err(|why| format!("metadata.labels: Invalid value: {text:?}: {why}"))?;
        }
    }
    Ok(())
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

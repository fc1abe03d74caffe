//! The result of a write, as far as it is known without the server.

use http::{HeaderMap, Method, StatusCode, header, request::Parts};
use serde_json::{Map, Value, json};

use super::place::Place;

/// What says that a `test` of a JSON patch failed.
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";
/// The fields by which elements of lists are told apart, where they have one of these.
const IDENTIFIES: [&str; 6] = ["name", "uid", "type", "key", "ip", "containerPort"];
/// The version that stands for "only if there is none".
const ONLY_IF_ABSENT: &str = "1";

/// A write.
#[derive(Debug)]
pub(super) enum Write {
    Create(Value),
    Replace(Value),
    Apply(Value),
    Merge(Value),
    JsonPatch(json_patch::Patch),
    Delete(Value),
}

impl Write {
    /// Reads a request; `None` for one that is not known here.
    pub(super) fn of(head: &Parts, place: &Place, body: &[u8]) -> Option<Self> {
        let known = matches!(place.subresource.as_deref(), None | Some("status"));
        let value = || serde_json::from_slice::<Value>(body).ok();
        match (&head.method, media_type(&head.headers).as_str()) {
            _ if !known => None,
            (&Method::POST, _) if place.name.is_none() => value().map(Self::Create),
            (&Method::PUT, _) => value().map(Self::Replace),
            (&Method::DELETE, _) => Some(Self::Delete(value().unwrap_or_default())),
            (&Method::PATCH, "application/apply-patch+yaml") => value().map(Self::Apply),
            (&Method::PATCH, "application/merge-patch+json" | "application/strategic-merge-patch+json") => {
                value().map(Self::Merge)
            }
            (&Method::PATCH, "application/json-patch+json") => {
                serde_json::from_slice(body).ok().map(Self::JsonPatch)
            }
            _ => None,
        }
    }

    /// Says what is written: a creation names its object within.
    pub(super) fn place(&self, at: Place) -> Place {
        let Self::Create(body) = self else { return at };
        let name = body["metadata"]["name"].as_str().filter(|name| !name.is_empty());
        name.map_or(at.clone(), |name| at.with_name(name))
    }

    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Replace(_) => "update",
            Self::Apply(_) => "apply",
            Self::Merge(_) | Self::JsonPatch(_) => "patch",
            Self::Delete(_) => "delete",
        }
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let whole = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    whole.split(';').next().unwrap_or_default().trim().to_owned()
}

/// What a write comes to.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) code: StatusCode,
    /// What whoever wrote gets.
    pub(super) answer: Value,
    pub(super) before: Value,
    pub(super) after: Value,
}

/// Why a write would be refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) code: StatusCode,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Refused {
    pub(super) fn not_simulated(path: &str) -> Self {
        let message = format!("a dry run sends no writes, and does not know what this one comes to: {path}");
        Self { code: StatusCode::NOT_IMPLEMENTED, reason: "NotImplemented", message }
    }

    fn not_found(place: &Place) -> Self {
        let message = format!("{place} not found");
        Self { code: StatusCode::NOT_FOUND, reason: "NotFound", message }
    }

    fn exists(place: &Place) -> Self {
        let message = format!("{place} already exists");
        Self { code: StatusCode::CONFLICT, reason: "AlreadyExists", message }
    }

    fn conflict(place: &Place, why: &str) -> Self {
        Self { code: StatusCode::CONFLICT, reason: "Conflict", message: format!("{place}: {why}") }
    }
}

/// Says what becomes of what was found.
pub(super) fn simulate(place: &Place, write: &Write, found: Option<&Value>) -> Result<Change, Refused> {
    match (write, found) {
        (Write::Delete(_), _) if place.name.is_none() => Ok(deleted(&json!({ "metadata": {} }))),
        (Write::Create(_), Some(_)) => Err(Refused::exists(place)),
        (Write::Create(body), None) => Ok(created(place, body)),
        (Write::Apply(body), None) => {
            let meta = &body["metadata"];
            let expected = meta["uid"].is_string()
                || meta["resourceVersion"].as_str().is_some_and(|version| version != ONLY_IF_ABSENT);
            match expected || place.subresource.is_some() {
                true => Err(Refused::conflict(place, "it is gone")),
                false => Ok(created(place, body)),
            }
        }
        (_, None) => Err(Refused::not_found(place)),
        (Write::Delete(options), Some(found)) => {
            check(place, &options["preconditions"], found)?;
            Ok(deleted(found))
        }
        (Write::Replace(body), Some(found)) => {
            check(place, &body["metadata"], found)?;
            Ok(changed(place, found, body.clone()))
        }
        (Write::Merge(body), Some(found)) => {
            check(place, &body["metadata"], found)?;
            Ok(changed(place, found, merged(found.clone(), body)))
        }
        (Write::Apply(body), Some(found)) => {
            check(place, &body["metadata"], found)?;
            Ok(changed(place, found, applied(found, body)))
        }
        (Write::JsonPatch(patch), Some(found)) => {
            let mut after = found.clone();
            json_patch::patch(&mut after, patch).map_err(|_| Refused {
                code: StatusCode::UNPROCESSABLE_ENTITY,
                reason: "Invalid",
                message: TEST_FAILED.to_owned(),
            })?;
            Ok(changed(place, found, after))
        }
    }
}

/// Refuses what was computed from another object, or another version.
fn check(place: &Place, expected: &Value, found: &Value) -> Result<(), Refused> {
    for field in ["uid", "resourceVersion"] {
        let wanted = expected[field].as_str().filter(|wanted| !wanted.is_empty());
        if wanted.is_some_and(|wanted| found["metadata"][field] != wanted) {
            return Err(Refused::conflict(place, "the object has been modified"));
        }
    }
    Ok(())
}

/// Without a version: nobody is to wait until a cache shows it.
fn created(place: &Place, body: &Value) -> Change {
    let mut after = body.clone();
    let prefix = after["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
    let name = after["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    let name = name.map_or_else(|| format!("{prefix}dry-run"), str::to_owned);
    let meta = &mut after["metadata"];
    meta["name"] = json!(name);
    meta["uid"] = json!("00000000-0000-4000-8000-000000000000");
    meta["generation"] = json!(1);
    if let Some(namespace) = &place.namespace {
        meta["namespace"] = json!(namespace);
    }
    remove(meta, "resourceVersion");
    Change { code: StatusCode::CREATED, answer: after.clone(), before: Value::Null, after }
}

fn changed(place: &Place, found: &Value, written: Value) -> Change {
    let mut after = match place.subresource.as_deref() {
        Some(_) => {
            let mut after = found.clone();
            after["status"] = written["status"].clone();
            after
        }
        None => written,
    };
    for field in ["uid", "resourceVersion", "managedFields"] {
        match found["metadata"].get(field) {
            Some(value) => after["metadata"][field] = value.clone(),
            None => remove(&mut after["metadata"], field),
        }
    }
    Change { code: StatusCode::OK, answer: after.clone(), before: found.clone(), after }
}

fn deleted(found: &Value) -> Change {
    let held = found["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
    let answer = match held {
        true => found.clone(),
        false => json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }),
    };
    Change { code: StatusCode::OK, answer, before: found.clone(), after: Value::Null }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Applies a merge patch, as RFC 7396 has it.
fn merged(target: Value, patch: &Value) -> Value {
    let mut target = target;
    json_patch::merge(&mut target, patch);
    target
}

/// Lays an intent over an object; elements of lists are told apart by what they are named.
fn applied(found: &Value, intent: &Value) -> Value {
    match (found, intent) {
        (Value::Object(found), Value::Object(intent)) => {
            let mut whole: Map<String, Value> = found.clone();
            for (name, value) in intent {
                let inner = applied(found.get(name).unwrap_or(&Value::Null), value);
                whole.insert(name.clone(), inner);
            }
            Value::Object(whole)
        }
        (Value::Array(found), Value::Array(intent)) => match key_of(found, intent) {
            Some(key) => Value::Array(by_key(found, intent, key)),
            None => Value::Array(intent.clone()),
        },
        _ => intent.clone(),
    }
}

fn key_of(found: &[Value], intent: &[Value]) -> Option<&'static str> {
    IDENTIFIES.into_iter().find(|key| found.iter().chain(intent).all(|element| element.get(*key).is_some()))
}

fn by_key(found: &[Value], intent: &[Value], key: &str) -> Vec<Value> {
    let mut whole = found.to_vec();
    for element in intent {
        match whole.iter_mut().find(|present| present[key] == element[key]) {
            Some(present) => *present = applied(present, element),
            None => whole.push(element.clone()),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        Place::of(path).unwrap()
    }

    fn found() -> Value {
        json!({
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "7", "finalizers": ["x"] },
            "spec": { "list": [{ "name": "one", "n": 1 }, { "name": "two" }], "kept": true },
            "status": { "n": 1 },
        })
    }

    // W6
    #[test]
    fn what_is_there_keeps_its_identity_and_version_so_that_nobody_waits_for_another() {
        let at = place("/apis/a/v1/namespaces/shop/things/a");
        let intent = json!({ "metadata": { "name": "a" }, "spec": { "list": [{ "name": "one", "n": 2 }] } });
        let change = simulate(&at, &Write::Apply(intent), Some(&found())).unwrap();
        let wanted = json!({ "list": [{ "name": "one", "n": 2 }, { "name": "two" }], "kept": true });
        assert_eq!((&change.after["spec"], change.code), (&wanted, StatusCode::OK));
        assert_eq!(change.answer["metadata"]["resourceVersion"], "7");
        let patch = json!({ "metadata": { "resourceVersion": "7" }, "spec": { "kept": null } });
        let change = simulate(&at, &Write::Merge(patch), Some(&found())).unwrap();
        assert!(change.after["spec"].get("kept").is_none());
    }

    // W6
    #[test]
    fn what_is_not_there_is_created_without_a_version_or_not_found() {
        let at = place("/apis/a/v1/namespaces/shop/things/a");
        let create = Write::Create(json!({ "metadata": { "name": "a" } }));
        assert_eq!(create.place(place("/apis/a/v1/namespaces/shop/things")), at);
        assert_eq!(simulate(&at, &create, Some(&found())).unwrap_err().reason, "AlreadyExists");
        let intent = json!({ "metadata": { "name": "a", "resourceVersion": "1" } });
        let change = simulate(&at, &Write::Apply(intent), None).unwrap();
        assert_eq!(
            (change.code, &change.answer["metadata"]["namespace"]),
            (StatusCode::CREATED, &json!("shop"))
        );
        assert!(change.answer["metadata"].get("resourceVersion").is_none());
        let gone = simulate(&at, &Write::Merge(json!({})), None).unwrap_err();
        assert_eq!(gone.code, StatusCode::NOT_FOUND);
    }

    // W6
    #[test]
    fn another_version_or_object_than_the_one_that_was_meant_is_a_conflict() {
        let at = place("/apis/a/v1/namespaces/shop/things/a");
        for meta in
            [json!({ "uid": "v" }), json!({ "resourceVersion": "6" }), json!({ "resourceVersion": "1" })]
        {
            let intent = Write::Apply(json!({ "metadata": meta }));
            assert_eq!(simulate(&at, &intent, Some(&found())).unwrap_err().code, StatusCode::CONFLICT);
            let delete = Write::Delete(json!({ "preconditions": meta }));
            assert_eq!(simulate(&at, &delete, Some(&found())).unwrap_err().code, StatusCode::CONFLICT);
        }
        let test = json!([{ "op": "test", "path": "/metadata/uid", "value": "v" }]);
        let test = Write::JsonPatch(serde_json::from_value(test).unwrap());
        assert_eq!(simulate(&at, &test, Some(&found())).unwrap_err().code, StatusCode::UNPROCESSABLE_ENTITY);
    }

    // W6
    #[test]
    fn a_status_is_all_that_a_patch_of_it_changes() {
        let at = place("/apis/a/v1/namespaces/shop/things/a/status");
        let patch = json!({ "status": { "n": 2 }, "spec": { "kept": false } });
        let change = simulate(&at, &Write::Merge(patch), Some(&found())).unwrap();
        assert_eq!((&change.after["status"]["n"], &change.after["spec"]["kept"]), (&json!(2), &json!(true)));
    }
}

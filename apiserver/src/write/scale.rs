//! Scale: the number of replicas as its own object.

use http::HeaderMap;
use serde_json::{Value, json};

use super::body::media_type;
use super::patching::{APPLY, apply_replicas};
use super::update::{Source, replace};
use super::{Shown, Target, WriteOptions, Written, admit};
use crate::admission::Operation;
use crate::kinds::ScalePaths;
use crate::object;
use crate::state::State;
use crate::status::{Cause, Status};

fn paths(target: &Target) -> Result<&ScalePaths, Status> {
    target.served.scale.as_ref().ok_or_else(Status::no_such_resource)
}

fn live(state: &State, target: &Target) -> Result<Value, Status> {
    let stored =
        state.store.get(&target.resource.storage, &target.key()).ok_or_else(|| target.not_found())?;
    Ok(target.served.show_stored(stored))
}

fn scale_of(target: &Target, parent: &Value, paths: &ScalePaths) -> Value {
    let number = |path: &str| object::at(parent, path).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object::meta(parent, field) {
            metadata[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": number(&paths.status)});
    if let Some(selector) = selector_text(target, parent, paths) {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(&paths.spec)}, "status": status,
    })
}

fn selector_text(target: &Target, parent: &Value, paths: &ScalePaths) -> Option<String> {
    if let Some(text) =
        object::at(parent, &paths.selector).and_then(Value::as_str).filter(|_| !paths.selector.is_empty())
    {
        return Some(text.to_owned());
    }
    if target.resource.is_custom() {
        return None;
    }
    let selector = object::at(parent, "spec.selector")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| (key.clone(), format!("{key}={}", text(value))));
    let terms = selector["matchExpressions"].as_array().into_iter().flatten().map(|term| {
        let mut values: Vec<String> = term["values"].as_array().into_iter().flatten().map(text).collect();
        values.sort_unstable();
        let (key, values) = (text(&term["key"]), values.join(","));
        let term = match term["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        (key, term)
    });
    let mut all: Vec<_> = labels.chain(terms).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    (!all.is_empty()).then(|| all.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(","))
}

/// Reads the scale of an object.
///
/// # Errors
/// 404, or 500 if the object has no number of replicas.
pub(crate) fn get_scale(state: &State, target: &Target) -> Result<Value, Status> {
    let (parent, paths) = (live(state, target)?, paths(target)?);
    if object::at(&parent, &paths.spec).is_none() {
        let why = format!("the spec replicas field \".{}\" does not exist", paths.spec);
        let status = Status::new(500, Some("InternalError"), format!("Internal error occurred: {why}"));
        return Err(status.with_details(json!({"causes": [{"message": why}]})));
    }
    Ok(scale_of(target, &parent, paths))
}

/// Replaces the scale of an object.
///
/// # Errors
/// See `update`.
pub(crate) fn put_scale(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    body: &[u8],
) -> Result<Written, Status> {
    let scale: Value = serde_json::from_slice(body).map_err(|e| Status::bad_request(e.to_string()))?;
    set_scale(state, target, options, scale)
}

/// Patches the scale of an object.
///
/// # Errors
/// See `patch`.
pub(crate) fn patch_scale(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Written, Status> {
    let parent = live(state, target)?;
    let paths = paths(target)?.clone();
    if media_type(headers) == APPLY {
        let mut scale: Value =
            crate::limits::read_yaml(body).map_err(|e| Status::bad_request(e.to_string()))?;
        let old = scale_of(target, &parent, &paths);
        admit::change(state, target, options, Operation::Update, Some(&old), &mut scale)?;
        admit::check(state, target, options, Operation::Update, Some(&old), &scale)?;
        let written = apply_replicas(state, target, options, &paths.spec, &scale)?;
        return Ok(shown_as_scale(target, written, &paths));
    }
    let mut scale = scale_of(target, &parent, &paths);
    super::patching::change(target, headers, body, &mut scale)?;
    set_scale(state, target, options, scale)
}

fn set_scale(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    mut scale: Value,
) -> Result<Written, Status> {
    let mut parent = live(state, target)?;
    let paths = paths(target)?.clone();
    let old = scale_of(target, &parent, &paths);
    admit::change(state, target, options, Operation::Update, Some(&old), &mut scale)?;
    admit::check(state, target, options, Operation::Update, Some(&old), &scale)?;
    let scale = &scale;
    let wanted = object::at(scale, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
    if wanted < 0 {
        let cause =
            Cause::invalid("spec.replicas", &wanted.to_string(), "must be greater than or equal to 0");
        return Err(Status::invalid("autoscaling", "Scale", &target.name, &[cause]));
    }
    let given = object::text(scale, "resourceVersion");
    if !given.is_empty() && given != object::text(&parent, "resourceVersion") {
        return Err(target.stale());
    }
    let mut at = &mut parent;
    for part in paths.spec.split('.').filter(|part| !part.is_empty()) {
        at = object::map_mut(at).entry(part).or_insert(Value::Null);
    }
    *at = wanted.into();
    let written = replace(state, target, options, parent, Source::Patch)?;
    Ok(shown_as_scale(target, written, &paths))
}

fn shown_as_scale(target: &Target, written: Written, paths: &ScalePaths) -> Written {
    let shown = match &written.shown {
        Shown::Stored(stored) => target.served.show_stored(stored),
        Shown::Unstored(value) | Shown::Other(value) => value.clone(),
    };
    Written { shown: Shown::Other(scale_of(target, &shown, paths)), ..written }
}

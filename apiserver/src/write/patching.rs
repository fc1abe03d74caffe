//! Patches: JSON, merge and strategic ones on the live object, and applies.

use std::collections::HashSet;

use http::HeaderMap;
use serde_json::{Value, json};

use super::body::media_type;
use super::create::{Tracking, insert};
use super::update::{Source, replace};
use super::{FieldValidation, Taking, Target, WriteOptions, Written, check};
use crate::apply::{ApplyError, ApplyInput, Force, apply};
use crate::json_error::go_error;
use crate::object;
use crate::patch::{JsonPatchError, json_patch, merge_patch, strategic_patch, unknown_patch_fields};
use crate::route::Query;
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::Stored;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// Patches an object by the body's media type.
///
/// # Errors
/// The errors of the body, its type, the live object or another manager.
pub(crate) fn patch(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    query: &Query,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Written, Status> {
    let media = media_type(headers);
    known_type(target, media)?;
    let mut causes = Vec::new();
    if media == APPLY && !options.named_manager {
        causes.push(Cause::required("fieldManager", "is required for apply patch"));
    }
    if media != APPLY && query.get("force").is_some() {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if !causes.is_empty() {
        return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &causes));
    }
    if media == APPLY {
        apply_body(state, target, options, body)
    } else {
        change_live(state, target, options, headers, body)
    }
}

fn known_type(target: &Target, media: &str) -> Result<(), Status> {
    let custom = target.resource.is_custom();
    let known = matches!(media, JSON_PATCH | MERGE_PATCH | APPLY) || (media == STRATEGIC && !custom);
    if known {
        return Ok(());
    }
    if custom {
        let accepted = format!("{JSON_PATCH}, {MERGE_PATCH}, {APPLY}");
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        return Err(Status::unsupported_media_type(message));
    }
    Err(Status::unsupported_media_type("415: Unsupported Media Type").with_details(json!({})))
}

/// Applies a JSON, merge or strategic patch to an object.
///
/// # Errors
/// 400, 413, 415, 422 or 500, as the patch deserves.
pub(super) fn change(
    target: &Target,
    headers: &HeaderMap,
    body: &[u8],
    object: &mut Value,
) -> Result<(), Status> {
    let decoded: Result<Value, _> = serde_json::from_slice(body);
    let patch =
        decoded.map_err(|e| Status::bad_request(format!("error decoding patch: {}", go_error(&e, body))))?;
    match media_type(headers) {
        JSON_PATCH => json_patch(object, &patch).map_err(|error| match error {
            JsonPatchError::Malformed(..) => Status::bad_request(error.to_string()),
            JsonPatchError::TooLarge(_) => Status::new(413, Some("RequestEntityTooLarge"), error.to_string()),
            JsonPatchError::Rejected | JsonPatchError::Excessive => {
                Status::new(422, Some("Invalid"), error.to_string()).with_details(json!({}))
            }
        }),
        other => {
            if !patch.is_object() {
                let what = match &patch {
                    Value::Array(_) => "array",
                    Value::String(_) => "string",
                    Value::Number(_) => "number",
                    Value::Bool(_) => "bool",
                    Value::Null | Value::Object(_) => return Ok(()),
                };
                let why = format!(
                    "error decoding patch: json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
                );
                return Err(Status::bad_request(why));
            }
            if other == STRATEGIC {
                return strategic_patch(object, &patch, &target.served.schema)
                    .map_err(|e| Status::internal(e.to_string()));
            }
            merge_patch(object, &patch);
            Ok(())
        }
    }
}

fn change_live(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Written, Status> {
    let live = state
        .store
        .get(&target.resource.storage, &target.key())
        .cloned()
        .ok_or_else(|| target.not_found())?;
    let shown = target.served.show_stored(&live);
    let mut new = shown.clone();
    change(target, headers, body, &mut new)?;
    if new["kind"] != shown["kind"] || new["apiVersion"] != shown["apiVersion"] {
        return Err(other_type(target, &new));
    }
    check::same_name(target, &new)?;
    check::fit_path(target, &mut new)?;
    let mut warnings = Vec::new();
    if options.validation != FieldValidation::Ignore {
        let known: HashSet<String> = target.served.schema.unknown_fields(&shown).into_iter().collect();
        let unknown =
            target.served.schema.unknown_fields(&new).into_iter().filter(|field| !known.contains(field));
        warnings.extend(unknown.map(|field| format!("unknown field \"{field}\"")));
        if media_type(headers) == JSON_PATCH {
            let odd =
                serde_json::from_slice(body).map(|patch| unknown_patch_fields(&patch)).unwrap_or_default();
            warnings.extend(odd.into_iter().map(|field| format!("json patch unknown field {field:?}")));
        } else {
            let found = target.served.schema.strict_errors(body);
            warnings.extend(found.into_iter().filter(|text| text.starts_with("duplicate ")));
        }
    }
    if options.validation == FieldValidation::Strict && !warnings.is_empty() {
        let why = format!("strict decoding error: {}", warnings.join(", "));
        if media_type(headers) == STRATEGIC {
            let patch = serde_json::from_slice(body).unwrap_or_default();
            return Err(Status::invalid(
                "",
                "",
                "",
                &[Cause::invalid("patch", &format!("{:?}", go_map(&patch)), &why)],
            ));
        }
        return Err(bad_patch(&new, &why));
    }
    let given = new.clone();
    super::typed::decode(target, &mut new).map_err(|why| bad_patch(&given, &why))?;
    match replace(state, target, options, new, Source::Patch) {
        Ok(written) => Ok(Written { warnings, ..written }),
        Err(status) => Err(status.with_warnings(&warnings)),
    }
}

/// Prints a value as Go prints maps.
fn go_map(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_map(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

fn bad_patch(object: &Value, why: &str) -> Status {
    let cause = Cause::invalid("patch", &format!("{:?}", object.to_string()), why);
    Status::invalid("", "", "", &[cause])
}

fn other_type(target: &Target, new: &Value) -> Status {
    let (kind, version) =
        (new["kind"].as_str().unwrap_or_default(), new["apiVersion"].as_str().unwrap_or_default());
    if target.resource.is_custom() {
        if version.is_empty() || kind.is_empty() {
            let (field, message) =
                if version.is_empty() { ("apiVersion", "apiVersion") } else { ("Kind", "kind") };
            let why = format!("Object '{field}' is missing in 'object has no {message} field'");
            let status = Status::new(500, Some("InternalError"), format!("Internal error occurred: {why}"));
            return status.with_details(json!({"causes": [{"message": why}]}));
        }
        if version != target.served.api_version() {
            return super::body::version_mismatch(version, &target.served.api_version());
        }
        let cause =
            Cause::invalid("kind", &format!("{kind:?}"), &format!("must be {}", target.resource.kind));
        return Status::invalid(target.resource.group(), kind, &target.name, &[cause]);
    }
    bad_patch(new, &super::typed::misread(target, new, kind, version))
}

fn apply_body(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    body: &[u8],
) -> Result<Written, Status> {
    let (resource, served) = (&target.resource, &target.served);
    let live = state.store.get(&resource.storage, &target.key()).cloned();
    let applied = read_applied(target, live.as_deref(), body)?;
    let warnings = repeated(options, body)?;
    if live.is_none() && !target.subresource.is_empty() {
        return Err(target.not_found());
    }
    let shown = live.as_ref().map(|live| served.show_stored(live));
    if let Some(live) = &live {
        let given = object::text(&applied, "resourceVersion");
        if !given.is_empty() && given != "0" && given != object::text(&live.value(), "resourceVersion") {
            return Err(target.stale());
        }
    }
    let uid = object::uid(&applied);
    if !uid.is_empty() && live.is_none() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(resource.group(), resource.plural(), &target.name, &why));
    }
    if !uid.is_empty() && live.as_ref().is_some_and(|live| object::uid(&live.value()) != uid) {
        let cause = Cause::invalid("metadata.uid", &format!("{uid:?}"), "field is immutable");
        return Err(target.invalid(&target.name, &[cause.clone(), cause]));
    }
    let others = other_fields(target, &applied);
    let ignored: Vec<&str> = others.iter().map(String::as_str).collect();
    let now = state.now_of_the_request();
    let mut merged = apply_to(target, options, shown.as_ref(), &applied, &ignored, &now)?;
    let written = match &live {
        None => insert(state, target, options, merged, Tracking::Done),
        Some(live) => {
            object::carry(&live.value(), &mut merged, "resourceVersion");
            replace(state, target, options, merged, Source::Apply)
        }
    };
    match written {
        Ok(written) => Ok(Written { warnings, ..written }),
        Err(status) => Err(status.with_warnings(&warnings)),
    }
}

/// Lists the keys that an applied body gives twice.
///
/// # Errors
/// 400 where fields are validated strictly.
fn repeated(options: &WriteOptions, body: &[u8]) -> Result<Vec<String>, Status> {
    if options.validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    let found = super::repeats::repeats(body);
    if options.validation == FieldValidation::Strict && !found.is_empty() {
        let why = format!("error converting YAML to JSON: yaml: unmarshal errors:\n  {}", found.join("\n  "));
        return Err(Status::bad_request(format!("error strict decoding YAML: {why}")));
    }
    Ok(found)
}

/// Applies a scale's number of replicas to its parent.
pub(super) fn apply_replicas(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    path: &str,
    scale: &Value,
) -> Result<Written, Status> {
    let live = state
        .store
        .get(&target.resource.storage, &target.key())
        .cloned()
        .ok_or_else(|| target.not_found())?;
    let shown = target.served.show_stored(&live);
    let mut applied = json!({
        "apiVersion": target.served.api_version(), "kind": target.resource.kind, "metadata": {"name": target.name},
    });
    let mut at = &mut applied;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        at = object::map_mut(at).entry(part).or_insert(Value::Null);
    }
    *at = object::at(scale, "spec.replicas").cloned().unwrap_or_default();
    let now = state.now_of_the_request();
    let mut merged = apply_to(target, options, Some(&shown), &applied, &[], &now)?;
    object::carry(&live.value(), &mut merged, "resourceVersion");
    replace(state, target, options, merged, Source::Apply)
}

fn apply_to(
    target: &Target,
    options: &WriteOptions,
    live: Option<&Value>,
    applied: &Value,
    ignored: &[&str],
    now: &str,
) -> Result<Value, Status> {
    apply(ApplyInput {
        live,
        applied,
        manager: &options.manager,
        force: if options.taking == Taking::Forces { Force::Take } else { Force::Refuse },
        subresource: target.managed_subresource(),
        api_version: &target.managed_version(),
        schema: &target.served.schema,
        ignored,
        now,
    })
    .map_err(|error| refused(&error))
}

/// Names the top-level fields this endpoint does not write.
fn other_fields(target: &Target, applied: &Value) -> Vec<String> {
    match target.subresource.as_str() {
        "" if target.served.offers("status") => vec!["status".to_owned()],
        "status" => {
            let is_custom = target.resource.built_in().is_none();
            let keys = applied.as_object().into_iter().flat_map(|map| map.keys());
            let is_other = |key: &&String| match key.as_str() {
                "apiVersion" | "kind" | "status" => false,
                "metadata" => is_custom,
                _ => true,
            };
            keys.filter(is_other).cloned().collect()
        }
        _ => Vec::new(),
    }
}

/// Reads an apply's object; it need not name an existing object.
fn read_applied(target: &Target, live: Option<&Stored>, body: &[u8]) -> Result<Value, Status> {
    let parsed: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(_) => crate::limits::read_yaml(body).map_err(|e| {
            Status::bad_request(format!(
                "error decoding YAML: error converting YAML to JSON: yaml: {}",
                super::body::yaml_error(&e)
            ))
        })?,
    };
    if parsed.is_array() || parsed.is_string() || parsed.is_number() || parsed.is_boolean() {
        let what = if parsed.is_array() { "array" } else { "string" };
        let why = format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
        return Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}"
        )));
    }
    let mut applied = parsed;
    let (version, kind) =
        (applied["apiVersion"].as_str().unwrap_or_default(), applied["kind"].as_str().unwrap_or_default());
    if version != target.served.api_version() || kind != target.resource.kind {
        let (group, version) = object::group_version(version);
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    if live.is_none() || !object::name(&applied).is_empty() {
        check::same_name(target, &applied)?;
    }
    let had_namespace = !object::namespace(&applied).is_empty();
    check::fit_path(target, &mut applied)?;
    if !had_namespace {
        object::remove(&mut applied, "namespace");
    }
    Ok(applied)
}

fn refused(error: &ApplyError) -> Status {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let causes: Vec<Value> = conflicts
                .iter()
                .map(|c| json!({"reason": "FieldManagerConflict", "message": c.text(), "field": c.field}))
                .collect();
            Status::new(409, Some("Conflict"), error.to_string()).with_details(json!({"causes": causes}))
        }
        ApplyError::NotTyped { .. } => Status::internal(error.to_string()),
        ApplyError::ManagedFieldsGiven => Status::bad_request(error.to_string()),
    }
}

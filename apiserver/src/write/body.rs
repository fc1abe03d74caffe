//! Bodies: bytes into objects, and the errors of invalid ones.

use http::{HeaderMap, header};
use serde_json::Value;

use super::{FieldValidation, Target};
use crate::json_error::go_error;
use crate::object;
use crate::status::Status;

/// Returns the media type of a body, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

const ACCEPTED: &str = "the body of the request was in an unknown format - accepted media types include: \
                        application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// A body, read.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The object, its kind and version filled in.
    pub(crate) object: Value,
    /// Duplicate or unknown fields, in the server's words.
    pub(crate) complaints: Vec<String>,
}

/// Reads the body of a create or update.
///
/// # Errors
/// 400, 415 or 422, and 400 for complaints where fields are validated strictly.
pub(crate) fn decode(
    target: &Target,
    headers: &HeaderMap,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let kind = &target.resource.kind;
    let unrecognized = |why: String| {
        Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why}"))
    };
    let (mut object, json): (Value, bool) = match media_type(headers) {
        "" | "application/json" | "*/*" => {
            let parsed = serde_json::from_slice(body);
            (
                parsed.map_err(|e| {
                    unrecognized(format!(
                        "couldn't get version/kind; json parse error: {} ({})",
                        go_error(&e, body),
                        shown(body)
                    ))
                })?,
                true,
            )
        }
        "application/yaml" => {
            let parsed = crate::limits::read_yaml(body);
            (parsed.map_err(|e| unrecognized(format!("yaml: {} ({})", yaml_error(&e), shown(body))))?, false)
        }
        _ => return Err(Status::unsupported_media_type(ACCEPTED)),
    };
    let what = match &object {
        Value::Object(_) => None,
        Value::Null => {
            object = Value::Object(serde_json::Map::new());
            None
        }
        Value::Array(_) => Some("array"),
        Value::String(_) => Some("string"),
        Value::Number(_) => Some("number"),
        Value::Bool(_) => Some("bool"),
    };
    if let Some(what) = what {
        let into = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        let why = format!("json: cannot unmarshal {what} into Go value of type {into}");
        return Err(unrecognized(format!(
            "couldn't get version/kind; json parse error: {why} ({})",
            shown(body)
        )));
    }
    check_type(target, &mut object, body)?;
    let mut complaints: Vec<String> = Vec::new();
    if validation != FieldValidation::Ignore {
        if json {
            complaints = target.served.schema.strict_errors(body);
        } else {
            let strict = validation == FieldValidation::Strict;
            let repeated = super::repeats::repeats(body);
            if strict && !repeated.is_empty() {
                complaints.push(format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  ")));
            } else {
                complaints.extend(repeated);
            }
            let unknown = target.served.schema.unknown_fields(&object);
            complaints.extend(unknown.into_iter().map(|field| format!("unknown field {field:?}")));
        }
    }
    if validation == FieldValidation::Strict && !complaints.is_empty() {
        let why = format!("strict decoding error: {}", complaints.join(", "));
        return Err(unfit(target, &why));
    }
    super::typed::decode(target, &mut object).map_err(|why| unfit(target, &why))?;
    Ok(Decoded { object, complaints })
}

fn unfit(target: &Target, why: &str) -> Status {
    let kind = &target.resource.kind;
    Status::bad_request(format!(
        "{kind} in version {:?} cannot be handled as a {kind}: {why}",
        target.served.version
    ))
}

fn check_type(target: &Target, object: &mut Value, body: &[u8]) -> Result<(), Status> {
    let (kind, expected) = (&target.resource.kind, target.served.api_version());
    let given_kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let given_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    if target.resource.is_custom() {
        if given_kind.is_empty() || given_version.is_empty() {
            let missing = if given_kind.is_empty() { "Kind" } else { "apiVersion" };
            let text = String::from_utf8_lossy(body);
            let why = format!("Object '{missing}' is missing in '{text}' ({})", shown(body));
            let message = format!("the object provided is unrecognized (must be of type {kind}): {why}");
            return Err(Status::bad_request(message));
        }
        if given_version != expected {
            return Err(version_mismatch(&given_version, &expected));
        }
        if given_kind != *kind {
            let cause =
                crate::status::Cause::invalid("kind", &format!("{given_kind:?}"), &format!("must be {kind}"));
            return Err(Status::invalid(
                target.resource.group(),
                &given_kind,
                object::name(object),
                &[cause],
            ));
        }
        return Ok(());
    }
    let map = object::map_mut(object);
    if given_kind.is_empty() {
        map.insert("kind".into(), kind.clone().into());
    }
    if given_version.is_empty() {
        map.insert("apiVersion".into(), expected.clone().into());
    }
    let wrong_kind = !given_kind.is_empty() && given_kind != *kind;
    let wrong_version = !given_version.is_empty() && given_version != expected;
    if wrong_kind || wrong_version {
        let shown_kind = if given_kind.is_empty() { kind } else { &given_kind };
        let shown_version = if given_version.is_empty() { &expected } else { &given_version };
        let why = super::typed::misread(target, object, shown_kind, shown_version);
        let (_, version) = object::group_version(shown_version);
        return Err(Status::bad_request(format!(
            "{shown_kind} in version {version:?} cannot be handled as a {kind}: {why}"
        )));
    }
    Ok(())
}

/// 400: the body is of another version than the path.
pub(crate) fn version_mismatch(given: &str, expected: &str) -> Status {
    Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({expected})"
    ))
}

/// Words a YAML error as the server does.
pub(super) fn yaml_error(error: &serde_yaml_ng::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    match error.location() {
        Some(place) => format!("line {}: {text}", place.line().saturating_sub(1).max(1)),
        None => text.to_owned(),
    }
}

/// Sums a body up: its beginning, as text if it may be an object.
fn shown(body: &[u8]) -> String {
    const MOST: usize = 30;
    let (start, more) = (&body[..body.len().min(MOST)], if body.len() > MOST { " ..." } else { "" });
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => format!("{}{more}", hex(start)),
    }
}

fn hex(body: &[u8]) -> String {
    body.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Reviews: the request to a webhook, and its possible answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::hook::Family;
use crate::patch::{go_type, json_patch_of_webhook};
use crate::status::Status;

/// Writes a review.
pub(super) fn review(version: &str, uid: &str, mut request: Value) -> Value {
    request["uid"] = uid.into();
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// A webhook's answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReviewVerdict {
    /// Its warnings.
    pub(super) warnings: Vec<String>,
    /// Whether the write may go on, and how the object changes.
    pub(super) outcome: Result<Option<Value>, Box<Refusal>>,
}

/// A webhook's no.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    result: Value,
}

/// Reads the answer to a review.
///
/// # Errors
/// What is wrong with it, in the server's words.
pub(super) fn verdict(
    family: Family,
    version: &str,
    uid: &str,
    answer: &Value,
) -> Result<ReviewVerdict, String> {
    let invalid = |why: String| Err(format!("received invalid webhook response: {why}"));
    readable(version, answer).map_err(|why| format!("failed to call webhook: {why}"))?;
    let response = &answer["response"];
    if !response.is_object() {
        return invalid("webhook response was absent".to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let given = text(&response["uid"]);
    if version == "v1" && given != uid {
        return invalid(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    if version == "v1" && answer["kind"].is_null() {
        let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
        return invalid(format!("expected webhook response of {wanted}, got /, Kind="));
    }
    let (patch, form) = (text(&response["patch"]), response["patchType"].as_str());
    match (family, patch.is_empty(), form) {
        (Family::Validating, false, _) => {
            return invalid("validating webhook may not return response.patch".to_owned());
        }
        (Family::Validating, true, Some(_)) => {
            return invalid("validating webhook may not return response.patchType".to_owned());
        }
        (Family::Mutating, false, None) if version == "v1" => {
            return invalid("webhook returned response.patch but not response.patchType".to_owned());
        }
        (Family::Mutating, true, Some(_)) if version == "v1" => {
            return invalid("webhook returned response.patchType but not response.patch".to_owned());
        }
        _ => {}
    }
    let warnings = response["warnings"].as_array().into_iter().flatten().map(text).collect();
    if response["allowed"] != true {
        let refusal = Refusal { result: response["status"].clone() };
        return Ok(ReviewVerdict { warnings, outcome: Err(Box::new(refusal)) });
    }
    if patch.is_empty() {
        return Ok(ReviewVerdict { warnings, outcome: Ok(None) });
    }
    let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
    let bytes = STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
    let patch: Value =
        serde_json::from_slice(&bytes).map_err(|error| undecodable(json_error(&error, &bytes)))?;
    let Some(steps) = patch.as_array() else {
        let given = go_type(&patch);
        return Err(undecodable(format!(
            "json: cannot unmarshal {given} into Go value of type jsonpatch.Patch"
        )));
    };
    if let Some(form) = form.filter(|form| !steps.is_empty() && *form != "JSONPatch") {
        return Err(format!("unsupported patch type {form:?}"));
    }
    Ok(ReviewVerdict { warnings, outcome: Ok(Some(patch)) })
}

/// Describes why an answer can't be read as a review of a version.
fn readable(version: &str, answer: &Value) -> Result<(), String> {
    let text = |key: &str| answer[key].as_str().unwrap_or_default();
    let (given, kind) = (text("apiVersion"), text("kind"));
    let Some(own) = given.strip_prefix("admission.k8s.io/").filter(|own| matches!(*own, "v1" | "v1beta1"))
    else {
        if given.is_empty() && kind.is_empty() {
            return Ok(());
        }
        return Err(unknown(kind, given));
    };
    match kind {
        "AdmissionReview" if own == version => Ok(()),
        "AdmissionReview" => Err(format!(
            "converting ({own}.AdmissionReview) to ({version}.AdmissionReview): unknown conversion"
        )),
        _ => Err(unknown(kind, given)),
    }
}

fn unknown(kind: &str, version: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Words a JSON error as the server does.
fn json_error(error: &serde_json::Error, bytes: &[u8]) -> String {
    let literals = ["null", "true", "false"];
    let begun = literals.into_iter().find(|literal| bytes.first() == literal.as_bytes().first());
    if let Some(literal) = begun
        && let Some((found, wanted)) =
            bytes.iter().zip(literal.bytes()).find(|(found, wanted)| **found != *wanted)
    {
        let (found, wanted) = (char::from(*found), char::from(wanted));
        return format!("invalid character '{found}' in literal {literal} (expecting '{wanted}')");
    }
    match bytes.get(error.column().saturating_sub(1)) {
        Some(found) if !error.is_eof() => {
            format!("invalid character '{}' looking for beginning of value", char::from(*found))
        }
        _ => "unexpected end of JSON input".to_owned(),
    }
}

/// Applies a webhook's patch to an object.
///
/// # Errors
/// 500: the patch does not fit.
pub(super) fn patched(object: &Value, patch: &Value) -> Result<Value, Status> {
    let mut new = object.clone();
    json_patch_of_webhook(&mut new, patch).map_err(|why| Status::internal_error(&why))?;
    Ok(new)
}

impl Refusal {
    /// Returns the answer to the client.
    pub(super) fn status(&self, hook: &str) -> Status {
        let text = |key: &str| self.result[key].as_str().unwrap_or_default();
        let code = self.result["code"].as_u64().filter(|code| (400..600).contains(code)).unwrap_or(400);
        let denied = format!("admission webhook {hook:?} denied the request");
        let message = match (text("message"), text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        let code = u16::try_from(code).unwrap_or(400);
        let mut status = Status::new(code, reason(text("reason")), message);
        status.details = Some(self.result["details"].clone()).filter(Value::is_object);
        status
    }
}

/// Returns a reason of the API; others are left out.
fn reason(text: &str) -> Option<&'static str> {
    const REASONS: [&str; 12] = [
        "AlreadyExists",
        "BadRequest",
        "Conflict",
        "Expired",
        "Forbidden",
        "Gone",
        "InternalError",
        "Invalid",
        "NotFound",
        "ServiceUnavailable",
        "TooManyRequests",
        "Unauthorized",
    ];
    REASONS.into_iter().find(|known| *known == text)
}

//! Reviews: what is sent to a webhook, and what may come back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::hook::Family;
use crate::patch::json_patch;
use crate::status::Status;

/// Writes a review.
pub(super) fn review(version: &str, uid: &str, mut request: Value) -> Value {
    request["uid"] = uid.into();
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// What a webhook has said.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// What it warns of.
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
pub(super) fn verdict(family: Family, version: &str, uid: &str, answer: &Value) -> Result<Verdict, String> {
    let invalid = |why: String| Err(format!("received invalid webhook response: {why}"));
    let response = &answer["response"];
    if !response.is_object() {
        return invalid("webhook response was absent".to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let given = text(&response["uid"]);
    if version == "v1" && given != uid {
        return invalid(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let (group, kind) = (text(&answer["apiVersion"]), text(&answer["kind"]));
    if version == "v1" && (group != "admission.k8s.io/v1" || kind != "AdmissionReview") {
        let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
        return invalid(format!("expected webhook response of {wanted}, got {group}, Kind={kind}"));
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
        return Ok(Verdict { warnings, outcome: Err(Box::new(refusal)) });
    }
    if patch.is_empty() {
        return Ok(Verdict { warnings, outcome: Ok(None) });
    }
    if let Some(form) = form.filter(|form| *form != "JSONPatch") {
        return Err(format!("unsupported patch type {form:?}"));
    }
    let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
    let bytes = STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
    let patch = serde_json::from_slice(&bytes).map_err(|error| undecodable(error.to_string()))?;
    Ok(Verdict { warnings, outcome: Ok(Some(patch)) })
}

/// Patches an object as a webhook asks.
///
/// # Errors
/// 500: the patch does not fit.
pub(super) fn patched(object: &Value, patch: &Value) -> Result<Value, Status> {
    let mut new = object.clone();
    json_patch(&mut new, patch).map_err(|error| Status::internal_error(&error.to_string()))?;
    Ok(new)
}

impl Refusal {
    /// Gives the answer to the client.
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

/// Gives a reason of the API; others are left out.
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

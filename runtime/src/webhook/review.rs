//! What a validator finds: errors at fields, refusals and warnings.

use serde::Serialize;
use serde_json::{Value, json};

use super::request::Request;
use crate::object::Kind;

/// Collects what a validator finds.
///
/// Errors of fields become the same status as the API server's own validation makes, so that `kubectl` prints path,
/// value and reason:
///
/// ```text
/// The Website "a" is invalid: spec.domain: Forbidden: is immutable
/// ```
#[derive(Debug)]
pub struct Review {
    request: Request,
    findings: Findings,
}

/// What validators found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: Vec<FieldError>,
    refusal: Option<String>,
    pub(super) warnings: Vec<String>,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldError {
    field: String,
    reason: &'static str,
    message: String,
}

impl Review {
    pub(super) fn new(request: Request) -> Self {
        Self { request, findings: Findings::default() }
    }

    /// Returns the request: operation, user, dry run, subresource.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Begins an error at a field, such as `spec.domain` or `spec.ports[0].name`.
    pub fn field(&mut self, path: impl Into<String>) -> FieldReview<'_> {
        FieldReview { review: self, path: path.into() }
    }

    /// Refuses the request as a whole, for a reason that is not a field: `is forbidden: <why>`, with code 403.
    ///
    /// Errors of fields take precedence.
    pub fn refuse(&mut self, why: impl Into<String>) {
        self.findings.refusal.get_or_insert_with(|| why.into());
    }

    /// Warns the user, who sees it whether the request is allowed or not.
    ///
    /// The API server shows about 256 characters of it.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.findings.warnings.push(warning.into());
    }

    /// Returns whether nothing speaks against the request so far.
    pub fn is_ok(&self) -> bool {
        self.findings.is_ok()
    }

    pub(super) fn into_findings(self) -> Findings {
        self.findings
    }
}

impl Findings {
    pub(super) fn is_ok(&self) -> bool {
        self.errors.is_empty() && self.refusal.is_none()
    }

    /// Adds what another validator found.
    pub(super) fn add(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.refusal = self.refusal.take().or(other.refusal);
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// Returns the status of the refusal of a named object; `None` if the request is allowed.
    pub(super) fn status(&self, name: &str, kind: &Kind) -> Option<Value> {
        let qualified = qualified(kind);
        let details = json!({"name": name, "group": kind.group, "kind": kind.kind});
        if self.errors.is_empty() {
            let why = self.refusal.as_ref()?;
            let message = format!("{kind} {name:?} is forbidden: {why}");
            return Some(status(403, "Forbidden", &message, details));
        }
        let mut texts: Vec<String> = Vec::new();
        for error in &self.errors {
            let text = format!("{}: {}", error.field, error.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let causes = self
            .errors
            .iter()
            .map(|error| json!({"reason": error.reason, "message": error.message, "field": error.field}));
        let mut details = details;
        details["causes"] = causes.collect();
        Some(status(422, "Invalid", &format!("{qualified} {name:?} is invalid: {all}"), details))
    }
}

impl From<FieldError> for Findings {
    fn from(error: FieldError) -> Self {
        Self { errors: vec![error], ..Self::default() }
    }
}

impl FieldError {
    /// Describes a field of an object that does not fit the object's type; `None` if it is not one field.
    pub(super) fn unreadable(field: &str, object: &Value, why: &str) -> Option<Self> {
        let is_whole = matches!(field, "" | ".");
        let missing = why.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        if let Some(missing) = missing {
            let field = if is_whole { missing.to_owned() } else { format!("{field}.{missing}") };
            return Some(Self { field, reason: "FieldValueRequired", message: "Required value".to_owned() });
        }
        if is_whole {
            return None;
        }
        let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
        // A text of the same length as the error, not a whole part of the object.
        let value = object.pointer(&pointer).filter(|value| !value.is_object() && !value.is_array());
        let error = match value {
            Some(value) => format!("Invalid value: {}", shown(value)),
            None => "Invalid value".to_owned(),
        };
        let message = with_detail(&error, why);
        Some(Self { field: field.to_owned(), reason: "FieldValueInvalid", message })
    }
}

/// Names a kind as the API server does in such messages: `Website.web.example.dev`.
fn qualified(kind: &Kind) -> String {
    if kind.group.is_empty() { kind.kind.to_string() } else { format!("{}.{}", kind.kind, kind.group) }
}

/// Makes a status of a failure.
pub(super) fn status(code: u16, reason: &str, message: &str, details: Value) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    });
    if !details.is_null() {
        status["details"] = details;
    }
    status
}

/// An error at a field: one of its methods completes it.
#[derive(Debug)]
#[must_use = "says nothing without a reason"]
pub struct FieldReview<'a> {
    review: &'a mut Review,
    path: String,
}

impl FieldReview<'_> {
    /// The field must be set.
    pub fn required(self) {
        self.add("FieldValueRequired", "Required value".to_owned());
    }

    /// The value is wrong; `why` says what it must be.
    pub fn invalid(self, value: impl Serialize, why: impl AsRef<str>) {
        let message = with_detail(&format!("Invalid value: {}", shown(&value)), why.as_ref());
        self.add("FieldValueInvalid", message);
    }

    /// The field may not be set, or may not be changed.
    pub fn forbidden(self, why: impl AsRef<str>) {
        let message = with_detail("Forbidden", why.as_ref());
        self.add("FieldValueForbidden", message);
    }

    /// The value is not one of those that are supported.
    pub fn not_supported<T: Serialize>(self, value: impl Serialize, supported: impl IntoIterator<Item = T>) {
        let supported: Vec<_> = supported.into_iter().map(|value| shown(&value)).collect();
        let value = shown(&value);
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", supported.join(", "))
        };
        self.add("FieldValueNotSupported", with_detail(&format!("Unsupported value: {value}"), &detail));
    }

    /// Another element, or another object, already has the value.
    pub fn duplicate(self, value: impl Serialize) {
        self.add("FieldValueDuplicate", format!("Duplicate value: {}", shown(&value)));
    }

    /// What the value names does not exist.
    pub fn not_found(self, value: impl Serialize) {
        self.add("FieldValueNotFound", format!("Not found: {}", shown(&value)));
    }

    /// The text is longer than a number of bytes.
    pub fn too_long(self, most: usize) {
        self.add("FieldValueTooLong", format!("Too long: may not be more than {most} bytes"));
    }

    /// The list has more elements than it may have.
    pub fn too_many(self, actual: usize, most: usize) {
        self.add("FieldValueTooMany", format!("Too many: {actual}: must have at most {most} items"));
    }

    fn add(self, reason: &'static str, message: String) {
        self.review.findings.errors.push(FieldError { field: self.path, reason, message });
    }
}

fn with_detail(error: &str, detail: &str) -> String {
    if detail.is_empty() { error.to_owned() } else { format!("{error}: {detail}") }
}

/// Shows a value as the API server does: as JSON.
fn shown(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "?".to_owned())
}

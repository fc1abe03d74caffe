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
    errors: Vec<FieldError>,
    refusal: Option<String>,
    warnings: Vec<String>,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
struct FieldError {
    field: String,
    reason: &'static str,
    message: String,
}

impl Review {
    pub(super) fn new(request: Request) -> Self {
        Self { request, errors: Vec::new(), refusal: None, warnings: Vec::new() }
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
        self.refusal.get_or_insert_with(|| why.into());
    }

    /// Warns the user, who sees it whether the request is allowed or not.
    ///
    /// The API server shows about 256 characters of it.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Returns whether nothing speaks against the request so far.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty() && self.refusal.is_none()
    }

    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns the status of the refusal; `None` if the request is allowed.
    pub(super) fn status(&self, kind: &Kind) -> Option<Value> {
        let (name, qualified) = (self.request.name(), qualified(kind));
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
        self.review.errors.push(FieldError { field: self.path, reason, message });
    }
}

fn with_detail(error: &str, detail: &str) -> String {
    if detail.is_empty() { error.to_owned() } else { format!("{error}: {detail}") }
}

/// Shows a value as the API server does: as JSON.
fn shown(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "?".to_owned())
}

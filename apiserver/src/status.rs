//! Statuses: the API server's answers to refused requests, word for word.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Response, header};
use serde_json::{Map, Value, json};

/// One error of a field inside an `Invalid` or `Conflict` answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// The machine word, e.g. `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// The text after the field's name.
    pub(crate) message: String,
    /// The path of the field; empty if it has none.
    pub(crate) field: String,
}

impl Cause {
    /// Builds a cause.
    pub(crate) fn new(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), field: field.into() }
    }

    /// A value that is wrong: `shown` is the value as the server prints it.
    pub(crate) fn invalid(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {shown}: {detail}"))
    }

    /// A field that may not be set here.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    /// A field that takes more bytes than it may.
    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {most} bytes"))
    }

    /// A field that must be set.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self::new("FieldValueRequired", field, message)
    }

    fn line(&self) -> String {
        if self.field.is_empty() { self.message.clone() } else { format!("{}: {}", self.field, self.message) }
    }

    fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("reason".into(), self.reason.into());
        map.insert("message".into(), self.message.clone().into());
        if !self.field.is_empty() {
            map.insert("field".into(), self.field.clone().into());
        }
        Value::Object(map)
    }
}

/// How a failure's body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// A `Status` object.
    Status,
    /// The bare message as `text/plain`.
    Text,
}

/// A refusal: the answer in place of the requested object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    /// The HTTP code.
    pub(crate) code: u16,
    /// The machine-readable reason; a few errors have none.
    pub(crate) reason: Option<&'static str>,
    /// The text for people.
    pub(crate) message: String,
    /// Details: `{name, group, kind, causes, retryAfterSeconds}`, only what applies.
    pub(crate) details: Option<Value>,
    /// A token that continues where an expired one ended.
    pub(crate) go_on: Option<Box<str>>,
    /// Seconds for the header `Retry-After`.
    pub(crate) retry_after: Option<u32>,
    /// JSON or plain text.
    pub(crate) body: Body,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Box<[String]>,
}

/// The text for an unknown path or kind.
pub(crate) const NO_SUCH_RESOURCE: &str = "the server could not find the requested resource";

impl Status {
    /// A failure with a code, a reason and a message, without details.
    pub(crate) fn new(code: u16, reason: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            go_on: None,
            retry_after: None,
            body: Body::Status,
            warnings: Box::default(),
        }
    }

    /// Adds texts for `Warning` headers.
    pub(crate) fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.warnings = [&self.warnings[..], warnings].concat().into();
        self
    }

    /// Adds details.
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// 404 as plain text: a path outside all groups.
    pub(crate) fn page_not_found() -> Self {
        Self { body: Body::Text, ..Self::new(404, None, "404 page not found\n") }
    }

    /// 404: the server knows the group, but not this resource.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, Some("NotFound"), NO_SUCH_RESOURCE).with_details(json!({}))
    }

    /// 404: an object that is not there.
    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, plural));
        Self::new(404, Some("NotFound"), message).with_details(named(group, plural, name))
    }

    /// 405: the path exists, the verb is not offered on it.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, Some("MethodNotAllowed"), message).with_details(json!({}))
    }

    /// 409: an object with this name already exists.
    pub(crate) fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, plural));
        Self::new(409, Some("AlreadyExists"), message).with_details(named(group, plural, name))
    }

    /// 409: the write was computed from something that is no longer so.
    ///
    /// `kind` is the plural for stale writes and the kind for preconditions, as the real server has it.
    pub(crate) fn conflict(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(group, kind));
        Self::new(409, Some("Conflict"), message).with_details(named(group, kind, name))
    }

    /// 409: a stale resource version.
    pub(crate) fn stale(group: &str, plural: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, why)
    }

    /// 422: fields that are wrong; `kind` is the kind (the plural for versions on update).
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let mut seen = BTreeSet::new();
        let lines: Vec<String> =
            causes.iter().map(Cause::line).filter(|line| seen.insert(line.clone())).collect();
        let list = if let [one] = lines.as_slice() { one.clone() } else { format!("[{}]", lines.join(", ")) };
        let message = format!("{} {name:?} is invalid: {list}", qualified(group, kind));
        let mut details = named(group, kind, name);
        details["causes"] = causes.iter().map(Cause::to_value).collect();
        Self::new(422, Some("Invalid"), message).with_details(details)
    }

    /// 422 for the options of a list or watch.
    pub(crate) fn invalid_list_options(causes: &[Cause]) -> Self {
        Self::invalid("meta.k8s.io", "ListOptions", "", causes)
    }

    /// 400: a request that can't be understood.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Some("BadRequest"), message)
    }

    /// 500 without a reason: the real server's answer to some invalid input.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, None, message)
    }

    /// No answer at all: the write begins again once a webhook has answered.
    pub(crate) fn waiting() -> Self {
        Self::internal_error("too many webhook calls for one request")
    }

    /// 500 as the real server words what went wrong inside of it.
    pub(crate) fn internal_error(why: &str) -> Self {
        Self::new(500, Some("InternalError"), format!("Internal error occurred: {why}"))
            .with_details(json!({"causes": [{"message": why}]}))
    }

    /// 403: the user may not do this.
    ///
    /// `what` is e.g. `cannot get resource "configmaps" in API group "" in the namespace "x"`.
    pub(crate) fn forbidden(group: &str, plural: &str, name: &str, what: &str) -> Self {
        let subject = if name.is_empty() {
            qualified(group, plural)
        } else {
            format!("{} {name:?}", qualified(group, plural))
        };
        Self::new(403, Some("Forbidden"), format!("{subject} is forbidden: {what}"))
            .with_details(named(group, plural, name))
    }

    /// 403 on a path that is not a resource.
    pub(crate) fn forbidden_outside(what: &str) -> Self {
        Self::new(403, Some("Forbidden"), format!("forbidden: {what}")).with_details(json!({}))
    }

    /// 401: the token is not one of ours.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, Some("Unauthorized"), "Unauthorized")
    }

    /// 406: none of the requested forms is offered.
    pub(crate) fn not_acceptable(offered: &str) -> Self {
        let message = format!("only the following media types are accepted: {offered}");
        Self::new(406, Some("NotAcceptable"), message)
    }

    /// 415 with a message.
    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, Some("UnsupportedMediaType"), message)
    }

    /// 413: a body over the limit, in bytes.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, Some("RequestEntityTooLarge"), message)
    }

    /// 410: the requested version has expired.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Some("Expired"), message)
    }

    /// 504: a version the server has not reached.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        let details = json!({"causes": cause, "retryAfterSeconds": 1});
        Self { retry_after: Some(1), ..Self::new(504, Some("Timeout"), message).with_details(details) }
    }

    /// Writes the `Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut out = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"});
        if let Some(token) = &self.go_on {
            out["metadata"]["continue"] = token.to_string().into();
        }
        out["message"] = self.message.clone().into();
        if let Some(reason) = self.reason {
            out["reason"] = reason.into();
        }
        if let Some(details) = &self.details {
            out["details"] = details.clone();
        }
        out["code"] = self.code.into();
        out
    }

    /// Writes the whole HTTP answer, as JSON or text.
    pub(crate) fn to_response(&self) -> Response<Bytes> {
        let (content_type, body) = match self.body {
            Body::Text => ("text/plain; charset=utf-8", Bytes::from(self.message.clone())),
            Body::Status => ("application/json", Bytes::from(self.to_value().to_string())),
        };
        let code = http::StatusCode::from_u16(self.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Response::new(body);
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// Writes `plural.group`, or the plural alone in the core group.
pub(crate) fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// Builds details from the non-empty parts of name, group and kind.
pub(crate) fn named(group: &str, kind: &str, name: &str) -> Value {
    let mut map = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            map.insert(key.into(), value.into());
        }
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_names_its_group_and_plural() {
        let status = Status::not_found("example.com", "widgets", "w");
        assert_eq!(status.message, "widgets.example.com \"w\" not found");
        assert_eq!(status.details, Some(json!({"name": "w", "group": "example.com", "kind": "widgets"})));
        assert_eq!(Status::not_found("", "configmaps", "a").message, "configmaps \"a\" not found");
    }

    #[test]
    fn several_causes_stand_in_brackets_and_one_does_not() {
        let one = [Cause::forbidden("a", "no")];
        assert_eq!(
            Status::invalid_list_options(&one).message,
            "ListOptions.meta.k8s.io \"\" is invalid: a: Forbidden: no"
        );
        let two = [Cause::forbidden("a", "no"), Cause::required("b", "")];
        let message = Status::invalid("", "Pod", "p", &two).message;
        assert_eq!(message, "Pod \"p\" is invalid: [a: Forbidden: no, b: Required value]");
    }

    #[test]
    fn a_status_never_holds_null() {
        let value = Status::internal("x").to_value();
        assert!(value.as_object().expect("object").values().all(|v| !v.is_null()));
    }
}

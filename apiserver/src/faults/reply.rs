//! Statuses that a rule makes up: as answers, as `ERROR` events, as bare lines.

use bytes::Bytes;
use http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::status::{Body, Status};

/// An answer made up on the spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReply {
    code: u16,
    reason: Option<String>,
    message: Option<String>,
    retry_after: Option<u32>,
    too_large: Option<TooLarge>,
    body: Body,
}

/// The forms in which servers say that a version is not reached yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TooLarge {
    /// A Timeout whose cause has the reason `ResourceVersionTooLarge`: since 1.19.
    CauseReason,
    /// A Timeout whose cause says it in its message alone: before 1.19.
    CauseMessage,
    /// A Timeout that says it in its own message, without causes: before 1.17.
    Message,
}

impl StatusReply {
    pub(super) fn new(code: u16) -> Self {
        let body = Body::Status;
        Self { code, reason: None, message: None, retry_after: None, too_large: None, body }
    }

    pub(super) fn too_large(form: TooLarge) -> Self {
        Self { too_large: Some(form), ..Self::new(504) }
    }

    /// Adds `Retry-After` in seconds, in the header and in the details.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Answers in plain text, as an overloaded server does; events are never text.
    #[must_use]
    pub fn text(mut self) -> Self {
        self.body = Body::Text;
        self
    }

    /// Says this instead of the usual message.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Gives this reason instead of the usual one, e.g. `Gone`; an empty one leaves it out.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Uses another code, e.g. a 429 for a too-large version.
    #[must_use]
    pub fn code(mut self, code: u16) -> Self {
        self.code = code;
        self
    }

    /// Sends it inside a watch, as an `ERROR` event; then the stream ends cleanly.
    ///
    /// It acts on open streams at once; a new watch gets its headers first.
    #[must_use]
    pub fn as_event(self) -> Saying {
        Saying { reply: self, form: ReplyForm::Event, after_events: 0, then: Then::Close }
    }

    /// Sends it inside a watch, as a line that is a `Status` and no event; then the stream ends cleanly.
    ///
    /// Proxies and old servers do this. A client classifies it like an `ERROR` event.
    #[must_use]
    pub fn as_line(self) -> Saying {
        Saying { form: ReplyForm::Line, ..self.as_event() }
    }

    fn status(&self, versions: Versions) -> Status {
        let (reason, usual) = usual(self.code);
        let text_429 = self.body == Body::Text && self.code == 429;
        let usual = if text_429 { "Too many requests, please try again later.\n" } else { usual };
        let Versions { asked, current } = versions;
        let large = format!("Too large resource version: {asked}, current: {current}");
        let mut details = serde_json::Map::new();
        let mut message = usual.to_owned();
        match self.too_large {
            None => {}
            Some(TooLarge::CauseReason) => {
                message = format!("Timeout: {large}");
                let cause =
                    json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
                details.insert("causes".into(), json!([cause]));
            }
            Some(TooLarge::CauseMessage) => {
                message = "Timeout: the version asked for is not there yet".to_owned();
                details.insert("causes".into(), json!([{"message": "Too large resource version"}]));
            }
            Some(TooLarge::Message) => message = format!("Timeout: {large}"),
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".into(), seconds.into());
        }
        let mut status = Status::new(self.code, reason, self.message.clone().unwrap_or(message));
        status.retry_after = self.retry_after;
        status.body = self.body;
        status.details = (!details.is_empty()).then_some(Value::Object(details));
        status
    }

    fn to_value(&self, versions: Versions) -> Value {
        let mut value = self.status(versions).to_value();
        if self.too_large.is_some() {
            value["reason"] = "Timeout".into();
        }
        if let (Some(reason), Some(map)) = (&self.reason, value.as_object_mut()) {
            map.remove("reason");
            if !reason.is_empty() {
                map.insert("reason".into(), reason.clone().into());
            }
        }
        value
    }

    pub(super) fn to_response(&self, versions: Versions) -> Response<Bytes> {
        let mut response = self.status(versions).to_response();
        if self.body == Body::Status {
            *response.body_mut() = Bytes::from(self.to_value(versions).to_string());
        }
        response
    }

    pub(super) fn script(&self) -> String {
        let mut out = match self.too_large {
            None => format!("Fault::Status({})", self.code),
            Some(form) if self.code == 504 => format!("Fault::TooLarge(TooLarge::{form:?})"),
            Some(form) => format!("Fault::TooLarge(TooLarge::{form:?}).code({})", self.code),
        };
        if let Some(reason) = &self.reason {
            out += &format!(".reason({reason:?})");
        }
        if let Some(message) = &self.message {
            out += &format!(".message({message:?})");
        }
        if let Some(seconds) = self.retry_after {
            out += &format!(".retry_after({seconds})");
        }
        if self.body == Body::Text {
            out += ".text()";
        }
        out
    }
}

/// The requested version, and the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Versions {
    pub(super) asked: u64,
    pub(super) current: u64,
}

/// A status put into a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saying {
    reply: StatusReply,
    form: ReplyForm,
    pub(super) after_events: u32,
    pub(super) then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyForm {
    Event,
    Line,
}

/// What follows a status inside a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Close,
    GoOn,
}

impl Saying {
    /// Lets this many more events pass first; bookmarks don't count.
    #[must_use]
    pub fn after_events(mut self, events: u32) -> Self {
        self.after_events = events;
        self
    }

    /// Leaves the stream open: events go on after it.
    #[must_use]
    pub fn and_go_on(mut self) -> Self {
        self.then = Then::GoOn;
        self
    }

    pub(super) fn line(&self, versions: Versions) -> Bytes {
        let status = self.reply.to_value(versions);
        Bytes::from(match self.form {
            ReplyForm::Event => format!("{}\n", json!({"type": "ERROR", "object": status})),
            ReplyForm::Line => format!("{status}\n"),
        })
    }

    pub(super) fn script(&self) -> String {
        let mut out = self.reply.script();
        out += if self.form == ReplyForm::Event { ".as_event()" } else { ".as_line()" };
        if self.after_events > 0 {
            out += &format!(".after_events({})", self.after_events);
        }
        if self.then == Then::GoOn {
            out += ".and_go_on()";
        }
        out
    }
}

/// Returns the reason and the message a real server uses with a code.
fn usual(code: u16) -> (Option<&'static str>, &'static str) {
    match code {
        400 => (Some("BadRequest"), "the server rejected our request for an unknown reason"),
        401 => (Some("Unauthorized"), "Unauthorized"),
        403 => (Some("Forbidden"), "forbidden by a fault rule"),
        404 => (Some("NotFound"), "the server could not find the requested resource"),
        409 => (
            Some("Conflict"),
            "the object has been modified; please apply your changes to the latest version",
        ),
        410 => (Some("Expired"), "The resourceVersion for the provided list is too old."),
        413 => (Some("RequestEntityTooLarge"), "Request entity too large: limit is 3145728"),
        422 => (Some("Invalid"), "the server rejected our request due to an error in our request"),
        429 => (
            Some("TooManyRequests"),
            "the server has received too many requests and has asked us to try again later",
        ),
        500 => (Some("InternalError"), "an error on the server has prevented the request from succeeding"),
        503 => (Some("ServiceUnavailable"), "the server is currently unable to handle the request"),
        504 => (Some("Timeout"), "the server was unable to return a response in the time allotted"),
        _ => (None, "a fault rule answers so"),
    }
}

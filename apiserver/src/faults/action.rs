//! What a rule does to an answer.

use bytes::Bytes;
use http::Response;
use serde_json::json;

use crate::status::{Body, Status};

/// The names of all faults; each starts a [`Rule::then`](super::Rule::then).
#[derive(Clone, Copy, Debug)]
pub enum Fault {}

#[expect(non_upper_case_globals, non_snake_case, reason = "they read as the variants of a fault")]
impl Fault {
    /// Breaks the answer off: the connection goes, without an end mark.
    ///
    /// Without a place no byte of a new answer passes, and a stream that is open ends at once.
    pub const Cut: Interruption =
        Interruption { kind: Interrupt::Cut, place: Place { events: 0, byte: None } };

    /// Keeps the connection and sends nothing more, until [`Faults::clear`](super::Faults::clear).
    ///
    /// Without a place a new watch gets its headers and no more, any other request is not even looked at.
    /// What was held back goes on after the clearing, as packets do when a network heals.
    pub const Silence: Interruption =
        Interruption { kind: Interrupt::Silence, place: Place { events: 0, byte: None } };

    /// Carries the request out, then breaks the connection instead of answering.
    pub const CommitThenDrop: Action = Action(Effect::CommitThenDrop);

    /// Answers with this code instead of looking at the request.
    ///
    /// The body is a `Status` with the usual reason of the code. Open streams are left alone.
    #[must_use]
    pub fn Status(code: u16) -> StatusReply {
        StatusReply { code, message: None, retry_after: None, body: Body::Status }
    }
}

/// What a rule does, whole; every fault turns into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action(pub(super) Effect);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Interrupt(Interruption),
    Reply(StatusReply),
    CommitThenDrop,
}

/// A break or a pause in the middle of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption {
    pub(super) kind: Interrupt,
    pub(super) place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    Cut,
    Silence,
}

/// Where in an answer: after so many events, then so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) events: u32,
    pub(super) byte: Option<usize>,
}

impl Interruption {
    /// Lets so many more events pass first; bookmarks don't count.
    ///
    /// A rule with this applies to watches alone.
    #[must_use]
    pub fn after_events(mut self, events: u32) -> Self {
        self.place.events = events;
        self
    }

    /// Comes instead of the `n`-th next event, counted from 1; bookmarks don't count.
    #[must_use]
    pub fn at_event(self, n: u32) -> Self {
        self.after_events(n.saturating_sub(1)).at_byte(0)
    }

    /// Lets so many bytes of what comes then pass; waits for the next byte if 0.
    #[must_use]
    pub fn at_byte(mut self, bytes: usize) -> Self {
        self.place.byte = Some(bytes);
        self
    }

    /// True when it acts as soon as it is planted.
    pub(super) fn immediate(&self) -> bool {
        self.place == Place { events: 0, byte: None }
    }
}

/// An answer made up on the spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReply {
    code: u16,
    message: Option<String>,
    retry_after: Option<u32>,
    body: Body,
}

impl StatusReply {
    /// Adds `Retry-After` in seconds, in the header and in the details.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Answers in plain text, as an overloaded server does.
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

    pub(super) fn to_response(&self) -> Response<Bytes> {
        let (reason, usual) = usual(self.code);
        let text_429 = self.body == Body::Text && self.code == 429;
        let usual = if text_429 { "Too many requests, please try again later.\n" } else { usual };
        let mut status = Status::new(self.code, reason, self.message.as_deref().unwrap_or(usual));
        status.retry_after = self.retry_after;
        status.body = self.body;
        if let Some(seconds) = self.retry_after {
            status.details = Some(json!({ "retryAfterSeconds": seconds }));
        }
        status.to_response()
    }

    pub(super) fn script(&self) -> String {
        let mut out = format!("Fault::Status({})", self.code);
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

/// Gives the reason and the message a real server uses with a code.
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

impl Action {
    /// True when it says something about a stream that is open already.
    pub(super) fn interruption(&self) -> Option<Interruption> {
        match &self.0 {
            Effect::Interrupt(interruption) => Some(*interruption),
            Effect::Reply(_) | Effect::CommitThenDrop => None,
        }
    }

    /// Writes the action as it stands in a test.
    pub(super) fn script(&self) -> String {
        match &self.0 {
            Effect::CommitThenDrop => "Fault::CommitThenDrop".to_owned(),
            Effect::Reply(reply) => reply.script(),
            Effect::Interrupt(Interruption { kind, place }) => {
                let mut out = format!("Fault::{kind:?}");
                if place.events > 0 {
                    out += &format!(".after_events({})", place.events);
                }
                if let Some(byte) = place.byte {
                    out += &format!(".at_byte({byte})");
                }
                out
            }
        }
    }
}

impl From<Interruption> for Action {
    fn from(interruption: Interruption) -> Self {
        Self(Effect::Interrupt(interruption))
    }
}

impl From<StatusReply> for Action {
    fn from(reply: StatusReply) -> Self {
        Self(Effect::Reply(reply))
    }
}

//! One write request: sent with a deadline, answered with a status code and an object.

use std::time::Duration;

use http::{Method, StatusCode, response};
use http_body_util::BodyExt;
use kube::{
    client::Body,
    core::{Status, response::StatusSummary},
};
use serde_json::Value;
use tracing::{Instrument, Span, field};

use super::{WriteError, refusal::RetryAfter};
/// What a request is about, for URLs and messages.
pub(crate) use crate::object::ObjectRef as Target;

/// How long a request may take, its answer included.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The body of a request and how it is meant.
#[derive(Debug)]
pub(crate) enum RequestBody {
    None,
    Json(Value),
    Apply(Value),
    MergePatch(Value),
    JsonPatch(Value),
}

impl RequestBody {
    fn media_type(&self) -> &'static str {
        match self {
            Self::None | Self::Json(_) => "application/json",
            Self::Apply(_) => "application/apply-patch+yaml",
            Self::MergePatch(_) => "application/merge-patch+json",
            Self::JsonPatch(_) => "application/json-patch+json",
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Json(value) | Self::Apply(value) | Self::MergePatch(value) | Self::JsonPatch(value) => {
                value.to_string().into_bytes()
            }
        }
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// To the object.
    Object,
    /// To its status.
    Status,
    /// To the collection that it is in, or will be.
    Collection,
}

/// A request about one object.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) verb: &'static str,
    pub(crate) method: Method,
    pub(crate) target: &'a Target,
    pub(crate) path: Path,
    /// Query pairs; the values need no escaping.
    pub(crate) query: String,
    pub(crate) content: RequestBody,
}

/// What the server answered: its code tells a creation (201) from a change (200).
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) code: StatusCode,
    pub(crate) object: Value,
}

impl Request<'_> {
    /// Sends the request, in a span of its own, and decodes the object that answers it.
    pub(crate) async fn send(self, client: &kube::Client) -> Result<ApiResponse, WriteError> {
        let span = tracing::info_span!(
            "request",
            operation = self.verb,
            object = %self.target,
            status = field::Empty,
            otel.status_code = field::Empty,
        );
        let answer = self.send_and_decode(client).instrument(span.clone()).await;
        if answer.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        answer
    }

    async fn send_and_decode(self, client: &kube::Client) -> Result<ApiResponse, WriteError> {
        let (verb, object) = (self.verb, Box::new(self.target.clone()));
        let key = &self.target.key;
        let name = if self.path == Path::Collection { "-" } else { key.name() };
        if ![key.namespace().unwrap_or("-"), name].into_iter().all(is_segment) {
            return Err(WriteError::Misnamed { object });
        }
        let (head, body) = tokio::time::timeout(DEADLINE, self.exchange(client))
            .await
            .map_err(|_| WriteError::Deadline { verb, object: object.clone(), after: DEADLINE })??;
        let code = head.status;
        Span::current().record("status", code.as_u16());
        if !code.is_success() {
            let status = status_of(code, &body);
            let retry_after = RetryAfter::asked_by(&head.headers, &status);
            return Err(WriteError::refused(verb, object, status, retry_after));
        }
        let decoded = serde_json::from_slice(&body).map_err(|error| WriteError::Codec {
            verb,
            object,
            problem: format!(
                "the answer is no such object (line {}, column {})",
                error.line(),
                error.column()
            ),
        })?;
        Ok(ApiResponse { code, object: decoded })
    }

    async fn exchange(self, client: &kube::Client) -> Result<(response::Parts, Vec<u8>), WriteError> {
        let (verb, object) = (self.verb, Box::new(self.target.clone()));
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| WriteError::Connection {
            verb,
            object: object.clone(),
            source,
        };
        let request = http::Request::builder()
            .method(self.method.clone())
            .uri(self.uri())
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, self.content.media_type())
            .body(Body::from(self.content.bytes()))
            .map_err(|error| failed(error.into()))?;
        let response = client.send(request).await.map_err(|error| failed(error.into()))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| failed(error.into()))?;
        Ok((head, body.to_bytes().to_vec()))
    }

    fn uri(&self) -> String {
        let key = &self.target.key;
        let collection = self.target.kind.url_path(key.namespace().map(escaped).as_deref());
        let mut uri = match self.path {
            Path::Collection => collection,
            Path::Object => format!("{collection}/{}", escaped(key.name())),
            Path::Status => format!("{collection}/{}/status", escaped(key.name())),
        };
        if !self.query.is_empty() {
            uri = format!("{uri}?{}", self.query);
        }
        uri
    }
}

/// Returns whether a name is one segment of a path, by the rule that Kubernetes has for names.
fn is_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// Writes what is not plain as `%XX`: a name says nothing but a name.
fn escaped(name: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// Reads what the server says of a refusal; a body of another sort is its message.
fn status_of(code: StatusCode, body: &[u8]) -> Status {
    let status = serde_json::from_slice::<Status>(body).ok().filter(|status| status.code != 0);
    status.unwrap_or_else(|| Status {
        status: Some(StatusSummary::Failure),
        code: code.as_u16(),
        message: String::from_utf8_lossy(body).trim().chars().take(200).collect(),
        reason: code.canonical_reason().unwrap_or_default().to_owned(),
        ..Status::default()
    })
}

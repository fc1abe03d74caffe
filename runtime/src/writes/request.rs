//! One write request: sent with a deadline, answered with a status code and an object.

use std::time::Duration;

use http::{StatusCode, response};
use http_body_util::BodyExt;
use kube::core::{Status, response::StatusSummary};
use serde_json::Value;
use tracing::{Instrument, Span, field};

use super::{WriteError, refusal::RetryAfter};
use crate::api_request::{ApiRequest, MediaType, ResourcePath};
pub(crate) use crate::{api_request::ApiVerb, object::ObjectRef as Target};

/// How long a request may take, its answer included.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The body of a request and how it is meant.
#[derive(Debug)]
pub(crate) enum Content {
    None,
    Json(Value),
    Apply(Value),
    MergePatch(Value),
    JsonPatch(Value),
}

impl Content {
    fn media_type(&self) -> MediaType {
        match self {
            Self::None | Self::Json(_) => MediaType::Json,
            Self::Apply(_) => MediaType::Apply,
            Self::MergePatch(_) => MediaType::MergePatch,
            Self::JsonPatch(_) => MediaType::JsonPatch,
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
    /// What messages call it, such as `apply`.
    pub(crate) operation: &'static str,
    pub(crate) verb: ApiVerb,
    pub(crate) target: &'a Target,
    pub(crate) path: Path,
    /// Query pairs; the values need no escaping.
    pub(crate) query: String,
    pub(crate) content: Content,
}

/// The server's answer: its code is 201 after a creation, and 200 after a change.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) object: Value,
}

impl Request<'_> {
    /// Sends the request, in a span of its own, and decodes the object that answers it.
    pub(crate) async fn send(self, client: &kube::Client) -> Result<Answer, WriteError> {
        let span = tracing::info_span!(
            "request",
            operation = self.operation,
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

    async fn send_and_decode(self, client: &kube::Client) -> Result<Answer, WriteError> {
        let (verb, object) = (self.operation, Box::new(self.target.clone()));
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
                "the answer is not such an object (line {}, column {})",
                error.line(),
                error.column()
            ),
        })?;
        Ok(Answer { code, object: decoded })
    }

    async fn exchange(self, client: &kube::Client) -> Result<(response::Parts, Vec<u8>), WriteError> {
        let (verb, object) = (self.operation, Box::new(self.target.clone()));
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| WriteError::Connection {
            verb,
            object: object.clone(),
            source,
        };
        let request = self.api().build(&self.query, self.content.bytes());
        let request = request.map_err(|error| failed(error.into()))?;
        let response = client.send(request).await.map_err(|error| failed(error.into()))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| failed(error.into()))?;
        Ok((head, body.to_bytes().to_vec()))
    }

    fn api(&self) -> ApiRequest {
        let key = &self.target.key;
        let collection = ResourcePath::of(&self.target.kind, key.namespace());
        let name = Some(key.name().to_owned());
        let path = match self.path {
            Path::Collection => collection,
            Path::Object => ResourcePath { name, ..collection },
            Path::Status => ResourcePath { name, subresource: Some("status".to_owned()), ..collection },
        };
        ApiRequest { verb: self.verb, path, media_type: Some(self.content.media_type()) }
    }
}

/// Returns whether a name can be one segment of a path, by the rule that Kubernetes has for names.
fn is_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// Reads the status of a refusal; a body that is not a status becomes its message.
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

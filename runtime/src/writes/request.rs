//! One request about an object: sent with a deadline, answered with a status code and an object.

use std::{error::Error, time::Duration};

use http::{StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;
use tracing::{Instrument, Span, field};

use super::{WriteError, refusal::RetryAfter};
use crate::{api_request::ResourcePath, list_watch::status_of_answer};
pub(crate) use crate::{
    api_request::{ApiVerb, MediaType},
    object::ObjectRef as Target,
};

/// How long a request may take, its answer included.
const DEADLINE: Duration = Duration::from_secs(30);

/// A request about one object. A creation and a list are sent to the collection that the object is in.
#[derive(Debug)]
pub(crate) struct ObjectRequest<'a> {
    /// What messages call it, such as `apply`.
    pub(crate) operation: &'static str,
    pub(crate) verb: ApiVerb,
    pub(crate) target: &'a Target,
    pub(crate) subresource: Option<&'static str>,
    /// Query pairs; the values need no escaping.
    pub(crate) query: String,
    pub(crate) media_type: MediaType,
    /// Null if it has no body.
    pub(crate) body: Value,
}

/// The server's answer: its code is 201 after a creation, and 200 after a change.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) code: StatusCode,
    pub(crate) object: Value,
}

impl<'a> ObjectRequest<'a> {
    /// Makes a request to an object, or to its collection, without a query.
    pub(super) fn new(
        operation: &'static str,
        verb: ApiVerb,
        target: &'a Target,
        media_type: MediaType,
        body: Value,
    ) -> Self {
        Self { operation, verb, target, subresource: None, query: String::new(), media_type, body }
    }

    /// Returns whether it is sent to the collection: the object has no name yet, or none is meant.
    pub(super) fn is_of_collection(&self) -> bool {
        matches!(self.verb, ApiVerb::Create | ApiVerb::List)
    }

    /// Sends the request, in a span of its own, and decodes the object that answers it.
    pub(crate) async fn send(self, client: &kube::Client) -> Result<ApiResponse, WriteError> {
        let (verb, object) = (self.operation, || Box::new(self.target.clone()));
        let failed = |source: Box<dyn Error + Send + Sync>| {
            let object = object();
            WriteError::Connection { verb, object, source }
        };
        let exchange = async {
            let response = client.send(self.build()?).await.map_err(|error| failed(error.into()))?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| failed(error.into()))?.to_bytes();
            let code = head.status;
            Span::current().record("status", code.as_u16());
            if !code.is_success() {
                let status = status_of_answer(code, &body);
                let retry_after = RetryAfter::asked_by(&head.headers, &status);
                return Err(WriteError::refused(verb, object(), status, retry_after));
            }
            let decoded = serde_json::from_slice(&body).map_err(|error| {
                let (line, column) = (error.line(), error.column());
                let problem = format!("the answer is not such an object (line {line}, column {column})");
                WriteError::Codec { verb, object: object(), problem }
            })?;
            Ok(ApiResponse { code, object: decoded })
        };
        let span = tracing::info_span!(
            "request",
            operation = verb,
            object = %self.target,
            status = field::Empty,
            otel.status_code = field::Empty,
        );
        let late = || WriteError::Deadline { verb, object: object(), after: DEADLINE };
        let answer =
            timeout(DEADLINE, exchange).instrument(span.clone()).await.unwrap_or_else(|_| Err(late()));
        if answer.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        answer
    }

    fn build(&self) -> Result<http::Request<Body>, WriteError> {
        let (key, object) = (&self.target.key, || Box::new(self.target.clone()));
        let name = Some(key.name()).filter(|_| !self.is_of_collection());
        if ![key.namespace(), name].into_iter().flatten().all(is_segment) {
            return Err(WriteError::Misnamed { object: object() });
        }
        let mut path = ResourcePath::of(&self.target.kind, key.namespace());
        path.name = name.map(str::to_owned);
        path.subresource = self.subresource.map(str::to_owned);
        let separator = if self.query.is_empty() { "" } else { "?" };
        let body = if self.body.is_null() { Vec::new() } else { self.body.to_string().into_bytes() };
        http::Request::builder()
            .method(self.verb.method())
            .uri(format!("{}{separator}{}", path.url(), self.query))
            .header(header::ACCEPT, MediaType::Json.as_str())
            .header(header::CONTENT_TYPE, self.media_type.as_str())
            .body(Body::from(body))
            .map_err(|error| WriteError::Connection {
                verb: self.operation,
                object: object(),
                source: error.into(),
            })
    }
}

/// Returns whether a name can be one segment of a path, by the rule that Kubernetes has for names.
fn is_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

//! Responses, with the headers that each bears.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::Full;

/// A response that is there as a whole.
pub(super) type Answer = Response<Full<Bytes>>;

/// What browsers may do with a page of ours: show it, styled, and send its search back. No script, no frame.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Text,
    Json,
    Page,
    /// The OpenMetrics text format, as the metrics are encoded.
    Metrics,
}

impl Sort {
    fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/json",
            Self::Page => "text/html; charset=utf-8",
            Self::Metrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Makes a response: never stored, never taken for something else.
pub(super) fn answer(status: StatusCode, sort: Sort, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let set: [(HeaderName, &'static str); 3] = [
        (header::CONTENT_TYPE, sort.content_type()),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let headers = response.headers_mut();
    for (name, value) in set {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if sort == Sort::Page {
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
    response
}

/// Makes a response of a line.
pub(super) fn text(status: StatusCode, line: impl std::fmt::Display) -> Answer {
    answer(status, Sort::Text, format!("{line}\n"))
}

/// Leaves of a response what a `HEAD` is answered: the length of the body, without the body.
pub(super) fn without_body(answer: Answer) -> Answer {
    let (mut head, body) = answer.into_parts();
    let length = body.size_hint().lower();
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Response::from_parts(head, Full::default())
}

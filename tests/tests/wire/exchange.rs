//! Sending: requests as the recording sent them, whole answers and lines of streams.

use std::time::Duration;

use anyhow::Context as _;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};

use crate::bind::Bound;
use crate::format::{Call, Sender};

/// An answer before its body is read.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) lines: Lines,
}

/// Sends a call, its placeholders filled.
pub(crate) async fn send(client: &kube::Client, call: &Call, bound: &Bound) -> anyhow::Result<Opened> {
    let payload = call.payload().map(|text| bound.fill(text)).transpose()?;
    let mut request = http::Request::builder()
        .method(call.method.as_str())
        .uri(bound.fill(&call.path)?)
        .body(Body::from(payload.clone().unwrap_or_default().into_bytes()))
        .context("not a request")?;
    *request.headers_mut() = headers(call, payload.is_some())?;
    let (parts, body) = client.send(request).await.context("no answer")?.into_parts();
    let lines = Lines { body, buffer: Vec::new(), state: State::Open };
    Ok(Opened { status: parts.status.as_u16(), headers: parts.headers, lines })
}

fn headers(call: &Call, has_body: bool) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static("wire"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if has_body {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let token = match call.sender {
        Sender::Admin => Some("Bearer admin-token"),
        Sender::Viewer => Some("Bearer viewer-token"),
        Sender::Bad => Some("Bearer no-such-token"),
        Sender::None => None,
    };
    headers.extend(token.map(|token| (header::AUTHORIZATION, HeaderValue::from_static(token))));
    for (name, value) in &call.headers {
        let name: HeaderName = name.parse()?;
        match value {
            Some(value) => drop(headers.insert(name, value.parse()?)),
            None => drop(headers.remove(name)),
        }
    }
    Ok(headers)
}

/// What a stream shows next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line, without its end.
    Line(String),
    /// The stream's end.
    End,
    /// Nothing in the time given.
    Silence,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Open,
    Ended,
}

/// The body of an answer, as a whole or by lines.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Body,
    buffer: Vec<u8>,
    state: State,
}

impl Lines {
    /// Reads to the end.
    pub(crate) async fn rest(self) -> anyhow::Result<String> {
        let Self { body, mut buffer, .. } = self;
        buffer.extend(body.collect().await.context("the body broke off")?.to_bytes());
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }

    /// Waits for the next line until a moment.
    pub(crate) async fn next(&mut self, until: Instant) -> anyhow::Result<Next> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Next::Line(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            if self.state == State::Ended {
                let rest = std::mem::take(&mut self.buffer);
                let rest = String::from_utf8_lossy(&rest).into_owned();
                return Ok(if rest.is_empty() { Next::End } else { Next::Line(rest) });
            }
            match timeout_at(until, self.body.frame()).await {
                Err(_) => return Ok(Next::Silence),
                Ok(None) => self.state = State::Ended,
                Ok(Some(frame)) => {
                    if let Ok(bytes) = frame.context("the stream broke")?.into_data() {
                        self.buffer.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }
}

/// A moment some time from now.
pub(crate) fn after(time: Duration) -> Instant {
    Instant::now() + time
}

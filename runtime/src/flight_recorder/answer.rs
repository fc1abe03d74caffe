//! Records a request and its answer: a watch line by line, any other at its end.

use std::{
    borrow::Cow,
    mem,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Either};
use kube::client::Body;
use memchr::memchr;
use parking_lot::Mutex;
use serde::{Serialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{recorder::Recording, template::Template, watches::WatchOrder};
use crate::api_request::{ResourcePath, is_watch};

/// Records a request, to the manager's own cluster or another one, and its answer as far as that is read.
///
/// # Errors
/// The request's body can't be read.
pub(crate) async fn sent(
    recorder: &Recording,
    request: Request<Body>,
    is_own: bool,
) -> kube::Result<(Request<Body>, RecordedRequest)> {
    let (mut head, body) = request.into_parts();
    let reader = head.extensions.remove();
    let id = recorder.next_request();
    let uri = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    // Whether something is hidden is known of a resource alone: of anything else no content is recorded.
    let path = ResourcePath::parse(head.uri.path());
    let (is_stream, reads) = (is_watch(&head.uri), head.method == Method::GET);
    let (mut sent, mut bytes) = (None, None);
    let body = match reads {
        true => body,
        false => {
            let read = body.collect().await?.to_bytes();
            let shown = path.as_ref().map(|path| recorder.shown(&path.group, &path.plural, &read));
            sent = shown.and_then(|shown| serde_json::from_slice::<Box<RawValue>>(&shown).ok());
            bytes = Some(read.clone());
            Body::from(read.to_vec())
        }
    };
    let media = head.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    // An apply may be sent as YAML.
    let text = bytes.filter(|bytes| sent.is_none() && !bytes.is_empty());
    let is_shown = path.as_ref().is_some_and(|path| !recorder.hides(&path.group, &path.plural));
    let text = text.filter(|_| is_shown).and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    let method = head.method.as_str();
    let line = RequestLine { request: id, method, uri: &uri, r#type: media, body: sent.as_deref(), text };
    recorder.request(id, &line);
    // Versions of other clusters say nothing of what is cached of this one.
    let order = is_own.then(|| WatchOrder::of(&head.uri));
    let request = Request::from_parts(head, body);
    let recorder = recorder.clone();
    Ok((
        request,
        RecordedRequest {
            recorder,
            id,
            path,
            order,
            is_stream,
            hides: !is_shown,
            reader,
            head: Vec::new(),
            template: Template::default(),
        },
    ))
}

/// A request whose answer is to be recorded.
pub(crate) struct RecordedRequest {
    recorder: Recording,
    id: u64,
    /// `None`: it does not name a resource, or in a way that only a server understands.
    path: Option<ResourcePath>,
    /// `None`: it is sent to another cluster.
    order: Option<WatchOrder>,
    is_stream: bool,
    /// Something of the kind is hidden.
    hides: bool,
    /// Who reads the events, and records them.
    reader: Option<LineRecorder>,
    /// How the line of an event begins: with the time. What was there at once has one time, because it takes as long to read the
    /// clock as to write this.
    head: Vec<u8>,
    template: Template,
}

/// Records the lines of a watch where they are read.
///
/// A request that has a clone of it among its extensions gets its answer without a layer around the body: a layer would have to
/// find the lines a second time, and would read what is not in the processor's cache.
#[derive(Clone, Default)]
pub(crate) struct LineRecorder(Arc<OnceLock<Mutex<RecordedRequest>>>);

impl LineRecorder {
    /// Notes that lines have come.
    pub(crate) fn came(&self) {
        if let Some(request) = self.0.get() {
            request.lock().read_clock();
        }
    }

    /// Records a line that has come, if there is a recorder.
    pub(crate) fn line(&self, line: &[u8]) {
        let Some(request) = self.0.get() else { return };
        let mut request = request.lock();
        match line.len() > request.recorder.largest() {
            true => request.recorder.too_large(true),
            false => request.event(line),
        }
    }
}

impl RecordedRequest {
    /// Records an answer as it is read.
    pub(crate) fn answered(mut self, answer: Response<Body>) -> Response<Either<Body, RecordedBody>> {
        let (head, body) = answer.into_parts();
        let code = head.status.as_u16();
        let is_stream = self.is_stream && head.status.is_success();
        if is_stream {
            self.recorder.line(&AnswerLine { answer: self.id, code });
            if let Some(path) = self.path.as_ref().filter(|_| self.order.is_some()) {
                self.recorder.watch_opened(self.id, path);
            }
            if let Some(LineRecorder(reader)) = self.reader.take() {
                let _unset = reader.set(Mutex::new(self));
                return Response::from_parts(head, Either::Left(body));
            }
        }
        let body = RecordedBody::new(body, self, code, is_stream);
        Response::from_parts(head, Either::Right(body))
    }

    /// Notes the time of the events that follow.
    fn read_clock(&mut self) {
        self.head.clear();
        self.recorder.begin_event(self.id, &mut self.head);
    }

    /// Records an event of a watch.
    fn event(&mut self, line: &[u8]) {
        let Some(path) = &self.path else { return };
        let line = line.trim_ascii();
        // What is not a JSON object would make the line unreadable. The watch fails by it.
        if !(line.starts_with(b"{") && line.ends_with(b"}")) {
            return;
        }
        if let Some(order) = &mut self.order
            && let Some(version) = order.first(self.recorder.part(), line)
        {
            self.recorder.watch_shows(self.id, version);
        }
        // A line has no line breaks, so there is nothing to be done for most kinds.
        let line = match self.hides {
            false => Cow::Borrowed(line),
            true => self.recorder.shown(&path.group, &path.plural, line),
        };
        self.recorder.event(&self.head, &line, &mut self.template);
    }

    /// Records a body that has been read whole; `None`: it was too large.
    fn whole(&self, code: u16, body: Option<&[u8]>) {
        let id = self.id;
        if body.is_none() {
            self.recorder.too_large(false);
        }
        let shown = body.zip(self.path.as_ref());
        let shown = shown.map(|(body, path)| self.recorder.shown(&path.group, &path.plural, body));
        // What is not JSON would make the line unreadable.
        match shown.filter(|shown| serde_json::from_slice::<IgnoredAny>(shown).is_ok()) {
            Some(shown) => {
                let first = format!("\"answer\":{id},\"code\":{code},\"body\":");
                self.recorder.push(first.as_bytes(), &shown);
            }
            None => self.recorder.line(&AnswerLine { answer: id, code }),
        }
    }
}

impl Drop for RecordedRequest {
    fn drop(&mut self) {
        self.recorder.over(self.id);
    }
}

#[derive(Serialize)]
struct RequestLine<'a> {
    request: u64,
    method: &'a str,
    uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Serialize)]
struct AnswerLine {
    answer: u64,
    code: u16,
}

/// A body that is recorded: a watch line by line, any other at its end.
pub(crate) struct RecordedBody {
    body: Body,
    request: RecordedRequest,
    code: u16,
    is_stream: bool,
    /// What has been read and not recorded. It is used again and again: a new one for each chunk costs more than all the rest.
    read: Vec<u8>,
    /// It was too much, and is left out.
    is_too_large: bool,
}

impl RecordedBody {
    fn new(body: Body, request: RecordedRequest, code: u16, is_stream: bool) -> Self {
        Self { body, request, code, is_stream, read: Vec::new(), is_too_large: false }
    }

    fn take(&mut self, chunk: &[u8]) {
        self.request.read_clock();
        let mut rest = chunk;
        while self.is_stream
            && let Some(end) = memchr(b'\n', rest)
        {
            // Most events come in one chunk.
            let (line, more) = (&rest[..end], &rest[end + 1..]);
            if self.read.is_empty() && !self.is_too_large {
                self.request.event(line);
            } else {
                self.keep(line);
                match mem::take(&mut self.is_too_large) {
                    false => self.request.event(&self.read),
                    true => self.request.recorder.too_large(true),
                }
                self.read.clear();
            }
            rest = more;
        }
        self.keep(rest);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.is_too_large |= self.read.len() + bytes.len() > self.request.recorder.largest();
        if self.is_too_large {
            self.read = Vec::new();
        } else {
            self.read.extend_from_slice(bytes);
        }
    }
}

impl http_body::Body for RecordedBody {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return Poll::Pending;
        };
        match &frame {
            Some(Ok(frame)) => {
                if let Some(chunk) = frame.data_ref() {
                    self.take(chunk);
                }
            }
            None if !self.is_stream => {
                self.request.whole(self.code, Some(&*self.read).filter(|_| !self.is_too_large));
                self.is_stream = true;
            }
            Some(Err(_)) | None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // The end is to be seen here.
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::WallClock, flight_recorder::hidden::HiddenField};

    // P25
    #[tokio::test(start_paused = true)]
    async fn no_content_is_recorded_of_a_path_that_only_a_server_understands() {
        let path = std::env::temp_dir().join(format!("watchkeeper-paths-{}.wkr", std::process::id()));
        let always = HiddenField::always();
        let recording = Recording::open(&path, 1 << 20, always, &WallClock::default()).unwrap();
        let secret = || Body::from(b"{\"kind\":\"Secret\",\"data\":{\"a\":\"aHVudGVyMg==\"}}\n".to_vec());
        for uri in [
            "/api/v1/namespaces/shop/secrets/tls/",
            "/api/v1/watch/secrets?watch=true",
            "/api/v1/watch/namespaces/shop/secrets/tls",
        ] {
            for method in [Method::GET, Method::PUT] {
                let request = Request::builder().method(method).uri(uri).body(secret()).unwrap();
                let (_, recorded) = sent(&recording, request, true).await.unwrap();
                recorded.answered(Response::new(secret())).into_body().collect().await.unwrap();
            }
        }
        let text = recording.waiting();
        assert!(text.contains("/secrets/tls/") && text.contains("\"code\":200"), "{text}");
        assert!(!text.contains("aHVu"), "{text}");
        std::fs::remove_file(path).unwrap();
    }
}

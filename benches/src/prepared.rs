//! An API server made of prepared bytes: one list, and a watch that stays silent.

use std::{
    convert::Infallible,
    fmt::Write as _,
    future::{Ready, ready},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use tower::Service;

type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// Answers every list with the same ConfigMaps, in one page, and every watch with silence.
#[derive(Clone)]
pub(crate) struct Prepared {
    list: Bytes,
    initial_events: Bytes,
}

impl Prepared {
    /// Prepares so many ConfigMaps of about 400 bytes.
    pub(crate) fn config_maps(count: usize) -> Self {
        let mut items = Vec::with_capacity(count);
        let mut events = String::new();
        for at in 0..count {
            let item = config_map(at);
            let _ = writeln!(events, r#"{{"type":"ADDED","object":{}}}"#, whole(&item));
            items.push(item);
        }
        let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"9000000","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        let _ = writeln!(events, "{bookmark}");
        let list = format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9000000"}},"items":[{}]}}"#,
            items.join(",")
        );
        Self { list: list.into(), initial_events: events.into() }
    }

    /// A client whose requests end here.
    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    fn watch(&self, query: &str) -> Answer {
        let first = match query.contains("sendInitialEvents=true") {
            true => self.initial_events.clone(),
            false => Bytes::new(),
        };
        let chunks: Vec<_> = (0..first.len())
            .step_by(65_536)
            .map(|from| first.slice(from..first.len().min(from + 65_536)))
            .collect();
        let frames =
            stream::iter(chunks.into_iter().map(|chunk| Ok(Frame::data(chunk)))).chain(stream::pending());
        StreamBody::new(frames).boxed_unsync()
    }
}

fn config_map(at: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"map-{at:06}","namespace":"ns-{}","uid":"00000000-0000-4000-8000-{at:012}","resourceVersion":"{}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"bench","shard":"s{}"}}}},"data":{{"colour":"blue","text":"the quick brown fox jumps over the lazy dog {at}"}}}}"#,
        at % 50,
        at + 1,
        at % 16
    )
}

fn whole(item: &str) -> String {
    item.replacen('{', r#"{"kind":"ConfigMap","apiVersion":"v1","#, 1)
}

impl Service<Request<Body>> for Prepared {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let body = match query.contains("watch=") {
            true => self.watch(query),
            false => Full::new(self.list.clone()).boxed_unsync(),
        };
        let mut response = Response::new(body);
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        ready(Ok(response))
    }
}

//! What each path answers: a service that any server can be given.

use std::{
    borrow::Cow,
    convert::Infallible,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts,
    uri::Authority,
};
use http_body::Body as _;
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;
use tower::Service;

use super::{
    access::{HttpRefusal, Reviewer},
    page,
    settings::Http,
};
use crate::{
    flight_recorder::RecordingSlot,
    manager::{HealthReport, Inspector},
    metrics::{self, Metrics},
    users_code::contained_in,
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";

/// What browsers may do with a page of ours: show it, styled, and send its search back. No script, no frame.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// A response that is there as a whole.
type Answer = Response<Full<Bytes>>;

/// Answers `/healthz`, `/readyz`, `/metrics` and `/debug`, for a server of the program's own; clones are the same.
///
/// A [`tower::Service`]: it reads no body, and each answer is there as a whole. Paths are taken as they come: strip what
/// they are mounted under. For `/debug` the server has to say who asks, by the extension
/// [`Peer`](super::Peer) in each request.
///
/// ```
/// # use watchkeeper::prelude::*;
/// # use tower::Service;
/// # async fn answered(manager: Manager) {
/// let mut service = manager.http_service();
/// let asked = http::Request::get("/readyz").body(()).unwrap();
/// let answer = service.call(asked).await.unwrap(); // it can't fail
/// assert_eq!(answer.status(), 503, "it has not started");
/// # }
/// ```
#[derive(Clone)]
pub struct HttpService {
    site: Arc<HttpPaths>,
}

/// What the paths share.
struct HttpPaths {
    inspector: Inspector,
    metrics: Metrics,
    debug_for_all: bool,
    /// `None`: nobody is asked for a token.
    reviewer: Option<Reviewer>,
    recorder: RecordingSlot,
}

/// The pairs of a query, decoded.
type QueryPairs<'r> = Vec<(Cow<'r, str>, Cow<'r, str>)>;

impl HttpService {
    pub(in crate::manager) fn new(
        http: &Http,
        inspector: Inspector,
        metrics: Metrics,
        client: &kube::Client,
        recorder: RecordingSlot,
    ) -> Self {
        let reviewer = http.reviewed.then(|| Reviewer::new(client.clone()));
        let debug_for_all = http.debug_for_all;
        Self { site: Arc::new(HttpPaths { inspector, metrics, debug_for_all, reviewer, recorder }) }
    }

    /// Answers in time, and for code that panics.
    fn answer(&self, request: Parts) -> BoxFuture<'static, Result<Answer, Infallible>> {
        let site = self.site.clone();
        Box::pin(async move {
            let found = match timeout(PATIENCE, contained_in(site.find(&request))).await {
                Ok(Some(answer)) => answer,
                Ok(None) => line(StatusCode::INTERNAL_SERVER_ERROR, "the code that answers panicked"),
                Err(_) => line(StatusCode::GATEWAY_TIMEOUT, "the answer took too long"),
            };
            Ok(if request.method == Method::HEAD { without_body(found) } else { found })
        })
    }
}

impl<B> Service<Request<B>> for HttpService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.answer(request.into_parts().0)
    }
}

impl_debug!(HttpService);

impl HttpPaths {
    async fn find(&self, request: &Parts) -> Answer {
        let path = request.uri.path().strip_prefix('/').unwrap_or_default();
        let (place, check) = match path.split_once('/') {
            Some((probe @ ("healthz" | "readyz"), check)) if !check.is_empty() => (probe, Some(check)),
            _ => (path, None),
        };
        if !["healthz", "readyz", "metrics", "debug", "debug/recording"].contains(&place) {
            return line(StatusCode::NOT_FOUND, "there are /healthz, /readyz, /metrics and /debug");
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let refused = line(StatusCode::METHOD_NOT_ALLOWED, "ask by GET or HEAD");
            return with(refused, header::ALLOW, "GET,HEAD");
        }
        let query = request.uri.query().unwrap_or_default();
        let asked: QueryPairs<'_> = form_urlencoded::parse(query.as_bytes()).collect();
        match place {
            "healthz" => self.probes(self.inspector.health(), check, &asked, request).await,
            "readyz" => self.probes(self.inspector.readiness(), check, &asked, request).await,
            "metrics" => match self.may(request, "/metrics").await {
                Ok(()) => answer(StatusCode::OK, metrics::CONTENT_TYPE, self.metrics.encode()),
                Err(refusal) => refused(&refusal),
            },
            "debug/recording" => match self.may_see_why(request).await {
                Ok(()) => self.recording().await,
                Err(refusal) => refused(&refusal),
            },
            _ => match self.may_see_why(request).await {
                Ok(()) => self.debug(&asked, request).await,
                Err(refusal) => refused(&refusal),
            },
        }
    }

    async fn debug(&self, asked: &QueryPairs<'_>, request: &Parts) -> Answer {
        let key = asked.iter().find(|(name, key)| name == "key" && !key.trim().is_empty());
        let report = self.inspector.debug_report(key.map(|(_, key)| key.trim())).await;
        if wants_json(asked, request) {
            return match serde_json::to_vec(&report) {
                Ok(json) => answer(StatusCode::OK, "application/json", json),
                Err(error) => line(StatusCode::INTERNAL_SERVER_ERROR, error),
            };
        }
        let page = answer(StatusCode::OK, "text/html; charset=utf-8", page::render(&report));
        let page = with(page, header::CONTENT_SECURITY_POLICY, POLICY);
        with(page, header::REFERRER_POLICY, "no-referrer")
    }

    async fn recording(&self) -> Answer {
        let Some(recorder) = self.recorder.get().cloned() else {
            return line(StatusCode::NOT_FOUND, "nothing is recorded: see `Manager::flight_recorder`");
        };
        match tokio::task::spawn_blocking(move || recorder.read())
            .await
            .unwrap_or_else(|error| Err(error.into()))
        {
            Ok(recording) => {
                let found = answer(StatusCode::OK, "application/octet-stream", recording);
                with(found, header::CONTENT_DISPOSITION, "attachment; filename=\"recording.wkr\"")
            }
            Err(error) => line(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }

    /// Answers for all checks, or for the one that the path names; reasons are for those who may see the debug page.
    async fn probes(
        &self,
        report: HealthReport,
        check: Option<&str>,
        asked: &QueryPairs<'_>,
        request: &Parts,
    ) -> Answer {
        let report = match check.map(|check| percent_decode_str(check).decode_utf8_lossy()) {
            None => report,
            Some(check) => match report.only(&check) {
                Some(report) => report,
                None => return line(StatusCode::NOT_FOUND, format_args!("unknown check {check:?}")),
            },
        };
        let excluded = asked.iter().filter(|(name, _)| name == "exclude").map(|(_, check)| &**check);
        let report = report.without(excluded);
        let verbose = asked.iter().any(|(name, _)| name == "verbose");
        let status = if report.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        if report.is_ok() && !verbose {
            return answer(status, TEXT, "ok");
        }
        let report = match self.may_see_why(request).await {
            Ok(()) => report,
            Err(_) => report.without_reasons(),
        };
        answer(status, TEXT, report.to_string())
    }

    /// Whether the sender of a request may see the debug page, and whatever names objects, users or errors.
    async fn may_see_why(&self, request: &Parts) -> Result<(), HttpRefusal> {
        if !self.debug_for_all && !is_local(request) {
            let why = "the debug page is shown to this machine alone: ask for it by `kubectl port-forward`, or allow it by \
                       `Http::debug_for_all`";
            return Err((StatusCode::FORBIDDEN, why.into()));
        }
        self.may(request, "/debug").await
    }

    async fn may(&self, request: &Parts, path: &str) -> Result<(), HttpRefusal> {
        let Some(reviewer) = &self.reviewer else { return Ok(()) };
        let peer = request.extensions.get::<Peer>().map(|Peer(address)| *address);
        reviewer.check(&request.headers, path, peer).await
    }
}

fn wants_json(asked: &QueryPairs<'_>, request: &Parts) -> bool {
    if let Some((_, format)) = asked.iter().find(|(name, _)| name == "format") {
        return format == "json";
    }
    let accepts =
        request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accepts.contains("application/json") && !accepts.contains("text/html")
}

fn refused((status, why): &HttpRefusal) -> Answer {
    let answer = line(*status, why);
    match *status {
        StatusCode::UNAUTHORIZED => with(answer, header::WWW_AUTHENTICATE, "Bearer"),
        StatusCode::SERVICE_UNAVAILABLE => with(answer, header::RETRY_AFTER, "1"),
        _ => answer,
    }
}

/// Makes a response: never stored, never taken for something else.
fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let answer = with(answer, header::CONTENT_TYPE, content_type);
    with(with(answer, header::CACHE_CONTROL, "no-store"), header::X_CONTENT_TYPE_OPTIONS, "nosniff")
}

/// Makes a response of a line.
fn line(status: StatusCode, line: impl fmt::Display) -> Answer {
    answer(status, TEXT, format!("{line}\n"))
}

fn with(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}

/// Leaves of a response what a `HEAD` is answered: the length of the body, without the body.
fn without_body(answer: Answer) -> Answer {
    let (mut head, body) = answer.into_parts();
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.size_hint().lower()));
    Response::from_parts(head, Full::default())
}

/// Headers that proxies add: the client is on another machine. Headers that begin with `x-forwarded-` count too.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-real-ip", "x-client-ip", "x-original-forwarded-for", "x-envoy-external-address"];

/// The address of who sent a request: an extension that a server of the program's own puts into each.
///
/// Without it nobody counts as local, and `/debug` is shown only where it is [for all](super::Http::debug_for_all).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Tells whether a request comes from this machine, and was meant for it.
///
/// A peer of this machine may be a proxy that passes on what others ask, and a browser may ask for a page from
/// elsewhere: so the host that is asked for must be this machine too.
fn is_local(request: &Parts) -> bool {
    let peer = request.extensions.get::<Peer>();
    let of_a_proxy = |header: &str| FORWARDED.contains(&header) || header.starts_with("x-forwarded-");
    peer.is_some_and(|Peer(peer)| is_loopback(peer.ip()))
        && host(request).is_some_and(|host| names_this_machine(&host))
        && !request.headers.keys().any(|name| of_a_proxy(name.as_str()))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn host(request: &Parts) -> Option<String> {
    let named = |headers: &HeaderMap| {
        let host = headers.get(header::HOST)?.to_str().ok()?;
        Some(host.parse::<Authority>().ok()?.host().to_owned())
    };
    request.uri.host().map(str::to_owned).or_else(|| named(&request.headers))
}

fn names_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(peer: Option<&str>, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get("/debug");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(Peer(peer.parse().unwrap()));
        }
        request.into_parts().0
    }

    // P4
    #[test]
    fn only_what_this_machine_asks_of_itself_is_local() {
        let here = Some("127.0.0.1:4000");
        for (peer, host) in [
            (here, "localhost:8080"),
            (here, "127.0.0.1:8080"),
            (Some("[::1]:4000"), "[::1]:8080"),
            (Some("[::ffff:127.0.0.1]:4000"), "LOCALHOST"),
        ] {
            assert!(is_local(&parts(peer, &[("host", host)])), "{peer:?} {host}");
        }
        for (peer, headers) in [
            (None, &[("host", "localhost")][..]),
            (Some("10.0.0.7:4000"), &[("host", "localhost")]),
            (Some("[::ffff:10.0.0.7]:4000"), &[("host", "localhost")]),
            (here, &[("host", "evil.example:8080")]),
            (here, &[("host", "localhost.evil.example")]),
            (here, &[("host", "10.0.0.9:8080")]),
            (here, &[]),
            (here, &[("host", "localhost"), ("x-forwarded-for", "10.0.0.7")]),
            (here, &[("host", "localhost"), ("X-Forwarded-Proto", "https")]),
            (here, &[("host", "localhost"), ("forwarded", "for=10.0.0.7")]),
            (here, &[("host", "localhost"), ("Via", "1.1 proxy")]),
            (here, &[("host", "localhost"), ("X-Real-IP", "10.0.0.7")]),
        ] {
            assert!(!is_local(&parts(peer, headers)), "{peer:?} {headers:?}");
        }
    }
}

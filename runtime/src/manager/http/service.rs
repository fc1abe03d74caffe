//! What each path answers: a service that any server can be given.

use std::{
    borrow::Cow,
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;
use tower::Service;

use super::{
    access::{HttpRefusal, Reviewer},
    answers::{Answer, Sort, answer, text, without_body},
    origin::{Peer, is_local},
    page,
    settings::Http,
};
use crate::{
    manager::{HealthReport, Inspector},
    metrics::Metrics,
    users_code::contained_in,
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

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
}

/// What a path names; of probes one check, or all.
enum HttpPath<'r> {
    Health(Option<&'r str>),
    Readiness(Option<&'r str>),
    Metrics,
    Debug,
}

impl<'r> HttpPath<'r> {
    fn at(path: &'r str) -> Option<Self> {
        let check_of = |probe: &str| path.strip_prefix(probe).filter(|check| !check.is_empty()).map(Some);
        match path {
            "/healthz" => Some(Self::Health(None)),
            "/readyz" => Some(Self::Readiness(None)),
            "/metrics" => Some(Self::Metrics),
            "/debug" => Some(Self::Debug),
            _ => check_of("/healthz/").map(Self::Health).or(check_of("/readyz/").map(Self::Readiness)),
        }
    }
}

/// The pairs of a query, decoded.
type QueryPairs<'r> = Vec<(Cow<'r, str>, Cow<'r, str>)>;

impl HttpService {
    pub(in crate::manager) fn new(
        http: &Http,
        inspector: Inspector,
        metrics: Metrics,
        client: &kube::Client,
    ) -> Self {
        let reviewer = http.reviewed.then(|| Reviewer::new(client.clone()));
        Self { site: Arc::new(HttpPaths { inspector, metrics, debug_for_all: http.debug_for_all, reviewer }) }
    }

    /// Answers in time, and for code that panics.
    fn answer(&self, request: Parts) -> BoxFuture<'static, Result<Answer, Infallible>> {
        let site = self.site.clone();
        Box::pin(async move {
            let found = match timeout(PATIENCE, contained_in(site.find(&request))).await {
                Ok(Some(answer)) => answer,
                Ok(None) => text(StatusCode::INTERNAL_SERVER_ERROR, "the code that answers panicked"),
                Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "the answer took too long"),
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

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpService")
    }
}

impl HttpPaths {
    async fn find(&self, request: &Parts) -> Answer {
        let Some(place) = HttpPath::at(request.uri.path()) else {
            return text(StatusCode::NOT_FOUND, "there are /healthz, /readyz, /metrics and /debug");
        };
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "ask by GET or HEAD");
            refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
            return refused;
        }
        let query = request.uri.query().unwrap_or_default();
        let asked: QueryPairs<'_> = form_urlencoded::parse(query.as_bytes()).collect();
        match place {
            HttpPath::Health(check) => self.probes(self.inspector.health(), check, &asked, request).await,
            HttpPath::Readiness(check) => {
                self.probes(self.inspector.readiness(), check, &asked, request).await
            }
            HttpPath::Metrics => self.metrics_text(request).await,
            HttpPath::Debug => self.debug(&asked, request).await,
        }
    }

    async fn metrics_text(&self, request: &Parts) -> Answer {
        match self.may(request, "/metrics").await {
            Ok(()) => answer(StatusCode::OK, Sort::Metrics, self.metrics.encode()),
            Err(refusal) => refused(&refusal),
        }
    }

    async fn debug(&self, asked: &QueryPairs<'_>, request: &Parts) -> Answer {
        if let Err(refusal) = self.may_see_why(request).await {
            return refused(&refusal);
        }
        let key = asked.iter().find(|(name, key)| name == "key" && !key.trim().is_empty());
        let report = self.inspector.debug_report(key.map(|(_, key)| key.trim())).await;
        match wants_json(asked, request) {
            false => answer(StatusCode::OK, Sort::Page, page::render(&report)),
            true => match serde_json::to_vec(&report) {
                Ok(json) => answer(StatusCode::OK, Sort::Json, json),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
            },
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
                None => return text(StatusCode::NOT_FOUND, format_args!("unknown check {check:?}")),
            },
        };
        let report = without_excluded(report, asked);
        let verbose = asked.iter().any(|(name, _)| name == "verbose");
        let status = if report.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        if report.is_ok() && !verbose {
            return answer(status, Sort::Text, "ok");
        }
        let report = match self.may_see_why(request).await {
            Ok(()) => report,
            Err(_) => report.without_reasons(),
        };
        answer(status, Sort::Text, report.to_string())
    }

    /// Whether the sender of a request may see the debug page, and whatever names objects, users or errors.
    async fn may_see_why(&self, request: &Parts) -> Result<(), HttpRefusal> {
        if !self.debug_for_all && !is_local(request) {
            let why = "the debug page is shown to this machine alone: ask for it by `kubectl port-forward`, or allow it by \
                       `Http::debug_for_all`";
            return Err(HttpRefusal::new(StatusCode::FORBIDDEN, why));
        }
        self.may(request, "/debug").await
    }

    async fn may(&self, request: &Parts, path: &str) -> Result<(), HttpRefusal> {
        match &self.reviewer {
            Some(reviewer) => {
                let peer = request.extensions.get::<Peer>().map(|Peer(address)| *address);
                reviewer.check(&request.headers, path, peer).await
            }
            None => Ok(()),
        }
    }
}

fn without_excluded(report: HealthReport, asked: &QueryPairs<'_>) -> HealthReport {
    report.without(asked.iter().filter(|(name, _)| name == "exclude").map(|(_, check)| &**check))
}

fn wants_json(asked: &QueryPairs<'_>, request: &Parts) -> bool {
    if let Some((_, format)) = asked.iter().find(|(name, _)| name == "format") {
        return format == "json";
    }
    let accepts =
        request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accepts.contains("application/json") && !accepts.contains("text/html")
}

fn refused(refusal: &HttpRefusal) -> Answer {
    let mut answer = text(refusal.status, &refusal.why);
    if refusal.status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    }
    if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    answer
}

//! What each path answers: a service that any server can be given.

use std::{
    convert::Infallible,
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, Query, State},
    http::{Request, Response, StatusCode, header, request::Parts},
    routing::get,
};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http_body_util::{BodyExt, Full};
use tokio::time::timeout;
use tower::{Service, ServiceExt};

use super::{
    access::{Refusal, Reviewer},
    answers::{Sort, answer, text},
    origin::is_local,
    page,
    settings::{Access, DebugFor, Http},
};
use crate::{
    manager::{HealthReport, Inspector},
    metrics::Metrics,
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
    router: Router,
}

/// What the paths share.
#[derive(Clone)]
struct Site {
    inspector: Inspector,
    metrics: Metrics,
    debug: DebugFor,
    /// `None`: all may see all.
    reviewer: Option<Reviewer>,
}

type Answer = Response<Body>;
type Asked = Query<Vec<(String, String)>>;

impl HttpService {
    pub(in crate::manager) fn new(
        http: &Http,
        inspector: Inspector,
        metrics: Metrics,
        client: &kube::Client,
    ) -> Self {
        let reviewer = (http.access == Access::Reviewed).then(|| Reviewer::new(client.clone()));
        let site = Arc::new(Site { inspector, metrics, debug: http.debug, reviewer });
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/healthz/{*check}", get(one_of_healthz))
            .route("/readyz", get(readyz))
            .route("/readyz/{*check}", get(one_of_readyz))
            .route("/metrics", get(metrics_text))
            .route("/debug", get(debug))
            .fallback(async || {
                text(StatusCode::NOT_FOUND, "there are /healthz, /readyz, /metrics and /debug")
            })
            .with_state(site);
        Self { router }
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
        let answer = self.router.clone().oneshot(request.map(|_| Body::empty()));
        Box::pin(async {
            let answered = timeout(PATIENCE, AssertUnwindSafe(answer).catch_unwind()).await;
            let answer = match answered {
                Ok(Ok(Ok(answer))) => answer,
                Ok(Ok(Err(never))) => match never {},
                Ok(Err(_)) => text(StatusCode::INTERNAL_SERVER_ERROR, "the code that answers panicked"),
                Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "the answer took too long"),
            };
            Ok(whole(answer).await)
        })
    }
}

/// Brings a body into one piece, which it is.
async fn whole(answer: Answer) -> Response<Full<Bytes>> {
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Response::from_parts(head, Full::new(bytes))
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpService")
    }
}

async fn healthz(State(site): State<Arc<Site>>, asked: Asked) -> Answer {
    probe(site.inspector.health(), &asked)
}

async fn readyz(State(site): State<Arc<Site>>, asked: Asked) -> Answer {
    probe(site.inspector.readiness(), &asked)
}

async fn one_of_healthz(State(site): State<Arc<Site>>, Path(check): Path<String>, asked: Asked) -> Answer {
    one_of(site.inspector.health(), &check, &asked)
}

async fn one_of_readyz(State(site): State<Arc<Site>>, Path(check): Path<String>, asked: Asked) -> Answer {
    one_of(site.inspector.readiness(), &check, &asked)
}

fn one_of(report: HealthReport, check: &str, asked: &Asked) -> Answer {
    match report.only(check) {
        Some(report) => probe(report, asked),
        None => text(StatusCode::NOT_FOUND, format_args!("there is no check {check:?}")),
    }
}

/// Answers a probe: `ok`, or each check by name where one fails or `?verbose` asks for it.
fn probe(report: HealthReport, asked: &Asked) -> Answer {
    let excluded = asked.iter().filter(|(name, _)| name == "exclude").map(|(_, check)| &**check);
    let report = report.without(excluded);
    let status = if report.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose = asked.iter().any(|(name, _)| name == "verbose");
    match report.is_ok() && !verbose {
        true => answer(status, Sort::Text, "ok"),
        false => answer(status, Sort::Text, report.to_string()),
    }
}

async fn metrics_text(State(site): State<Arc<Site>>, request: Parts) -> Answer {
    match site.may(&request, "/metrics").await {
        Ok(()) => answer(StatusCode::OK, Sort::Metrics, site.metrics.encode()),
        Err(refusal) => refused(&refusal),
    }
}

async fn debug(State(site): State<Arc<Site>>, Query(asked): Asked, request: Parts) -> Answer {
    if site.debug == DebugFor::Loopback && !is_local(&request) {
        let why = "the debug page is shown to this machine alone: ask for it by `kubectl port-forward`, or allow it by \
                   `Http::debug_for_all`";
        return text(StatusCode::FORBIDDEN, why);
    }
    if let Err(refusal) = site.may(&request, "/debug").await {
        return refused(&refusal);
    }
    let key = asked.iter().find(|(name, key)| name == "key" && !key.trim().is_empty());
    let report = site.inspector.debug_report(key.map(|(_, key)| key.trim())).await;
    match wants_json(&asked, &request) {
        false => answer(StatusCode::OK, Sort::Page, page::render(&report)),
        true => match serde_json::to_vec(&report) {
            Ok(json) => answer(StatusCode::OK, Sort::Json, json),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
        },
    }
}

fn wants_json(asked: &[(String, String)], request: &Parts) -> bool {
    if let Some((_, format)) = asked.iter().find(|(name, _)| name == "format") {
        return format == "json";
    }
    let accepts =
        request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accepts.contains("application/json") && !accepts.contains("text/html")
}

impl Site {
    async fn may(&self, request: &Parts, path: &str) -> Result<(), Refusal> {
        match &self.reviewer {
            Some(reviewer) => reviewer.check(&request.headers, path).await,
            None => Ok(()),
        }
    }
}

fn refused(refusal: &Refusal) -> Answer {
    let mut answer = text(refusal.status, &refusal.why);
    if refusal.status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    }
    answer
}

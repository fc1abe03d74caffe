//! The answer to one HTTP request on the webhook port: limits, then the webhooks.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::webhook::{WebhookResponse, Webhooks, most_bytes};

/// How long a body may take to arrive, and how long it may wait for room.
const BODY: Duration = Duration::from_secs(15);
/// Most KiB of all bodies at once.
const ROOM: u32 = 256 << 10;

/// Answers requests; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct WebhookService {
    webhooks: Webhooks,
    room: Arc<Semaphore>,
    /// After this is cancelled, connections end after their next answer.
    closing: CancellationToken,
}

impl WebhookService {
    pub(super) fn new(webhooks: Webhooks, closing: CancellationToken) -> Self {
        Self { webhooks, room: Arc::new(Semaphore::new(ROOM as usize)), closing }
    }

    async fn answer(self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let answer = self.answered(request).await;
        let code = answer.code;
        let mut response = answer.into_http().map(Full::from);
        let headers = response.headers_mut();
        if code == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        if self.closing.is_cancelled() || !code.is_success() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn answered(&self, request: Request<Incoming>) -> WebhookResponse {
        let refused = |code, why: &str| WebhookResponse { code, body: why.into() };
        if request.method() != Method::POST {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "a webhook is called by POST");
        }
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or("").to_owned());
        let most = most_bytes(&path);
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.map_or(Ok(most), str::parse::<usize>);
        let Some(length) = length.ok().filter(|length| *length <= most) else {
            return refused(StatusCode::PAYLOAD_TOO_LARGE, &format!("a review has {most} bytes at most"));
        };
        // A value takes several times the memory of its text.
        let share = u32::try_from(length >> 10).unwrap_or(ROOM).clamp(1, ROOM);
        let Ok(Ok(_room)) = timeout(BODY, self.room.acquire_many(share)).await else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "too many requests are answered at once");
        };
        match timeout(BODY, Limited::new(request.into_body(), most).collect()).await {
            Ok(Ok(body)) => self.webhooks.handle(&path, &query, &body.to_bytes()).await,
            Ok(Err(error)) => refused(StatusCode::BAD_REQUEST, &format!("the body can't be read: {error}")),
            Err(_) => refused(StatusCode::REQUEST_TIMEOUT, "the body takes too long"),
        }
    }
}

impl tower::Service<Request<Incoming>> for WebhookService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        self.clone().answer(request).map(Ok).boxed()
    }
}

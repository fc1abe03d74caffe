//! The answer to one HTTP request on the webhook port: limits, then the webhooks.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::{
    chain::one_line,
    webhook::{CONVERSION_PATH, WebhookResponse, Webhooks, most_bytes},
};

/// How long a body may take to arrive, and how long it may wait for room.
const BODY: Duration = Duration::from_secs(15);
/// Most KiB of the bodies of all conversions at once, and most of all others: objects that are converted hold up no other call.
const ROOM: usize = 256 << 10;

/// Answers requests; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct WebhookService {
    webhooks: Webhooks,
    conversions: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// After this is cancelled, connections end after their next answer.
    closing: CancellationToken,
}

impl WebhookService {
    pub(super) fn new(webhooks: Webhooks, closing: CancellationToken) -> Self {
        let [conversions, others] = [(); 2].map(|()| Arc::new(Semaphore::new(ROOM)));
        Self { webhooks, conversions, others, closing }
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
        let room = if path == CONVERSION_PATH { &self.conversions } else { &self.others };
        // Large conversions wait for each other as a whole: of those that have half their room, none could go on.
        let first = if path == CONVERSION_PATH { kib(length) } else { 1 };
        let Ok(Ok(held)) = timeout(BODY, room.acquire_many(first)).await else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "too many requests are answered at once");
        };
        match timeout(BODY, read(request.into_body(), length, room, held)).await {
            Ok(Ok((body, _room))) => self.webhooks.handle(&path, &query, &body).await,
            Ok(Err(why)) => {
                refused(StatusCode::BAD_REQUEST, &format!("the body can't be read: {}", one_line(&*why)))
            }
            Err(_) if room.available_permits() == 0 => {
                refused(StatusCode::SERVICE_UNAVAILABLE, "too many requests are answered at once")
            }
            Err(_) => refused(StatusCode::REQUEST_TIMEOUT, "the body takes too long"),
        }
    }
}

/// Reads a body. What has arrived takes room, beyond what is held, and not what is promised: two connections that send nothing
/// would hold up all others. The room is free again once the request has been answered.
async fn read<'r, B: http_body::Body<Data = Bytes, Error: Into<BoxError>>>(
    body: B,
    most: usize,
    room: &'r Semaphore,
    mut held: SemaphorePermit<'r>,
) -> Result<(Vec<u8>, SemaphorePermit<'r>), BoxError> {
    let (mut body, mut bytes) = (pin!(Limited::new(body, most)), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame?.into_data() else { continue };
        let has = u32::try_from(held.num_permits()).unwrap_or(u32::MAX);
        held.merge(room.acquire_many(kib(bytes.len() + chunk.len()).saturating_sub(has)).await?);
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, held))
}

/// Returns the room that bytes take: a value takes several times the memory of its text.
fn kib(length: usize) -> u32 {
    u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX).clamp(1, ROOM as u32)
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

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    /// A body of chunks, which ends or hangs behind them.
    fn body(chunks: &[usize], hangs: bool) -> impl http_body::Body<Data = Bytes, Error = Infallible> + use<> {
        let chunks: Vec<_> = chunks.iter().map(|length| Bytes::from(vec![b' '; *length])).collect();
        let chunks = stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk)));
        let rest = if hangs { stream::pending().boxed() } else { stream::empty().boxed() };
        StreamBody::new(chunks.chain(rest))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_takes_room_for_what_has_arrived_and_not_for_what_it_promises() {
        let (room, most) = (Semaphore::new(8), 1 << 20);
        // Hanging ones have little room, and leave the rest to others.
        let read = async |body, most| read(body, most, &room, room.acquire_many(1).await?).await;
        let hanging: Vec<_> = (0..3).map(|_| Box::pin(read(body(&[100], true), most))).collect();
        let (late, _) = tokio::join!(timeout(BODY, futures::future::join_all(hanging)), async {
            let (bytes, held) = read(body(&[1_000, 2_000], false), most).await.unwrap();
            assert_eq!((bytes.len(), held.num_permits(), room.available_permits()), (3_000, 3, 2));
        });
        assert!(late.is_err());
        assert_eq!(room.available_permits(), 8, "all is given back");
        // What does not fit waits until there is room.
        let first = read(body(&[6 << 10], false), most).await.unwrap();
        assert!(timeout(BODY, read(body(&[4 << 10], false), most)).await.is_err());
        drop(first);
        assert!(timeout(BODY, read(body(&[4 << 10], false), most)).await.is_ok());
        let refused = read(body(&[2_000], false), 1_000).await.unwrap_err();
        assert!(refused.to_string().contains("limit"), "{refused}");
    }
}

//! A plain HTTP proxy before a server: it fails half of all requests and cuts nearly every watch, by a seed.

use std::{
    collections::VecDeque,
    future::Future as _,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    task::JoinHandle,
    time::{Instant, Sleep, sleep_until},
};

type Reply = Response<UnsyncBoxBody<Bytes, anyhow::Error>>;

/// The results of requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    pub(crate) cut: AtomicUsize,
}

/// A proxy that listens on loopback until it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Shared {
    client: Client,
    random: Mutex<SmallRng>,
    counts: Arc<Counts>,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passes,
    InternalError,
    TooManyRequests,
    Reset,
    /// It is carried out, and the reply is lost.
    ReplyLost,
    /// A watch alone.
    Gone,
}

impl Shared {
    fn roll(&self, below: u32) -> u32 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..below)
    }

    /// Whether a new connection is refused. That counts as a request that failed.
    fn refuses(&self) -> bool {
        let refuses = self.roll(100) < 10;
        if refuses {
            self.counts.requests.fetch_add(1, Ordering::Relaxed);
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        refuses
    }

    /// What a request meets that has a connection: with those refused before, half of all fail.
    fn fate(&self, watch: bool) -> Fate {
        match self.roll(100) {
            0..45 => [Fate::InternalError, Fate::TooManyRequests, Fate::Reset, Fate::ReplyLost]
                [self.roll(4) as usize],
            45..48 if watch => Fate::Gone,
            _ => Fate::Passes,
        }
    }
}

impl Proxy {
    pub(crate) async fn start(client: Client, seed: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, counts) = (listener.local_addr()?, Arc::<Counts>::default());
        let random = Mutex::new(SmallRng::seed_from_u64(seed));
        let shared = Arc::new(Shared { client, random, counts: counts.clone() });
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if shared.refuses() {
                    continue;
                }
                let shared = shared.clone();
                let service = service_fn(move |request| answer(shared.clone(), request));
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new());
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { address, counts, accepting })
    }

    /// Writes a kubeconfig of this proxy.
    pub(crate) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "proxy", "user": {"token": "unused"}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        })
        .to_string()
    }
}

/// Answers a request; an error closes its connection.
async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> anyhow::Result<Reply> {
    let query = request.uri().query().unwrap_or_default();
    let watch = query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"));
    let fate = shared.fate(watch);
    shared.counts.requests.fetch_add(1, Ordering::Relaxed);
    if fate != Fate::Passes {
        shared.counts.failed.fetch_add(1, Ordering::Relaxed);
    }
    match fate {
        Fate::InternalError => Ok(status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", None)),
        Fate::TooManyRequests => {
            let after = 1 + shared.roll(2);
            Ok(status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", Some(after)))
        }
        Fate::Gone => Ok(status(StatusCode::GONE, "Expired", None)),
        Fate::Reset => anyhow::bail!("reset"),
        Fate::ReplyLost if watch => anyhow::bail!("lost"),
        Fate::ReplyLost => {
            let reply = forward(&shared, request).await?;
            let _ = reply.into_body().collect().await;
            anyhow::bail!("the reply is lost")
        }
        Fate::Passes => {
            let reply = forward(&shared, request).await?;
            Ok(match watch && reply.status().is_success() {
                true => cut(&shared, reply),
                false => reply,
            })
        }
    }
}

/// Sends a request on, as the administrator.
async fn forward(shared: &Shared, request: Request<Incoming>) -> anyhow::Result<Reply> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = parts.uri.path_and_query().context("it has a path")?.as_str();
    let mut sent = Request::builder().method(parts.method).uri(path);
    for (name, value) in &parts.headers {
        let hop = [header::HOST, header::AUTHORIZATION, header::CONNECTION, header::ACCEPT_ENCODING];
        if !hop.contains(name) && name != header::CONTENT_LENGTH {
            sent = sent.header(name, value);
        }
    }
    let reply = shared.client.send(sent.body(kube::client::Body::from(body.to_vec()))?).await?;
    let (mut parts, body) = reply.into_parts();
    for hop in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
        parts.headers.remove(hop);
    }
    Ok(Response::from_parts(parts, UnsyncBoxBody::new(body.map_err(anyhow::Error::from))))
}

fn status(code: StatusCode, reason: &str, after: Option<u32>) -> Reply {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": format!("{reason}: the proxy says so"), "code": code.as_u16(),
        "details": {"retryAfterSeconds": after},
    });
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut reply = Response::new(UnsyncBoxBody::new(body));
    *reply.status_mut() = code;
    reply.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Some(after) = after {
        reply.headers_mut().insert(header::RETRY_AFTER, after.into());
    }
    reply
}

/// Lets a watch through without its bookmarks, and cuts nearly each within seconds, some by an event that says 410.
fn cut(shared: &Arc<Shared>, reply: Reply) -> Reply {
    let (lives, spared) = (shared.roll(15_000), shared.roll(100) < 5);
    let lives = if spared { 600_000 } else { 200 + lives };
    let watch = Watch {
        inner: reply.into_body(),
        line: Vec::new(),
        ready: VecDeque::new(),
        until: Box::pin(sleep_until(Instant::now() + Duration::from_millis(lives.into()))),
        gone: shared.roll(100) < 5,
        keeps_end_of_list: shared.roll(2) == 0,
        counts: shared.counts.clone(),
        over: false,
    };
    let mut reply = Response::new(UnsyncBoxBody::new(watch));
    reply.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    reply
}

/// A watch's body, line by line.
struct Watch {
    inner: UnsyncBoxBody<Bytes, anyhow::Error>,
    line: Vec<u8>,
    ready: VecDeque<Bytes>,
    until: Pin<Box<Sleep>>,
    /// It ends by an event that says 410.
    gone: bool,
    /// The bookmark that ends a streamed list passes.
    keeps_end_of_list: bool,
    counts: Arc<Counts>,
    over: bool,
}

impl Watch {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.line.push(*byte);
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                let event: Value = serde_json::from_slice(&line).unwrap_or_default();
                let ends_list = &event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
                let passes = event["type"] != "BOOKMARK" || ends_list == "true" && self.keeps_end_of_list;
                if passes {
                    self.ready.push_back(line.into());
                }
            }
        }
    }
}

impl Body for Watch {
    type Data = Bytes;
    type Error = anyhow::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, anyhow::Error>>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        if let Some(line) = this.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(line))));
        }
        if this.until.as_mut().poll(cx).is_ready() {
            this.over = true;
            this.counts.cut.fetch_add(1, Ordering::Relaxed);
            if this.gone {
                let status = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1",
                    "status": "Failure", "reason": "Expired", "message": "too old resource version", "code": 410}});
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(format!("{status}\n"))))));
            }
            return Poll::Ready(Some(Err(anyhow::anyhow!("cut"))));
        }
        loop {
            match std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        let bytes = bytes.clone();
                        this.take(&bytes);
                    }
                    if let Some(line) = this.ready.pop_front() {
                        return Poll::Ready(Some(Ok(Frame::data(line))));
                    }
                }
                other => return Poll::Ready(other),
            }
        }
    }
}

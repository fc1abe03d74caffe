//! A gateway before a server, as a client layer: while the server is away it answers 502, and ends streams cleanly.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use tokio::sync::watch;
use tower::{BoxError, Layer, Service};

/// Stands between a client and a server; clones are the same gateway.
#[derive(Clone, Debug, Default)]
pub struct Gateway {
    way: Arc<watch::Sender<Way>>,
}

/// Whether the server can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Open,
    Closed,
}

impl Gateway {
    /// Ends every stream, and answers 502 from now on.
    pub fn close(&self) {
        self.way.send_replace(Way::Closed);
    }

    /// Lets requests through again.
    pub fn open(&self) {
        self.way.send_replace(Way::Open);
    }

    /// Ends when the way is closed, or the gateway is gone.
    fn closed(&self) -> BoxFuture<'static, ()> {
        let mut way = self.way.subscribe();
        async move { drop(way.wait_for(|way| *way == Way::Closed).await) }.boxed()
    }
}

impl<S> Layer<S> for Gateway {
    type Service = GatewayService<S>;

    fn layer(&self, inner: S) -> GatewayService<S> {
        GatewayService { inner, gateway: self.clone() }
    }
}

/// A client service behind a [`Gateway`].
#[derive(Clone, Debug)]
pub struct GatewayService<S> {
    inner: S,
    gateway: Gateway,
}

impl<S, B> Service<Request<Body>> for GatewayService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<GatewayBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let gateway = self.gateway.clone();
        let answer = self.inner.call(request);
        async move {
            let mut closed = gateway.closed();
            tokio::select! {
                biased;
                () = &mut closed => Ok(bad_gateway()),
                answer = answer => match answer {
                    Ok(response) => Ok(response.map(|body| GatewayBody { body: Some(body), closed })),
                    // A gateway answers even if its server is broken.
                    Err(_) => Ok(bad_gateway()),
                },
            }
        }
        .boxed()
    }
}

fn bad_gateway<B>() -> Response<GatewayBody<B>> {
    let mut response = Response::new(GatewayBody { body: None, closed: futures::future::ready(()).boxed() });
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// An answer that ends cleanly when the way is closed.
pub struct GatewayBody<B> {
    body: Option<B>,
    closed: BoxFuture<'static, ()>,
}

impl<B> std::fmt::Debug for GatewayBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayBody").field("over", &self.body.is_none()).finish()
    }
}

impl<B> HttpBody for GatewayBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.body.is_some() && self.closed.poll_unpin(cx).is_ready() {
            self.body = None;
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }
}

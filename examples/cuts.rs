//! A client layer that cuts watches: what a network does to an operator, on demand.

use std::{
    collections::HashSet,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::{BoxError, Layer, Service};

/// Cuts and heals the watches of a client, by resource.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    cut: HashSet<String>,
    open: Vec<(String, CancellationToken)>,
}

impl Cuts {
    /// Ends the open watches of a resource in mid-stream, and refuses new ones until it is healed.
    pub fn cut(&self, resource: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.cut.insert(resource.to_owned());
        let hit = state.open.extract_if(.., |(open, _)| open == resource);
        hit.for_each(|(_, stream)| stream.cancel());
    }

    /// Allows watches of a resource again.
    pub fn heal(&self, resource: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).cut.remove(resource);
    }

    /// Registers a watch that is about to open; `None` while its resource is cut.
    fn open(&self, resource: &str) -> Option<CancellationToken> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.cut.contains(resource) {
            return None;
        }
        let stream = CancellationToken::new();
        state.open.push((resource.to_owned(), stream.clone()));
        Some(stream)
    }
}

/// Puts [`Cuts`] between a client and its connection.
#[derive(Clone, Debug)]
pub struct CutLayer {
    cuts: Cuts,
}

impl CutLayer {
    /// Creates a layer whose watches `cuts` can cut.
    pub fn new(cuts: Cuts) -> Self {
        Self { cuts }
    }
}

impl<S> Layer<S> for CutLayer {
    type Service = CutService<S>;

    fn layer(&self, inner: S) -> CutService<S> {
        CutService { inner, cuts: self.cuts.clone() }
    }
}

/// A client service whose watches can be cut.
#[derive(Clone, Debug)]
pub struct CutService<S> {
    inner: S,
    cuts: Cuts,
}

impl<S, B> Service<Request<Body>> for CutService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<CutBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let cut = match watched_resource(request.uri()) {
            None => None,
            Some(resource) => match self.cuts.open(resource) {
                Some(stream) => Some(stream),
                None => return async { Err(reset().into()) }.boxed(),
            },
        };
        let answer = self.inner.call(request);
        async move {
            let response = answer.await.map_err(Into::into)?;
            Ok(response.map(|body| CutBody { body, cut: cut.map(|token| Box::pin(token.cancelled_owned())) }))
        }
        .boxed()
    }
}

/// Returns the resource that a request watches, if it is a watch.
fn watched_resource(uri: &Uri) -> Option<&str> {
    let watches =
        uri.query().unwrap_or_default().split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
    watches.then(|| uri.path().rsplit('/').next()).flatten()
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the watch was cut")
}

/// A response body that breaks off when its watch is cut.
#[derive(Debug)]
pub struct CutBody<B> {
    body: B,
    cut: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<B> HttpBody for CutBody<B>
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
        if let Some(cut) = &mut self.cut
            && cut.poll_unpin(cx).is_ready()
        {
            return Poll::Ready(Some(Err(reset().into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }
}

//! Sends each watch over its own connection, and all other requests over a pool.

use std::{
    fmt,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{self, BoxFuture, select};
use http::{
    HeaderValue, Request, Response, Uri, header,
    uri::{PathAndQuery, Scheme},
};
use http_body_util::Either;
use hyper::{
    client::conn::http1,
    rt::{Read, Write},
};
use kube::client::Body;
use tower::{BoxError, Service, ServiceExt};

use tracing::{Instrument, Span, field};

use super::driven::Driven;
use crate::{
    api_request::{OnNewConnection, is_watch},
    chain::chain,
};

/// Most bytes that are read by one call; larger buffers are given back to the system, and zeroed, each time.
const READ_AT_ONCE: usize = 32 << 10;

/// Sends watches, and what [asks for it](OnNewConnection), over connections of their own, and all other requests through a pool.
///
/// A pool hands every chunk from the connection's task to the reader's. A watch stays open for minutes and brings each
/// event in a chunk of its own, so its reader reads the connection itself.
#[derive(Clone, Debug)]
pub(super) struct DirectWatches<P, C> {
    pub(super) pool: P,
    pub(super) connector: C,
}

impl<P, B: 'static, C, S> Service<Request<Body>> for DirectWatches<P, C>
where
    P: Service<Request<Body>, Response = Response<B>>,
    P::Error: Into<BoxError>,
    P::Future: Send + 'static,
    C: Service<Uri, Response = S> + Clone + Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
    S: Read + Write + Unpin + Send + 'static,
{
    type Response = Response<Either<B, Driven<S>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.pool.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let span = span(&request);
        let server = ServerAddress::of(request.uri());
        if is_watch(request.uri()) || request.extensions().get::<OnNewConnection>().is_some() {
            let connector = self.connector.clone();
            let answer = async { Ok(alone(connector, request).await?.map(Either::Right)) };
            return Box::pin(told(answer, server).instrument(span));
        }
        let answer = span.in_scope(|| self.pool.call(request));
        let answer = async { Ok(answer.await.map_err(Into::into)?.map(Either::Left)) };
        Box::pin(told(answer, server).instrument(span))
    }
}

/// Opens the span of a request, named and filled as kube's own client does it.
fn span<B>(request: &Request<B>) -> Span {
    tracing::debug_span!(
        "HTTP",
        http.method = %request.method(),
        http.url = %request.uri(),
        http.status_code = field::Empty,
        otel.name = request.extensions().get::<&'static str>().unwrap_or(&"HTTP"),
        otel.kind = "client",
        otel.status_code = field::Empty,
    )
}

/// Records an answer's status in the span at hand, and says which server it is from; an error says so too.
async fn told<B>(
    answer: impl Future<Output = Result<Response<B>, BoxError>>,
    server: ServerAddress,
) -> Result<Response<B>, BoxError> {
    let (mut answer, span) = (answer.await, Span::current());
    if let Ok(answer) = &mut answer {
        span.record("http.status_code", answer.status().as_u16());
        answer.extensions_mut().insert(server.clone());
    }
    if !answer.as_ref().is_ok_and(|answer| answer.status().as_u16() < 400) {
        span.record("otel.status_code", "ERROR");
    }
    answer.map_err(|source| NoAnswer { server, source }.into())
}

/// Says that a request had no answer, and whose.
#[derive(Debug, thiserror::Error)]
#[error("no answer from {server}")]
struct NoAnswer {
    server: ServerAddress,
    source: BoxError,
}

/// The server of a URL, without credentials that that may hold.
#[derive(Clone, Debug)]
struct ServerAddress {
    scheme: Scheme,
    /// With a port, if it is not the usual one.
    host: Arc<str>,
}

impl ServerAddress {
    fn of(uri: &Uri) -> Self {
        let host = uri.host().unwrap_or_default();
        let host = uri.port().map_or_else(|| host.into(), |port| format!("{host}:{port}").into());
        Self { scheme: uri.scheme().cloned().unwrap_or(Scheme::HTTP), host }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)
    }
}

/// Returns the host that answered, if a client of ours asked it.
pub(super) fn host_of_answer<B>(answer: &Response<B>) -> Option<Arc<str>> {
    answer.extensions().get::<ServerAddress>().map(|server| server.host.clone())
}

/// Returns the host that did not answer, if a client of ours asked it.
pub(super) fn host_of_error(error: &(dyn std::error::Error + 'static)) -> Option<Arc<str>> {
    chain(error).find_map(|cause| Some(cause.downcast_ref::<NoAnswer>()?.server.host.clone()))
}

/// Connects, sends the request, and hands over the connection with the answer's body.
async fn alone<C, S>(connector: C, request: Request<Body>) -> Result<Response<Driven<S>>, BoxError>
where
    C: Service<Uri, Response = S>,
    C::Error: Into<BoxError>,
    S: Read + Write + Unpin + Send + 'static,
{
    let stream = connector.oneshot(request.uri().clone()).await.map_err(Into::into)?;
    let (mut sender, mut connection) =
        http1::Builder::new().read_buf_exact_size(Some(READ_AT_ONCE)).handshake(stream).await?;
    let request = in_origin_form(request)?;
    let (answer, is_over) = match select(pin!(sender.send_request(request)), &mut connection).await {
        future::Either::Left((answer, _)) => (answer?, false),
        future::Either::Right((ended, answer)) => {
            ended?;
            (answer.await?, true)
        }
    };
    Ok(answer.map(|body| Driven::new(body, (!is_over).then_some(connection))))
}

/// Names the host in a header and the path alone in the first line, as HTTP/1.1 wants it.
fn in_origin_form(mut request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let uri = request.uri();
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    if let Some(authority) = uri.authority()
        && !request.headers().contains_key(header::HOST)
    {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let host = HeaderValue::from_str(host)?;
        request.headers_mut().insert(header::HOST, host);
    }
    *request.uri_mut() = Uri::from(path);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream as Peer},
    };

    use http_body_util::BodyExt;
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpStream;

    use super::*;

    type Answered = Driven<TokioIo<TcpStream>>;

    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

    /// A watch whose server is the other end of a connection, and what was asked.
    async fn opened(answer: &'static str) -> (Result<Response<Answered>, BoxError>, Peer, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connector =
            tower::service_fn(
                move |_: Uri| async move { TcpStream::connect(address).await.map(TokioIo::new) },
            );
        let serving = tokio::task::spawn_blocking(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut asked = vec![0; 4096];
            let read = peer.read(&mut asked).unwrap();
            asked.truncate(read);
            peer.write_all(answer.as_bytes()).unwrap();
            if answer.is_empty() {
                peer.shutdown(std::net::Shutdown::Both).unwrap();
            }
            (peer, String::from_utf8(asked).unwrap())
        });
        let request = Request::get("http://api.example:6443/api/v1/pods?watch=true").body(Body::empty());
        let answer = alone(connector, request.unwrap()).await;
        let (peer, asked) = serving.await.unwrap();
        (answer, peer, asked)
    }

    async fn next(body: &mut Answered) -> Option<Result<Vec<u8>, hyper::Error>> {
        let frame = body.frame().await?;
        Some(frame.map(|frame| frame.into_data().unwrap().to_vec()))
    }

    #[tokio::test]
    async fn a_watch_names_its_host_and_asks_for_the_path() {
        let (answer, _peer, asked) = opened(HEAD).await;
        assert!(answer.unwrap().status().is_success());
        assert!(asked.starts_with("GET /api/v1/pods?watch=true HTTP/1.1\r\n"), "{asked}");
        assert!(asked.to_ascii_lowercase().contains("host: api.example:6443\r\n"), "{asked}");
    }

    #[tokio::test]
    async fn chunks_come_as_they_are_sent() {
        let (answer, mut peer, _) = opened(HEAD).await;
        let mut body = answer.unwrap().into_body();
        for event in ["one\n", "two\n", "three\n"] {
            peer.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).unwrap();
            assert_eq!(next(&mut body).await.unwrap().unwrap(), event.as_bytes());
        }
        peer.write_all(b"0\r\n\r\n").unwrap();
        assert!(next(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn a_connection_that_breaks_off_is_an_error_of_the_body() {
        let (answer, mut peer, _) = opened(HEAD).await;
        let mut body = answer.unwrap().into_body();
        peer.write_all(b"4\r\none\n\r\n9\r\ntw").unwrap();
        drop(peer);
        assert_eq!(next(&mut body).await.unwrap().unwrap(), b"one\n");
        while let Some(chunk) = next(&mut body).await {
            if chunk.is_err() {
                return;
            }
        }
        panic!("the body ended as if it were whole");
    }

    #[tokio::test]
    async fn dropping_the_body_hangs_up() {
        let (answer, mut peer, _) = opened(HEAD).await;
        drop(answer);
        let left = tokio::task::spawn_blocking(move || peer.read(&mut [0; 8]).unwrap());
        assert_eq!(left.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_peer_that_hangs_up_before_it_answers_is_an_error() {
        let (answer, _peer, _) = opened("").await;
        assert!(answer.is_err());
    }

    #[test]
    fn only_watches_are_watches() {
        let asks = |uri: &'static str| is_watch(&Uri::from_static(uri));
        assert!(asks("/api/v1/pods?limit=1&watch=true") && asks("/api/v1/pods?watch=1"));
        assert!(!asks("/api/v1/pods?watch=false") && !asks("/api/v1/pods") && !asks("/api/v1/watch?a=b"));
    }
}

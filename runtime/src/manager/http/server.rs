//! Listens, and limits what slow and hostile clients can take up.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use indexmap::IndexMap;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    task::{AbortHandle, Id, JoinError, JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::{Service, util::BoxCloneSyncService};

use super::{
    service::{HttpService, Peer},
    settings::{self, Http},
    tls::{self, Tls},
};
use crate::error::Error;

/// Most connections that wait for this process to take them.
const BACKLOG: u32 = 1_024;
/// How long a TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Most bytes of a head.
const LONGEST_HEAD: usize = 16 << 10;
/// Most headers of a request.
const MOST_HEADERS: usize = 64;
/// How the port of probes treats connections.
const OF_PROBES: PortLimits = PortLimits {
    idle: Duration::from_secs(5),
    life: Duration::from_secs(60),
    farewell: Duration::from_secs(1),
};
/// How long to wait if the system has no more connections to give.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a connection stays open after it came or asked, however many others come.
///
/// Otherwise a flood of connections would close a probe before it is read.
const PROTECTED: Duration = Duration::from_millis(25);
/// The first byte of a TLS connection: that of a handshake's record.
const HANDSHAKE: u8 = 22;

/// How a port treats its connections.
#[derive(Clone, Copy, Debug)]
pub(in crate::manager) struct PortLimits {
    /// How long the head of a request may take, and how long a connection may idle between two requests.
    pub(in crate::manager) idle: Duration,
    /// How long a connection may be used, whatever it is used for.
    pub(in crate::manager) life: Duration,
    /// How long answers under way may take after a stop.
    pub(in crate::manager) farewell: Duration,
}

/// A port that this process has taken, and that nothing answers yet.
pub(in crate::manager) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    most_connections: usize,
    /// How TLS is spoken, and what reads its files again.
    tls: Option<(Tls, BoxFuture<'static, ()>)>,
}

impl Bound {
    /// Takes the port, if one is set.
    ///
    /// # Errors
    /// The address can't be read or listened at, or its certificate can't be used.
    pub(in crate::manager) fn take(http: &Http) -> Result<Option<Self>, Error> {
        if http.address.is_some() { Self::required(http).map(Some) } else { Ok(None) }
    }

    /// Takes the port.
    ///
    /// # Errors
    /// As [`take`](Self::take), and if none is set.
    pub(in crate::manager) fn required(http: &Http) -> Result<Self, Error> {
        let address = &http.address.clone().unwrap_or_default();
        let tls = http.tls.as_ref().map(tls::load).transpose().map_err(|(problem, source)| Error::Http {
            address: address.clone(),
            problem,
            source,
        })?;
        let mut first = None;
        for socket in settings::read(address)? {
            match listen(socket) {
                Ok(listener) => {
                    let found = listener.local_addr().map_err(|error| settings::refused(address, error))?;
                    let most_connections = http.most_connections;
                    return Ok(Self { listener, address: found, most_connections, tls });
                }
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        Err(settings::refused(address, first.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())))
    }

    /// Speaks TLS on the port.
    #[cfg(feature = "webhooks")]
    pub(in crate::manager) fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some((tls, Box::pin(std::future::pending()))), ..self }
    }

    /// Answers probes and the like from now on.
    pub(in crate::manager) fn serve(self, service: HttpService) -> Serving {
        let (address, over) = (self.address, if self.tls.is_some() { " over TLS" } else { "" });
        tracing::info!(%address, "serving /healthz, /readyz, /metrics and /debug{over}");
        self.serve_with(HttpAnswers::new(service), OF_PROBES)
    }

    /// Answers by a service from now on.
    pub(in crate::manager) fn serve_with(self, service: HttpAnswers, limits: PortLimits) -> Serving {
        let (address, stop) = (self.address, CancellationToken::new());
        let tls = self.tls.map(|(tls, reloader)| {
            tokio::spawn(stop.clone().run_until_cancelled_owned(reloader));
            tls
        });
        let open = Arc::new(Mutex::new(OpenConnections::new(self.most_connections)));
        let server = HttpServer { service, open: open.clone(), stop: stop.clone(), tls, limits };
        let task = tokio::spawn(server.run(self.listener));
        Serving { address, open, stop: stop.drop_guard(), task }
    }
}

/// What a server asks for each answer.
pub(in crate::manager) type HttpAnswers =
    BoxCloneSyncService<Request<Incoming>, Response<Full<Bytes>>, Infallible>;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // On Windows it lets two processes have one port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A port that is served; dropping it gives the port up.
#[derive(Debug)]
pub(in crate::manager) struct Serving {
    pub(in crate::manager) address: SocketAddr,
    #[cfg_attr(
        not(feature = "webhooks"),
        expect(dead_code, reason = "only webhooks wait for their clients")
    )]
    open: Arc<Mutex<OpenConnections>>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Serving {
    /// Waits until clients have closed all connections. The port goes on to answer.
    #[cfg(feature = "webhooks")]
    pub(in crate::manager) async fn closed_by_clients(&self) {
        while !self.open.lock().all.is_empty() {
            sleep(PAUSE).await;
        }
    }

    /// Gives the port up, and waits a second at most for answers under way.
    pub(in crate::manager) async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

/// The open connections, up to a limit. If one more comes, the one that has been inactive for longest is closed.
#[derive(Debug)]
struct OpenConnections {
    most: usize,
    /// The tasks that answer, and since when nothing was asked; the one that was asked last comes last.
    all: IndexMap<Id, (Instant, AbortHandle)>,
}

impl OpenConnections {
    fn new(most: usize) -> Self {
        Self { most: most.max(1), all: IndexMap::new() }
    }

    /// Returns when another connection can be taken; `None` for at once.
    fn full_until(&self) -> Option<Instant> {
        let (active, _) = self.all.values().next().filter(|_| self.all.len() >= self.most)?;
        Some(*active + PROTECTED)
    }

    fn add(&mut self, task: AbortHandle) {
        if self.all.len() >= self.most {
            self.close_one();
        }
        self.all.insert(task.id(), (Instant::now(), task));
    }

    fn close_one(&mut self) {
        if let Some((_, (_, first))) = self.all.shift_remove_index(0) {
            first.abort();
        }
    }

    /// Notes that a connection is active.
    fn note_active(&mut self, id: Id) {
        if let Some((_, task)) = self.all.shift_remove(&id) {
            self.all.insert(id, (Instant::now(), task));
        }
    }

    fn ended(&mut self, task: Result<(Id, ()), JoinError>) {
        let id = task.map_or_else(|error| error.id(), |(id, ())| id);
        self.all.shift_remove(&id);
    }
}

/// Answers the connections of one port.
#[derive(Clone)]
struct HttpServer {
    service: HttpAnswers,
    open: Arc<Mutex<OpenConnections>>,
    stop: CancellationToken,
    /// `None`: plain HTTP.
    tls: Option<Tls>,
    limits: PortLimits,
}

impl HttpServer {
    async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let full_until = self.open.lock().full_until().filter(|until| *until > Instant::now());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(ended) = connections.join_next_with_id() => self.open.lock().ended(ended),
                () = sleep_until(full_until.unwrap_or_else(Instant::now)), if full_until.is_some() => {}
                accepted = listener.accept(), if full_until.is_none() => match accepted {
                    Ok((stream, peer)) => {
                        let task = connections.spawn(self.clone().serve(stream, peer));
                        self.open.lock().add(task);
                    }
                    Err(error) => self.recover(&error).await,
                },
            }
        }
        drop(listener);
        let _ =
            timeout(self.limits.farewell, async { while connections.join_next().await.is_some() {} }).await;
        connections.shutdown().await;
    }

    /// Goes on after a connection that could not be taken.
    async fn recover(&self, error: &io::Error) {
        let of_the_peer = [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset];
        if of_the_peer.contains(&error.kind()) {
            return;
        }
        // Too many files are open, most likely: closing one helps.
        tracing::debug!(%error, "a connection can't be taken");
        self.open.lock().close_one();
        sleep(PAUSE).await;
    }

    /// Answers a connection until its client closes it, or it has to close.
    async fn serve(self, stream: TcpStream, peer: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.answer_all(stream, peer, true).await };
        let mut first = [0];
        if !matches!(timeout(HANDSHAKE_TIME, stream.peek(&mut first)).await, Ok(Ok(_))) {
            return;
        }
        if first[0] != HANDSHAKE {
            return self.answer_all(stream, peer, false).await;
        }
        match timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.answer_all(stream, peer, true).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => {}
        }
    }

    /// Answers one request after the other; a client that should speak TLS and does not gets an error.
    async fn answer_all(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        peer: SocketAddr,
        speaks_well: bool,
    ) {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.idle)
            .max_buf_size(LONGEST_HEAD)
            .max_headers(MOST_HEADERS)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(|request| self.answer(request, peer, speaks_well)),
            );
        tokio::pin!(connection);
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = self.stop.cancelled() => {}
            () = sleep(self.limits.life) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(self.limits.farewell, connection).await;
    }

    /// Answers a request, in the task of its connection.
    async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
        speaks_well: bool,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        self.open.lock().note_active(tokio::task::id());
        if speaks_well {
            request.extensions_mut().insert(Peer(peer));
            return self.service.clone().call(request).await;
        }
        let mut answer = Response::new(Full::from(
            "this port speaks TLS: ask for https://, and probe with `scheme: HTTPS`\n",
        ));
        *answer.status_mut() = StatusCode::BAD_REQUEST;
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::{Client, client::Body};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{manager::Inspector, metrics::Metrics};

    /// Asks on a connection that stays open.
    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") && stream.read_buf(&mut answer).await.unwrap_or(0) > 0 {}
        String::from_utf8(answer).unwrap()
    }

    /// Serves probes, with a limit on connections.
    fn serve(most_connections: usize) -> Serving {
        let nobody =
            tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
        let http = Http::on("127.0.0.1:0").max_connections(most_connections);
        let client = Client::new(nobody, "default");
        let service =
            HttpService::new(&http, Inspector::default(), Metrics::new(), &client, Default::default());
        Bound::take(&http).unwrap().unwrap().serve(service)
    }

    // P2
    #[tokio::test(start_paused = true)]
    async fn the_connection_that_was_inactive_for_longest_makes_room() {
        let mut open = OpenConnections::new(2);
        let mut tasks = JoinSet::new();
        let mut opened = || tasks.spawn(std::future::pending::<()>());
        let (first, second, third) = (opened(), opened(), opened());
        open.add(first.clone());
        assert_eq!(open.full_until(), None);
        open.add(second.clone());
        assert_eq!(open.full_until(), Some(Instant::now() + PROTECTED), "both may be about to ask");
        tokio::time::advance(PROTECTED).await;
        open.note_active(first.id());
        assert_eq!(open.full_until(), Some(Instant::now()), "the second one has had its time");
        open.add(third.clone());
        tokio::task::yield_now().await;
        assert!(second.is_finished() && !first.is_finished());
        open.ended(Ok((third.id(), ())));
        assert_eq!(open.full_until(), None);
    }

    // P19
    #[tokio::test]
    async fn the_connection_that_just_asked_stays_where_another_is_one_too_many() {
        let serving = serve(2);
        let connect = async || TcpStream::connect(serving.address).await.unwrap();
        let mut first = connect().await;
        assert!(ask(&mut first).await.contains("200 OK"));
        let mut second = connect().await;
        for stream in [&mut second, &mut first] {
            assert!(ask(stream).await.contains("200 OK"));
        }
        let mut third = connect().await;
        assert!(ask(&mut third).await.contains("200 OK"));
        assert_eq!(
            second.read(&mut [0]).await.unwrap_or(0),
            0,
            "the second one asked for nothing the longest"
        );
        assert!(ask(&mut first).await.contains("200 OK"), "the first one has just asked");
        serving.stop().await;
    }

    // P24
    #[cfg(feature = "webhooks")]
    #[tokio::test]
    async fn a_connection_that_seems_idle_is_answered_until_its_client_closes_it() {
        let serving = serve(8);
        let mut stream = TcpStream::connect(serving.address).await.unwrap();
        assert!(ask(&mut stream).await.contains("200 OK"));
        let waited = timeout(4 * PAUSE, serving.closed_by_clients()).await;
        assert!(waited.is_err(), "the client may ask again");
        assert!(ask(&mut stream).await.contains("200 OK"));
        drop(stream);
        timeout(Duration::from_secs(30), serving.closed_by_clients()).await.unwrap();
        serving.stop().await;
    }
}

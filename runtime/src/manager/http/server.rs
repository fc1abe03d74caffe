//! Listens, and limits what slow and hostile clients can take up.

use std::{collections::VecDeque, convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::{
    origin::Peer,
    service::HttpService,
    settings::{self, Http},
    tls::{self, Reloader, Tls},
};
use crate::error::Error;

/// Most connections that wait for this process to take them.
const BACKLOG: u32 = 1_024;
/// How long a TLS handshake, or the head of a request may take, and how long a connection may idle between two.
const HEAD: Duration = Duration::from_secs(5);
/// Most bytes of a head.
const LONGEST_HEAD: usize = 16 << 10;
/// Most headers of a request.
const MOST_HEADERS: usize = 64;
/// How long a connection may be used, whatever it is used for.
const LIFE: Duration = Duration::from_secs(60);
/// How long answers under way may take after a stop.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long to wait if the system has no more connections to give.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a connection stays open after it came or asked, however many others come.
///
/// Otherwise a flood of connections would close a probe before it is read.
const PROTECTED: Duration = Duration::from_millis(25);
/// The first byte of a TLS connection: that of a handshake's record.
const HANDSHAKE: u8 = 22;

/// A port that this process has taken, and that nothing answers yet.
pub(in crate::manager) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    most_connections: usize,
    tls: Option<(Tls, Reloader)>,
}

impl Bound {
    /// Takes the port, if one is set.
    ///
    /// # Errors
    /// The address can't be read or listened at, or its certificate can't be used.
    pub(in crate::manager) fn take(http: &Http) -> Result<Option<Self>, Error> {
        let Some(address) = &http.address else { return Ok(None) };
        let tls = http.tls.as_ref().map(tls::load).transpose().map_err(|unusable| Error::Http {
            address: address.clone(),
            problem: unusable.problem,
            source: unusable.source,
        })?;
        let mut first = None;
        for socket in settings::read(address)? {
            match listen(socket) {
                Ok(listener) => {
                    let found = listener.local_addr().map_err(|error| settings::refused(address, error))?;
                    let most_connections = http.most_connections;
                    return Ok(Some(Self { listener, address: found, most_connections, tls }));
                }
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        Err(settings::refused(address, first.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())))
    }

    /// Answers from now on.
    pub(in crate::manager) fn serve(self, service: HttpService) -> Serving {
        let (address, stop) = (self.address, CancellationToken::new());
        let over = if self.tls.is_some() { " over TLS" } else { "" };
        tracing::info!(%address, "serving /healthz, /readyz, /metrics and /debug{over}");
        let tls = self.tls.map(|(tls, reloader)| {
            tokio::spawn(stop.clone().run_until_cancelled_owned(reloader.run()));
            tls
        });
        let open = Arc::new(Mutex::new(OpenConnections::new(self.most_connections)));
        let server = HttpServer { service, open, stop: stop.clone(), tls };
        let task = tokio::spawn(server.run(self.listener));
        Serving { address, stop, task: Some(task) }
    }
}

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
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Serving {
    /// Gives the port up, and waits a second at most for answers under way.
    pub(in crate::manager) async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The open connections, up to a limit. If one more comes, the one that has been inactive for longest is closed.
#[derive(Debug)]
struct OpenConnections {
    most: usize,
    /// The connection that has been inactive for longest comes first.
    all: VecDeque<OpenConnection>,
    next: u64,
}

#[derive(Debug)]
struct OpenConnection {
    id: u64,
    /// When it was opened, or last had a request.
    active: Instant,
    close: CancellationToken,
}

impl OpenConnections {
    fn new(most: usize) -> Self {
        Self { most: most.max(1), all: VecDeque::new(), next: 0 }
    }

    /// Returns when another connection can be taken; `None` for at once.
    fn full_until(&self) -> Option<Instant> {
        let first = self.all.front().filter(|_| self.all.len() >= self.most)?;
        Some(first.active + PROTECTED)
    }

    /// Adds a connection; returns its number, and what tells it to close.
    fn add(&mut self) -> (u64, CancellationToken) {
        if self.all.len() >= self.most {
            self.close_one();
        }
        let (id, close) = (self.next, CancellationToken::new());
        self.next += 1;
        self.all.push_back(OpenConnection { id, active: Instant::now(), close: close.clone() });
        (id, close)
    }

    fn close_one(&mut self) {
        if let Some(first) = self.all.pop_front() {
            first.close.cancel();
        }
    }

    /// Notes that a connection is active.
    fn note_active(&mut self, id: u64) {
        if let Some(mut connection) = self.remove(id) {
            connection.active = Instant::now();
            self.all.push_back(connection);
        }
    }

    fn remove(&mut self, id: u64) -> Option<OpenConnection> {
        let at = self.all.iter().position(|one| one.id == id)?;
        self.all.remove(at)
    }
}

/// Answers the connections of one port.
#[derive(Clone, Debug)]
struct HttpServer {
    service: HttpService,
    open: Arc<Mutex<OpenConnections>>,
    stop: CancellationToken,
    /// `None`: plain HTTP.
    tls: Option<Tls>,
}

impl HttpServer {
    async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let full_until = self.open.lock().full_until().filter(|until| *until > Instant::now());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                () = sleep_until(full_until.unwrap_or_else(Instant::now)), if full_until.is_some() => {}
                accepted = listener.accept(), if full_until.is_none() => match accepted {
                    Ok((stream, peer)) => drop(connections.spawn(self.connection(peer).serve(stream))),
                    Err(error) => self.recover(&error).await,
                },
            }
        }
        drop(listener);
        let _ = timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
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

    fn connection(&self, peer: SocketAddr) -> HttpConnection {
        let (id, closed) = self.open.lock().add();
        HttpConnection { server: self.clone(), peer, id, closed }
    }
}

/// One connection; dropping it lets another one in.
struct HttpConnection {
    server: HttpServer,
    peer: SocketAddr,
    id: u64,
    closed: CancellationToken,
}

impl HttpConnection {
    /// Answers until the client closes the connection, or it has to close.
    async fn serve(self, stream: TcpStream) {
        let until = Instant::now() + LIFE;
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.server.tls else { return self.answer_all(stream, until, true).await };
        let first = self.in_time(first_byte(&stream)).await;
        match first {
            Some(Ok(HANDSHAKE)) => match self.in_time(tls.accept(stream)).await {
                Some(Ok(stream)) => self.answer_all(stream, until, true).await,
                Some(Err(error)) => tracing::debug!(peer = %self.peer, %error, "a TLS handshake failed"),
                None => {}
            },
            Some(Ok(_)) => self.answer_all(stream, until, false).await,
            Some(Err(_)) | None => {}
        }
    }

    /// Waits for a step of a handshake; `None` if it takes too long, or the connection has to close.
    async fn in_time<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            () = self.server.stop.cancelled() => None,
            taken = timeout(HEAD, step) => taken.ok(),
        }
    }

    /// Answers one request after the other; a client that should speak TLS and does not gets an error.
    async fn answer_all(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        until: Instant,
        speaks_well: bool,
    ) {
        let (stop, closed) = (&self.server.stop, &self.closed);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(LONGEST_HEAD)
            .max_headers(MOST_HEADERS)
            .serve_connection(TokioIo::new(stream), service_fn(|request| self.answer(request, speaks_well)));
        tokio::pin!(connection);
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            _ = &mut connection => return,
            () = stop.cancelled() => {}
            () = sleep_until(until) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(FAREWELL, closed.run_until_cancelled(connection)).await;
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        speaks_well: bool,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        self.server.open.lock().note_active(self.id);
        request.extensions_mut().insert(Peer(self.peer));
        match speaks_well {
            true => self.server.service.clone().call(request).await,
            false => Ok(wants_tls()),
        }
    }
}

/// Waits for the first byte of a client, and does not take it from the stream.
async fn first_byte(stream: &TcpStream) -> io::Result<u8> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0]),
    }
}

fn wants_tls() -> Response<Full<Bytes>> {
    let mut answer =
        Response::new(Full::from("this port speaks TLS: ask for https://, and probe with `scheme: HTTPS`\n"));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.server.open.lock().remove(self.id);
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

    // P2
    #[tokio::test(start_paused = true)]
    async fn the_connection_that_was_inactive_for_longest_makes_room() {
        let mut open = OpenConnections::new(2);
        let (first, first_closed) = open.add();
        assert_eq!(open.full_until(), None);
        let (_, second_closed) = open.add();
        assert_eq!(open.full_until(), Some(Instant::now() + PROTECTED), "both may be about to ask");
        tokio::time::advance(PROTECTED).await;
        open.note_active(first);
        assert_eq!(open.full_until(), Some(Instant::now()), "the second one has had its time");
        let (third, _) = open.add();
        assert!(second_closed.is_cancelled() && !first_closed.is_cancelled());
        open.remove(third);
        assert_eq!(open.full_until(), None);
    }

    // P19
    #[tokio::test]
    async fn the_connection_that_just_asked_stays_where_another_is_one_too_many() {
        let nobody =
            tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
        let http = Http::on("127.0.0.1:0").max_connections(2);
        let client = Client::new(nobody, "default");
        let service = HttpService::new(&http, Inspector::default(), Metrics::new(), &client);
        let serving = Bound::take(&http).unwrap().unwrap().serve(service);
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
}

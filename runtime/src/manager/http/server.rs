//! Listens, and keeps slow and hostile clients from holding up anything.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
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
    table::Table,
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
/// How long answers under way may take once all is to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long to wait where the system has no more connections to give.
const PAUSE: Duration = Duration::from_millis(50);
/// The first byte of a TLS connection: the type of a handshake record.
const HANDSHAKE: u8 = 22;

/// A port that is this process's, although it answers nothing yet.
pub(in crate::manager) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    most_connections: usize,
    tls: Option<(Tls, Reloader)>,
}

impl Bound {
    /// Takes the port, if there is to be one.
    ///
    /// # Errors
    /// The address is invalid, can't be listened at, or lacks a certificate.
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
        let table = Arc::new(Mutex::new(Table::new(self.most_connections)));
        let tls = self.tls.map(|(tls, reloader)| {
            tokio::spawn(stop.clone().run_until_cancelled_owned(reloader.run()));
            tls
        });
        let server = Server { service, table, stop: stop.clone(), tls };
        let task = tokio::spawn(server.run(self.listener));
        Serving { address, stop, task: Some(task) }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Elsewhere it lets two processes have one port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A port that is answered at; dropped, it is given up.
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

/// What answers, and to how many.
#[derive(Clone, Debug)]
struct Server {
    service: HttpService,
    table: Arc<Mutex<Table>>,
    stop: CancellationToken,
    /// `None`: plain HTTP.
    tls: Option<Tls>,
}

impl Server {
    async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let wait = self.table().wait(Instant::now());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                accepted = listener.accept(), if wait.is_none() => match accepted {
                    Ok((stream, peer)) => drop(connections.spawn(self.seat(peer).attend(stream))),
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
        // Too many files are open, most likely: one less helps.
        tracing::debug!(%error, "a connection can't be taken");
        self.table().close_one(Instant::now());
        sleep(PAUSE).await;
    }

    fn seat(&self, peer: SocketAddr) -> Seat {
        let (id, closed) = self.table().enter(peer.ip(), Instant::now());
        Seat { server: self.clone(), peer, id, closed }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place among those that may be.
struct Seat {
    server: Server,
    peer: SocketAddr,
    id: u64,
    closed: CancellationToken,
}

/// What a client gets.
#[derive(Clone, Copy)]
enum Reply {
    Answer,
    /// It speaks HTTP where it should speak TLS.
    WantsTls,
}

impl Seat {
    /// Answers until the client has enough, or has had it.
    async fn attend(self, stream: TcpStream) {
        let until = Instant::now() + LIFE;
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.server.tls else { return self.converse(stream, until, Reply::Answer).await };
        let first = self.in_time(first_byte(&stream)).await;
        match first {
            Some(Ok(HANDSHAKE)) => match self.in_time(tls.accept(stream)).await {
                Some(Ok(stream)) => self.converse(stream, until, Reply::Answer).await,
                Some(Err(error)) => tracing::debug!(peer = %self.peer, %error, "a TLS handshake failed"),
                None => {}
            },
            Some(Ok(_)) => self.converse(stream, until, Reply::WantsTls).await,
            Some(Err(_)) | None => {}
        }
    }

    /// Waits for a step of a handshake; `None` where it takes too long, or the connection is to be closed.
    async fn in_time<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            () = self.server.stop.cancelled() => None,
            taken = timeout(HEAD, step) => taken.ok(),
        }
    }

    /// Answers request after request.
    async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Unpin, until: Instant, reply: Reply) {
        let (stop, closed) = (&self.server.stop, &self.closed);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(LONGEST_HEAD)
            .max_headers(MOST_HEADERS)
            .serve_connection(TokioIo::new(stream), service_fn(|request| self.answer(request, reply)));
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
        reply: Reply,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        self.server.table().asked(self.id, Instant::now());
        request.extensions_mut().insert(Peer(self.peer));
        let answer = match reply {
            Reply::Answer => self.server.service.clone().call(request).await,
            Reply::WantsTls => Ok(wants_tls()),
        };
        self.server.table().answered(self.id);
        answer
    }
}

/// Waits for what a client says first, and leaves it where it is.
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

impl Drop for Seat {
    fn drop(&mut self) {
        self.server.table().leave(self.id);
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

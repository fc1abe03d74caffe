//! Listens, and keeps slow and hostile clients from holding up anything.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::{
    origin::Peer,
    service::HttpService,
    settings::{self, Http},
    table::Table,
};
use crate::error::Error;

/// Most connections that wait for this process to take them.
const BACKLOG: u32 = 1_024;
/// How long the head of a request may take, and how long a connection may idle between two.
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

/// A port that is this process's, although it answers nothing yet.
#[derive(Debug)]
pub(in crate::manager) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    most_connections: usize,
}

impl Bound {
    /// Takes the port, if there is to be one.
    ///
    /// # Errors
    /// The address can't be read, or not be listened at.
    pub(in crate::manager) fn take(http: &Http) -> Result<Option<Self>, Error> {
        let Some(address) = &http.address else { return Ok(None) };
        let mut first = None;
        for socket in settings::read(address)? {
            match listen(socket) {
                Ok(listener) => {
                    let found = listener.local_addr().map_err(|error| settings::refused(address, error))?;
                    let most_connections = http.most_connections;
                    return Ok(Some(Self { listener, address: found, most_connections }));
                }
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        Err(settings::refused(address, first.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())))
    }

    /// Answers from now on.
    pub(in crate::manager) fn serve(self, service: HttpService) -> Serving {
        let (address, stop) = (self.address, CancellationToken::new());
        tracing::info!(%address, "serving /healthz, /readyz, /metrics and /debug");
        let table = Arc::new(Mutex::new(Table::new(self.most_connections)));
        let server = Server { service, table, stop: stop.clone() };
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

impl Seat {
    /// Answers until the client has enough, or has had it.
    async fn attend(self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let (seat, stop, closed) = (&self, &self.server.stop, &self.closed);
        let answer = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
            seat.server.table().asked(seat.id, Instant::now());
            request.extensions_mut().insert(Peer(seat.peer));
            let answer = seat.server.service.clone().call(request);
            async {
                let answer = answer.await;
                seat.server.table().answered(seat.id);
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(LONGEST_HEAD)
            .max_headers(MOST_HEADERS)
            .serve_connection(TokioIo::new(stream), answer);
        tokio::pin!(connection);
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            _ = &mut connection => return,
            () = stop.cancelled() => {}
            () = sleep(LIFE) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(FAREWELL, closed.run_until_cancelled(connection)).await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.server.table().leave(self.id);
    }
}

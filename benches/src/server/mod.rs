//! The load generator: an API server made of prepared bytes, in a process of its own.
//!
//! Real HTTP on loopback, hand-written, so that it costs next to nothing. A watch sends one HTTP chunk an event, as a
//! kube-apiserver does; what is to happen on open watches is said by `/bench/..` requests.

mod bytes;
mod control;
mod http;
mod watch;

use std::{
    io::{self, BufRead},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::Context as _;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch::Sender,
};

use self::{
    bytes::{Kind, Prepared},
    http::Request,
    watch::Script,
};

pub(crate) use control::{Control, Server};

/// What all connections share.
struct Shared {
    gadgets: Prepared,
    pods: Prepared,
    script: Sender<Script>,
    /// Whether the next watch follows one that expired.
    expired: AtomicBool,
    lists: AtomicUsize,
    watches: AtomicUsize,
    open_watches: Sender<usize>,
}

/// Serves this many objects until standard input ends; the first line printed is the port.
pub(crate) fn serve(objects: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let shared = Arc::new(Shared {
        gadgets: Prepared::new(Kind::Gadgets, objects),
        pods: Prepared::new(Kind::Pods, objects),
        script: Sender::new(Script::default()),
        expired: AtomicBool::new(false),
        lists: AtomicUsize::new(0),
        watches: AtomicUsize::new(0),
        open_watches: Sender::new(0),
    });
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    println!("{}", listener.local_addr()?.port());
    runtime.spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(converse(connection, shared.clone()));
        }
    });
    // The parent holds the other end: when it is gone, so is this.
    io::stdin().lock().lines().for_each(drop);
    Ok(())
}

async fn converse(connection: TcpStream, shared: Arc<Shared>) {
    // A client that goes away is how a run ends.
    let _ = async {
        connection.set_nodelay(true)?;
        let mut buffer = Vec::new();
        while let Some(request) = http::read(&connection, &mut buffer).await? {
            answer(&connection, &request, &shared).await.context(request.path)?;
        }
        anyhow::Ok(())
    }
    .await;
}

async fn answer(connection: &TcpStream, request: &Request, shared: &Shared) -> anyhow::Result<()> {
    if let Some(order) = request.path.strip_prefix("/bench/") {
        return control::answer(connection, order, request, shared).await;
    }
    let Some(prepared) = [&shared.gadgets, &shared.pods].into_iter().find(|kind| kind.serves(&request.path))
    else {
        return Ok(http::send(connection, "404 Not Found", b"{}").await?);
    };
    if matches!(request.value("watch"), Some("1" | "true")) {
        shared.watches.fetch_add(1, Ordering::Relaxed);
        return watch::serve(connection, request, prepared, shared).await;
    }
    shared.lists.fetch_add(1, Ordering::Relaxed);
    let limit = request.value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
    let from = request.value("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
    let (head, items, tail) = prepared.page(from, limit);
    Ok(http::send_parts(connection, [head.as_bytes(), items, tail]).await?)
}

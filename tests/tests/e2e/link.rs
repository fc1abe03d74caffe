//! The TCP connections of a process to its server, which a test cuts: both ways, or one.

use std::{io, net::SocketAddr};

use kube::config::Kubeconfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};
use watchkeeper_tests::cable::Passes;

/// A port that passes on to a server what a test lets through; dropped, it is closed.
///
/// What it swallows is lost. A connection that lost something is silent until all passes again, and then broken.
pub(crate) struct Link {
    passes: watch::Sender<Passes>,
    accepting: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Link {
    /// Puts a link in front of a kubeconfig's server; returns the link and the kubeconfig that uses it.
    pub(crate) async fn in_front_of(kubeconfig: &str) -> (Self, String) {
        let mut kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
        let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
        let url = cluster.server.clone().unwrap();
        let server: SocketAddr = url.trim_start_matches("https://").trim_end_matches('/').parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        cluster.server = Some(format!("https://{}", listener.local_addr().unwrap()));
        let (passes, seen) = watch::channel(Passes::Both);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, seen.clone()));
            }
        });
        (Self { passes, accepting }, serde_json::to_string(&kubeconfig).unwrap())
    }

    /// Lets through what comes from now on.
    pub(crate) fn set(&self, passes: Passes) {
        self.passes.send_replace(passes);
    }
}

async fn carry(client: TcpStream, server: SocketAddr, passes: watch::Receiver<Passes>) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = TcpStream::connect(server).await?.into_split();
    tokio::select! {
        ended = pump(from_client, to_server, Passes::requests, passes.clone()) => ended,
        ended = pump(from_server, to_client, Passes::replies, passes) => ended,
    }
}

/// Passes bytes on in one direction; ends with the connection, or once more would come after what was lost.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    may: fn(Passes) -> bool,
    mut passes: watch::Receiver<Passes>,
) -> io::Result<()> {
    let (mut bytes, mut lost) = (vec![0; 16 << 10], false);
    loop {
        let passing = may(*passes.borrow_and_update());
        if passing && lost {
            return Ok(());
        }
        tokio::select! {
            changed = passes.changed() => if changed.is_err() { return Ok(()) },
            read = from.read(&mut bytes) => match read? {
                0 => return Ok(()),
                count if passing => to.write_all(&bytes[..count]).await?,
                _ => lost = true,
            },
        }
    }
}

//! Starting the load generator, and telling it what to do.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream as StdStream,
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::Ordering,
};

use anyhow::Context as _;
use tokio::net::TcpStream;

use super::{Shared, http, http::Request, watch::Script};
use crate::clock::wall_nanos;

/// A load generator under way; it ends when this is dropped.
pub(crate) struct Server {
    process: Child,
    _input: Option<ChildStdin>,
    pub(crate) port: u16,
}

impl Server {
    /// Starts a process that serves this many objects of each kind.
    ///
    /// # Errors
    /// The process can't be started, or says no port.
    pub(crate) fn start(objects: usize) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", &objects.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("no output")?).read_line(&mut line)?;
        let port = line.trim().parse().context("the server says no port")?;
        Ok(Self { _input: process.stdin.take(), process, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Tells a load generator what to do, from the process that is measured.
#[derive(Clone, Copy)]
pub(crate) struct Control {
    pub(crate) port: u16,
}

impl Control {
    /// Floods the open watches, once this many are open; returns the wall time at which it begins.
    pub(crate) async fn flood(self, events: usize, watches: usize) -> anyhow::Result<u64> {
        Ok(self.ask(format!("flood?events={events}&watches={watches}")).await? as u64)
    }

    /// Sends changes at a rate; returns the wall time at which it begins.
    pub(crate) async fn pace(self, events: usize, a_second: usize, watches: usize) -> anyhow::Result<u64> {
        Ok(self.ask(format!("pace?events={events}&rate={a_second}&watches={watches}")).await? as u64)
    }

    /// Ends the watches with 410; returns the wall time at which it does.
    pub(crate) async fn expire(self) -> anyhow::Result<u64> {
        Ok(self.ask("expire?watches=1".to_owned()).await? as u64)
    }

    /// Counts lists and watches since the last time that was asked.
    pub(crate) async fn requests(self) -> anyhow::Result<f64> {
        self.ask("requests".to_owned()).await
    }

    async fn ask(self, order: String) -> anyhow::Result<f64> {
        let ask = move || {
            let mut connection = StdStream::connect(("127.0.0.1", self.port))?;
            write!(connection, "GET /bench/{order} HTTP/1.1\r\nHost: bench\r\n\r\n")?;
            let mut reader = BufReader::new(connection);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                anyhow::ensure!(reader.read_line(&mut line)? > 0, "the server is gone");
            }
            let mut body = String::new();
            reader.take(20).read_to_string(&mut body)?;
            Ok(body.trim().parse()?)
        };
        tokio::task::spawn_blocking(ask).await?
    }
}

/// Heeds an order; the answer is a number of twenty digits.
pub(super) async fn answer(
    connection: &TcpStream,
    order: &str,
    request: &Request,
    shared: &Shared,
) -> anyhow::Result<()> {
    let wanted = request.number("watches");
    let (events, a_second) = (request.number("events"), request.number("rate"));
    let script = match order {
        "flood" => Some(Script::Flood { events }),
        "pace" => Some(Script::Pace { events, a_second }),
        "expire" => Some(Script::Expire),
        _ => None,
    };
    if let Some(Script::Flood { events }) = script {
        shared.gadgets.flood(events);
    }
    let number = match script {
        Some(script) => {
            shared.open_watches.subscribe().wait_for(|open| *open >= wanted).await?;
            let now = wall_nanos();
            shared.script.send_replace(script);
            now
        }
        None => {
            shared.script.send_replace(Script::Silence);
            let asked = shared.lists.swap(0, Ordering::Relaxed) + shared.watches.swap(0, Ordering::Relaxed);
            asked as u64
        }
    };
    Ok(http::send(connection, "200 OK", format!("{number:020}").as_bytes()).await?)
}

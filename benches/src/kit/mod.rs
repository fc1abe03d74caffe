//! Shared parts of measured processes: a runtime, clients, and the caches of all sides.

mod controllers;
mod floor;
mod peers;
mod recording;
mod tally;

pub(crate) use controllers::{Next, Work, controllers, kube_controllers};
pub(crate) use floor::Floor;
pub(crate) use peers::{KubeCache, Peer, factory, informer, informer_of};
use peers::{api, kube_config};
pub(crate) use recording::recorded;
pub(crate) use tally::{Last, Tally};

use std::{future::Future, time::Duration};

use anyhow::Context as _;
use tokio::time::Instant;
use watchkeeper::kube::{Client, Config};

use crate::{
    job::{Job, Side},
    measure::{Measures, cpu_seconds},
    server::Control,
};

/// How long one run of one side may take.
const LIMIT: Duration = Duration::from_secs(300);

/// How many threads a measurement has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    One,
    /// As many as the machine has cores.
    All,
}

/// Runs a measurement that itself lasts this many seconds, on a runtime of its own.
pub(crate) fn alone(
    threads: Threads,
    seconds: u64,
    run: impl Future<Output = anyhow::Result<Measures>>,
) -> anyhow::Result<Measures> {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::All => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let measures = runtime.block_on(async {
        tokio::time::timeout(LIMIT + Duration::from_secs(seconds), run).await.context("not done in time")?
    });
    runtime.shutdown_background();
    measures
}

/// A client of the load generator: each side's own, as it builds it from a configuration.
pub(crate) fn client(job: &Job) -> anyhow::Result<Client> {
    let config = Config::new(format!("http://127.0.0.1:{}", job.port).parse()?);
    Ok(match job.side {
        Side::Watchkeeper => watchkeeper::manager::client(config)?,
        _ => Client::try_from(config)?,
    })
}

/// The load generator, as the measured process talks to it.
pub(crate) fn control(job: &Job) -> Control {
    Control { port: job.port }
}

/// Waits until a condition that is looked at now and then comes true.
pub(crate) async fn until(mut come_true: impl FnMut() -> bool) {
    while !come_true() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Reports that a side does not support a bench.
pub(crate) fn no_part<T>(side: Side) -> anyhow::Result<T> {
    anyhow::bail!("{side} has no part in this bench")
}

/// The cost since a time.
pub(crate) struct Spent {
    at: Instant,
    cpu: f64,
}

impl Spent {
    /// Begins to count.
    pub(crate) fn from_now() -> Self {
        Self { at: Instant::now(), cpu: cpu_seconds() }
    }

    pub(crate) fn wall(&self) -> f64 {
        self.at.elapsed().as_secs_f64()
    }

    pub(crate) fn cpu(&self) -> f64 {
        cpu_seconds() - self.cpu
    }
}

//! `latency`: from the moment at which the server sends a change to the start of its reconcile.

use std::{sync::Arc, time::Duration};

use crate::{
    contest::{Contest, Settings},
    job::{Bench, Job, Mode, Side},
    kit::{self, Spent, Tally},
    measure::{Measures, held_megabytes, measures, peak_megabytes},
    report::{Column, Goal::AtMost},
};

const OBJECTS: usize = 10_000;
const A_SECOND: usize = 1_000;
const SECONDS: u64 = 10;
const WORKERS: usize = 8;

/// Runs the bench.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let job =
        Job::new(Bench::Latency, OBJECTS).events(A_SECOND * SECONDS as usize).seconds(SECONDS).users(WORKERS);
    Contest::served("latency: 1000 changes a second of 10000 objects, 8 workers", job)
        .column(Column::cost("p50", "median, µs"))
        .column(Column::cost("p99", "p99, µs"))
        .column(Column::cost("p999", "p99.9, µs"))
        .column(Column::cost("cpu", "CPU an event, µs"))
        .everywhere()
        .side(Side::Watchkeeper, &[("p50", AtMost(120.0)), ("p99", AtMost(350.0))])
        .variant(Side::Watchkeeper, Mode::Recorded, "with a flight recorder", &[])
        .side(Side::KubeRs, &[])
        .variant(Side::KubeRs, Mode::Streaming, "streaming", &[])
        .side(Side::ControllerRuntime, &[])
        .side(Side::Floor, &[])
        .run(settings)
        .map(drop)
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let tally = Tally::new(job.objects, 1);
    match job.side {
        Side::Watchkeeper => {
            let _running = kit::controllers(job, 1, job.users, &tally)?;
            paced(job, &tally, 1).await
        }
        Side::KubeRs => {
            let _running = kit::kube_controllers(job, 1, job.users as u16, &tally)?;
            paced(job, &tally, 1).await
        }
        Side::Floor => floor(job, &tally).await,
        side => kit::no_part(side),
    }
}

/// Waits until everybody has worked off the first list, then sends changes at a rate and measures them.
pub(super) async fn paced(job: &Job, tally: &Arc<Tally>, listeners: usize) -> anyhow::Result<Measures> {
    kit::until(|| tally.heard() >= job.objects * listeners).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let control = kit::control(job);
    let requests = control.requests().await?;
    let spent = Spent::from_now();
    control.pace(job.events, job.events / job.seconds as usize, 1).await?;
    tally.all().await;
    let cpu = spent.cpu() * 1e6 / job.events as f64;
    let delays = tally.take();
    Ok(measures([
        ("p50", delays.median()),
        ("p99", delays.at(0.99)),
        ("p999", delays.at(0.999)),
        ("cpu", cpu),
        ("rss", held_megabytes()),
        ("peak", peak_megabytes()),
        ("requests", requests),
    ]))
}

async fn floor(job: &Job, tally: &Arc<Tally>) -> anyhow::Result<Measures> {
    let mut floor = kit::Floor::connect(job.port)?;
    floor.watch()?;
    let spent = Spent::from_now();
    kit::control(job).pace(job.events, job.events / job.seconds as usize, 1).await?;
    floor.events(job.events, |gadget| tally.hear(gadget))?;
    let delays = tally.take();
    let cpu = spent.cpu() * 1e6 / job.events as f64;
    Ok(measures([
        ("p50", delays.median()),
        ("p99", delays.at(0.99)),
        ("p999", delays.at(0.999)),
        ("cpu", cpu),
    ]))
}

//! `idle`: the cost of 100,000 cached objects while nothing happens.

use std::time::Duration;

use crate::{
    contest::{Contest, Settings},
    gadget::Gadget,
    job::{Bench, Job, Side},
    kit::{self, KubeCache, Spent},
    measure::{Measures, measures},
    report::{Column, Goal::AtMost},
};

const OBJECTS: usize = 100_000;
const SECONDS: u64 = 60;

/// Runs the bench, all sides at once: they are idle.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    Contest::served(
        "idle: 100000 cached objects, one handler, 60 s",
        Job::new(Bench::Idle, OBJECTS).seconds(SECONDS),
    )
    .at_once()
    .column(Column::cost("cpu", "CPU, ms"))
    .column(Column::cost("share", "CPU, % of one core"))
    .side(Side::Watchkeeper, &[("share", AtMost(0.01))])
    .side(Side::KubeRs, &[])
    .side(Side::ClientGo, &[])
    .side(Side::ControllerRuntime, &[])
    .run(settings)
    .map(drop)
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    match job.side {
        Side::Watchkeeper => {
            let factory = kit::factory(job)?;
            let _registration = kit::informer(job, &factory).handler().on_update(|_, _| {}).register();
            factory.start();
            factory.wait_for_sync(Duration::from_secs(300)).await?;
            Ok(rest(job).await)
        }
        Side::KubeRs => {
            let cache = KubeCache::<Gadget>::start(job, |_| {})?;
            cache.synced().await?;
            Ok(rest(job).await)
        }
        side => kit::no_part(side),
    }
}

async fn rest(job: &Job) -> Measures {
    tokio::time::sleep(Duration::from_secs(3)).await;
    let spent = Spent::from_now();
    tokio::time::sleep(Duration::from_secs(job.seconds)).await;
    let cpu = spent.cpu();
    measures([("cpu", cpu * 1e3), ("share", cpu / spent.wall() * 100.0)])
}

//! `initial-list`: from nothing to a synced cache; time, CPU, peak and settled memory.

use std::time::Duration;

use crate::{
    contest::{Contest, Extent, Settings},
    job::{Bench, Job, Mode, Side},
    kit::{self, Floor, KubeCache, Spent},
    measure::{Measures, held_megabytes, measures, peak_megabytes},
    report::{
        Column,
        Goal::{self, Share, Times},
    },
};

/// How long a side may settle before its memory counts as settled.
const SETTLE: Duration = Duration::from_secs(1);

/// Runs the bench for 10,000 and 100,000 gadgets, and for a million where all is asked for.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let sizes: &[usize] = match settings.extent {
        Extent::Usual => &[10_000, 100_000],
        Extent::Full => &[10_000, 100_000, 1_000_000],
    };
    sizes.iter().try_for_each(|objects| table(settings, *objects))
}

fn table(settings: &Settings, objects: usize) -> anyhow::Result<()> {
    let goals: &[(&'static str, Goal)] = match objects {
        100_000 => &[("wall", Times(2.3)), ("peak", Share(0.65))],
        _ => &[],
    };
    let go_goals: &[(&'static str, Goal)] = match objects {
        100_000 => &[("wall", Times(5.0))],
        _ => &[],
    };
    Contest::served(
        format!("initial-list: {objects} objects of 1.7 KB (each kube-rs row beside the mode above it)"),
        Job::new(Bench::InitialList, objects),
    )
    .column(Column::cost("wall", "until synced, s"))
    .column(Column::cost("cpu", "CPU, s"))
    .column(Column::cost("peak", "peak RSS, MB"))
    .column(Column::cost("settled", "settled RSS, MB"))
    .column(Column::fact("heap", "live heap of Go after a collection, MB"))
    .variant(Side::Watchkeeper, Mode::Streaming, "streaming (default)", &[])
    .variant(Side::Watchkeeper, Mode::Paged, "pages of 500", &[])
    .variant(Side::Watchkeeper, Mode::AnyVersion, "RV=0", &[])
    .variant(Side::KubeRs, Mode::Streaming, "streaming", goals)
    .variant(Side::KubeRs, Mode::Paged, "pages of 500 (default)", goals)
    .variant(Side::KubeRs, Mode::AnyVersion, "RV=0", goals)
    .variant(Side::ClientGo, Mode::Streaming, "streaming (default)", &[])
    .variant(Side::ClientGo, Mode::AnyVersion, "RV=0", go_goals)
    .variant(Side::ControllerRuntime, Mode::Streaming, "streaming (default)", &[])
    .side(Side::Floor, &[])
    .run(settings)
    .map(drop)
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let spent = Spent::from_now();
    let (held, kept) = match job.side {
        Side::Watchkeeper => watchkeeper(job).await?,
        Side::KubeRs => kube_rs(job).await?,
        Side::Floor => floor(job)?,
        side => return kit::no_part(side),
    };
    let (wall, cpu) = (spent.wall(), spent.cpu());
    anyhow::ensure!(held == job.objects, "{held} objects instead of {}", job.objects);
    tokio::time::sleep(SETTLE).await;
    let figures = [("wall", wall), ("cpu", cpu), ("peak", peak_megabytes()), ("settled", held_megabytes())];
    drop(kept);
    Ok(measures(figures))
}

/// What is to be kept until memory is measured.
type Kept = Box<dyn std::any::Any + Send>;

async fn watchkeeper(job: &Job) -> anyhow::Result<(usize, Kept)> {
    let factory = kit::factory(job)?;
    let informer = kit::informer(job, &factory);
    factory.start();
    factory.wait_for_sync(Duration::from_secs(300)).await?;
    let held = informer.lister().len();
    Ok((held, Box::new((factory, informer))))
}

async fn kube_rs(job: &Job) -> anyhow::Result<(usize, Kept)> {
    let cache = KubeCache::start(job, |_| {})?;
    cache.synced().await?;
    Ok((cache.len(), Box::new(cache)))
}

fn floor(job: &Job) -> anyhow::Result<(usize, Kept)> {
    let mut floor = Floor::connect(job.port)?;
    let held = floor.list()?;
    Ok((held, Box::new(floor)))
}

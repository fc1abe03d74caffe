//! `initial-list`: from nothing to a synced cache; time, CPU, peak and settled memory.

use std::{any::Any, sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use watchkeeper::{
    Lister, ObjectKey, Watched,
    informer::{CacheChange, Observer},
    workqueue::{ItemExponentialFailure, WorkQueue},
};

use crate::{
    contest::{Contest, Extent, Settings},
    gadget::{self, Gadget},
    job::{Bench, Job, Mode, Question, Side},
    kit::{self, Floor, KubeCache, Peer, Spent},
    measure::{Measures, held_megabytes, measures, peak_megabytes},
    report::{
        Column,
        Goal::{Share, Times},
        Goals,
    },
};

/// How long a side may settle before its memory counts as settled.
const SETTLE: Duration = Duration::from_secs(1);

/// How long a side may take to sync.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the bench for 10,000 and 100,000 gadgets, and for a million with `--full`.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let sizes: &[usize] = match settings.extent {
        Extent::Small => &[1_000],
        Extent::Usual => &[10_000, 100_000],
        Extent::Full => &[10_000, 100_000, 1_000_000],
    };
    sizes.iter().try_for_each(|objects| {
        table(settings, *objects)?;
        compact(settings, *objects)
    })?;
    pods(settings)
}

/// What a controller needs from a first list: each object's key in a queue, and the objects for later reads.
fn compact(settings: &Settings, objects: usize) -> anyhow::Result<()> {
    let goals: &Goals = match objects {
        100_000 => &[("wall", Times(4.0)), ("peak", Share(0.3))],
        _ => &[],
    };
    of_many(
        objects,
        format!("initial-list: {objects} objects kept as bytes, each key through a queue"),
        Job::new(Bench::InitialList, objects).question(Question::Keys),
    )
    .column(Column::cost("wall", "until synced and all keys are handed out, s"))
    .column(Column::cost("cpu", "CPU, s"))
    .column(Column::cost("peak", "peak RSS, MB"))
    .column(Column::cost("settled", "settled RSS, MB"))
    .column(Column::fact("heap", "live heap of Go after a collection, MB"))
    .variant(Side::Watchkeeper, Mode::Compact, "compact", &[])
    .variant(Side::Watchkeeper, Mode::Streaming, "typed", &[])
    .variant(Side::KubeRs, Mode::Streaming, "streaming, without a queue", goals)
    .variant(Side::ClientGo, Mode::AnyVersion, "RV=0, without a queue", &[])
    .run(settings)
    .map(drop)
}

/// Begins a table; that of 100,000 objects is measured everywhere.
fn of_many(objects: usize, title: String, job: Job) -> Contest {
    let contest = Contest::served(title, job);
    if objects == 100_000 { contest.everywhere() } else { contest }
}

/// The same for Pods, whose typed form is large.
fn pods(settings: &Settings) -> anyhow::Result<()> {
    Contest::served(
        "initial-list: 50000 pods of 3.7 KB, each key through a queue",
        Job::new(Bench::InitialList, 50_000).question(Question::Pods),
    )
    .column(Column::cost("wall", "until synced and all keys are handed out, s"))
    .column(Column::cost("cpu", "CPU, s"))
    .column(Column::cost("peak", "peak RSS, MB"))
    .column(Column::cost("settled", "settled RSS, MB"))
    .everywhere()
    .variant(Side::Watchkeeper, Mode::Compact, "compact", &[])
    .variant(Side::Watchkeeper, Mode::Streaming, "typed", &[])
    .variant(Side::KubeRs, Mode::Streaming, "streaming, without a queue", &[("peak", Share(0.12))])
    .run(settings)
    .map(drop)
}

fn table(settings: &Settings, objects: usize) -> anyhow::Result<()> {
    let goals: &Goals = match objects {
        100_000 => &[("wall", Times(2.3)), ("peak", Share(0.65))],
        _ => &[],
    };
    let go_goals: &Goals = match objects {
        100_000 => &[("wall", Times(5.0))],
        _ => &[],
    };
    of_many(
        objects,
        format!(
            "initial-list: {objects} objects of 1.7 KB (each kube-rs row has the mode of the row above it)"
        ),
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
    let (held, kept) = match (job.side, job.question) {
        (Side::Watchkeeper, Question::Pods) => watchkeeper::<Pod>(job, Lister::len).await?,
        (Side::Watchkeeper, _) if job.mode == Mode::Compact => {
            watchkeeper::<gadget::compact::Gadget>(job, |lister| lister.len()).await?
        }
        (Side::Watchkeeper, _) => watchkeeper::<Gadget>(job, |lister| lister.len()).await?,
        (Side::KubeRs, Question::Pods) => kube_rs::<Pod>(job).await?,
        (Side::KubeRs, _) => kube_rs::<Gadget>(job).await?,
        (Side::Floor, _) => floor(job)?,
        (side, _) => return kit::no_part(side),
    };
    let (wall, cpu) = (spent.wall(), spent.cpu());
    anyhow::ensure!(held == job.objects, "{held} objects instead of {}", job.objects);
    tokio::time::sleep(SETTLE).await;
    let figures = [("wall", wall), ("cpu", cpu), ("peak", peak_megabytes()), ("settled", held_megabytes())];
    drop(kept);
    Ok(measures(figures))
}

/// The values to keep until memory is measured.
type Kept = Box<dyn Any + Send>;

/// Puts the key of each added object into a queue, as a controller does.
struct Enqueue(WorkQueue<ObjectKey>);

impl Observer for Enqueue {
    fn changed(&self, change: &CacheChange) {
        if let CacheChange::Added { object, .. } = change {
            self.0.add(object.key().clone());
        }
    }
}

async fn watchkeeper<W: Watched<DynamicType = ()>>(
    job: &Job,
    count: impl Fn(&W::Lister) -> usize,
) -> anyhow::Result<(usize, Kept)> {
    let factory = kit::factory(job)?;
    let informer = kit::informer_of::<W>(job, &factory);
    let queue = WorkQueue::new(ItemExponentialFailure::default());
    let enqueue = || informer.observe(Arc::new(Enqueue(queue.clone())));
    let enqueuing = (job.question != Question::Main).then(enqueue);
    factory.start();
    if enqueuing.is_some() {
        for _ in 0..job.objects {
            queue.get().await.context("the queue was shut down")?.forget();
        }
    }
    factory.wait_for_sync(LIMIT).await?;
    Ok((count(&informer.lister()), Box::new((factory, informer, enqueuing))))
}

async fn kube_rs<K: Peer>(job: &Job) -> anyhow::Result<(usize, Kept)> {
    let cache = KubeCache::<K>::start(job, |_| {})?;
    cache.synced().await?;
    Ok((cache.len(), Box::new(cache)))
}

fn floor(job: &Job) -> anyhow::Result<(usize, Kept)> {
    let mut floor = Floor::connect(job.port)?;
    let held = floor.list()?;
    Ok((held, Box::new(floor)))
}

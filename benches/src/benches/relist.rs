//! `relist`: what a list again, and a resync, of 100,000 unchanged objects cost, and how long live changes wait.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::micros_since,
    contest::{Contest, Settings},
    job::{Bench, Job, Mode, Question, Side},
    kit::{self, KubeCache, Tally},
    measure::{Measures, held_megabytes, measures, peak_megabytes},
    report::{Column, Goal::AtMost},
};

const OBJECTS: usize = 100_000;
const A_SECOND: usize = 100;
const SECONDS: u64 = 6;
const RESYNC: Duration = Duration::from_secs(2);

/// Runs both parts.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let job = Job::new(Bench::Relist, OBJECTS);
    Contest::served("relist: 100000 unchanged objects, after the watch ended with 410", job)
        .column(Column::cost("wall", "until the first change after it is delivered, s"))
        .column(Column::cost("peak", "peak RSS meanwhile, MB"))
        .column(Column::cost("share", "peak RSS, times settled"))
        .column(Column::cost("calls", "calls of the handler"))
        .side(Side::Watchkeeper, &[("share", AtMost(1.3))])
        .side(Side::KubeRs, &[])
        .variant(Side::KubeRs, Mode::Streaming, "streaming", &[])
        .side(Side::ClientGo, &[])
        .side(Side::ControllerRuntime, &[])
        .run(settings)?;
    let job = Job::new(Bench::Relist, OBJECTS).question(Question::Resync);
    Contest::served(
        "resync: 100000 objects every 2 s, 100 changes a second",
        job.events(A_SECOND * SECONDS as usize).seconds(SECONDS),
    )
    .column(Column::cost("p50", "a change waits, median, ms"))
    .column(Column::cost("max", "a change waits, at most, ms"))
    .column(Column::fact("calls", "calls of the handler"))
    .side(Side::Watchkeeper, &[("max", AtMost(50.0))])
    .side(Side::ClientGo, &[])
    .run(settings)
    .map(drop)
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let tally = Tally::new(job.objects, 1);
    match (job.side, job.question) {
        (Side::Watchkeeper, Question::Resync) => resync(job, &tally).await,
        (Side::Watchkeeper, _) => {
            let factory = kit::factory(job)?;
            let informer = kit::informer(job, &factory);
            let (added, updated) = (tally.clone(), tally.clone());
            let handler = informer.handler().on_add(move |object, _| added.hear(&object));
            let registration = handler.on_update(move |_, object| updated.hear(&object)).register();
            factory.start();
            registration.synced().await?;
            relist(job, &tally).await
        }
        (Side::KubeRs, _) => {
            let told = tally.clone();
            let cache = KubeCache::start(job, move |object| told.hear(object))?;
            cache.synced().await?;
            relist(job, &tally).await
        }
        (side, _) => kit::no_part(side),
    }
}

/// Ends the watch with 410; the watch after the list begins with one change, whose call ends the relist.
async fn relist(job: &Job, tally: &Arc<Tally>) -> anyhow::Result<Measures> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (settled, heard) = (held_megabytes(), tally.heard());
    // This resets Linux's record of the peak.
    fs::write("/proc/self/clear_refs", "5")?;
    let began = kit::control(job).expire().await?;
    tally.all().await;
    let (wall, peak) = (micros_since(began) / 1e6, peak_megabytes());
    let calls = (tally.heard() - heard) as f64;
    Ok(measures([("wall", wall), ("peak", peak), ("share", peak / settled), ("calls", calls)]))
}

async fn resync(job: &Job, tally: &Arc<Tally>) -> anyhow::Result<Measures> {
    let factory = kit::factory(job)?;
    let (told, calls) = (tally.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = calls.clone();
    let handler = kit::informer(job, &factory).handler().resync_every(RESYNC).on_update(move |old, new| {
        counted.fetch_add(1, Ordering::Relaxed);
        if !Arc::ptr_eq(&old, &new) {
            told.hear(&new);
        }
    });
    let registration = handler.register();
    factory.start();
    registration.synced().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    calls.store(0, Ordering::Relaxed);
    kit::control(job).pace(job.events, job.events / job.seconds as usize, 1).await?;
    tally.all().await;
    let delays = tally.take();
    let calls = calls.load(Ordering::Relaxed) as f64;
    Ok(measures([("p50", delays.median() / 1e3), ("max", delays.most() / 1e3), ("calls", calls)]))
}

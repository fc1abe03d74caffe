//! `watch-throughput`: 200,000 changes into the cache and one handler, as fast as they are taken; and into a cache of
//! bytes, past an observer that asks for keys alone.

use std::{sync::Arc, time::Duration};

use watchkeeper::{
    Manager, Watched,
    informer::{CacheChange, Observer},
};

use crate::{
    clock::micros_since,
    contest::{Contest, Settings},
    gadget::{self, Gadget},
    job::{Bench, Job, Mode, Question, Side},
    kit::{self, Floor, KubeCache, Last, Spent},
    measure::{Measures, measures},
    report::{
        Column,
        Goal::{AtMost, Share, Times},
    },
};

const OBJECTS: usize = 10_000;
const EVENTS: usize = 200_000;
/// A quarter, which takes them as long as all take the others.
const EVENTS_OF_GO: usize = 50_000;

/// Runs the bench.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    handled(settings)?;
    compact(settings)?;
    recorded(settings)
}

fn handled(settings: &Settings) -> anyhow::Result<()> {
    Contest::served(
        "watch-throughput: 200000 changes of 10000 objects, 1.7 KB and one HTTP chunk each, into cache and one handler",
        Job::new(Bench::WatchThroughput, OBJECTS).events(EVENTS),
    )
    .column(Column::rate("rate", "events/s"))
    .column(Column::cost("cpu", "CPU an event, µs"))
    .column(Column::fact("calls", "calls of the handler (a busy one may be told the latest of several)"))
    .everywhere()
    .events_of_go(EVENTS_OF_GO)
    .side(Side::Watchkeeper, &[("cpu", AtMost(10.0))])
    .side(Side::KubeRs, &[("rate", Times(2.7))])
    .variant(Side::KubeRs, Mode::Streaming, "streaming", &[])
    .variant(Side::ClientGo, Mode::Default, "a quarter of the changes", &[("rate", Times(15.0))])
    .variant(Side::ControllerRuntime, Mode::Default, "a quarter of the changes", &[])
    .side(Side::Floor, &[])
    .run(settings)
    .map(drop)
}

/// What a controller needs from a change: its key now, and the object for later reads.
fn compact(settings: &Settings) -> anyhow::Result<()> {
    Contest::served(
        "watch-throughput: 200000 changes of 10000 objects kept as bytes, each shown to an observer of keys",
        Job::new(Bench::WatchThroughput, OBJECTS).events(EVENTS).question(Question::Keys),
    )
    .column(Column::rate("rate", "events/s"))
    .column(Column::cost("cpu", "CPU an event, µs"))
    .everywhere()
    .variant(Side::Watchkeeper, Mode::Compact, "compact", &[])
    .variant(Side::Watchkeeper, Mode::Streaming, "typed", &[("cpu", Share(0.6))])
    .side(Side::Floor, &[])
    .run(settings)
    .map(drop)
}

/// What a flight recorder costs.
fn recorded(settings: &Settings) -> anyhow::Result<()> {
    Contest::served(
        "watch-throughput: 200000 changes of 10000 objects into the cache of a manager and one handler, recorded or not",
        Job::new(Bench::WatchThroughput, OBJECTS).events(EVENTS).question(Question::Recorded),
    )
    .column(Column::rate("rate", "events/s"))
    .column(Column::cost("cpu", "CPU an event, µs"))
    .everywhere()
    .variant(Side::Watchkeeper, Mode::RecordedLong, "recorded in 512 MiB", &[])
    .variant(Side::Watchkeeper, Mode::Default, "not recorded", &[("cpu", Share(1.03))])
    .variant(Side::Watchkeeper, Mode::Recorded, "recorded in 64 MiB", &[])
    .run(settings)
    .map(drop)
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let last = Arc::new(Last::default());
    let (began, spent) = match (job.side, job.question) {
        (Side::Watchkeeper, Question::Keys) if job.mode == Mode::Compact => {
            observed::<gadget::compact::Gadget>(job, &last).await?
        }
        (Side::Watchkeeper, Question::Keys) => observed::<Gadget>(job, &last).await?,
        (Side::Watchkeeper, Question::Recorded) => managed(job, &last).await?,
        (Side::Watchkeeper, _) => watchkeeper(job, &last).await?,
        (Side::KubeRs, _) => kube_rs(job, &last).await?,
        (Side::Floor, _) => floor(job).await?,
        (side, _) => return kit::no_part(side),
    };
    let wall = micros_since(began) / 1e6;
    let events = job.events as f64;
    Ok(measures([("rate", events / wall), ("cpu", spent.cpu() * 1e6 / events), ("calls", last.calls())]))
}

async fn watchkeeper(job: &Job, last: &Arc<Last>) -> anyhow::Result<(u64, Spent)> {
    let factory = kit::factory(job)?;
    let informer = kit::informer(job, &factory);
    let (told, objects) = (last.clone(), job.objects);
    let registration = informer.handler().on_update(move |_, new| told.hear(&new, objects)).register();
    factory.start();
    factory.wait_for_sync(Duration::from_secs(300)).await?;
    registration.synced().await?;
    let spent = Spent::from_now();
    let began = kit::control(job).flood(job.events, 1).await?;
    last.told().await;
    Ok((began, spent))
}

async fn managed(job: &Job, last: &Arc<Last>) -> anyhow::Result<(u64, Spent)> {
    let (manager, _file) = kit::recorded(job, Manager::new(kit::client(job)?))?;
    let informer = manager.informer::<Gadget>().build();
    let (told, objects) = (last.clone(), job.objects);
    let registration = informer.handler().on_update(move |_, new| told.hear(&new, objects)).register();
    let running = manager.spawn();
    registration.synced().await?;
    let spent = Spent::from_now();
    let began = kit::control(job).flood(job.events, 1).await?;
    last.told().await;
    running.stop().await?;
    Ok((began, spent))
}

/// Receives changes as a controller does: by key, without reading the cache.
struct Keys {
    last: Arc<Last>,
    objects: usize,
}

impl Observer for Keys {
    fn changed(&self, change: &CacheChange) {
        if let CacheChange::Updated { new, .. } = change {
            self.last.hear_of(new.key().name(), new.version().map(|version| version.0), self.objects);
        }
    }
}

async fn observed<W: Watched<DynamicType = ()>>(job: &Job, last: &Arc<Last>) -> anyhow::Result<(u64, Spent)> {
    let factory = kit::factory(job)?;
    let informer = kit::informer_of::<W>(job, &factory);
    let observing = informer.observe(Arc::new(Keys { last: last.clone(), objects: job.objects }));
    factory.start();
    factory.wait_for_sync(Duration::from_secs(300)).await?;
    let spent = Spent::from_now();
    let began = kit::control(job).flood(job.events, 1).await?;
    last.told().await;
    drop(observing);
    Ok((began, spent))
}

async fn kube_rs(job: &Job, last: &Arc<Last>) -> anyhow::Result<(u64, Spent)> {
    let (told, objects) = (last.clone(), job.objects);
    let cache = KubeCache::start(job, move |object| told.hear(object, objects))?;
    cache.synced().await?;
    let spent = Spent::from_now();
    let began = kit::control(job).flood(job.events, 1).await?;
    last.told().await;
    Ok((began, spent))
}

async fn floor(job: &Job) -> anyhow::Result<(u64, Spent)> {
    let mut floor = Floor::connect(job.port)?;
    floor.watch()?;
    let spent = Spent::from_now();
    let began = kit::control(job).flood(job.events, 1).await?;
    floor.events(job.events, |_| {})?;
    Ok((began, spent))
}

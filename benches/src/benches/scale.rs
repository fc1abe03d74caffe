//! `scale`: the cost of one object, of its first list, its changes and its reads, as their number grows.

use std::{hint::black_box, path::Path, sync::Arc, time::Duration};

use watchkeeper::{ObjectKey, kube::runtime::reflector::ObjectRef};

use super::lister_get::{GETS, nanos, scattered};
use crate::{
    clock::micros_since,
    contest::{Contest, Extent, Settings},
    gadget::{self, Gadget},
    job::{Bench, Job, Mode, Side},
    kit::{self, KubeCache, Last, Spent},
    measure::{Measures, held_megabytes, measures},
    plot::{Chart, Line, Spread, draw},
    report::{Column, Row},
};

const EVENTS: usize = 20_000;

/// The plotted figure, and the title of its chart.
const FIGURES: [(&str, &str); 4] = [
    ("sync", "first list, µs an object"),
    ("update", "a change, µs"),
    ("get", "a read by key, ns"),
    ("memory", "memory, KB an object"),
];

/// Runs the bench from size to size, and draws what came out.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let sizes: &[usize] = match settings.extent {
        Extent::Small => &[1_000, 2_000],
        Extent::Usual => &[1_000, 10_000, 100_000],
        Extent::Full => &[1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    };
    let mut tables = Vec::new();
    for objects in sizes {
        tables.push((*objects as f64, table(settings, *objects)?));
    }
    if tables.iter().any(|(_, rows)| rows.is_empty()) {
        // Only some were asked for: the plot of all stays.
        return Ok(());
    }
    let charts: Vec<Chart> = FIGURES.iter().map(|(key, title)| chart(key, title, &tables)).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/scale.svg");
    std::fs::write(&path, draw(&charts))?;
    println!("\nplotted in {}", path.display());
    Ok(())
}

fn table(settings: &Settings, objects: usize) -> anyhow::Result<Vec<Row>> {
    let contest =
        Contest::served(format!("scale: {objects} objects"), Job::new(Bench::Scale, objects).events(EVENTS));
    let contest =
        FIGURES.iter().fold(contest, |contest, (key, title)| contest.column(Column::cost(key, title)));
    contest
        .side(Side::Watchkeeper, &[])
        .variant(Side::KubeRs, Mode::Streaming, "streaming", &[])
        .side(Side::ClientGo, &[])
        .run(settings)
}

fn chart(key: &str, title: &str, tables: &[(f64, Vec<Row>)]) -> Chart {
    let names = tables.first().map(|(_, rows)| rows.iter().map(|row| row.label().to_owned()).collect());
    let names: Vec<String> = names.unwrap_or_default();
    let points = |at: usize| {
        let point = |(size, rows): &(f64, Vec<Row>)| Some((*size, rows.get(at)?.median(key)?));
        tables.iter().filter_map(point).collect()
    };
    let lines = names.into_iter().enumerate().map(|(at, name)| Line { name, points: points(at) });
    let spread = (Spread::Decades, Spread::Decades);
    Chart { title: title.to_owned(), lines: lines.collect(), spread }
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let last = Arc::new(Last::default());
    match job.side {
        Side::Watchkeeper => watchkeeper(job, last).await,
        Side::KubeRs => kube_rs(job, last).await,
        side => kit::no_part(side),
    }
}

async fn watchkeeper(job: &Job, last: Arc<Last>) -> anyhow::Result<Measures> {
    let spent = Spent::from_now();
    let factory = kit::factory(job)?;
    let informer = kit::informer(job, &factory);
    let (told, objects) = (last.clone(), job.objects);
    let registration = informer.handler().on_update(move |_, new| told.hear(&new, objects)).register();
    factory.start();
    registration.synced().await?;
    let (sync, memory, update) = follow(job, &spent, &last).await?;
    let lister = informer.lister();
    let keys: Vec<_> =
        scattered(job.objects).map(|at| ObjectKey::new(gadget::namespace(at), gadget::name(at))).collect();
    let get = nanos(GETS, &keys, |key| drop(black_box(lister.get(key))));
    Ok(measures([("sync", sync), ("memory", memory), ("update", update), ("get", get)]))
}

async fn kube_rs(job: &Job, last: Arc<Last>) -> anyhow::Result<Measures> {
    let spent = Spent::from_now();
    let (told, objects) = (last.clone(), job.objects);
    let cache = KubeCache::start(job, move |object| told.hear(object, objects))?;
    cache.synced().await?;
    let (sync, memory, update) = follow(job, &spent, &last).await?;
    let keys: Vec<_> = scattered(job.objects)
        .map(|at| ObjectRef::<Gadget>::new(&gadget::name(at)).within(&gadget::namespace(at)))
        .collect();
    let get = nanos(GETS, &keys, |key| drop(black_box(cache.store.get(key))));
    Ok(measures([("sync", sync), ("memory", memory), ("update", update), ("get", get)]))
}

/// The cost of the first list, its memory, and the cost of changes; each for one object.
async fn follow(job: &Job, spent: &Spent, last: &Last) -> anyhow::Result<(f64, f64, f64)> {
    let sync = spent.wall() * 1e6 / job.objects as f64;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let memory = held_megabytes() * 1e3 / job.objects as f64;
    let began = kit::control(job).flood(job.events, 1).await?;
    last.told().await;
    Ok((sync, memory, micros_since(began) / job.events as f64))
}

//! `soak`: a million objects and 10,000 changes a second for ten minutes. Memory must stay level, and no delay grow.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    contest::{Contest, Extent, Settings},
    job::{Bench, Job, Side},
    kit::{self, Tally},
    measure::{Measures, Sorted, cpu_seconds, held_megabytes},
    plot::{Chart, Line, Spread, draw},
    report::{Column, Row},
};

const WORKERS: usize = 8;
const A_SECOND: usize = 10_000;

/// How often it is looked, in seconds.
const LOOK: u64 = 10;

/// The figure plotted over time, the title of its chart, and how it is spread.
const FIGURES: [(&str, &str, Spread); 4] = [
    ("rss", "memory, MB, after seconds", Spread::Evenly),
    ("p50", "change sent to reconcile, median, µs", Spread::Decades),
    ("p99", "change sent to reconcile, p99, µs", Spread::Decades),
    ("cpu", "CPU a change, µs", Spread::Evenly),
];

/// Runs the bench, and draws what came out.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let (objects, seconds) = match settings.extent {
        Extent::Small => (1_000, 20),
        Extent::Usual => (100_000, 60),
        Extent::Full => (1_000_000, 600),
    };
    let job =
        Job::new(Bench::Soak, objects).events(A_SECOND * seconds as usize).seconds(seconds).users(WORKERS);
    let title =
        format!("soak: {objects} objects, {A_SECOND} changes a second for {seconds} s, one controller");
    let rows = Contest::served(title, job)
        .column(Column::cost("rss-first", "memory, first quarter, MB"))
        .column(Column::cost("rss-last", "last quarter"))
        .column(Column::cost("p50-first", "median delay, first quarter, µs"))
        .column(Column::cost("p50-last", "last quarter"))
        .column(Column::cost("p99-first", "p99 delay, first quarter, µs"))
        .column(Column::cost("p99-last", "last quarter"))
        .column(Column::cost("cpu-last", "CPU a change, µs"))
        .side(Side::Watchkeeper, &[])
        // Delays that it has as well are the machine's, or those of the bytes.
        .side(Side::Floor, &[])
        .run(settings)?;
    if rows.is_empty() {
        return Ok(());
    }
    let charts: Vec<Chart> = FIGURES.iter().map(|figure| chart(figure, &rows, seconds)).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/pictures/soak.svg");
    std::fs::write(&path, draw(&charts))?;
    println!("\nplotted in {}", path.display());
    Ok(())
}

fn chart((key, title, up): &(&str, &str, Spread), rows: &[Row], seconds: u64) -> Chart {
    let line = |row: &Row| {
        let point = |at: u64| Some(((at * LOOK) as f64, row.median(&format!("{key}@{at}"))?));
        Line { name: row.label().to_owned(), points: (1..=seconds / LOOK).filter_map(point).collect() }
    };
    let (lines, spread) = (rows.iter().map(line).collect(), (Spread::Evenly, *up));
    Chart { title: (*title).to_owned(), lines, spread }
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let tally = Tally::new(job.objects, 1);
    match job.side {
        Side::Watchkeeper => {
            let _running = kit::controllers(job, 1, job.users, &tally)?;
            kit::until(|| tally.heard() >= job.objects).await;
            paced(job, &tally).await
        }
        Side::Floor => {
            let (mut floor, events, told) = (kit::Floor::connect(job.port)?, job.events, tally.clone());
            floor.list()?;
            floor.watch()?;
            let reads = tokio::task::spawn_blocking(move || floor.events(events, |gadget| told.hear(gadget)));
            let figures = paced(job, &tally).await;
            reads.await??;
            figures
        }
        side => kit::no_part(side),
    }
}

async fn paced(job: &Job, tally: &Arc<Tally>) -> anyhow::Result<Measures> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    kit::control(job).pace(job.events, A_SECOND, 1).await?;
    let looks = looked(tally, job.seconds / LOOK).await;
    tally.all().await;
    Ok(figures(&looks))
}

/// One sample, in the order of [`FIGURES`].
type Look = [f64; FIGURES.len()];

async fn looked(tally: &Arc<Tally>, looks: u64) -> Vec<Look> {
    let mut ticks = tokio::time::interval(Duration::from_secs(LOOK));
    ticks.tick().await;
    let (mut seen, mut spent) = (Vec::new(), cpu_seconds());
    drop(tally.take());
    for _ in 0..looks {
        ticks.tick().await;
        let (now, delays) = (cpu_seconds(), tally.take());
        let cpu = (now - std::mem::replace(&mut spent, now)) * 1e6 / (A_SECOND as u64 * LOOK) as f64;
        seen.push([held_megabytes(), delays.median(), delays.at(0.99), cpu]);
    }
    seen
}

/// Names the figures of every sample, and the medians of the first and the last quarter.
fn figures(looks: &[Look]) -> Measures {
    let mut named = Measures::new();
    let quarter = looks.len().div_ceil(4);
    for (at, (key, ..)) in FIGURES.iter().enumerate() {
        let of = |looks: &[Look]| Sorted::new(looks.iter().map(|look| look[at]).collect()).median();
        named.insert(format!("{key}-first"), of(&looks[..quarter]));
        named.insert(format!("{key}-last"), of(&looks[looks.len() - quarter..]));
        named.extend(looks.iter().enumerate().map(|(n, look)| (format!("{key}@{}", n + 1), look[at])));
    }
    named
}

//! `reads`: what it costs to wake the keys that read what changes, compared with a mapping by an index.
//!
//! The API server runs in the measured process, and costs all sides the same.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{
    prelude::*,
    store::{IndexDefinition, IndexValue},
};
use watchkeeper_apiserver::ApiServer;

use crate::{
    contest::{Contest, Settings},
    job::{Bench, Job, Mode, Side},
    kit,
    measure::{Measures, cpu_seconds, held_megabytes, measures},
    report::{Column, counted},
};

const KEYS: usize = 100_000;
/// How many reads each key does: one of a secret that is there, the others of secrets that are not.
const READS: usize = 5;
const INDEX: &str = "group";

/// Runs the bench with changes that touch 1, 10 and 1,000 keys.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    for touched in [1, 10, 1_000] {
        let changes = (200_000 / touched).clamp(200, 2_000);
        let job = Job::new(Bench::Reads, KEYS).users(touched).events(changes);
        Contest::new(
            format!("reads: {KEYS} keys of {READS} reads, changes that touch {}", counted(touched, "key")),
            job,
        )
        .column(Column::cost("cpu", "CPU of server and client for a key that wakes, µs"))
        .column(Column::cost("change", "CPU a change, µs"))
        .column(Column::cost("rss", "RSS, MB"))
        .side(Side::Watchkeeper, &[])
        .variant(Side::Watchkeeper, Mode::Mapped, "mapping by an index", &[])
        .variant(Side::Watchkeeper, Mode::Untracked, "nothing is tracked, nothing wakes", &[])
        .run(settings)?;
    }
    Ok(())
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    if job.side != Side::Watchkeeper {
        return kit::no_part(job.side);
    }
    let server = ApiServer::in_memory().namespace("shop").history(1_000).start().await;
    let groups = job.objects / job.users;
    for number in 0..job.objects {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("key-{number:06}"));
        map.metadata.labels = Some(BTreeMap::from([(INDEX.to_owned(), (number / job.users).to_string())]));
        server.create(&map).await;
    }
    for group in 0..groups {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("secret-{group}"));
        server.create(&secret).await;
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let running = manager(job, &server, &runs).spawn();
    reach(&runs, job.objects).await?;
    sleep(Duration::from_secs(1)).await;
    let (rss, before) = (held_megabytes(), cpu_seconds());
    let users = if job.mode == Mode::Untracked { 0 } else { job.users };
    for change in 0..job.events {
        let name = format!("shop/secret-{}", change * 7_919 % groups);
        server
            .patch_merge::<Secret>(&name, json!({"data": {"n": "AAAA", "c": format!("{change:04}")}}))
            .await;
        // Ten changes of different objects at once: a key that is woken twice would run once.
        if change % 10 == 9 {
            reach(&runs, job.objects + (change + 1) * users).await?;
        }
    }
    sleep(Duration::from_millis(500)).await;
    let cpu = (cpu_seconds() - before) * 1e6;
    running.stop().await?;
    let woken = runs.load(Ordering::Relaxed) - job.objects;
    let mut figures = measures([("change", cpu / job.events as f64), ("rss", rss)]);
    if woken > 0 {
        figures.insert("cpu".to_owned(), cpu / woken as f64);
    }
    Ok(figures)
}

/// Makes an operator that reads, or maps.
fn manager(job: &Job, server: &ApiServer, runs: &Arc<AtomicUsize>) -> Manager {
    let manager = Manager::new(server.client());
    let (runs, users, mode) = (runs.clone(), job.users, job.mode);
    let secrets = (mode != Mode::Default).then(|| manager.lister::<Secret>());
    let informer = manager.informer::<ConfigMap>().build();
    informer.add_index(IndexDefinition::label(INDEX)).expect("it is the only one");
    let keys = informer.lister();
    let controller = Controller::from_fn(move |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        let number: usize = map.name().trim_start_matches("key-").parse().unwrap_or_default();
        let lister = secrets.clone().unwrap_or_else(|| cx.lister::<Secret>());
        let mut found =
            usize::from(lister.get(&ObjectKey::new("shop", format!("secret-{}", number / users))).is_some());
        for other in 1..READS {
            found +=
                usize::from(lister.get(&ObjectKey::new("shop", format!("other-{number}-{other}"))).is_some());
        }
        std::hint::black_box(found);
        runs.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, watchkeeper::Error>(Action::await_change()) }
    });
    let controller = controller.workers(8);
    let index = format!("label:{INDEX}");
    manager.controller(match mode {
        Mode::Mapped => controller.watches::<Secret>(move |secret| {
            let group = secret.name().trim_start_matches("secret-").to_owned();
            keys.by_index(&index, &IndexValue::from(group)).keys()
        }),
        _ => controller.reads::<Secret>(),
    })
}

/// Waits until there were this many runs.
async fn reach(runs: &AtomicUsize, wanted: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    while runs.load(Ordering::Relaxed) < wanted {
        let count = runs.load(Ordering::Relaxed);
        anyhow::ensure!(began.elapsed() < Duration::from_secs(120), "{count} of {wanted} runs");
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

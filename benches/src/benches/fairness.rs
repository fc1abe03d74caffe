//! `fairness`: how often each of 200 keys that are always ready is served, by one worker.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use futures::{StreamExt, channel::mpsc};
use tokio::{sync::Notify, time::Instant};
use watchkeeper::{
    kube::runtime::scheduler::{ScheduleRequest, scheduler},
    workqueue::{ItemExponentialFailure, WorkQueue},
};

use crate::{
    contest::{Contest, Settings},
    gadget::{self, Gadget},
    job::{Bench, Job, Mode, Side},
    kit::{self, Next, Work},
    measure::{Measures, measures},
    report::{
        Column,
        Goal::{AtLeast, AtMost},
    },
};

const KEYS: usize = 200;
const RUNS: usize = 4_000;

/// Runs the bench.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let fair = &[("keys", AtLeast(200.0)), ("least", AtLeast(19.0)), ("most", AtMost(21.0))];
    Contest::served(
        "fairness: 200 keys that are always ready, one worker, 4000 runs",
        Job::new(Bench::Fairness, KEYS).events(RUNS),
    )
    .column(Column::rate("keys", "keys served"))
    .column(Column::fact("least", "runs of the key served least"))
    .column(Column::fact("most", "runs of the key served most"))
    .variant(Side::Watchkeeper, Mode::Default, "controller", fair)
    .variant(Side::Watchkeeper, Mode::QueueAlone, "queue", fair)
    .variant(Side::KubeRs, Mode::Default, "controller", &[])
    .variant(Side::ClientGo, Mode::QueueAlone, "queue", &[])
    .variant(Side::ControllerRuntime, Mode::Default, "controller", &[])
    .run(settings)
    .map(drop)
}

/// Counts the runs of each key, up to a number of runs.
struct Runs {
    counts: Mutex<HashMap<String, usize>>,
    wanted: usize,
    all: Notify,
}

impl Runs {
    fn new(wanted: usize) -> Arc<Self> {
        Arc::new(Self { counts: Mutex::default(), wanted, all: Notify::new() })
    }

    fn count(&self, name: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let runs: usize = counts.values().sum();
        if runs < self.wanted {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
        if runs + 1 == self.wanted {
            self.all.notify_one();
        }
    }

    fn measures(&self) -> Measures {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let least = counts.values().min().copied().unwrap_or(0);
        let most = counts.values().max().copied().unwrap_or(0);
        measures([("keys", counts.len() as f64), ("least", least as f64), ("most", most as f64)])
    }
}

impl Work for Runs {
    async fn run(&self, gadget: &Gadget) -> Next {
        self.count(gadget.metadata.name.as_deref().unwrap_or_default());
        Next::AtOnce
    }
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let runs = Runs::new(job.events);
    match (job.side, job.mode) {
        (Side::Watchkeeper, Mode::QueueAlone) => queue(job, &runs).await?,
        (Side::Watchkeeper, _) => {
            let _running = kit::controllers(job, 1, 1, &runs)?;
            runs.all.notified().await;
        }
        (Side::KubeRs, Mode::QueueAlone) => scheduler_alone(job, &runs).await?,
        (Side::KubeRs, _) => {
            let _running = kit::kube_controllers(job, 1, 1, &runs)?;
            runs.all.notified().await;
        }
        (side, _) => return kit::no_part(side),
    }
    Ok(runs.measures())
}

async fn queue(job: &Job, runs: &Runs) -> anyhow::Result<()> {
    let queue = WorkQueue::new(ItemExponentialFailure::default());
    (0..job.objects).for_each(|at| queue.add(gadget::name(at)));
    for _ in 0..job.events {
        let item = queue.get().await.context("shut down")?;
        runs.count(item.key());
        queue.add(item.key().clone());
        item.forget();
    }
    Ok(())
}

async fn scheduler_alone(job: &Job, runs: &Runs) -> anyhow::Result<()> {
    let (requests, incoming) = mpsc::unbounded();
    let mut scheduled = Box::pin(scheduler(incoming));
    let request = |message| ScheduleRequest { message, run_at: Instant::now() };
    for at in 0..job.objects {
        requests.unbounded_send(request(gadget::name(at)))?;
    }
    for _ in 0..job.events {
        let key = scheduled.next().await.context("it ended")?;
        runs.count(&key);
        requests.unbounded_send(request(key))?;
    }
    Ok(())
}

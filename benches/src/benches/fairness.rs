//! `fairness`: how often each of 200 keys that are always ready is served, by one worker; and how long few keys wait behind
//! many of another tenant.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use futures::{StreamExt, channel::mpsc};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep},
};
use watchkeeper::{
    kube::runtime::scheduler::{ScheduleRequest, scheduler},
    workqueue::{ItemExponentialFailure, WorkQueue, WorkQueueConfig},
};

use crate::{
    contest::{Contest, Settings},
    gadget::{self, Gadget},
    job::{Bench, Job, Mode, Question, Side},
    kit::{self, Next, Work},
    measure::{Measures, Sorted, measures},
    report::{
        Column,
        Goal::{AtLeast, AtMost},
    },
};

const KEYS: usize = 200;
const RUNS: usize = 4_000;
/// The keys of the tenant that has many, and the keys of each of the others.
const MANY: usize = 100_000;
const FEW: usize = 10;
const OTHERS: usize = 50;
const WORKERS: usize = 8;
/// How long a run takes.
const WORK: Duration = Duration::from_millis(1);

/// Runs both parts.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    always_ready(settings)?;
    tenants(settings)
}

fn tenants(settings: &Settings) -> anyhow::Result<()> {
    Contest::new(
        "fairness: fifty tenants with 10 keys behind one with 100000; 8 workers, 1 ms a run",
        Job::new(Bench::Fairness, MANY).users(WORKERS).question(Question::Tenants),
    )
    .column(Column::cost("p50", "a key of the fifty waits, median, ms"))
    .column(Column::cost("p99", "p99, ms"))
    .column(Column::cost("rest", "the last key of the one waits, s"))
    .variant(Side::Watchkeeper, Mode::Fair, "shared between tenants", &[])
    .variant(Side::Watchkeeper, Mode::QueueAlone, "as they come", &[])
    .run(settings)
    .map(drop)
}

fn always_ready(settings: &Settings) -> anyhow::Result<()> {
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
    if job.question == Question::Tenants {
        return behind_many(job).await;
    }
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

/// A key: its tenant, where the first one has many, and its number.
type OfTenant = (usize, usize);

async fn behind_many(job: &Job) -> anyhow::Result<Measures> {
    let queue = match job.mode {
        Mode::Fair => {
            WorkQueue::with_tenants(WorkQueueConfig::default(), |key: &OfTenant| key.0.to_string().into())?
        }
        _ => WorkQueue::new(ItemExponentialFailure::default()),
    };
    (0..job.objects).for_each(|number| queue.add((0, number)));
    (1..=OTHERS)
        .flat_map(|tenant| (0..FEW).map(move |number| (tenant, number)))
        .for_each(|key| queue.add(key));
    let began = Instant::now();
    queue.shut_down();
    let mut workers = JoinSet::new();
    for _ in 0..job.users {
        let queue = queue.clone();
        workers.spawn(async move {
            let mut waits = Vec::new();
            while let Some(item) = queue.get().await {
                waits.push((item.key().0 > 0, began.elapsed().as_secs_f64()));
                sleep(WORK).await;
                item.forget();
            }
            waits
        });
    }
    let waits = workers.join_all().await.concat();
    let of = |few: bool| waits.iter().filter(move |wait| wait.0 == few).map(|wait| wait.1);
    let few = Sorted::new(of(true).map(|seconds| seconds * 1e3).collect());
    Ok(measures([("p50", few.median()), ("p99", few.at(0.99)), ("rest", of(false).fold(0.0, f64::max))]))
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

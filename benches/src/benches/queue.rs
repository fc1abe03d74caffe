//! `queue`: the work queue alone: in turn, against a backlog and many workers, with a million delays.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::{StreamExt, channel::mpsc};
use tokio::time::Instant;
use watchkeeper::{
    kube::runtime::scheduler::{ScheduleRequest, scheduler},
    workqueue::{ItemExponentialFailure, WorkQueue},
};

use crate::{
    contest::{Contest, Settings},
    job::{Bench, Job, Question, Side},
    kit,
    measure::{Measures, Sorted, held_megabytes, measures},
    report::{
        Column,
        Goal::{AtMost, Times},
    },
};

const A_ROUND: usize = 1_000;
const ROUNDS: usize = 500;
const MANY: usize = 1_000_000;
const WORKERS: usize = 1_000;
const BURSTS: usize = 200;
/// How long a worker works on a key.
const WORK: Duration = Duration::from_millis(20);
/// When the delayed keys are all due, counted from the start.
const DUE: u64 = 10;

/// Runs the three parts.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    in_turn(settings)?;
    contended(settings)?;
    delayed(settings)
}

fn in_turn(settings: &Settings) -> anyhow::Result<()> {
    Contest::new("queue: 1000 keys, one thread", Job::new(Bench::Queue, A_ROUND).events(ROUNDS))
        .column(Column::cost("turn", "1000 x add, get, done, µs"))
        .column(Column::cost("adds", "1000 adds of new keys, µs"))
        .everywhere()
        .side(Side::Watchkeeper, &[])
        .side(Side::KubeRs, &[])
        .side(Side::ClientGo, &[("turn", Times(2.0))])
        .side(Side::ControllerRuntime, &[("turn", Times(15.0))])
        .run(settings)
        .map(drop)
}

fn contended(settings: &Settings) -> anyhow::Result<()> {
    let job = Job::new(Bench::Queue, MANY).users(WORKERS).events(BURSTS).question(Question::Contended);
    Contest::new("queue: adds against a backlog of 1M keys and 1000 workers that take 20 ms for each", job)
        .column(Column::cost("p50", "1000 adds, median, µs"))
        .column(Column::cost("max", "1000 adds, worst, µs"))
        .everywhere()
        .side(Side::Watchkeeper, &[("p50", AtMost(200.0)), ("max", AtMost(1_000.0))])
        .side(Side::ClientGo, &[])
        .side(Side::ControllerRuntime, &[])
        .run(settings)
        .map(drop)
}

fn delayed(settings: &Settings) -> anyhow::Result<()> {
    let job = Job::new(Bench::Queue, MANY).seconds(DUE).question(Question::Delayed);
    Contest::new("queue: 1M keys that fall due at one moment", job)
        .column(Column::cost("bytes", "bytes a key, without its text"))
        .column(Column::cost("drain", "from that moment until the last is done, s"))
        .side(Side::Watchkeeper, &[("bytes", AtMost(95.0)), ("drain", AtMost(0.8))])
        .side(Side::KubeRs, &[])
        .side(Side::ClientGo, &[])
        .side(Side::ControllerRuntime, &[])
        .run(settings)
        .map(drop)
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    match (job.side, job.question) {
        (Side::Watchkeeper, Question::Contended) => watchkeeper_contended(job).await,
        (Side::Watchkeeper, Question::Delayed) => watchkeeper_delayed(job).await,
        (Side::Watchkeeper, _) => watchkeeper_in_turn(job).await,
        (Side::KubeRs, Question::Delayed) => kube_rs_delayed(job).await,
        (Side::KubeRs, _) => kube_rs_in_turn(job).await,
        (side, _) => kit::no_part(side),
    }
}

/// Keys as a controller has them: text that is shared, not copied.
fn keys(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|at| format!("team-{:04}/gadget-{at:07}", at / 1_000).into()).collect()
}

fn queue() -> WorkQueue<Arc<str>> {
    WorkQueue::new(ItemExponentialFailure::default())
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64 / 1e3
}

async fn watchkeeper_in_turn(job: &Job) -> anyhow::Result<Measures> {
    let (queue, keys) = (queue(), keys(job.objects));
    let (mut turns, mut adds) = (Vec::new(), Vec::new());
    for _ in 0..job.events {
        let began = Instant::now();
        keys.iter().for_each(|key| queue.add(key.clone()));
        adds.push(micros(began));
        for _ in 0..keys.len() {
            queue.get().await.context("shut down")?.done();
        }
        turns.push(micros(began));
    }
    Ok(measures([("turn", Sorted::new(turns).median()), ("adds", Sorted::new(adds).median())]))
}

async fn kube_rs_in_turn(job: &Job) -> anyhow::Result<Measures> {
    let (requests, incoming) = mpsc::unbounded();
    let mut scheduled = Box::pin(scheduler(incoming));
    let keys = keys(job.objects);
    let mut turns = Vec::new();
    for _ in 0..job.events / 5 {
        let began = Instant::now();
        for key in &keys {
            requests.unbounded_send(ScheduleRequest { message: key.clone(), run_at: began })?;
        }
        for _ in 0..keys.len() {
            scheduled.next().await.context("it ended")?;
        }
        turns.push(micros(began));
    }
    Ok(measures([("turn", Sorted::new(turns).median())]))
}

/// Workers take keys and give them back; another thread adds new keys in bursts.
async fn watchkeeper_contended(job: &Job) -> anyhow::Result<Measures> {
    let queue = queue();
    keys(job.objects).into_iter().for_each(|key| queue.add(key));
    let threads = std::thread::available_parallelism()?.get().saturating_sub(1).max(1);
    let workers =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_time().build()?;
    for _ in 0..job.users {
        let queue = queue.clone();
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                tokio::time::sleep(WORK).await;
                item.put_back();
            }
        });
    }
    let bursts =
        (0..job.events).map(|burst| (0..A_ROUND).map(|at| format!("new-{burst}/{at}").into()).collect());
    let bursts: Vec<Vec<Arc<str>>> = bursts.collect();
    let adder = queue.clone();
    let took = tokio::task::spawn_blocking(move || {
        let burst = |keys: Vec<Arc<str>>| {
            std::thread::park_timeout(Duration::from_millis(10));
            let began = Instant::now();
            keys.into_iter().for_each(|key| adder.add(key));
            micros(began)
        };
        bursts.into_iter().map(burst).collect::<Vec<f64>>()
    });
    let took = Sorted::new(took.await?);
    queue.discard();
    workers.shutdown_background();
    Ok(measures([("p50", took.median()), ("max", took.most())]))
}

async fn watchkeeper_delayed(job: &Job) -> anyhow::Result<Measures> {
    let (queue, keys) = (queue(), keys(job.objects));
    let before = held_megabytes();
    let due = Instant::now() + Duration::from_secs(job.seconds);
    keys.iter().for_each(|key| queue.add_after(key.clone(), due.saturating_duration_since(Instant::now())));
    let bytes = (held_megabytes() - before) * 1e6 / keys.len() as f64;
    anyhow::ensure!(Instant::now() < due, "adding took too long");
    for _ in 0..keys.len() {
        queue.get().await.context("shut down")?.done();
    }
    Ok(measures([("bytes", bytes), ("drain", due.elapsed().as_secs_f64())]))
}

async fn kube_rs_delayed(job: &Job) -> anyhow::Result<Measures> {
    let (requests, incoming) = mpsc::unbounded();
    let mut scheduled = Box::pin(scheduler(incoming));
    let keys = keys(job.objects);
    let before = held_megabytes();
    let due = Instant::now() + Duration::from_secs(job.seconds);
    for part in keys.chunks(A_ROUND) {
        for key in part {
            requests.unbounded_send(ScheduleRequest { message: key.clone(), run_at: due })?;
        }
        // The scheduler takes requests only when it is polled.
        let _ = futures::poll!(scheduled.next());
    }
    let bytes = (held_megabytes() - before) * 1e6 / keys.len() as f64;
    anyhow::ensure!(Instant::now() < due, "adding took too long");
    for _ in 0..keys.len() {
        scheduled.next().await.context("it ended")?;
    }
    Ok(measures([("bytes", bytes), ("drain", due.elapsed().as_secs_f64())]))
}

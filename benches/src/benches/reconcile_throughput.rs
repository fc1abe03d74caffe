//! `reconcile-throughput`: how many reconciles start a second, and what 20,000 of them in flight cost.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    contest::{Contest, Settings},
    gadget::{self, Gadget},
    job::{Bench, Job, Question, Side},
    kit::{self, Floor, Next, Spent, Work},
    measure::{Measures, measures},
    report::{
        Column,
        Goal::{AtMost, Times},
    },
};

const KEYS: usize = 50_000;
const WORKERS: usize = 64;
const IN_FLIGHT: usize = 20_000;

/// Runs both parts.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let job = Job::new(Bench::ReconcileThroughput, KEYS).users(WORKERS);
    Contest::served("reconcile-throughput: 50000 keys, 64 workers, reconciles that do nothing", job)
        .column(Column::rate("rate", "thousands a second, from the first start to the last end"))
        .column(Column::cost("cpu", "CPU, list included, s"))
        .everywhere()
        .side(Side::Watchkeeper, &[])
        .side(Side::KubeRs, &[("rate", Times(1.7))])
        .side(Side::ControllerRuntime, &[])
        .run(settings)?;
    let job = Job::new(Bench::ReconcileThroughput, IN_FLIGHT).users(IN_FLIGHT).question(Question::Storm);
    Contest::served("reconcile-throughput: 20000 in flight that end within 3 s", job)
        .column(Column::cost("cpu", "CPU, list included, s"))
        .everywhere()
        .side(Side::Watchkeeper, &[("cpu", AtMost(0.4))])
        .side(Side::KubeRs, &[])
        .side(Side::ControllerRuntime, &[])
        .side(Side::Floor, &[])
        .run(settings)
        .map(drop)
}

/// Counts reconciles from the first start to the last end.
struct Count {
    wanted: usize,
    question: Question,
    begun: AtomicUsize,
    ended: AtomicUsize,
    first: OnceLock<Instant>,
    all: Notify,
}

impl Work for Count {
    async fn run(&self, _: &Gadget) -> Next {
        self.first.get_or_init(Instant::now);
        let number = self.begun.fetch_add(1, Ordering::Relaxed) as u64;
        if self.question == Question::Storm {
            // Up to three seconds, each for another time.
            tokio::time::sleep(Duration::from_micros(number * 7_919 % 3_000_000)).await;
        }
        if self.ended.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.all.notify_one();
        }
        Next::AwaitChange
    }
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let count = Arc::new(Count {
        wanted: job.objects,
        question: job.question,
        begun: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        first: OnceLock::new(),
        all: Notify::new(),
    });
    let spent = Spent::from_now();
    match job.side {
        Side::Watchkeeper => {
            let _running = kit::controllers(job, 1, job.users, &count)?;
            count.all.notified().await;
        }
        Side::KubeRs => {
            // Its bound is 16 bits wide; without one there is none.
            let concurrency = if job.question == Question::Storm { 0 } else { job.users as u16 };
            let _running = kit::kube_controllers(job, 1, concurrency, &count)?;
            count.all.notified().await;
        }
        Side::Floor => floor(job, &count).await?,
        side => return kit::no_part(side),
    }
    let took = count.first.get().map_or(f64::NAN, |first| first.elapsed().as_secs_f64());
    Ok(measures([("rate", job.objects as f64 / took / 1e3), ("cpu", spent.cpu())]))
}

/// The list as the floor reads it, then a task for each object that does only the work.
async fn floor(job: &Job, count: &Arc<Count>) -> anyhow::Result<()> {
    let mut floor = Floor::connect(job.port)?;
    floor.list()?;
    let gadget = Arc::new(gadget::small(0));
    let task = |_| {
        let (count, gadget) = (count.clone(), gadget.clone());
        tokio::spawn(async move { count.run(&gadget).await })
    };
    let tasks: Vec<_> = (0..job.objects).map(task).collect();
    for task in tasks {
        task.await?;
    }
    Ok(())
}

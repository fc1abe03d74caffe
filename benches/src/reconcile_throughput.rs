//! How many reconciles a controller starts a second, and what 20,000 of them in flight cost.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    runtime::{controller, watcher},
};
use tokio::{sync::Notify, time::Instant};
use watchkeeper::prelude::{Action, Context, Controller, Manager, Reconciler};

use crate::{
    prepared::Prepared,
    report::{Better, Row, cpu_seconds, table},
};

const KEYS: usize = 50_000;
const WORKERS: usize = 64;
const IN_FLIGHT: usize = 20_000;

/// Counts reconciles from the first start to the last end.
struct Tally {
    wanted: usize,
    ended: AtomicUsize,
    first: Mutex<Option<Instant>>,
    all: Notify,
    work: Work,
}

/// What a reconcile does.
#[derive(Clone, Copy)]
enum Work {
    Nothing,
    /// Sleeps for up to three seconds, each for another time.
    Stagger,
}

impl Tally {
    fn new(wanted: usize, work: Work) -> Arc<Self> {
        let first = Mutex::new(None);
        Arc::new(Self { wanted, ended: AtomicUsize::new(0), first, all: Notify::new(), work })
    }

    fn start(&self) {
        if self.ended.load(Ordering::Relaxed) == 0 {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(Instant::now);
        }
    }

    async fn reconcile(&self, number: usize) {
        self.start();
        if let Work::Stagger = self.work {
            tokio::time::sleep(Duration::from_micros((number as u64 * 7_919) % 3_000_000)).await;
        }
        if self.ended.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.all.notify_one();
        }
    }

    async fn took(&self) -> Duration {
        self.all.notified().await;
        self.first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .map_or(Duration::ZERO, |first| first.elapsed())
    }
}

fn number(name: Option<&str>) -> usize {
    name.and_then(|name| name.rsplit('-').next()?.parse().ok()).unwrap_or_default()
}

struct Ours(Arc<Tally>);

impl Reconciler<ConfigMap> for Ours {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, map: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        self.0.reconcile(number(map.metadata.name.as_deref())).await;
        Ok(Action::await_change())
    }
}

async fn watchkeeper(server: &Prepared, tally: Arc<Tally>, workers: usize) -> anyhow::Result<Duration> {
    let controller = Controller::new(Ours(tally.clone())).workers(workers);
    let running = Manager::new(server.client()).controller(controller).spawn();
    let took = tally.took().await;
    running.stop().await?;
    Ok(took)
}

async fn kube_rs(server: &Prepared, tally: Arc<Tally>, workers: u16) -> anyhow::Result<Duration> {
    let api = Api::<ConfigMap>::all(server.client());
    let config = controller::Config::default().concurrency(workers);
    let reconcile = |map: Arc<ConfigMap>, tally: Arc<Tally>| async move {
        tally.reconcile(number(map.metadata.name.as_deref())).await;
        Ok::<_, std::convert::Infallible>(controller::Action::await_change())
    };
    let policy =
        |_: Arc<ConfigMap>, _: &std::convert::Infallible, _: Arc<Tally>| controller::Action::await_change();
    let streaming = watcher::Config::default().streaming_lists();
    let runs =
        controller::Controller::new(api, streaming).with_config(config).run(reconcile, policy, tally.clone());
    let running = tokio::spawn(runs.for_each(|_| std::future::ready(())));
    let took = tally.took().await;
    running.abort();
    Ok(took)
}

fn alone<T>(run: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run)
}

/// Runs both parts and prints their tables.
pub(crate) fn run(runs: usize) -> anyhow::Result<()> {
    println!("allocator: the system's; one process, requests answered from prepared memory, sides in turn");
    throughput(runs)?;
    storm(runs)
}

fn throughput(runs: usize) -> anyhow::Result<()> {
    let server = Prepared::config_maps(KEYS);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let rate = |took: Duration| KEYS as f64 / took.as_secs_f64() / 1_000.0;
    for _ in 0..runs {
        ours.push(rate(alone(watchkeeper(&server, Tally::new(KEYS, Work::Nothing), WORKERS))?));
        theirs.push(rate(alone(kube_rs(&server, Tally::new(KEYS, Work::Nothing), WORKERS as u16))?));
    }
    let rows = [
        Row { who: "watchkeeper".into(), figures: ours },
        Row { who: "kube-rs 5.0 Controller".into(), figures: theirs },
    ];
    table("no-op reconciles of 50,000 keys, 64 workers", "thousands a second", Better::More, &rows);
    Ok(())
}

fn storm(runs: usize) -> anyhow::Result<()> {
    let server = Prepared::config_maps(IN_FLIGHT);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let before = cpu_seconds()?;
        alone(watchkeeper(&server, Tally::new(IN_FLIGHT, Work::Stagger), IN_FLIGHT))?;
        let between = cpu_seconds()?;
        alone(kube_rs(&server, Tally::new(IN_FLIGHT, Work::Stagger), 0))?;
        ours.push(between - before);
        theirs.push(cpu_seconds()? - between);
    }
    let rows = [
        Row { who: "watchkeeper".into(), figures: ours },
        Row { who: "kube-rs 5.0 Controller".into(), figures: theirs },
    ];
    let title = "20,000 reconciles in flight that end within 3 s, list included";
    table(title, "CPU seconds", Better::Less, &rows);
    Ok(())
}

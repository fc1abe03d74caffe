//! `shards`: what one of several replicas takes that share the work.
//!
//! Each replica is a process of its own. They share their cores with the API server and with what changes the objects.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use watchkeeper::{
    Sharding,
    kube::{
        Config,
        client::Body,
        config::{KubeConfigOptions, Kubeconfig},
    },
    leader_election::LeaderElection,
    prelude::*,
};

use super::server::{Place, many, whole};
use crate::{
    contest::{Contest, Extent, Settings},
    job::{Bench, Job, Mode, Question, Side},
    measure::{Measures, cpu_seconds, held_megabytes, measures},
    report::Column,
};

const NAMESPACES: usize = 500;
/// How many requests change objects at once.
const AT_ONCE: usize = 32;
/// How much text an object has.
const TEXT: usize = 1_400;
/// How many changes a second come where not as many as possible do.
const PACE: u32 = 1_000;
/// After this long without a run, slots have come to rest.
const REST: Duration = Duration::from_secs(8);
/// Names the kubeconfig of the server, for replicas.
const KUBECONFIG: &str = "WATCHKEEPER_BENCH_KUBECONFIG";

/// Runs the bench with 1, 3 and 5 replicas.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let (objects, changes) = match settings.extent {
        Extent::Small => (2_000, 500),
        _ => (100_000, 20_000),
    };
    for replicas in [1, 3, 5] {
        let job = Job::new(Bench::Shards, objects).events(changes).users(replicas).seconds(300);
        let title =
            format!("shards: {objects} config maps of 1.7 KB, {changes} changes, replicas: {replicas}");
        let contest = Contest::new(title, job)
            .column(Column::cost("memory", "memory of a replica, MB"))
            .column(Column::cost("cpu", "CPU of a replica, a change, µs"))
            .column(Column::cost("all", "of all replicas, µs"))
            .column(Column::cost("paced", "CPU of a replica, a change of 1,000 a second, µs"))
            .column(Column::rate("rate", "changes reconciled a second"))
            .column(Column::fact("most", "runs of the busiest, %"));
        let variants = match replicas {
            1 => vec![(Mode::Default, "not shared")],
            _ => vec![(Mode::Shared, "each caches all"), (Mode::Split, "each caches its part")],
        };
        let in_namespaces = (Mode::Namespaces, "the same, a controller for each namespace");
        let variants = variants.into_iter().chain([in_namespaces]);
        let contest = variants
            .fold(contest, |contest, (mode, name)| contest.variant(Side::Watchkeeper, mode, name, &[]));
        contest.run(settings)?;
    }
    Ok(())
}

/// Measures one way of sharing, or is a replica.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    if job.question == Question::Replica {
        return replica(job).await;
    }
    let of_server = Job { side: Side::ApiServer, mode: Mode::Socket, ..job.clone() };
    let (place, _) = Place::start(&of_server, None).await?;
    let (client, kubeconfig) = (&place.client, place.kubeconfig.as_ref().context("no kubeconfig")?);
    many(NAMESPACES, AT_ONCE, async |at| {
        let body = json!({"metadata": {"name": namespace(at), "labels": {"app": "bench"}}}).to_string();
        send(client, Request::post("/api/v1/namespaces"), body).await
    })
    .await?;
    many(job.objects, AT_ONCE, async |at| {
        let body = json!({"metadata": {"name": name(at), "labels": {"app": "bench"}}, "data": data(at)});
        send(client, Request::post(collection(at)), body.to_string()).await
    })
    .await?;

    let started = (0..job.users).map(|_| Replica::start(job, kubeconfig));
    let mut replicas = started.collect::<anyhow::Result<Vec<_>>>()?;
    at_rest(&mut replicas, job.objects as u64).await?;
    let before = reports(&mut replicas)?;
    let began = Instant::now();
    let change = async |at: usize, text: &str| {
        let at = at * (job.objects / job.events);
        let body = json!({"data": {"changed": text}}).to_string();
        let request = Request::patch(format!("{}/{}", collection(at), name(at)));
        send(client, request.header("content-type", "application/merge-patch+json"), body).await
    };
    many(job.events, AT_ONCE, async |at| change(at, "yes").await).await?;
    let wanted = runs(&before) + job.events as u64;
    while runs(&reports(&mut replicas)?) < wanted {
        sleep(Duration::from_millis(50)).await;
    }
    let took = began.elapsed().as_secs_f64();
    let after = reports(&mut replicas)?;

    let paced_before = reports(&mut replicas)?;
    let (began, paced) = (Instant::now(), job.events / 2);
    many(paced, AT_ONCE, async |at| {
        sleep_until(began + Duration::from_secs(1) * at as u32 / PACE).await;
        change(at, "again").await
    })
    .await?;
    while runs(&reports(&mut replicas)?) < wanted + paced as u64 {
        sleep(Duration::from_millis(50)).await;
    }
    let paced_after = reports(&mut replicas)?;
    let spent = |before: &[Report], after: &[Report]| -> f64 {
        before.iter().zip(after).map(|(before, after)| after.cpu - before.cpu).sum()
    };
    let paced = spent(&paced_before, &paced_after) * 1e6 / paced as f64;
    let (count, events) = (job.users as f64, job.events as f64);
    let all = spent(&before, &after) * 1e6 / events;
    let most = before.iter().zip(&after).map(|(before, after)| after.runs - before.runs).max();
    Ok(measures([
        ("memory", before.iter().map(|report| report.memory).sum::<f64>() / count),
        ("cpu", all / count),
        ("all", all),
        ("paced", paced / count),
        ("rate", events / took),
        ("most", most.unwrap_or_default() as f64 * 100.0 / events),
    ]))
}

fn namespace(at: usize) -> String {
    format!("tenant-{:03}", at % NAMESPACES)
}

fn name(at: usize) -> String {
    format!("map-{at:06}")
}

fn collection(at: usize) -> String {
    format!("/api/v1/namespaces/{}/configmaps", namespace(at))
}

fn data(at: usize) -> serde_json::Value {
    json!({"text": format!("{at:0TEXT$}")})
}

async fn send(
    client: &watchkeeper::kube::Client,
    request: http::request::Builder,
    body: String,
) -> anyhow::Result<Bytes> {
    let has_media = request.headers_ref().is_some_and(|headers| headers.contains_key("content-type"));
    let request = if has_media { request } else { request.header("content-type", "application/json") };
    whole(client, request.body(Body::from(body.into_bytes()))?).await
}

/// What a replica has used, and how often its reconciler has run.
#[derive(Serialize, Deserialize)]
struct Report {
    runs: u64,
    cpu: f64,
    memory: f64,
}

/// A replica in a process of its own; it ends with its input.
struct Replica {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Replica {
    fn start(job: &Job, kubeconfig: &Path) -> anyhow::Result<Self> {
        let job = job.clone().question(Question::Replica);
        let mut command = Command::new(env::current_exe()?);
        command.arg("measure").arg(serde_json::to_string(&job)?).env(KUBECONFIG, kubeconfig);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("no output")?);
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// Asks the replica what it has used.
    fn report(&mut self) -> anyhow::Result<Report> {
        self.input.as_mut().context("it has ended")?.write_all(b"report\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).context("a replica has ended")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.child.wait();
    }
}

fn reports(replicas: &mut [Replica]) -> anyhow::Result<Vec<Report>> {
    replicas.iter_mut().map(Replica::report).collect()
}

fn runs(reports: &[Report]) -> u64 {
    reports.iter().map(|report| report.runs).sum()
}

/// Waits until each object has been reconciled, all replicas work, and nothing runs any more.
async fn at_rest(replicas: &mut [Replica], objects: u64) -> anyhow::Result<()> {
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let reports = reports(replicas)?;
        let runs = runs(&reports);
        if runs != last {
            (last, since) = (runs, Instant::now());
        }
        let all_work = reports.iter().all(|report| report.runs > 0);
        if all_work && runs >= objects && since.elapsed() > REST {
            return Ok(());
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Counts runs.
struct Counts(Arc<AtomicU64>);

impl Reconciler<ConfigMap> for Counts {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Action::await_change())
    }
}

/// Works as a replica until the input ends, and reports for each of its lines.
async fn replica(job: &Job) -> anyhow::Result<Measures> {
    let path = env::var_os(KUBECONFIG).map(PathBuf::from).context("no kubeconfig")?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?;
    let manager = Manager::new(watchkeeper::manager::client(config)?);
    let lease = || LeaderElection::new("shards-bench").namespace("default");
    let manager = match job.mode {
        Mode::Split | Mode::Namespaces => manager.sharded(Sharding::from(lease()).split_caches()),
        Mode::Shared => manager.sharded(Sharding::from(lease())),
        _ => manager,
    };
    let runs = Arc::new(AtomicU64::new(0));
    let (counts, in_namespaces) = (runs.clone(), job.mode == Mode::Namespaces);
    let workers = if in_namespaces { 2 } else { 8 };
    let make = move || {
        let controller = Controller::new(Counts(counts.clone())).workers(workers);
        controller.label_selector("app=bench").expect("it parses")
    };
    let manager = match in_namespaces {
        true => manager.controller_in_namespaces("app=bench", make)?,
        false => manager.controller(make()),
    };
    let running = manager.spawn();
    tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines() {
            let report =
                Report { runs: runs.load(Ordering::Relaxed), cpu: cpu_seconds(), memory: held_megabytes() };
            let is_read = line.is_ok()
                && serde_json::to_string(&report)
                    .is_ok_and(|line| writeln!(std::io::stdout().lock(), "{line}").is_ok());
            if !is_read {
                return;
            }
        }
    })
    .await?;
    drop(running);
    Ok(Measures::new())
}

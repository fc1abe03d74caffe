//! Changes the sites of one namespace, and measures how long each change takes to be reconciled.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{object::ObjectKey, prelude::*};
use watchkeeper_tests::{Website, website};

use crate::{
    Asked, Stage,
    proxy::{Counts, Proxy},
    replica::{Replica, overlaps},
};

/// How many sites there are at first.
const FIRST: usize = 12;
/// How long a change may take.
const LATE: Duration = Duration::from_secs(60);
/// How long the visitor waits for the last changes.
const PATIENCE: Duration = Duration::from_secs(180);

/// The state of the server, read without a proxy.
pub(crate) struct View {
    sites: <Website as watchkeeper::informer::Watched>::Lister,
    deployments: Lister<Deployment>,
    _running: watchkeeper::Running,
}

impl View {
    pub(crate) async fn of(stage: &Stage) -> anyhow::Result<Self> {
        let manager = stage.manager();
        let (sites, deployments) = (manager.lister::<Website>(), manager.lister::<Deployment>());
        Ok(Self { sites, deployments, _running: manager.spawn() })
    }
}

/// The expected result of a change.
#[derive(Clone, Debug)]
enum Wanted {
    /// A Deployment with these replicas and another UID than this one.
    Deployment { replicas: i32, not: Option<String> },
    /// The site is deleted.
    Nothing,
}

/// How one seed went.
pub(crate) struct Outcome {
    seed: u64,
    replicas: usize,
    took: Vec<Duration>,
    open: usize,
    overlaps: usize,
    runs: usize,
    restarts: usize,
    counts: Arc<Counts>,
}

impl Outcome {
    fn at(&self, share: f64) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = (took.len().saturating_sub(1) as f64 * share).round() as usize;
        took.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn is_good(&self) -> bool {
        self.open == 0 && self.overlaps == 0 && self.at(1.0) <= LATE && self.at(0.5) < LATE / 4
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late = self.took.iter().filter(|took| **took > LATE).count();
        let count = |counter: &std::sync::atomic::AtomicUsize| counter.load(Ordering::Relaxed);
        write!(
            f,
            "{} {} {} {late} {} {:.1} {:.1} {:.1} {} {} {} {} {} {}",
            self.seed,
            self.replicas,
            self.took.len(),
            self.open,
            self.at(0.5).as_secs_f64(),
            self.at(0.9).as_secs_f64(),
            self.at(1.0).as_secs_f64(),
            self.overlaps,
            self.runs,
            self.restarts,
            count(&self.counts.requests),
            count(&self.counts.failed),
            count(&self.counts.cut),
        )
    }
}

/// Plays one seed.
pub(crate) async fn visit(stage: &Stage, view: &View, asked: &Asked, seed: u64) -> anyhow::Result<Outcome> {
    let namespace = format!("unreliable-{seed}-{}", asked.replicas);
    let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    Api::<Namespace>::all(stage.client.clone()).create(&PostParams::default(), &object).await?;
    let mut visitor = Visitor {
        sites: Api::namespaced(stage.client.clone(), &namespace),
        deployments: Api::namespaced(stage.client.clone(), &namespace),
        namespace: namespace.clone(),
        random: SmallRng::seed_from_u64(seed),
        wanted: BTreeMap::new(),
        open: BTreeMap::new(),
        took: Vec::new(),
        made: 0,
    };
    let mut proxies = Vec::new();
    let mut replicas = Vec::new();
    for at in 0..asked.replicas {
        let proxy = Proxy::start(stage.client.clone(), seed * 1_000 + at as u64).await?;
        let name = format!("replica-{at}");
        replicas.push(Replica::start(asked.go.as_deref(), &name, &namespace, &proxy.kubeconfig(), None)?);
        proxies.push(proxy);
    }
    for _ in 0..FIRST {
        visitor.create().await?;
    }
    let (began, lasts) = (Instant::now(), Duration::from_secs(asked.seconds));
    let mut next = began;
    while began.elapsed() < lasts {
        visitor.look(view);
        for replica in &mut replicas {
            replica.keep_alive()?;
        }
        if Instant::now() >= next {
            visitor.change(view).await?;
            next = Instant::now() + Duration::from_millis(visitor.random.random_range(500..3_000));
        }
        sleep(Duration::from_millis(50)).await;
    }
    let ended = Instant::now();
    while !visitor.open.is_empty() && ended.elapsed() < PATIENCE {
        visitor.look(view);
        for replica in &mut replicas {
            replica.keep_alive()?;
        }
        sleep(Duration::from_millis(50)).await;
    }
    let stretches: Vec<_> = replicas.iter().map(|replica| replica.work.stretches()).collect();
    let pairs = stretches
        .iter()
        .enumerate()
        .flat_map(|(at, one)| stretches[at + 1..].iter().map(move |other| overlaps(one, other)));
    for (site, (since, wanted)) in &visitor.open {
        let log = replicas.first().map(|replica| replica.log());
        tracing_line(&format!("seed {seed}: {site} open for {:?}: {wanted:?}; log {log:?}", since.elapsed()));
    }
    Ok(Outcome {
        seed,
        replicas: asked.replicas,
        open: visitor.open.len(),
        took: visitor.took,
        overlaps: pairs.sum(),
        runs: stretches.iter().map(Vec::len).sum(),
        restarts: replicas.iter().map(|replica| replica.restarts).sum(),
        counts: sum(&proxies),
    })
}

#[expect(clippy::print_stdout, reason = "the report is the point")]
fn tracing_line(line: &str) {
    println!("{line}");
}

fn sum(proxies: &[Proxy]) -> Arc<Counts> {
    let sum = Counts::default();
    for proxy in proxies {
        let counts = &proxy.counts;
        sum.requests.fetch_add(counts.requests.load(Ordering::Relaxed), Ordering::Relaxed);
        sum.failed.fetch_add(counts.failed.load(Ordering::Relaxed), Ordering::Relaxed);
        sum.cut.fetch_add(counts.cut.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Arc::new(sum)
}

struct Visitor {
    sites: Api<Website>,
    deployments: Api<Deployment>,
    namespace: String,
    random: SmallRng,
    /// The replicas that each site wants.
    wanted: BTreeMap<String, i32>,
    /// Changes that are not reconciled yet.
    open: BTreeMap<String, (Instant, Wanted)>,
    took: Vec<Duration>,
    made: usize,
}

impl Visitor {
    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&*self.namespace, name)
    }

    /// Notes which changes have been reconciled.
    fn look(&mut self, view: &View) {
        let done = self.open.iter().filter(|(name, (_, wanted))| self.is_done(view, name, wanted));
        let done: Vec<_> = done.map(|(name, _)| name.clone()).collect();
        for name in done {
            if let Some((since, wanted)) = self.open.remove(&name) {
                self.took.push(since.elapsed());
                if since.elapsed() > LATE {
                    let (namespace, took) = (&self.namespace, since.elapsed());
                    tracing_line(&format!("{namespace}/{name} took {took:?}: {wanted:?}"));
                }
                if matches!(wanted, Wanted::Nothing) {
                    self.wanted.remove(&name);
                }
            }
        }
    }

    fn is_done(&self, view: &View, name: &str, wanted: &Wanted) -> bool {
        let key = self.key(name);
        match wanted {
            Wanted::Nothing => view.sites.get(&key).is_none(),
            Wanted::Deployment { replicas, not } => view.deployments.get(&key).is_some_and(|found| {
                let of = found.spec.as_ref().and_then(|spec| spec.replicas);
                of == Some(*replicas) && (not.is_none() || found.metadata.uid != *not)
            }),
        }
    }

    /// Makes one change to a site that has no open one.
    async fn change(&mut self, view: &View) -> anyhow::Result<()> {
        let idle: Vec<_> =
            self.wanted.keys().filter(|name| !self.open.contains_key(*name)).cloned().collect();
        if idle.is_empty() {
            return Ok(());
        }
        let name = idle[self.random.random_range(0..idle.len())].clone();
        match self.random.random_range(0..10) {
            0 if self.wanted.len() < 20 => self.create().await,
            1 if self.wanted.len() > 8 => {
                self.sites.delete(&name, &DeleteParams::default()).await?;
                self.open.insert(name, (Instant::now(), Wanted::Nothing));
                Ok(())
            }
            2..5 => {
                let found = view.deployments.get(&self.key(&name));
                let Some(found) = found else { return Ok(()) };
                self.deployments.delete(&name, &DeleteParams::background()).await?;
                let replicas = self.wanted.get(&name).copied().unwrap_or_default();
                let wanted = Wanted::Deployment { replicas, not: found.uid() };
                self.open.insert(name, (Instant::now(), wanted));
                Ok(())
            }
            _ => {
                let replicas = self.random.random_range(1..1_000);
                let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                self.sites.patch(&name, &PatchParams::default(), &patch).await?;
                self.wanted.insert(name.clone(), replicas);
                self.open.insert(name, (Instant::now(), Wanted::Deployment { replicas, not: None }));
                Ok(())
            }
        }
    }

    async fn create(&mut self) -> anyhow::Result<()> {
        let name = format!("site-{}", self.made);
        self.made += 1;
        let site = website(&name);
        self.sites.create(&PostParams::default(), &site).await?;
        self.wanted.insert(name.clone(), site.spec.replicas);
        let wanted = Wanted::Deployment { replicas: site.spec.replicas, not: None };
        self.open.insert(name, (Instant::now(), wanted));
        Ok(())
    }
}

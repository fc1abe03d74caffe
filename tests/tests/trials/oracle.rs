//! What must hold of every run of a reconciler, kept beside it while it is tried.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;
use tokio::{runtime, time::Instant};
use watchkeeper::{Lister, metrics::Metrics, prelude::*};
use watchkeeper_apiserver::Kit;
use watchkeeper_tests::{Start, Website, assert_rate_holds};
use watchkeeper_trials::{By, Change, Changes};

const SITES: &str = "websites.web.example.dev";
const DEPLOYMENTS: &str = "deployments.apps";

thread_local! {
    /// A trial has a thread of its own while it goes on.
    static SEEN: RefCell<Oracle> = RefCell::default();
}

/// What the runs of one trial have shown.
#[derive(Debug, Default)]
struct Oracle {
    /// Which trial it is: each has a runtime of its own.
    trial: Option<runtime::Id>,
    /// Rises with each life of the operator.
    life: u32,
    running: BTreeSet<ObjectKey>,
    /// What the last run of a key was shown.
    last: BTreeMap<ObjectKey, Value>,
    /// The runs of all lives.
    runs: Vec<Run>,
    broken: Vec<String>,
    /// The metrics of all lives.
    metrics: Vec<Metrics>,
}

impl Oracle {
    /// Counts the lists of a kind that came after the first of their life.
    fn later_lists(&self) -> u64 {
        self.metrics.iter().flat_map(|life| lists(&life.encode())).map(|lists| lists.saturating_sub(1)).sum()
    }
}

/// Reads how many lists were begun, for each kind.
fn lists(metrics: &str) -> Vec<u64> {
    let counts = metrics.lines().filter(|line| line.starts_with("reflector_lists_total{"));
    counts.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect()
}

/// One run.
#[derive(Debug)]
struct Run {
    life: u32,
    start: Start,
    /// The versions that the cache showed as it began: the site's, its Deployment's.
    seen: BTreeMap<&'static str, u64>,
}

/// Begins a life of the operator: what ran in an earlier one runs no more.
pub(crate) fn begin(manager: &Manager) {
    let trial = Some(runtime::Handle::current().id());
    let metrics = manager.metrics();
    SEEN.with_borrow_mut(|oracle| {
        if oracle.trial != trial {
            *oracle = Oracle { trial, ..Oracle::default() };
        }
        oracle.life += 1;
        oracle.metrics.push(metrics);
        oracle.running.clear();
        oracle.last.clear();
    });
}

/// A reconciler of websites that is looked at.
pub(crate) struct Watched<R> {
    inner: R,
    workers: usize,
    life: u32,
    deployments: Option<Lister<Deployment>>,
}

impl<R> Watched<R> {
    /// Looks at a reconciler of so many workers.
    pub(crate) fn new(inner: R, workers: usize) -> Self {
        Self { inner, workers, life: SEEN.with_borrow(|oracle| oracle.life), deployments: None }
    }

    /// Looks at which Deployment a run is shown, too.
    pub(crate) fn of_deployments(self, deployments: Lister<Deployment>) -> Self {
        Self { deployments: Some(deployments), ..self }
    }

    fn start(&self, site: &Website, cx: &Context<Website>) -> Running {
        let key = cx.key();
        let mut seen = BTreeMap::from([(SITES, version(site))]);
        let deployment = self.deployments.as_ref().and_then(|deployments| deployments.get(key));
        seen.extend(deployment.map(|deployment| (DEPLOYMENTS, version(&*deployment))));
        SEEN.with_borrow_mut(|oracle| {
            if oracle.life != self.life {
                return;
            }
            if !oracle.running.insert(key.clone()) {
                oracle.broken.push(format!("{key} runs twice at once"));
            }
            if oracle.running.len() > self.workers {
                oracle.broken.push(format!("{} runs at once", oracle.running.len()));
            }
            oracle.last.insert(key.clone(), looked_at(site));
            let reason = Some(cx.reason().clone());
            let start = Start { at: Instant::now(), key: key.clone(), attempt: cx.attempt(), reason };
            oracle.runs.push(Run { life: self.life, start, seen });
        });
        Running { key: key.clone(), life: self.life }
    }
}

fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// A run under way.
struct Running {
    key: ObjectKey,
    life: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        SEEN.with_borrow_mut(|oracle| {
            if oracle.life == self.life {
                oracle.running.remove(&self.key);
            }
        });
    }
}

impl<R: Reconciler<Website>> Reconciler<Website> for Watched<R> {
    type Error = R::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let _running = self.start(&site, cx);
        self.inner.reconcile(site, cx).await
    }

    async fn cleanup(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, Self::Error> {
        let _running = self.start(&site, cx);
        self.inner.cleanup(site, cx).await
    }
}

/// What somebody else may change of a site: all but its status, and what the server and the runtime keep.
fn looked_at(site: &Website) -> Value {
    let meta = &site.metadata;
    serde_json::json!({ "uid": meta.uid, "labels": meta.labels, "annotations": meta.annotations,
        "owners": meta.owner_references, "spec": site.spec })
}

/// Claims that no key ran twice at once, no more ran than may, and each site was looked at as it is.
pub(crate) async fn holds(kit: Kit) {
    let sites = kit.list::<Website>("shop").await;
    SEEN.with_borrow(|oracle| {
        assert_eq!(oracle.broken, [""; 0]);
        for site in &sites {
            let key = ObjectKey::new("shop", site.name_any());
            assert_eq!(
                oracle.last.get(&key),
                Some(&looked_at(site)),
                "a change of {key} was never looked at"
            );
        }
    });
}

/// Claims that nothing but others' changes woke a key, and that each of these was looked at.
pub(crate) fn follows(changes: &Changes) {
    if !changes.complete {
        return;
    }
    let kinds = [SITES, DEPLOYMENTS];
    let keys: BTreeSet<&str> = changes.all.iter().map(|change| change.key.as_str()).collect();
    SEEN.with_borrow(|oracle| {
        for key in keys {
            let of_key = |change: &&Change| change.key == key && kinds.contains(&change.resource.as_str());
            let of_key: Vec<&Change> = changes.all.iter().filter(of_key).collect();
            let runs: Vec<&Run> = oracle.runs.iter().filter(|run| run.start.key.to_string() == key).collect();
            // A list shows states, not what led there: of an own write that no event had shown it wakes the key.
            if oracle.later_lists() == 0 {
                no_own_write_wakes(key, &of_key, &runs);
            }
            for kind in kinds {
                others_are_looked_at(key, kind, &of_key, &runs);
            }
        }
    });
}

/// A run that a change asked for needs a change of somebody else's.
fn no_own_write_wakes(key: &str, changes: &[&Change], runs: &[&Run]) {
    let others = changes.iter().filter(|change| change.by == By::Others).count();
    let woken = |run: &&&Run| {
        matches!(run.start.reason, Some(Reason::Changed | Reason::Deleted | Reason::Related(_)))
    };
    let woken: Vec<_> = runs.iter().filter(woken).map(|run| (run.start.at, &run.seen)).collect();
    let all: Vec<_> = changes.iter().map(|change| (&change.resource, change.version, change.by)).collect();
    assert!(
        woken.len() <= others,
        "{others} changes of others asked for {} runs of {key}, an own write wakes it: {woken:?}, {all:?}",
        woken.len()
    );
}

/// The last change of others to what is there at the end was shown to a run.
fn others_are_looked_at(key: &str, kind: &'static str, changes: &[&Change], runs: &[&Run]) {
    let of = |kind: &str| {
        changes.iter().rev().filter(move |change| change.resource == kind).copied().collect::<Vec<_>>()
    };
    let Some(site) = of(SITES).first().copied().filter(|last| !last.gone) else { return };
    let all = of(kind);
    let Some(now) = all.first().filter(|last| !last.gone) else { return };
    let is_its = |change: &&&Change| kind == SITES || change.controller == site.uid;
    let last = all.iter().filter(|change| change.uid == now.uid && change.by == By::Others).find(is_its);
    let Some(last) = last else { return };
    let shown = runs.iter().any(|run| run.seen.get(kind).is_some_and(|seen| *seen >= last.version));
    assert!(shown, "no run of {key} was shown version {} of {kind}, which somebody else wrote", last.version);
}

/// Claims that no life of the operator began more runs than its limit lets pass.
pub(crate) fn keeps_to(rate: f64, burst: f64) -> impl Fn(&Changes) + Send + Sync + 'static {
    move |_| {
        SEEN.with_borrow(|oracle| {
            for life in 1..=oracle.life {
                let runs = oracle.runs.iter().filter(|run| run.life == life);
                let starts: Vec<Start> = runs.map(|run| run.start.clone()).collect();
                assert_rate_holds(&starts, rate, burst);
            }
        });
    }
}

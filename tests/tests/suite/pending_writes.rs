//! A key's next run waits until the caches show what the key wrote.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::{Lister, WriteError, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{
    Record, Website, WebsiteStatus, deployment_for, does,
    gates::{Gates, lagging},
    website,
};

const LAG: Duration = Duration::from_secs(2);
const EAGER: Duration = Duration::from_millis(300);

async fn server() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn gap(record: &Record, first: usize) -> Duration {
    let starts = record.starts();
    starts[first + 1].at - starts[first].at
}

/// An operator that applies another state of its child with every run, and is eager to run again.
fn eager() -> (impl Reconciler<Website>, Record) {
    let runs = AtomicUsize::new(0);
    does(move |site: Arc<Website>, cx: Context<Website>| {
        let run = runs.fetch_add(1, Ordering::SeqCst) as i32;
        async move {
            let mut child = deployment_for(&site);
            child.spec.as_mut().expect("it has one").replicas = Some(run);
            cx.apply(child).await?;
            Ok(Action::requeue_after(EAGER))
        }
    })
}

// W3
#[tokio::test(start_paused = true)]
async fn a_run_starts_once_the_cache_shows_what_the_last_one_applied() {
    let server = server().await;
    let (reconciler, record) = eager();
    let controller = Controller::new(reconciler).owns::<Deployment>();
    let _running = Manager::new(lagging(server.client(), LAG)).controller(controller).spawn();
    server.create(&website("a")).await;
    record.reaches(4).await;
    for run in 0..3 {
        let gap = gap(&record, run);
        assert!(gap >= LAG && gap < LAG + EAGER, "{gap:?}");
    }
}

// W3
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_open_and_silent_holds_up_a_key_for_five_seconds() {
    let server = server().await;
    let (reconciler, record) = eager();
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let _running = manager.controller(Controller::new(reconciler).owns::<Deployment>()).spawn();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.faults().on(Verb::Watch, "deployments").always().then(Fault::Silence);
    server.create(&website("a")).await;
    record.reaches(3).await;
    let counted = metrics.encode();
    let mut lines = counted.lines().filter(|line| line.starts_with("watchkeeper_own_writes_overdue_total{"));
    assert!(lines.next().is_some_and(|line| line.ends_with(" 2")), "{counted}");
    for run in 0..2 {
        let gap = gap(&record, run);
        assert!(gap >= Duration::from_secs(5) && gap < Duration::from_secs(6), "{gap:?}");
    }
}

// W3
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_watch_holds_up_a_key_until_it_ends_or_for_five_minutes() {
    for (outage, least, most) in [(60, 55, 150), (3_000, 290, 310)] {
        let server = server().await;
        let (reconciler, record) = eager();
        let controller = Controller::new(reconciler).owns::<Deployment>();
        let _running = Manager::new(server.client()).controller(controller).spawn();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let faults = server.faults();
        faults.on(Verb::Watch, "deployments").once().then(Fault::Cut);
        let down = [Verb::Watch, Verb::List]
            .map(|verb| faults.on(verb, "deployments").always().then(Fault::Status(503)));
        tokio::time::sleep(Duration::from_secs(5)).await;
        server.create(&website("a")).await;
        record.reaches(1).await;
        tokio::time::sleep(Duration::from_secs(outage).min(Duration::from_secs(400))).await;
        down.into_iter().for_each(|rule| rule.disarm());
        record.reaches(2).await;
        let gap = gap(&record, 0).as_secs();
        assert!((least..=most).contains(&gap), "{gap} s in an outage of {outage} s");
    }
}

/// Deletes every child it sees.
struct Sweeper {
    children: Lister<ConfigMap>,
    deletions: Arc<AtomicUsize>,
}

impl Reconciler<Website> for Sweeper {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        for child in self.children.list() {
            self.deletions.fetch_add(1, Ordering::SeqCst);
            cx.delete(&*child).await?;
        }
        Ok(Action::requeue_after(EAGER))
    }
}

async fn deletions_of(child: ConfigMap) -> usize {
    let server = server().await;
    server.create(&child).await;
    let manager = Manager::new(lagging(server.client(), LAG));
    let deletions = Arc::new(AtomicUsize::new(0));
    let sweeper = Sweeper { children: manager.lister::<ConfigMap>(), deletions: deletions.clone() };
    let _running = manager.controller(Controller::new(sweeper).owns::<ConfigMap>()).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let left = server.get::<ConfigMap>("shop/child").await;
    assert!(left.is_none_or(|left| left.metadata.deletion_timestamp.is_some()));
    deletions.load(Ordering::SeqCst)
}

fn child(finalizers: Option<Vec<String>>) -> ConfigMap {
    let metadata = ObjectMeta { name: Some("child".into()), finalizers, ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

// W3
#[tokio::test(start_paused = true)]
async fn a_deletion_is_seen_before_the_next_run() {
    assert_eq!(deletions_of(child(None)).await, 1);
}

// W3
#[tokio::test(start_paused = true)]
async fn a_deletion_that_leaves_the_object_is_seen_before_the_next_run() {
    // It is seen again and again, marked; each run waits for nothing new.
    let deletions = deletions_of(child(Some(vec!["example.dev/stays".into()]))).await;
    assert!((2..=70).contains(&deletions), "{deletions}");
}

// W3
#[tokio::test(start_paused = true)]
async fn what_was_read_is_deleted_and_nothing_else_of_its_name() {
    let server = server().await;
    let old = server.create(&child(None)).await;
    server.delete::<ConfigMap>("shop/child").await;
    server.create(&child(None)).await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let (reconciler, record) = does(move |_: Arc<Website>, cx: Context<Website>| {
        let (old, seen) = (old.clone(), seen.clone());
        async move {
            cx.delete(&old).await?;
            let done = cx.delete(&child(None)).await;
            seen.lock().unwrap().push(done);
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(server.get::<ConfigMap>("shop/child").await.is_some());
    let errors = errors.lock().unwrap();
    assert!(matches!(errors[0], Err(WriteError::Unidentified { .. })), "{errors:?}");
}

/// Counts its cleanups.
struct Leaver {
    cleanups: Arc<AtomicUsize>,
}

impl Reconciler<ConfigMap> for Leaver {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Cleanup, Self::Error> {
        self.cleanups.fetch_add(1, Ordering::SeqCst);
        Ok(Cleanup::Done)
    }
}

// W3
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_was_removed_is_seen_to_be_gone_before_the_next_run() {
    let server = server().await;
    let cleanups = Arc::new(AtomicUsize::new(0));
    let controller = Controller::new(Leaver { cleanups: cleanups.clone() }).finalizer("example.dev/ours");
    let _running = Manager::new(lagging(server.client(), LAG)).controller(controller).spawn();
    server.create(&child(Some(vec!["example.dev/theirs".into()]))).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    server.delete::<ConfigMap>("shop/child").await;
    // Its event wakes the key after the finalizer's removal, and before that is seen.
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.patch_merge::<ConfigMap>("shop/child", json!({ "data": { "k": "v" } })).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let left = server.get::<ConfigMap>("shop/child").await.unwrap();
    assert_eq!(left.metadata.finalizers, Some(vec!["example.dev/theirs".to_owned()]));
    assert_eq!(cleanups.load(Ordering::SeqCst), 1);
}

/// Creates a child whose name the server chooses when it sees none; gives up on the server after a second.
struct Namer {
    children: Lister<ConfigMap>,
    patience: Duration,
}

impl Reconciler<Website> for Namer {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: Arc<Website>, cx: &Context<Website>) -> anyhow::Result<Action> {
        if self.children.list().is_empty() {
            let metadata = ObjectMeta { generate_name: Some("child-".into()), ..ObjectMeta::default() };
            let create = cx.create(ConfigMap { metadata, ..ConfigMap::default() });
            tokio::time::timeout(self.patience, create.into_future()).await??;
        }
        Ok(Action::requeue_after(EAGER))
    }
}

// W10 W3
#[tokio::test(start_paused = true)]
async fn a_creation_whose_reply_was_lost_is_seen_before_the_next_run() {
    let server = server().await;
    server.faults().on(Verb::Create, "configmaps").once().then(Fault::CommitThenDrop);
    let manager = Manager::new(lagging(server.client(), LAG));
    let namer = Namer { children: manager.lister::<ConfigMap>(), patience: Duration::from_secs(60) };
    let _running = manager.controller(Controller::new(namer).owns::<ConfigMap>()).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.list::<ConfigMap>("shop").await.len(), 1);
    assert_eq!(server.requests().count(Verb::Create, "configmaps"), 1);
}

// W10 W3
#[tokio::test(start_paused = true)]
async fn a_creation_that_the_reconciler_gave_up_on_is_seen_before_the_next_run() {
    let server = server().await;
    let (gates, client) = Gates::before(lagging(server.client(), LAG));
    gates.hold_a_write();
    gates.let_write_in();
    let manager = Manager::new(client);
    let namer = Namer { children: manager.lister::<ConfigMap>(), patience: Duration::from_secs(1) };
    let _running = manager.controller(Controller::new(namer).owns::<ConfigMap>()).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.list::<ConfigMap>("shop").await.len(), 1);
}

// W10
#[tokio::test(start_paused = true)]
async fn a_write_that_never_arrived_is_not_waited_for_once_the_server_says_so() {
    let server = server().await;
    let (reconciler, record) = eager();
    let controller = Controller::new(reconciler).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.faults().on(Verb::Patch, "deployments").once().then(Fault::Cut);
    server.create(&website("a")).await;
    record.reaches(2).await;
    assert!(gap(&record, 0) < Duration::from_millis(500), "{:?}", gap(&record, 0));
    server.eventually::<Deployment>("shop/a", |child| child.is_some()).await;
}

// W10
#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_answers_ends_at_its_deadline() {
    let server = server().await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let seen = seen.clone();
        async move {
            let written = cx.patch_status(&site, WebsiteStatus { replicas: 1, ready_replicas: 0 }).await;
            seen.lock().unwrap().push((cx.attempt(), written));
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.faults().on(Verb::Patch, "websites").once().then(Fault::Silence);
    server.create(&website("a")).await;
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let errors = errors.lock().unwrap();
    assert!(matches!(errors[0].1, Err(WriteError::Deadline { .. })), "{errors:?}");
}

/// An operator for gold sites that applies a site with this label, and is eager to run again.
async fn gap_after_applying(tier: &'static str) -> Duration {
    let server = server().await;
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| async move {
        if site.name_any() == "a" {
            let mut child = website("child");
            child.labels_mut().insert("tier".into(), tier.into());
            child.annotations_mut().insert("at".into(), format!("{:?}", tokio::time::Instant::now()));
            cx.apply(child).await?;
        }
        Ok(Action::requeue_after(EAGER))
    });
    let controller = Controller::new(reconciler).label_selector("tier=gold").unwrap();
    let _running = Manager::new(lagging(server.client(), LAG)).controller(controller).spawn();
    let mut site = website("a");
    site.labels_mut().insert("tier".into(), "gold".into());
    server.create(&site).await;
    record.reaches(1).await;
    let first = record.starts()[0].at;
    let again = async {
        while record.starts().iter().filter(|start| start.key.name() == "a").count() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    again.await;
    record.starts().iter().filter(|start| start.key.name() == "a").nth(1).unwrap().at - first
}

// W3
#[tokio::test(start_paused = true)]
async fn what_a_cache_does_not_select_is_not_waited_for() {
    let (selected, left_out) = (gap_after_applying("gold").await, gap_after_applying("tin").await);
    assert!(selected >= LAG, "{selected:?}");
    assert!(left_out < LAG, "{left_out:?}");
}

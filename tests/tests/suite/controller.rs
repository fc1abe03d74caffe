//! Starting, running and failing: what a controller promises besides its rate.

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service},
};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::{
    prelude::*,
    store::{Lookup, Objects},
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Keeper, Record, Website, website};

type Behaviour = dyn Fn(u32) -> Result<Action, anyhow::Error> + Send + Sync;

/// Does what the test sets for each run, by its number.
struct Scripted {
    record: Record,
    runs: AtomicUsize,
    behaviour: Box<Behaviour>,
}

impl Reconciler<ConfigMap> for Scripted {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        let run = self.runs.fetch_add(1, Ordering::SeqCst) as u32 + 1;
        (self.behaviour)(run)
    }
}

fn scripted(behaviour: impl Fn(u32) -> anyhow::Result<Action> + Send + Sync + 'static) -> (Scripted, Record) {
    let record = Record::default();
    (Scripted { record: record.clone(), runs: AtomicUsize::new(0), behaviour: Box::new(behaviour) }, record)
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn run<R: Reconciler<ConfigMap>>(server: &ApiServer, reconciler: R) -> watchkeeper::Running {
    Manager::new(server.client()).controller(Controller::new(reconciler).namespace("shop")).spawn()
}

fn gaps(record: &Record) -> Vec<u128> {
    record.starts().windows(2).map(|pair| pair[1].at.duration_since(pair[0].at).as_millis()).collect()
}

// C1
#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_of_its_run() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (reconciler, record) = scripted(|run| match run {
        1 | 2 => panic!("run {run} panics"),
        _ => Ok(Action::await_change()),
    });
    let _running = run(&server, reconciler);
    record.reaches(3).await;
    let attempts: Vec<_> = record.starts().iter().map(|start| start.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    server.create(&config_map("b")).await;
    record.reaches(4).await;
}

// C1
#[tokio::test(start_paused = true)]
async fn a_panic_goes_on_where_it_is_asked_to() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (reconciler, _) = scripted(|_| panic!("as asked"));
    let controller = Controller::new(reconciler).namespace("shop").panics(Panics::Propagate);
    let mut running = Manager::new(server.client()).controller(controller).spawn();
    let ended = tokio::spawn(async move { running.ended().await }).await;
    assert!(ended.unwrap_err().is_panic());
}

// C4
#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_every_cache_that_feeds_the_controller_has_synced() {
    let server = shop().await;
    server.create(&website("a")).await;
    let down = server.faults().on_any("deployments").always().then(Fault::Status(500));
    let keeper = Keeper::default();
    let controller = Controller::new(keeper.clone()).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(keeper.record.is_empty());
    down.disarm();
    keeper.record.reaches(1).await;
}

// C33
#[tokio::test(start_paused = true)]
async fn a_controller_waits_for_what_it_reads_and_never_for_what_another_one_named() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    server.create(&website("a")).await;
    for broken in ["services", "secrets"] {
        server.faults().on_any(broken).always().then(Fault::Status(403));
    }
    let (reads_service, first) = scripted(|_| Ok(Action::await_change()));
    let (reads_nothing_broken, second) = scripted(|_| Ok(Action::await_change()));
    let third = Keeper::default();
    let manager = Manager::new(server.client());
    let services = manager.lister::<Service>();
    let _running = manager
        .controller(Controller::new(reads_service).namespace("shop").named("first").reads::<Service>())
        .controller(
            Controller::new(reads_nothing_broken).namespace("shop").named("second").reads::<ConfigMap>(),
        )
        .controller(Controller::new(third.clone()).owns::<Secret>().reads::<ConfigMap>())
        .spawn();
    second.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(first.is_empty(), "it reads services, which are forbidden");
    assert!(third.record.is_empty(), "it owns secrets, which are forbidden");
    assert!(services.list().is_empty());
    server.faults().clear();
    first.reaches(1).await;
    third.record.reaches(1).await;
}

// C33
#[tokio::test(start_paused = true)]
async fn without_reads_a_controller_waits_for_every_lister_the_program_asked_for() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let down = server.faults().on_any("services").always().then(Fault::Status(500));
    let (reconciler, record) = scripted(|_| Ok(Action::await_change()));
    let manager = Manager::new(server.client());
    let _services = manager.lister::<Service>();
    let _running = manager.controller(Controller::new(reconciler).namespace("shop")).spawn();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(record.is_empty());
    down.disarm();
    record.reaches(1).await;
}

/// Never ends a run; counts who is in at once.
#[derive(Clone, Default)]
struct Sleeper {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    seen: Arc<Mutex<HashSet<ObjectKey>>>,
}

impl Reconciler<ConfigMap> for Sleeper {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(7)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.seen.lock().unwrap().insert(cx.key().clone());
        Ok(Action::await_change())
    }
}

// C5
#[tokio::test(start_paused = true)]
async fn exactly_as_many_workers_as_asked_for_run_at_once() {
    let server = shop().await;
    for at in 0..20 {
        server.create(&config_map(&format!("map-{at}"))).await;
    }
    let sleeper = Sleeper::default();
    let controller = Controller::new(sleeper.clone()).namespace("shop").workers(3);
    let running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(sleeper.most.load(Ordering::SeqCst), 3);
    assert_eq!(sleeper.seen.lock().unwrap().len(), 20);
    running.stop().await.unwrap();
}

// C18
#[tokio::test(start_paused = true)]
async fn a_stop_lets_running_reconciles_end_and_drops_queued_keys() {
    let server = shop().await;
    for at in 0..5 {
        server.create(&config_map(&format!("map-{at}"))).await;
    }
    let sleeper = Sleeper::default();
    let controller = Controller::new(sleeper.clone()).namespace("shop");
    let running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.stop().await.unwrap();
    assert_eq!(sleeper.seen.lock().unwrap().len(), 1, "the one that ran, and no other");
}

// C7
#[tokio::test(start_paused = true)]
async fn errors_back_off_growing_and_are_kept_until_a_success() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (reconciler, record) = scripted(|run| match run {
        1..=6 => anyhow::bail!("run {run} fails"),
        7 => Ok(Action::requeue_after(Duration::from_secs(60))),
        8 => anyhow::bail!("fails again"),
        _ => Ok(Action::await_change()),
    });
    let _running = run(&server, reconciler);
    record.reaches(9).await;
    let attempts: Vec<_> = record.starts().iter().map(|start| start.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5, 6, 7, 1, 2], "a success clears the failures");
    let gaps = gaps(&record);
    for (failures, gap) in gaps[..6].iter().enumerate() {
        let least = 5 << failures;
        assert!((least..least + 20).contains(gap), "after {failures} failures: {gap} ms, not {least}");
    }
    assert!(gaps[7] < 30, "back-off starts again: {gaps:?}");
}

// C10
#[tokio::test(start_paused = true)]
async fn not_ready_yet_keeps_counting_attempts() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (reconciler, record) = scripted(|run| match run {
        1..=3 => Ok(Action::backoff()),
        4 => Ok(Action::backoff_at_least(Duration::from_secs(30))),
        _ => Ok(Action::await_change()),
    });
    let _running = run(&server, reconciler);
    record.reaches(5).await;
    let attempts: Vec<_> = record.starts().iter().map(|start| start.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    assert!(gaps(&record)[3] >= 30_000);
}

// C8
#[tokio::test(start_paused = true)]
async fn a_terminal_error_waits_for_a_change() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (reconciler, record) = scripted(|run| match run {
        1 => Err(Terminal::new("no use").into()),
        _ => Ok(Action::await_change()),
    });
    let _running = run(&server, reconciler);
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(record.len(), 1);
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "mended" } })).await;
    let mended = tokio::time::Instant::now();
    record.reaches(2).await;
    assert!(mended.elapsed() <= Duration::from_millis(1_050), "{:?}", mended.elapsed());
}

// C6
#[tokio::test(start_paused = true)]
async fn a_controller_that_is_started_twice_is_refused_and_nothing_of_it_runs() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (first, record) = scripted(|_| Ok(Action::await_change()));
    let (second, other) = scripted(|_| Ok(Action::await_change()));
    let twins =
        Manager::new(server.client()).controller(Controller::new(first)).controller(Controller::new(second));
    let mut twins = twins.spawn();
    let error = twins.ended().await.unwrap_err().to_string();
    assert_eq!(error, "two controllers are named configmaps: give one another name with `.named(..)`");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((record.len(), other.len(), server.requests().count(Verb::List, "configmaps")), (0, 0, 0));
}

// M1
#[tokio::test(start_paused = true)]
async fn derived_listers_look_up_by_typed_indexes() {
    let server = shop().await;
    for name in ["a", "b"] {
        let mut site = website(name);
        site.spec.tags = vec!["all".into(), name.into()];
        server.create(&site).await;
    }
    let manager = Manager::new(server.client());
    let sites = manager.lister::<Website>();
    let keeper = Keeper::default();
    let _running = manager.controller(Controller::new(keeper.clone())).spawn();
    keeper.record.reaches(2).await;
    let names = |found: Objects<Website>| {
        let mut names: Vec<_> = found.iter().map(|site| site.name_any()).collect();
        names.sort();
        names
    };
    assert_eq!(names(sites.by_domain("a.example")), ["a"]);
    assert_eq!(names(sites.by_tag("all")), ["a", "b"]);
    assert_eq!(names(sites.namespace("shop").by_tag("b")), ["b"]);
    assert_eq!(names(sites.namespace("elsewhere").list()), Vec::<String>::new());
    assert!(sites.get(&ObjectKey::new("shop", "a")).is_some());
}

// C32
#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_kept_out_and_the_others_go_on() {
    // The definition knows nothing of the types inside: what the server takes, the program can't read.
    let mut loose = serde_json::to_value(Website::crd()).unwrap();
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let server = ApiServer::in_memory().crd_object(loose).namespace("shop").start().await;
    let keeper = Keeper::default();
    let manager = Manager::new(server.client());
    let sites = manager.lister::<Website>();
    server.create(&website("good")).await;
    let resource = kube::core::ApiResource::erase::<Website>(&());
    let anything =
        kube::Api::<kube::core::DynamicObject>::namespaced_with(server.client(), "shop", &resource);
    let mut odd = kube::core::DynamicObject::new("odd", &resource);
    odd.data = json!({ "spec": { "domain": "odd.example", "replicas": "many" } });
    anything.create(&Default::default(), &odd).await.unwrap();
    let _running = manager.controller(Controller::new(keeper.clone())).spawn();
    keeper.record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(keeper.record.len(), 1, "only the good one runs");
    let unreadable = sites.unreadable();
    assert_eq!(unreadable.len(), 1);
    assert!(unreadable[0].error.contains("spec.replicas"), "{}", unreadable[0].error);
    assert!(!unreadable[0].error.contains("many"), "the content is nobody's business");
    assert!(matches!(sites.lookup(&ObjectKey::new("shop", "odd")), Lookup::Unreadable(_)));
    server.patch_merge::<Website>("shop/odd", json!({ "spec": { "replicas": 3 } })).await;
    keeper.record.reaches(2).await;
}

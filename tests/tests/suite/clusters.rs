//! Two clusters, one manager: what is watched there is written here, and the two are never mixed up.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{
    informer::SyncPhase,
    leader_election::{LeaderElection, LeaderState},
    manager::Cluster,
    prelude::*,
    reflector::ReflectorConfig,
};
use watchkeeper_apiserver::{ApiServer, Fault, Restart, Verb};
use watchkeeper_tests::{Record, Website, does, website};

/// How many versions lie between a backup and the state that it replaces.
const AHEAD: usize = 40;

/// The servers of the two clusters.
async fn here_and_there() -> (ApiServer, ApiServer) {
    let here = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    (here, ApiServer::in_memory().namespace("shop").start().await)
}

fn map(name: &str, text: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(BTreeMap::from([("text".into(), text.into())])), ..ConfigMap::default() }
}

fn text_of(map: Option<&ConfigMap>) -> Option<String> {
    map?.data.as_ref()?.get("text").cloned()
}

fn seeded() -> ReflectorConfig {
    ReflectorConfig { seed: Some(3), ..ReflectorConfig::default() }
}

/// Copies the text of each site's map there into a map of the same name here, which the site owns.
fn copying(hub: &Cluster) -> (Controller<Website, impl Reconciler<Website>>, Record) {
    let maps = hub.informer::<ConfigMap>().namespace("shop").lister();
    let (copies, record) = does::<Website, _, _>(move |site: Arc<Website>, cx: Context<Website>| {
        let found = maps.get(&ObjectKey::of(&*site));
        async move {
            if let Some(found) = found {
                let text = text_of(Some(&found)).unwrap_or_default();
                cx.apply(map(&site.name_any(), &text)).await?;
            }
            Ok(Action::await_change())
        }
    });
    let there = Watch::<ConfigMap>::new().in_cluster(hub).namespace("shop");
    let controller = Controller::new(copies)
        .owns::<ConfigMap>()
        .watch(there.mapped(|map| vec![ObjectKey::new("shop", map.name_any())]));
    (controller, record)
}

fn operator(here: &ApiServer, there: &ApiServer) -> (Manager, Record) {
    let manager = Manager::with_config(here.client(), seeded());
    let hub = manager.cluster("hub", there.client());
    let (controller, record) = copying(&hub);
    (manager.controller(controller), record)
}

async fn shows(here: &ApiServer, text: &str) {
    here.eventually::<ConfigMap>("shop/a", |map| text_of(map).as_deref() == Some(text)).await;
}

// P10
#[tokio::test(start_paused = true)]
async fn what_is_watched_there_is_written_here() {
    let (here, there) = here_and_there().await;
    let manager = Manager::with_config(here.client(), seeded());
    let hub = manager.cluster("hub", there.client());
    let maps = hub.informer::<ConfigMap>().namespace("shop").build();
    let (controller, record) = copying(&hub);
    let running = manager.controller(controller).spawn();
    here.create(&website("a")).await;
    there.create(&map("a", "one")).await;
    shows(&here, "one").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(there.faults().open_streams(), 1, "one informer serves all");
    let runs = record.len();
    there.patch_merge::<ConfigMap>("shop/a", json!({"data": {"text": "two"}})).await;
    shows(&here, "two").await;
    assert_eq!(record.last_reason(), "related:hub/configmaps");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(record.len(), runs + 1, "its own write here wakes nobody");
    let written =
        there.requests().list().into_iter().filter(|asked| asked.query.contains("fieldManager=websites"));
    assert_eq!(written.count(), 0);
    running.stop().await.unwrap();
    assert_eq!(
        maps.sync_state().phase,
        SyncPhase::Stopped,
        "it ends with the manager, even while clones exist"
    );
    assert_eq!(there.faults().open_streams(), 0);
}

// P10
#[tokio::test(start_paused = true)]
async fn what_has_one_name_in_both_clusters_is_two_objects() {
    let (here, there) = here_and_there().await;
    let (manager, record) = operator(&here, &there);
    let _running = manager.spawn();
    // An object without an owner in the hub does not prevent a child here.
    there.create(&map("a", "one")).await;
    here.create(&website("a")).await;
    shows(&here, "one").await;
    sleep(Duration::from_secs(60)).await;
    let (runs, writes) = (record.len(), here.requests().count(Verb::Patch, "configmaps"));
    assert_eq!(writes, 1);
    // What was applied here is not forgotten for what goes there.
    there.delete::<ConfigMap>("shop/a").await;
    record.reaches(runs + 1).await;
    there.create(&map("a", "one")).await;
    record.reaches(runs + 2).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(here.requests().count(Verb::Patch, "configmaps"), writes, "nothing would change");
    // An edit here is mended, whatever is there.
    here.patch_merge::<ConfigMap>("shop/a", json!({"data": {"text": "edited"}})).await;
    shows(&here, "one").await;
    sleep(Duration::from_secs(60)).await;
    // The owner that an object there names is none of this cluster.
    let runs = record.len();
    let site = here.get::<Website>("shop/a").await.unwrap();
    let owner = json!([{"apiVersion": "web.example.dev/v1", "kind": "Website", "name": "a", "controller": true,
        "uid": site.uid()}]);
    let mut owned = map("b", "one");
    owned.metadata.owner_references = serde_json::from_value(owner).unwrap();
    there.create(&owned).await;
    sleep(Duration::from_secs(60)).await;
    let woken: Vec<_> = record.names().split_off(runs);
    assert!(woken.iter().all(|name| name == "b"), "{woken:?}");
}

// P10 P2
#[tokio::test(start_paused = true)]
async fn readiness_and_page_name_a_cluster_that_is_away_and_the_rest_goes_on() {
    let (here, there) = here_and_there().await;
    there.create(&map("a", "one")).await;
    there.partition();
    let (manager, record) = operator(&here, &there);
    let metrics = manager.metrics();
    let (local, runs_here) = does::<Secret, _, _>(async |_, _| Ok(Action::await_change()));
    // It says what it reads, and that is all here.
    let running = manager.controller(Controller::new(local).reads::<ConfigMap>()).spawn();
    here.create(&website("a")).await;
    here.create(&Secret { metadata: map("a", "").metadata, ..Secret::default() }).await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!((record.len(), runs_here.len()), (0, 1));
    let inspector = running.inspector();
    let readiness = inspector.readiness().to_string();
    assert!(readiness.contains("[-]cache/hub/configmaps failed since"), "{readiness}");
    assert!(readiness.contains("unreachable"), "{readiness}");
    assert!(readiness.contains("waits for the caches of hub/configmaps"), "{readiness}");
    assert!(readiness.contains("[+]cache/configmaps ok"), "{readiness}");
    let why = running.why::<Website>(&ObjectKey::new("shop", "a")).to_string();
    assert!(why.contains("hub/configmaps"), "{why}");
    let report = inspector.debug_report(None).await;
    let report = serde_json::to_value(report).unwrap();
    let informers = report["informers"].as_array().unwrap();
    let of_hub: Vec<_> = informers.iter().filter(|one| one["cluster"] == "hub").collect();
    let [only] = of_hub[..] else { panic!("{informers:?}") };
    assert!(only["kind"] == "configmaps" && only["failure"].is_object(), "{only}");

    there.heal();
    shows(&here, "one").await;
    assert!(inspector.readiness().is_ok(), "{}", inspector.readiness());
    let metrics = metrics.encode();
    assert!(metrics.contains("name=\"hub/configmaps\""), "{metrics}");

    there.partition();
    sleep(Duration::from_secs(600)).await;
    let (runs, edited) = (record.len(), Instant::now());
    here.patch_merge::<Website>("shop/a", json!({"spec": {"replicas": 9}})).await;
    record.reaches(runs + 1).await;
    assert!(edited.elapsed() < Duration::from_millis(200), "{:?}", edited.elapsed());
    let readiness = inspector.readiness();
    assert!(
        readiness.is_ok() && readiness.to_string().contains("[+]cache/hub/configmaps ok: "),
        "{readiness}"
    );
    there.heal();
    there.patch_merge::<ConfigMap>("shop/a", json!({"data": {"text": "two"}})).await;
    shows(&here, "two").await;
    running.stop().await.unwrap();
}

// P10
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_restored_puts_nothing_here_in_doubt() {
    let (here, there) = here_and_there().await;
    let manager = Manager::with_config(here.client(), seeded());
    let hub = manager.cluster("hub", there.client());
    let _secrets = hub.lister::<Secret>();
    let (controller, record) = copying(&hub);
    let _running = manager.controller(controller).spawn();
    here.create(&website("a")).await;
    there.create(&map("a", "one")).await;
    shows(&here, "one").await;
    let backup = there.resource_version();
    there.patch_merge::<ConfigMap>("shop/a", json!({"data": {"text": "two"}})).await;
    shows(&here, "two").await;
    for at in 0..AHEAD {
        there.create(&map(&format!("other-{at}"), "")).await;
    }
    // Bookmarks bring each cache there to its latest version.
    sleep(Duration::from_secs(180)).await;
    let asked = |verb| here.requests().count(verb, "websites") + here.requests().count(verb, "configmaps");
    let (lists, watches) = (asked(Verb::List), asked(Verb::Watch));
    // The informer of secrets finds it out; that of maps can't compare what it has.
    let blind = there.faults().on_reads("configmaps").then(Fault::Status(503));
    let compared = there.requests().count(Verb::List, "secrets");
    there.restart(Restart::At(backup));
    sleep(Duration::from_secs(10)).await;
    assert!(there.requests().count(Verb::List, "secrets") > compared, "the loss is known");
    assert_eq!((asked(Verb::List), asked(Verb::Watch)), (lists, watches), "no cache is compared again here");
    // A reason to look at all caches again.
    here.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut);
    sleep(Duration::from_secs(10)).await;
    let (runs, edited) = (record.len(), Instant::now());
    here.patch_merge::<Website>("shop/a", json!({"spec": {"replicas": 9}})).await;
    record.reaches(runs + 1).await;
    assert!(edited.elapsed() < Duration::from_millis(200), "{:?}", edited.elapsed());
    blind.disarm();
    shows(&here, "one").await;
}

// P10
#[tokio::test(start_paused = true)]
async fn a_replica_takes_over_while_the_other_cluster_is_away() {
    let (here, there) = here_and_there().await;
    there.create(&map("a", "one")).await;
    here.create(&website("a")).await;
    let replica = |name: &str| {
        let manager = Manager::with_config(here.client(), seeded());
        let manager = manager.leader_election(LeaderElection::new("sites").namespace("shop").identity(name));
        let (hub, leadership) = (manager.cluster("hub", there.client()), manager.leadership().unwrap());
        let (controller, record) = copying(&hub);
        (manager.controller(controller).spawn(), leadership, record)
    };
    let (first, leads, _) = replica("first");
    shows(&here, "one").await;
    assert_eq!(leads.state(), LeaderState::Leads);
    let (_second, _, record) = replica("second");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(record.len(), 0);
    there.partition();
    sleep(Duration::from_secs(30)).await;
    first.stop().await.unwrap();
    let stopped = Instant::now();
    record.reaches(1).await;
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
}

// P10
#[tokio::test(start_paused = true)]
async fn a_controller_waits_for_what_it_reads_there() {
    let (here, there) = here_and_there().await;
    there.partition();
    let manager = Manager::with_config(here.client(), seeded());
    let hub = manager.cluster("hub", there.client());
    let (reads, record) = does::<Website, _, _>(async |_, _| Ok(Action::await_change()));
    let controller = Controller::new(reads).watch(Watch::<ConfigMap>::new().in_cluster(&hub));
    let _running = manager.controller(controller).spawn();
    here.create(&website("a")).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(record.len(), 0);
    there.heal();
    record.reaches(1).await;
    // What is asked for late begins at once.
    let secrets = hub.informer::<Secret>().build();
    secrets.wait_for_sync(Duration::from_secs(5)).await.unwrap();
}

// P10
#[tokio::test(start_paused = true)]
async fn a_predicate_keeps_changes_there_from_waking_keys_here() {
    let (here, there) = here_and_there().await;
    let manager = Manager::with_config(here.client(), seeded());
    let maps = Watch::<ConfigMap>::new().in_cluster(&manager.cluster("hub", there.client()));
    let (idle, record) = does::<Website, _, _>(async |_, _| Ok(Action::await_change()));
    let maps = maps.mapped(|map| vec![ObjectKey::new("shop", map.name_any())]).only_if(Predicate::labels());
    let controller = Controller::new(idle).watch(maps);
    let _running = manager.controller(controller).spawn();
    here.create(&website("a")).await;
    there.create(&map("a", "one")).await;
    sleep(Duration::from_secs(5)).await;
    let runs = record.len();
    there.patch_merge::<ConfigMap>("shop/a", json!({"data": {"text": "two"}})).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(record.len(), runs);
    there.patch_merge::<ConfigMap>("shop/a", json!({"metadata": {"labels": {"tier": "web"}}})).await;
    record.reaches(runs + 1).await;
    assert_eq!(record.last_reason(), "related:hub/configmaps");
}

// P10
#[tokio::test(start_paused = true)]
async fn what_must_be_allowed_there_is_said_apart() {
    let (here, there) = here_and_there().await;
    let manager = Manager::new(here.client());
    let hub = manager.cluster("hub", there.client());
    let (idle, _) = does::<Website, _, _>(async |_, _| Ok(Action::await_change()));
    let there_only = Watch::<ConfigMap>::new().in_cluster(&hub).namespace("settings");
    let manager = manager.controller(Controller::new(idle).watch(there_only.mapped(|_| Vec::new())));
    let _secrets = hub.lister::<Secret>();
    let (rules, there) = (manager.rules().to_string(), manager.rules_in(&hub));
    assert!(!rules.contains("configmaps") && !rules.contains("secrets"), "{rules}");
    let verbs = "verbs: [\"list\", \"watch\"]";
    let role = &there.roles()[0];
    assert_eq!(role.metadata.namespace.as_deref(), Some("settings"));
    let there = there.to_string();
    assert!(
        there.contains("resources: [\"configmaps\"]") && there.contains("resources: [\"secrets\"]"),
        "{there}"
    );
    assert!(there.contains(verbs) && !there.contains("websites\"]"), "{there}");
}

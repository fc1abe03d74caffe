//! A server that comes back with an older state: nothing is done for what no longer exists, and all caches follow.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service},
};
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{Running, controller::Why, prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Fault, Restart, Verb, faults::Armed};
use watchkeeper_tests::{Done, Keeper, Made, Website, WebsiteStatus, deployment_for, does, website};

/// How many versions lie between a backup and the state that it replaces, unless it must go unnoticed.
const AHEAD: usize = 40;

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn seeded() -> ReflectorConfig {
    ReflectorConfig { seed: Some(3), ..ReflectorConfig::default() }
}

fn operator(server: &ApiServer) -> (Running, <Website as Watched>::Lister) {
    let manager = Manager::with_config(server.client(), seeded());
    let sites = manager.lister::<Website>();
    let controller = Controller::new(Keeper::default()).owns::<Deployment>();
    (manager.controller(controller).spawn(), sites)
}

/// An operator that applies another child each second.
fn applying(server: &ApiServer) -> (Running, <Website as Watched>::Lister) {
    let manager = Manager::with_config(server.client(), seeded());
    let sites = manager.lister::<Website>();
    let round = std::sync::atomic::AtomicI32::default();
    let (applies, _) = does::<Website, _, _>(move |site: Arc<Website>, cx: Context<Website>| {
        let round = round.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut child = deployment_for(&site);
            child.metadata.annotations = Some(BTreeMap::from([("round".to_owned(), round.to_string())]));
            cx.apply(child).await?;
            Ok(Action::requeue_after(Duration::from_secs(1)))
        }
    });
    (manager.controller(Controller::new(applies).owns::<Deployment>()).spawn(), sites)
}

/// An operator that writes all the time: a child and a status each 100 ms.
fn busy(
    server: &ApiServer,
) -> (Manager, <Website as Watched>::Lister, Controller<Website, impl Reconciler<Website>>) {
    let manager = Manager::with_config(server.client(), seeded());
    let sites = manager.lister::<Website>();
    let round = std::sync::atomic::AtomicI32::default();
    let (busy, _) = does::<Website, _, _>(move |site: Arc<Website>, cx: Context<Website>| {
        let ready_replicas = round.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut child = deployment_for(&site);
            // Each run wants something else: no apply is spared.
            child.metadata.annotations =
                Some(BTreeMap::from([("round".to_owned(), ready_replicas.to_string())]));
            cx.apply(child).await?;
            cx.patch_status(&site, WebsiteStatus { replicas: 0, ready_replicas }).await?;
            Ok(Action::requeue_after(Duration::from_millis(100)))
        }
    });
    (manager, sites, Controller::new(busy).owns::<Deployment>())
}

async fn create(server: &ApiServer, name: &str) {
    server.create(&website(name)).await;
    server.eventually::<Deployment>(&format!("shop/{name}"), |d| d.is_some()).await;
}

/// Moves the server's version on, as others do.
async fn others_write(server: &ApiServer, count: usize) {
    for _ in 0..count {
        let metadata = ObjectMeta { generate_name: Some("other-".to_owned()), ..ObjectMeta::default() };
        server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    }
}

async fn uids(server: &ApiServer) -> Vec<String> {
    server.list::<Website>("shop").await.iter().filter_map(|site| site.uid()).collect()
}

fn names(sites: &<Website as Watched>::Lister) -> Vec<String> {
    let mut names: Vec<_> = sites.list().iter().map(|site| site.name_any()).collect();
    names.sort();
    names
}

/// Waits until the cache of sites holds just these.
async fn shows(sites: &<Website as Watched>::Lister, wanted: &[&str], within: Duration) {
    let began = Instant::now();
    while names(sites) != wanted {
        assert!(began.elapsed() < within, "the cache shows {:?}", names(sites));
        sleep(Duration::from_millis(20)).await;
    }
}

// R43 C35
#[tokio::test(start_paused = true)]
async fn no_child_is_made_for_a_lost_site_while_one_informer_knows_and_the_other_backs_off() {
    for away in [1, 4, 20] {
        let server = shop().await;
        let (_running, sites) = operator(&server);
        create(&server, "kept").await;
        sleep(Duration::from_secs(30)).await;
        let backup = server.resource_version();
        create(&server, "late").await;
        others_write(&server, AHEAD).await;
        let blind = server.faults().on_reads("websites").then(Fault::Status(503));
        server.restart(Restart::At(backup));
        let made = Made::from_now(server.client(), "shop");
        let (there, writes) = (uids(&server).await, server.requests().count(Verb::Patch, "deployments"));
        sleep(Duration::from_secs(away)).await;
        assert_eq!(server.requests().count(Verb::Patch, "deployments"), writes, "no key runs in doubt");
        blind.disarm();
        shows(&sites, &["kept"], Duration::from_secs(30)).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(made.without_parent(&there), Vec::<String>::new());
        create(&server, "new").await;
    }
}

// R43 C35
#[tokio::test(start_paused = true)]
async fn an_operator_that_writes_all_the_time_does_not_write_past_a_loss() {
    let server = shop().await;
    let (manager, sites, controller) = busy(&server);
    let _running = manager.controller(controller).spawn();
    create(&server, "kept").await;
    sleep(Duration::from_secs(30)).await;
    let backup = server.resource_version();
    create(&server, "late").await;
    // Both informers sleep out their first back-off; the server takes every write at once.
    server.restart(Restart::At(backup));
    let made = Made::from_now(server.client(), "shop");
    let there = uids(&server).await;
    shows(&sites, &["kept"], Duration::from_secs(3)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(made.without_parent(&there), Vec::<String>::new());
}

/// Restores a state, and lets others write past what was lost before any informer is back.
async fn restored_unnoticed(server: &ApiServer, backup: u64) {
    let lost = server.resource_version() - backup;
    let blind: Armed = server.faults().on_reads("*").then(Fault::Status(503));
    server.restart(Restart::At(backup));
    others_write(server, usize::try_from(lost).unwrap() + AHEAD).await;
    blind.disarm();
}

fn contradicted(manager: &Manager) -> impl Fn() -> u64 + use<> {
    let metrics = manager.metrics();
    move || {
        let text = metrics.encode();
        let line = text.lines().find(|line| line.starts_with("watchkeeper_caches_contradicted_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }
}

// R50
#[tokio::test(start_paused = true)]
async fn a_site_that_is_gone_from_the_server_is_found_out_by_a_status_that_is_not_found() {
    let server = shop().await;
    let (manager, sites, controller) = busy(&server);
    let contradictions = contradicted(&manager);
    let _running = manager.controller(controller).spawn();
    create(&server, "kept").await;
    sleep(Duration::from_secs(30)).await;
    let backup = server.resource_version();
    create(&server, "late").await;
    restored_unnoticed(&server, backup).await;
    shows(&sites, &["kept"], Duration::from_secs(12)).await;
    assert_eq!(contradictions(), 1);
    server.requests().clear();
    server.eventually::<Deployment>("shop/late", |d| d.is_none()).await;
    sleep(Duration::from_secs(300)).await;
    let made = server.requests().of(Verb::Patch, "deployments");
    let late = made.iter().filter(|request| request.name.as_deref() == Some("late"));
    assert_eq!(late.count(), 0, "nothing is made and lost any more");
    assert_eq!(contradictions(), 1);
}

// R50 C30
#[tokio::test(start_paused = true)]
async fn a_storm_over_an_owner_that_is_gone_from_the_server_has_its_cache_compared() {
    let server = shop().await;
    let (_running, sites) = applying(&server);
    create(&server, "kept").await;
    sleep(Duration::from_secs(30)).await;
    let backup = server.resource_version();
    create(&server, "late").await;
    restored_unnoticed(&server, backup).await;
    // The first questions get no answer.
    server.faults().on(Verb::Get, "websites").times(3).then(Fault::Status(503));
    shows(&sites, &["kept"], Duration::from_secs(60)).await;
    server.eventually::<Deployment>("shop/late", |d| d.is_none()).await;
    server.requests().clear();
    sleep(Duration::from_secs(300)).await;
    let made = server.requests().of(Verb::Patch, "deployments");
    let late = made.iter().filter(|request| request.name.as_deref() == Some("late"));
    assert_eq!(late.count(), 0, "nothing is made and lost any more");
}

// R50
#[tokio::test(start_paused = true)]
async fn an_object_that_bears_another_uid_than_the_cached_one_is_found_out() {
    let server = shop().await;
    let (manager, sites, controller) = busy(&server);
    let _running = manager.controller(controller).spawn();
    create(&server, "a").await;
    let first = server.get::<Website>("shop/a").await.unwrap();
    sleep(Duration::from_secs(30)).await;
    let backup = server.resource_version();
    server.delete::<Website>("shop/a").await;
    server.eventually::<Deployment>("shop/a", |d| d.is_none()).await;
    create(&server, "a").await;
    restored_unnoticed(&server, backup).await;
    let began = Instant::now();
    while sites.get(&ObjectKey::new("shop", "a")).and_then(|site| site.uid()) != first.uid() {
        assert!(began.elapsed() < Duration::from_secs(12));
        sleep(Duration::from_millis(20)).await;
    }
}

// R50
#[tokio::test(start_paused = true)]
async fn an_object_that_is_older_than_the_cached_one_is_found_out() {
    let server = shop().await;
    let (manager, sites, controller) = busy(&server);
    let _running = manager.controller(controller).spawn();
    create(&server, "a").await;
    sleep(Duration::from_secs(30)).await;
    let backup = server.resource_version();
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 7 } })).await;
    server
        .eventually::<Deployment>("shop/a", |d| d.unwrap().spec.as_ref().unwrap().replicas == Some(7))
        .await;
    restored_unnoticed(&server, backup).await;
    let began = Instant::now();
    while sites.get(&ObjectKey::new("shop", "a")).is_none_or(|site| site.spec.replicas != 2) {
        assert!(began.elapsed() < Duration::from_secs(12));
        sleep(Duration::from_millis(20)).await;
    }
    server
        .eventually::<Deployment>("shop/a", |d| d.unwrap().spec.as_ref().unwrap().replicas == Some(2))
        .await;
}

// R50
#[tokio::test(start_paused = true)]
async fn an_object_that_exists_though_the_cache_lacks_it_is_found_out() {
    let server = shop().await;
    let manager = Manager::with_config(server.client(), seeded());
    let (children, works) = (manager.lister::<Deployment>(), Arc::new(AtomicBool::new(true)));
    let working = works.clone();
    let (toggled, _) = does::<Website, _, _>(move |site: Arc<Website>, cx: Context<Website>| {
        let works = working.load(Ordering::SeqCst);
        async move {
            if works {
                cx.apply(deployment_for(&site)).await?;
            }
            Done::Ok(Action::requeue_after(Duration::from_millis(500)))
        }
    });
    let contradictions = contradicted(&manager);
    let _running = manager.controller(Controller::new(toggled).owns::<Deployment>()).spawn();
    create(&server, "a").await;
    sleep(Duration::from_secs(30)).await;
    let backup = server.resource_version();
    works.store(false, Ordering::SeqCst);
    server.delete::<Deployment>("shop/a").await;
    sleep(Duration::from_secs(1)).await;
    restored_unnoticed(&server, backup).await;
    sleep(Duration::from_secs(30)).await;
    assert!(children.list().is_empty(), "or the test shows nothing");
    works.store(true, Ordering::SeqCst);
    let began = Instant::now();
    while children.list().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(7));
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(contradictions(), 1);
}

// R50
#[tokio::test(start_paused = true)]
async fn caches_that_only_lag_are_not_listed_anew() {
    let server = shop().await;
    let (manager, _, controller) = busy(&server);
    let contradictions = contradicted(&manager);
    let _running = manager.controller(controller).spawn();
    for round in 0..20 {
        create(&server, "a").await;
        sleep(Duration::from_millis(round * 37)).await;
        server.delete::<Website>("shop/a").await;
        server.eventually::<Deployment>("shop/a", |d| d.is_none()).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(contradictions(), 0);
}

fn why(running: &Running, name: &str) -> Why {
    running.why::<Website>(&ObjectKey::new("shop", name)).remove(0).why
}

// C35
#[tokio::test(start_paused = true)]
async fn a_key_waits_for_a_watch_that_was_cut_for_five_seconds_at_most() {
    let server = shop().await;
    let (running, _) = operator(&server);
    create(&server, "a").await;
    sleep(Duration::from_secs(60)).await;
    let _blind = server.faults().on_reads("websites").then(Fault::Status(503));
    server.faults().on(Verb::Watch, "websites").once().then(Fault::Reset);
    let cut = Instant::now();
    sleep(Duration::from_secs(1)).await;
    server.delete::<Deployment>("shop/a").await;
    sleep(Duration::from_secs(1)).await;
    let why = why(&running, "a");
    assert!(matches!(why, Why::AwaitsCaches { .. }), "{why}");
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
    let healed = cut.elapsed().as_secs_f64();
    assert!((4.9..5.6).contains(&healed), "{healed}");
}

// C35
#[tokio::test(start_paused = true)]
async fn a_cache_that_never_answers_holds_keys_for_a_minute_and_a_forbidden_one_not_at_all() {
    let server = shop().await;
    let (running, _) = operator(&server);
    create(&server, "a").await;
    sleep(Duration::from_secs(60)).await;
    let backup = server.resource_version();
    create(&server, "late").await;
    others_write(&server, AHEAD).await;
    let _blind = server.faults().on_reads("websites").then(Fault::Status(503));
    server.restart(Restart::At(backup));
    let restored = Instant::now();
    sleep(Duration::from_secs(10)).await;
    server.delete::<Deployment>("shop/a").await;
    sleep(Duration::from_secs(20)).await;
    assert!(matches!(why(&running, "a"), Why::AwaitsCaches { .. }), "{}", why(&running, "a"));
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
    let held = restored.elapsed().as_secs();
    assert!((58..66).contains(&held), "{held}");
    server.faults().clear();
    sleep(Duration::from_secs(120)).await;

    let backup = server.resource_version();
    create(&server, "later").await;
    others_write(&server, AHEAD).await;
    let _denied = server.faults().on_reads("websites").then(Fault::Status(403));
    server.restart(Restart::At(backup));
    sleep(Duration::from_secs(10)).await;
    server.delete::<Deployment>("shop/a").await;
    let gone = Instant::now();
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
    assert!(gone.elapsed() < Duration::from_secs(2), "{:?}", gone.elapsed());
}

// C35
#[tokio::test(start_paused = true)]
async fn an_operator_whose_keys_are_held_stops_at_once() {
    let server = shop().await;
    let (running, _) = operator(&server);
    create(&server, "a").await;
    sleep(Duration::from_secs(60)).await;
    let _blind = server.faults().on_reads("*").then(Fault::Status(503));
    server.restart(Restart::Keep);
    sleep(Duration::from_secs(20)).await;
    let stopping = Instant::now();
    running.stop().await.unwrap();
    assert!(stopping.elapsed() < Duration::from_millis(100), "{:?}", stopping.elapsed());
}

// C35
#[tokio::test(start_paused = true)]
async fn a_run_that_began_before_a_loss_writes_nothing_after_it() {
    let server = shop().await;
    let manager = Manager::with_config(server.client(), seeded());
    let sites = manager.lister::<Website>();
    let (slow, _) = does::<Website, _, _>(|site: Arc<Website>, cx: Context<Website>| async move {
        sleep(Duration::from_secs(10)).await;
        cx.apply(deployment_for(&site)).await?;
        Ok(Action::await_change())
    });
    let _running = manager.controller(Controller::new(slow).owns::<Deployment>()).spawn();
    sleep(Duration::from_secs(30)).await;
    let backup = server.resource_version();
    server.create(&website("late")).await;
    others_write(&server, AHEAD).await;
    sleep(Duration::from_secs(5)).await;
    server.restart(Restart::At(backup));
    let made = Made::from_now(server.client(), "shop");
    shows(&sites, &[], Duration::from_secs(3)).await;
    sleep(Duration::from_secs(60)).await;
    assert!(made.is_empty());
}

// R49
#[tokio::test(start_paused = true)]
async fn after_an_outage_all_kinds_can_be_read_again_at_once() {
    for seed in 0..5 {
        let server = shop().await;
        let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
        let factory = SharedInformerFactory::with_config(server.client(), config);
        let caches = (
            factory.informer::<Website>().build().lister(),
            factory.informer::<Pod>().build().lister(),
            factory.informer::<Service>().build().lister(),
            factory.informer::<Secret>().build().lister(),
            factory.informer::<ConfigMap>().build().lister(),
            factory.informer::<Namespace>().build().lister(),
            factory.informer::<Node>().build().lister(),
        );
        factory.start();
        factory.wait_for_sync(Duration::from_secs(5)).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        // One after the other, so that each waits for a moment of its own.
        for kind in ["websites", "pods", "services", "secrets", "configmaps", "namespaces", "nodes"] {
            server.faults().on(Verb::Watch, kind).once().then(Fault::Reset);
            server.faults().on_reads(kind).then(Fault::Status(503));
            sleep(Duration::from_millis(1_300)).await;
        }
        // The delays grow once the server has been silent for 30 s: then each waits for long.
        sleep(Duration::from_secs(120)).await;
        let states = || factory.sync_states();
        assert!(states().iter().all(|state| state.failure.is_some()));
        server.faults().clear();
        let opened = || server.faults().open_streams();
        while opened() == 0 {
            sleep(Duration::from_millis(50)).await;
        }
        // A kind that has just failed waits for the first step of its back-off, which is less than 1.6 s.
        sleep(Duration::from_millis(1_700)).await;
        assert_eq!(opened(), states().len(), "one is back, and so are all");
        drop(caches);
    }
}

//! What a replica leaves behind when a slot moves, and what others make of it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use serde_json::json;
use tokio::{sync::watch, time::sleep};
use watchkeeper::{
    Running, Sharding, leader_election::LeaderElection, prelude::*, reflector::ReflectorConfig,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{
    cable::{Cable, Passes},
    does,
};

use crate::shards::{NAMESPACES, SHARED, cluster, replica};

fn manager(server: &ApiServer, seed: u64) -> Manager {
    Manager::with_config(server.client(), ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() })
}

// H5
#[tokio::test(start_paused = true)]
async fn a_replica_that_stops_keeps_its_slots_while_what_its_runs_left_behind_goes_on() {
    let (server, (over, until)) = (cluster().await, watch::channel(false));
    let (leaves, _) = does::<ConfigMap, _, _>(move |_, cx: Context<ConfigMap>| {
        let mut until = until.clone();
        async move {
            // It may still write.
            tokio::spawn(async move {
                let _ = until.wait_for(|over| *over).await;
                drop(cx);
            });
            Ok(Action::await_change())
        }
    });
    let first = manager(&server, 0).sharded("maps").grace_period(Duration::from_secs(120));
    let first = first.controller(Controller::new(leaves)).spawn();
    sleep(SHARED).await;
    let (follows, record) =
        does::<ConfigMap, _, _>(|_: Arc<ConfigMap>, _| async { Ok(Action::await_change()) });
    let _second = replica(server.client(), 1, Controller::new(follows)).await;
    let stops = tokio::spawn(first.stop());
    sleep(Duration::from_secs(30)).await;
    assert_eq!(record.starts().len(), 0);
    over.send_replace(true);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(record.starts().len(), NAMESPACES);
    stops.await.unwrap().unwrap();
}

// H11
#[tokio::test(start_paused = true)]
async fn a_slot_of_a_replica_that_stops_runs_on_caches_that_show_its_last_writes() {
    let server = cluster().await;
    let written = Arc::new(Mutex::new(BTreeMap::<ObjectKey, u64>::new()));
    let shown = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("n")?.parse::<u64>().ok());
    // Writes one more in each run.
    let notes = written.clone();
    let (writes, _) = does::<ConfigMap, _, _>(move |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        let notes = notes.clone();
        async move {
            let next = shown(&map).unwrap_or_default() + 1;
            notes.lock().unwrap().insert(ObjectKey::of(&*map), next);
            cx.patch(&map, json!({"data": {"n": next.to_string()}})).await?;
            Ok(Action::requeue_after(Duration::from_secs(1)))
        }
    });
    // Sees all that was written.
    let notes = written.clone();
    let (reads, record) = does::<ConfigMap, _, _>(move |map: Arc<ConfigMap>, _| {
        let (written, shown) = (notes.lock().unwrap().get(&ObjectKey::of(&*map)).copied(), shown(&map));
        assert!(written <= shown, "{:?}: {shown:?}, and {written:?} was written", map.metadata.namespace);
        async { Ok(Action::await_change()) }
    });
    let controller = |does| Controller::new(does).workers(20).panics(Panics::Propagate);
    let first = replica(server.client(), 0, controller(writes)).await;
    let mut second = replica(server.client(), 1, controller(reads)).await;
    let before = record.starts().len();
    // All caches show the same, and then nothing more.
    server.faults().on(Verb::Watch, "configmaps").then(Fault::Silence);
    sleep(Duration::from_millis(1_500)).await;
    first.stop().await.unwrap();
    sleep(SHARED).await;
    let ended = tokio::time::timeout(Duration::from_millis(1), second.ended()).await;
    assert!(ended.is_err(), "{ended:?}");
    assert!(record.starts().len() > before, "it goes on with the others");
}

// H12
#[tokio::test(start_paused = true)]
async fn a_leaders_task_whose_slot_comes_back_runs_again() {
    let server = cluster().await;
    let (running, stopping) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = |seed| {
        let manager = (0..NAMESPACES).fold(manager(&server, seed).sharded("maps"), |manager, at| {
            let (running, stopping) = (running.clone(), stopping.clone());
            manager.leader_task(format!("sweep-{at}"), move |told| {
                let (running, stopping) = (running.clone(), stopping.clone());
                async move {
                    running.fetch_add(1, Ordering::SeqCst);
                    told.wait().await;
                    stopping.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_secs(10)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, watchkeeper::Error>(())
                }
            })
        });
        manager.spawn()
    };
    let _first = start(0);
    sleep(SHARED).await;
    assert_eq!(running.load(Ordering::SeqCst), NAMESPACES);
    let second = start(1);
    while stopping.load(Ordering::SeqCst) == 0 {
        sleep(Duration::from_millis(100)).await;
    }
    // It goes before it has got anything.
    second.stop().await.unwrap();
    sleep(SHARED).await;
    assert_eq!(running.load(Ordering::SeqCst), NAMESPACES);
}

/// Counts the keys.
fn counting() -> (Controller<ConfigMap, watchkeeper_tests::Does<ConfigMap>>, watchkeeper_tests::Record) {
    let (counts, record) =
        does::<ConfigMap, _, _>(|_: Arc<ConfigMap>, _| async { Ok(Action::await_change()) });
    (Controller::new(counts), record)
}

// H10
#[tokio::test(start_paused = true)]
async fn a_strangers_lease_with_an_endless_duration_claims_nothing_for_long() {
    let server = cluster().await;
    let lease = json!({
        "metadata": {"name": "maps-stray", "namespace": "default", "labels": {"watchkeeper.dev/shards": "maps"}},
        "spec": {"holderIdentity": "stray", "leaseDurationSeconds": i32::MAX, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    server.create(&serde_json::from_value::<Lease>(lease).unwrap()).await;
    let (controller, record) = counting();
    let _running = replica(server.client(), 0, controller).await;
    assert_eq!(record.starts().len(), 0, "it claims all slots");
    sleep(Duration::from_secs(200)).await;
    assert_eq!(record.starts().len(), NAMESPACES);
}

// H11 C38
#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_waits_for_no_namespace_of_another_whose_server_does_not_answer() {
    let server = cluster().await;
    let mut replicas = Vec::new();
    for seed in 0..2 {
        let (controller, record) = counting();
        let controller = controller.namespace("tenant-0").namespace("tenant-1");
        replicas.push((replica(server.client(), seed, controller).await, record));
    }
    sleep(SHARED * 2).await;
    let open = ObjectKey::new("tenant-0", "a");
    let is_elsewhere =
        |running: &Running| running.why::<ConfigMap>(&open).to_string().contains("another replica");
    let owner = replicas.iter().position(|(running, _)| !is_elsewhere(running)).unwrap();
    let (owner, _) = replicas.remove(owner);
    let (other, record) = replicas.remove(0);
    assert!(is_elsewhere(&other));
    let ran = || record.starts().iter().filter(|start| start.key == open).count();
    let before = ran();
    server.faults().on(Verb::List, "configmaps").namespace("tenant-1").always().then(Fault::Silence);
    server.faults().on(Verb::Watch, "configmaps").namespace("tenant-1").always().then(Fault::Silence);
    server.patch_merge::<ConfigMap>("tenant-0/a", json!({"data": {"changed": "yes"}})).await;
    owner.stop().await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert!(ran() > before, "{}", other.why::<ConfigMap>(&open));
}

// H5
#[tokio::test(start_paused = true)]
async fn slots_of_a_replica_that_died_are_taken_in_time_however_seldom_leases_are_renewed() {
    let server = cluster().await;
    let (cable, cut) = Cable::of(server.client());
    let (mut replicas, mut records) = (Vec::<Running>::new(), Vec::new());
    for (seed, client) in (0..).zip([cut, server.client()]) {
        let leases = LeaderElection::new("maps").retry_period(Duration::from_secs(8));
        let (controller, record) = counting();
        let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
        let manager = Manager::with_config(client, config).sharded(Sharding::from(leases));
        replicas.push(manager.controller(controller).spawn());
        records.push(record);
        sleep(SHARED * 2).await;
    }
    let before = records[1].starts().len();
    assert!((1..NAMESPACES).contains(&before), "{before}");
    cable.set(Passes::Nothing);
    // A lease duration since its last renewal was seen, and a look.
    sleep(Duration::from_secs(24)).await;
    assert_eq!(records[1].starts().len(), NAMESPACES);
}

// H1
#[tokio::test(start_paused = true)]
async fn durations_without_an_end_are_refused() {
    let server = cluster().await;
    let shared = |leases: LeaderElection| manager(&server, 0).sharded(leases).run();
    for refused in [
        shared(LeaderElection::new("maps").lease_duration(Duration::MAX)).await,
        shared(LeaderElection::new("maps").retry_period(Duration::MAX)).await,
        manager(&server, 0)
            .leader_election(LeaderElection::new("maps").retry_period(Duration::MAX))
            .run()
            .await,
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with("leader election: "), "{error}");
    }
}

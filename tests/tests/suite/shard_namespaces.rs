//! Replicas that share namespaces out among them: each watches its own alone.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::time::sleep;
use watchkeeper::{Running, Sharding, prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::does;

use crate::shards::{Keeps, NAMESPACES, SHARED, cluster};

fn manager(server: &ApiServer, seed: u64) -> Manager {
    Manager::with_config(server.client(), ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() })
}

/// Starts a replica with a controller in each namespace that is its own.
async fn replica(server: &ApiServer, seed: u64, deletions: &Arc<AtomicU64>) -> Running {
    let deletions = deletions.clone();
    let make = move || {
        let keeps = Keeps { deletions: deletions.clone() };
        Controller::new(keeps).named("keeper").finalizer("example.dev/keeper").owns::<Secret>()
    };
    let manager = manager(server, seed).sharded(Sharding::new("maps").split_caches());
    let running = manager.controller_in_namespaces("", make).unwrap().spawn();
    sleep(SHARED).await;
    running
}

/// Returns in which namespaces a replica watches maps and Secrets, and how many of both it caches.
async fn watched(running: &Running) -> (BTreeSet<String>, u64) {
    let report = serde_json::to_value(running.inspector().debug_report(None).await).unwrap();
    let (mut namespaces, mut objects) = (BTreeSet::new(), 0);
    for informer in report["informers"].as_array().unwrap() {
        if informer["kind"] == "namespaces" {
            continue;
        }
        let [namespace] = &informer["namespaces"].as_array().unwrap()[..] else { panic!("{informer}") };
        namespaces.insert(namespace.as_str().unwrap().to_owned());
        objects += informer["objects"].as_u64().unwrap();
    }
    namespaces.retain(|namespace| namespace.starts_with("tenant-"));
    (namespaces, objects)
}

// H13 H8
#[tokio::test(start_paused = true)]
async fn a_replica_with_split_caches_watches_its_own_namespaces_alone() {
    let (server, deletions) = (cluster().await, Arc::default());
    let first = replica(&server, 0, &deletions).await;
    let second = replica(&server, 1, &deletions).await;
    sleep(SHARED).await;
    let all: BTreeSet<_> = (0..NAMESPACES).map(|at| format!("tenant-{at}")).collect();
    let [(of_first, cached), (of_second, also_cached)] = [watched(&first).await, watched(&second).await];
    assert!(of_first.is_disjoint(&of_second), "{of_first:?} {of_second:?}");
    assert_eq!(&of_first | &of_second, all);
    assert!(of_first.len() > 1 && of_second.len() > 1, "{of_first:?} {of_second:?}");
    assert_eq!(cached + also_cached, 2 * NAMESPACES as u64, "maps and secrets, each once");

    // Both say where a key is that the other works on.
    for (running, foreign) in [(&first, &of_second), (&second, &of_first)] {
        let key = ObjectKey::new(foreign.first().unwrap().as_str(), "a");
        let why = running.why::<ConfigMap>(&key).to_string();
        assert!(why.contains("another replica works on its slot"), "{why}");
    }
    // A namespace that comes is worked on by one of them.
    let new = serde_json::json!({"metadata": {"name": "tenant-new"}});
    server.create(&serde_json::from_value::<k8s_openapi::api::core::v1::Namespace>(new).unwrap()).await;
    let map = serde_json::json!({"metadata": {"name": "a", "namespace": "tenant-new"}});
    server.create(&serde_json::from_value::<ConfigMap>(map).unwrap()).await;
    sleep(Duration::from_secs(2)).await;
    assert!(server.get::<Secret>("tenant-new/a").await.is_some());
    // A child that somebody deletes comes back: the change reaches the replica that works on it.
    for namespace in &all {
        server.delete::<Secret>(&format!("{namespace}/a")).await;
    }
    sleep(Duration::from_secs(2)).await;
    for namespace in &all {
        assert!(server.get::<Secret>(&format!("{namespace}/a")).await.is_some(), "{namespace}");
    }

    // All goes to the one that is left, and nothing is taken for deleted.
    second.stop().await.unwrap();
    sleep(Duration::from_secs(5)).await;
    let (namespaces, cached) = watched(&first).await;
    assert_eq!((namespaces.len(), cached), (NAMESPACES + 1, 2 * NAMESPACES as u64 + 2));
    for namespace in &all {
        server.delete::<Secret>(&format!("{namespace}/a")).await;
    }
    sleep(Duration::from_secs(2)).await;
    for namespace in &all {
        assert!(server.get::<Secret>(&format!("{namespace}/a")).await.is_some(), "{namespace}");
        let map = server.get::<ConfigMap>(&format!("{namespace}/a")).await.unwrap();
        assert_eq!(map.metadata.finalizers.unwrap_or_default(), ["example.dev/keeper"], "{namespace}");
    }
    assert_eq!(deletions.load(Ordering::SeqCst), 0);
    first.stop().await.unwrap();
}

// H9
#[tokio::test(start_paused = true)]
async fn a_controller_of_one_namespace_has_its_whole_rate() {
    let server = cluster().await;
    let mut replicas = Vec::new();
    for seed in 0..2 {
        let (runs, record) = does::<ConfigMap, _, _>(|_: Arc<ConfigMap>, _| async {
            Ok(Action::requeue_after(Duration::from_millis(10)))
        });
        let controller = Controller::new(runs).rate_limit(RateLimit::per_second(20).burst(20));
        let manager = manager(&server, seed).sharded("maps").controller(controller.namespace("tenant-3"));
        replicas.push((manager.spawn(), record));
    }
    sleep(SHARED * 2).await;
    let ran = || replicas.iter().map(|(_, record)| record.starts().len()).collect::<Vec<_>>();
    let before = ran();
    sleep(Duration::from_secs(60)).await;
    let mut ran: Vec<_> = ran().iter().zip(before).map(|(now, before)| now - before).collect();
    ran.sort_unstable();
    assert!(ran[0] == 0 && (1_150..=1_230).contains(&ran[1]), "20 a second in one of them: {ran:?}");
}

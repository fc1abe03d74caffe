//! Replicas that share namespaces out among them: each watches its own alone.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderValue, Request, header::USER_AGENT};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    rbac::v1::ClusterRole,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
    client::Body,
};
use serde_json::json;
use tokio::time::sleep;
use tower::service_fn;
use watchkeeper::{Running, Sharding, prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
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

// H11
#[tokio::test(start_paused = true)]
async fn a_controller_in_namespaces_sees_what_the_last_replica_saw_of_a_cache_that_others_share() {
    let server = cluster().await;
    let role = |n: u32| json!({"metadata": {"name": "counter", "annotations": {"n": n.to_string()}}});
    server.create(&serde_json::from_value::<ClusterRole>(role(0)).unwrap()).await;
    let shown = Arc::new(Mutex::new(Vec::<(u64, ObjectKey, String)>::new()));
    let start = async |client: kube::Client, seed: u64| {
        let shown = shown.clone();
        let (counts, _) = does::<ConfigMap, _, _>(move |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
            let (shown, key) = (shown.clone(), ObjectKey::of(&*map));
            async move {
                let role = cx.lister::<ClusterRole>().get(&ObjectKey::cluster("counter")).unwrap();
                let n = role.annotations()["n"].clone();
                shown.lock().unwrap().push((seed, key, n.clone()));
                if map.data.as_ref().is_some_and(|data| data.contains_key("counts")) && n == "0" {
                    // The other controller has nothing to do, and says at once what it sees.
                    sleep(Duration::from_secs(5)).await;
                    let roles = Api::<ClusterRole>::all(cx.client().clone());
                    let one = Patch::Merge(json!({"metadata": {"annotations": {"n": "1"}}}));
                    roles.patch("counter", &PatchParams::default(), &one).await?;
                }
                Ok(Action::await_change())
            }
        });
        let namespaces = (0..NAMESPACES).map(|at| format!("tenant-{at}"));
        let counts = Controller::new(counts).named("counts").reads::<ClusterRole>();
        let counts = namespaces.fold(counts, Controller::namespace);
        let (idle, _) = does::<Secret, _, _>(|_: Arc<Secret>, _| async { Ok(Action::await_change()) });
        let idle = Controller::new(idle).named("idle").reads::<ClusterRole>();
        let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
        let manager =
            Manager::with_config(client, config).sharded("maps").controller(counts).controller(idle);
        let running = manager.spawn();
        sleep(SHARED).await;
        running
    };
    let first = start(server.client(), 0).await;
    // The second replica is shown no change of a role.
    let inner = server.client();
    let named = service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("second"));
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    server.faults().on(Verb::Watch, "clusterroles").user_agent("second").then(Fault::Silence);
    let second = start(kube::Client::new(named, "default"), 1).await;
    sleep(SHARED).await;
    let is_firsts = |key: &ObjectKey| !first.why::<ConfigMap>(key).to_string().contains("another replica");
    let keys: Vec<_> = (0..NAMESPACES).map(|at| ObjectKey::new(format!("tenant-{at}"), "a")).collect();
    let key = keys.iter().find(|key| is_firsts(key)).unwrap();
    server.patch_merge::<ConfigMap>(&key.to_string(), json!({"data": {"counts": "yes"}})).await;
    sleep(Duration::from_secs(1)).await;
    shown.lock().unwrap().clear();
    first.stop().await.unwrap();
    sleep(Duration::from_secs(5)).await;
    let shown = shown.lock().unwrap().clone();
    let by_second = shown.iter().filter(|(seed, of, _)| *seed == 1 && of == key);
    let seen: Vec<_> = by_second.map(|(.., n)| n.as_str()).collect();
    assert_eq!(seen.first(), Some(&"1"), "{shown:?}");
    second.stop().await.unwrap();
}

//! Many objects, and watches that never live long: nothing is listed again, nothing is lost, nothing piles up.

use std::{collections::BTreeMap, fs, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use tokio::time::{Duration, Instant, sleep};
use watchkeeper::{Lister, ObjectKey, SharedInformerFactory, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};

use crate::seeds::paused;

/// How many bytes a watch lives.
const BYTES: usize = 10_000;

/// How many objects are written between two pauses.
const BURST: usize = 500;

/// How many objects there are, unless `CHAOS_OBJECTS` says otherwise.
const USUAL: usize = 5_000;

fn map(n: usize, round: usize) -> ConfigMap {
    let labels = BTreeMap::from([("app".to_owned(), format!("app-{}", n % 100))]);
    let metadata =
        ObjectMeta { name: Some(format!("map-{n}")), labels: Some(labels), ..ObjectMeta::default() };
    let data =
        BTreeMap::from([("round".to_owned(), round.to_string()), ("text".to_owned(), "x".repeat(200))]);
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

fn versions(objects: &[Arc<ConfigMap>]) -> BTreeMap<ObjectKey, Option<String>> {
    objects.iter().map(|map| (ObjectKey::of(&**map), map.metadata.resource_version.clone())).collect()
}

/// Reads how much memory the process holds, in MB; the server is in it.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or_default() / 1024
}

/// Waits until the cache shows all that was written.
async fn catches_up(server: &ApiServer, lister: &Lister<ConfigMap>) {
    let wanted = watchkeeper::object::Version(server.resource_version());
    lister.wait_for_version(wanted, Duration::from_secs(3_600)).await.unwrap();
}

// R19 R44
#[test]
fn watches_cut_every_ten_thousand_bytes_are_no_reason_to_list() {
    let objects = std::env::var("CHAOS_OBJECTS").map_or(USUAL, |text| text.parse().unwrap());
    paused(async move {
        let server = ApiServer::in_memory().history(10 * BURST).start().await;
        let began = Instant::now();
        for n in 0..objects {
            server.create(&map(n, 0)).await;
        }
        let config = ReflectorConfig { seed: Some(7), ..ReflectorConfig::default() };
        let factory = SharedInformerFactory::with_config(server.client(), config);
        let informer = factory.informer::<ConfigMap>().build();
        let lister = informer.lister();
        factory.start();
        factory.wait_for_sync(Duration::from_secs(60)).await.unwrap();
        let mut lists = full_lists(&server);
        let cut = server.faults().on(Verb::Watch, "configmaps").then(Fault::Cut.at_byte(BYTES));
        let mut memory = vec![resident()];
        for round in 1..=3 {
            for n in (0..objects).filter(|n| n % 4 == round) {
                match round {
                    1 => drop(server.update(&map(n, round)).await),
                    2 => drop(server.delete::<ConfigMap>(&format!("map-{n}")).await),
                    _ => drop(server.create(&map(objects + n, round)).await),
                }
                if n % (4 * BURST) == round {
                    catches_up(&server, &lister).await;
                    lists += full_lists(&server);
                }
            }
            catches_up(&server, &lister).await;
            lists += full_lists(&server);
            memory.push(resident());
        }
        let cuts = cut.fired();
        println!(
            "{objects} objects, {cuts} cuts, {lists} lists; resident MB after sync and each round: {memory:?}; \
             {:?} of the server's time",
            began.elapsed()
        );
        assert!(cuts as usize > objects / 100, "only {cuts} cuts");
        assert_eq!(lists, 1, "no cut is a reason to list");
        sleep(Duration::from_secs(1)).await;
        let there: Vec<_> = server.list::<ConfigMap>("*").await.into_iter().map(Arc::new).collect();
        assert_eq!(versions(&lister.list()), versions(&there));
        assert!(memory[3] < memory[0] + memory[0] / 2 + 64, "memory grows: {memory:?} MB");
        factory.shutdown().await;
    });
}

/// Counts the lists since it last did, streaming ones included; asking for one object to learn the version is none.
fn full_lists(server: &ApiServer) -> usize {
    assert!(server.requests().list().len() < 10_000, "the server's record of requests has forgotten some");
    let lists = server.requests().of(Verb::List, "configmaps");
    let paged = lists.iter().filter(|request| request.parameter("limit") != Some("1")).count();
    let watches = server.requests().of(Verb::Watch, "configmaps");
    let streaming = watches.iter().filter(|request| request.parameter("sendInitialEvents") == Some("true"));
    let lists = paged + streaming.count();
    server.requests().clear();
    lists
}

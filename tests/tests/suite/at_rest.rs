//! What an operator asks of the server while nothing happens: counts of requests in a virtual hour.

use std::ops::RangeInclusive;

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, Secret, Service},
};
use tokio::time::sleep;
use watchkeeper::{leader_election::LeaderElection, prelude::*};
use watchkeeper_apiserver::{ApiServer, Verb};
use watchkeeper_tests::{Website, deployment_for, does, website};

const HOUR: Duration = Duration::from_secs(3_600);

/// Watches of 5 to 10 minutes each that begin in an hour.
const WATCHES: RangeInclusive<u64> = 5..=12;

const WATCHED: [&str; 6] = ["configmaps", "deployments", "secrets", "services", "statefulsets", "websites"];

/// Brings an operator with six informers to rest, and checks what it asks for in the hour after; `renewals`: of a Lease.
async fn rests_for_an_hour(election: Option<LeaderElection>, renewals: RangeInclusive<u64>) {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(deployment_for(&site)).await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler)
        .owns::<Deployment>()
        .owns::<StatefulSet>()
        .owns::<ConfigMap>()
        .owns::<Secret>()
        .owns::<Service>();
    let mut manager = Manager::new(server.client()).controller(controller);
    if let Some(election) = election {
        manager = manager.leader_election(election);
    }
    let _running = manager.spawn();
    server.create(&website("a")).await;
    sleep(Duration::from_secs(120)).await;
    let runs = record.len();
    server.requests().clear();
    sleep(HOUR).await;
    let mut counts = server.requests().counts();
    for kind in WATCHED {
        let watches = counts.remove(&(Verb::Watch, kind.to_owned())).unwrap_or(0);
        assert!(WATCHES.contains(&watches), "{watches} watches of {kind}");
        // A list by stream is a watch too.
        let asked = server.requests().of(Verb::Watch, kind);
        let lists = asked.iter().filter(|watch| watch.parameter("sendInitialEvents") == Some("true"));
        assert_eq!(lists.count(), 0, "lists of {kind} by stream");
    }
    let renewed = counts.remove(&(Verb::Update, "leases".to_owned())).unwrap_or(0);
    assert!(renewals.contains(&renewed), "{renewed} renewals");
    assert!(counts.is_empty(), "nothing else is asked for: {counts:?}");
    assert_eq!(record.len(), runs, "nothing is reconciled");
}

// P11
#[tokio::test(start_paused = true)]
async fn an_operator_at_rest_only_renews_its_watches() {
    rests_for_an_hour(None, 0..=0).await;
}

// P11
#[tokio::test(start_paused = true)]
async fn a_leader_at_rest_only_renews_its_watches_and_its_lease() {
    let election = LeaderElection::new("sites").namespace("shop").identity("one");
    rests_for_an_hour(Some(election), 1_795..=1_801).await;
}

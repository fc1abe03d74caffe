//! Controllers that are added to a manager that runs, and removed from it.

use std::future::pending;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use tokio::time::{Instant, sleep};
use watchkeeper::{Error, leader_election::LeaderElection, prelude::*};
use watchkeeper_apiserver::{ApiServer, Verb};
use watchkeeper_tests::{Does, Record, does};

const SOON: Duration = Duration::from_secs(5);

async fn shop() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&map("a")).await;
    server.create(&secret("a")).await;
    server
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

fn map(name: &str) -> ConfigMap {
    ConfigMap { metadata: named(name), ..ConfigMap::default() }
}

fn secret(name: &str) -> Secret {
    Secret { metadata: named(name), ..Secret::default() }
}

fn controller<K: Watched<DynamicType = ()>>(name: &str) -> (Controller<K, Does<K>>, Record) {
    let (reconciler, record) = does(|_, _| async { Ok(Action::await_change()) });
    (Controller::new(reconciler).named(name), record)
}

// P28
#[tokio::test(start_paused = true)]
async fn one_that_is_added_works_and_one_that_is_removed_stops_alone() {
    let server = shop().await;
    let (maps, of_maps) = controller::<ConfigMap>("maps");
    let mut running = Manager::new(server.client()).controller(maps).spawn();
    sleep(SOON).await;
    let lists = server.requests().list().len();
    let (secrets, of_secrets) = controller::<Secret>("secrets");
    running.add(secrets).unwrap();
    // What is cached already is not asked for again.
    let (again, of_again) = controller::<ConfigMap>("again");
    running.add(again).unwrap();
    sleep(SOON).await;
    assert_eq!((of_secrets.len(), of_again.len()), (1, 1));
    assert_eq!(server.requests().count(Verb::Watch, "configmaps"), 1, "{lists} before");
    assert_eq!(running.why::<Secret>(&ObjectKey::new("shop", "a")).len(), 1);
    assert!(running.inspector().readiness().is_ok());

    running.remove("secrets").await.unwrap();
    server.create(&secret("b")).await;
    server.create(&map("b")).await;
    sleep(SOON).await;
    assert_eq!((of_secrets.len(), of_again.len(), of_maps.len()), (1, 2, 2));
    assert_eq!(running.why::<Secret>(&ObjectKey::new("shop", "a")).len(), 0);
    assert_eq!(server.watches("secrets").open(), 0, "nobody reads Secrets any more");

    // One that was there from the start goes as well; its name is free.
    running.remove("maps").await.unwrap();
    let (maps, of_new) = controller::<ConfigMap>("maps");
    running.add(maps).unwrap();
    sleep(SOON).await;
    assert_eq!((of_maps.len(), of_new.len()), (2, 2));
    running.stop().await.unwrap();
    assert_eq!(server.watches("configmaps").open(), 0);
}

// P28
#[tokio::test(start_paused = true)]
async fn what_is_refused_changes_nothing() {
    let server = shop().await;
    let (maps, record) = controller::<ConfigMap>("maps");
    let mut running = Manager::new(server.client()).controller(maps).spawn();
    let same = running.add(controller::<Secret>("maps").0).unwrap_err();
    assert!(matches!(&same, Error::DuplicateController(name) if name == "maps"), "{same}");
    let none = running.add(controller::<Secret>("none").0.workers(0)).unwrap_err();
    assert!(none.to_string().contains("zero workers"), "{none}");
    let unknown = running.remove("other").await.unwrap_err().to_string();
    assert!(unknown.contains("\"other\"") && unknown.ends_with("maps"), "{unknown}");
    sleep(SOON).await;
    assert_eq!((record.len(), server.requests().count(Verb::Watch, "secrets")), (1, 0));
    running.stop().await.unwrap();
    // A manager that could not start takes none.
    let twice = || controller::<ConfigMap>("twice").0;
    let mut failed = Manager::new(server.client()).controller(twice()).controller(twice()).spawn();
    let refused = failed.add(controller::<Secret>("late").0).unwrap_err().to_string();
    assert!(refused.contains("late") && refused.contains("does not run"), "{refused}");
    assert!(failed.stop().await.is_err());
}

// P28
#[tokio::test(start_paused = true)]
async fn a_removed_controller_ends_its_runs_within_the_grace_period() {
    let server = shop().await;
    let manager = Manager::new(server.client()).grace_period(Duration::from_secs(10));
    let mut running = manager.spawn();
    let slow = does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| async {
        sleep(Duration::from_secs(8)).await;
        Ok(Action::await_change())
    });
    running.add(Controller::new(slow.0).named("slow")).unwrap();
    let stuck = does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| pending());
    running.add(Controller::new(stuck.0).named("stuck")).unwrap();
    let (other, record) = controller::<ConfigMap>("other");
    running.add(other).unwrap();
    sleep(SOON).await;
    assert_eq!((slow.1.len(), stuck.1.len()), (1, 1));
    let began = Instant::now();
    running.remove("slow").await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    let began = Instant::now();
    let late = running.remove("stuck").await.unwrap_err();
    assert!(matches!(&late, Error::PastGracePeriod { reconciles, .. } if reconciles == "stuck"), "{late}");
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    // The other one goes on.
    server.create(&map("b")).await;
    sleep(SOON).await;
    assert_eq!(record.len(), 2);
    running.stop().await.unwrap();
}

// P28
#[tokio::test(start_paused = true)]
async fn an_added_controller_works_only_while_its_replica_leads() {
    let server = shop().await;
    let replica = |name| {
        let election = LeaderElection::new("shop").identity(name).namespace("shop");
        Manager::new(server.client()).leader_election(election).spawn()
    };
    let mut first = replica("first");
    // Who creates a Lease leads only after its duration.
    sleep(Duration::from_secs(20)).await;
    let mut second = replica("second");
    sleep(SOON).await;
    let ((of_first, by_first), (of_second, by_second)) =
        (controller::<ConfigMap>("maps"), controller("maps"));
    first.add(of_first).unwrap();
    second.add::<ConfigMap, _>(of_second).unwrap();
    sleep(SOON).await;
    assert_eq!((by_first.len(), by_second.len()), (1, 0));
    first.stop().await.unwrap();
    sleep(SOON).await;
    assert_eq!((by_first.len(), by_second.len()), (1, 1));
    second.stop().await.unwrap();
}

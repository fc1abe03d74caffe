//! Tasks of the user's own, started and stopped with the manager, or with each term.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::Api;
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use watchkeeper::{Error, leader_election::LeaderState, manager::Stopping, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::cable::{Cable, Passes};

async fn shop() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "maps", "namespace": "shop"},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    }))
    .unwrap();
    server.create(&lease).await;
    server
}

fn election(name: &str) -> watchkeeper::LeaderElection {
    watchkeeper::LeaderElection::new("maps").namespace("shop").identity(name)
}

/// Counts its starts and its ends.
#[derive(Clone, Default)]
struct Count {
    starts: Arc<AtomicUsize>,
    ends: Arc<AtomicUsize>,
}

impl Count {
    async fn run(self, stopping: Stopping) -> Result<(), Error> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        stopping.wait().await;
        sleep(Duration::from_secs(1)).await;
        self.ends.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn read(&self) -> (usize, usize) {
        (self.starts.load(Ordering::SeqCst), self.ends.load(Ordering::SeqCst))
    }
}

// P6
#[tokio::test(start_paused = true)]
async fn a_task_starts_with_the_manager_and_a_leaders_with_each_term() {
    let server = shop().await;
    let (always, leading) = (Count::default(), Count::default());
    let (one, other) = (always.clone(), leading.clone());
    let manager = Manager::new(server.client()).leader_election(election("one"));
    let mut leadership = manager.leadership().unwrap();
    let running = manager
        .task("always", move |stopping| one.clone().run(stopping))
        .leader_task("leading", move |stopping| other.clone().run(stopping))
        .spawn();
    while leadership.state() != LeaderState::Leads {
        leadership.changed().await;
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!((always.read(), leading.read()), ((1, 0), (1, 0)));
    let broken = server.faults().on(Verb::Update, "leases").always().then(Fault::Status(500));
    sleep(Duration::from_secs(13)).await;
    assert_eq!((always.read(), leading.read()), ((1, 0), (1, 1)), "the term is over, the manager runs");
    broken.disarm();
    sleep(Duration::from_secs(20)).await;
    assert_eq!((always.read(), leading.read()), ((1, 0), (2, 1)));
    let began = Instant::now();
    running.stop().await.unwrap();
    assert_eq!((always.read(), leading.read()), ((1, 1), (2, 2)));
    assert_eq!(began.elapsed().as_secs(), 1);
    let lease = server.get::<Lease>("shop/maps").await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity.as_deref(), Some(""), "released once the task had ended");
}

// P5 P6
#[tokio::test(start_paused = true)]
async fn a_task_that_fails_ends_the_manager_and_is_named() {
    let server = shop().await;
    for (panics, said) in [(false, "task sweeper: the disk is full"), (true, "task sweeper: it panicked")] {
        let manager = Manager::new(server.client()).task("sweeper", move |_| async move {
            assert!(!panics, "a planted panic");
            Err::<(), _>("the disk is full")
        });
        let mut running = manager.spawn();
        let error = running.ended().await.unwrap_err();
        assert_eq!(format!("{error:?}"), said);
        running.stop().await.unwrap();
    }
}

// C18 P6
#[tokio::test(start_paused = true)]
async fn a_task_that_outlives_the_grace_period_is_dropped_and_named() {
    let server = shop().await;
    let started = Arc::new(Notify::new());
    let called = started.clone();
    let manager = Manager::new(server.client()).grace_period(Duration::from_secs(3));
    let running = manager
        .task("endless", move |_| {
            called.notify_one();
            std::future::pending::<Result<(), Error>>()
        })
        .spawn();
    started.notified().await;
    let began = Instant::now();
    let error = running.stop().await.unwrap_err().to_string();
    assert!(error.contains("task endless"), "{error}");
    assert_eq!(began.elapsed().as_secs(), 3);
}

// L10
#[tokio::test(start_paused = true)]
async fn a_leaders_task_starts_although_a_controller_can_not_sync() {
    let server = shop().await;
    server.faults().on_any("configmaps").always().then(Fault::Status(403));
    let leading = Count::default();
    let count = leading.clone();
    let (idle, record) =
        watchkeeper_tests::does::<ConfigMap, _, _>(|_, _| async { Ok(Action::await_change()) });
    let running = Manager::new(server.client())
        .leader_election(election("one"))
        .controller(Controller::new(idle).namespace("shop"))
        .leader_task("leading", move |stopping| count.clone().run(stopping))
        .spawn();
    sleep(Duration::from_secs(5)).await;
    assert_eq!((leading.read(), record.len()), ((1, 0), 0));
    running.stop().await.unwrap();
}

// L5 P6
#[tokio::test(start_paused = true)]
async fn a_leaders_task_whose_request_ends_with_the_term_starts_again_in_the_next_one() {
    let server = shop().await;
    let (cable, client) = Cable::of(server.client());
    let manager = Manager::new(client).leader_election(election("one"));
    let (maps, starts) = (Api::<ConfigMap>::namespaced(manager.client().clone(), "shop"), Count::default());
    let count = starts.clone();
    let mut running = manager
        .leader_task("lists", move |stopping| {
            let (maps, count) = (maps.clone(), count.clone());
            async move {
                count.starts.fetch_add(1, Ordering::SeqCst);
                while !stopping.is_told() {
                    maps.list(&Default::default()).await?;
                    sleep(Duration::from_secs(1)).await;
                }
                Ok::<_, Error>(())
            }
        })
        .spawn();
    sleep(Duration::from_secs(20)).await;
    cable.set(Passes::Nothing);
    sleep(Duration::from_secs(40)).await;
    cable.set(Passes::Both);
    let ended = timeout(Duration::from_secs(40), running.ended()).await;
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(starts.read().0, 2);
    running.stop().await.unwrap();
}

// P6
#[tokio::test(start_paused = true)]
async fn without_an_election_a_leaders_task_that_returns_has_ended() {
    let server = shop().await;
    let manager = Manager::new(server.client());
    let mut running = manager.leader_task("once", |_| async { Ok::<_, Error>(()) }).spawn();
    timeout(Duration::from_secs(60), running.ended()).await.expect("it has not ended").unwrap();
    running.stop().await.unwrap();
}

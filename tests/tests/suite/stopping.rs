//! The end of a manager: bounded by the grace period, and told.

use std::sync::{Mutex, mpsc};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use tokio::{sync::Notify, time::Instant};
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{ApiServer, Fault};
use watchkeeper_tests::does;

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

// C18 C38
#[tokio::test(start_paused = true)]
async fn reconciles_that_outlive_the_grace_period_are_named() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    for at in 0..8 {
        server.create(&config_map(&format!("map-{at}"))).await;
    }
    let (endless, record) = does::<ConfigMap, _, _>(|_, _| std::future::pending());
    let running = Manager::new(server.client())
        .controller(Controller::new(endless).workers(7))
        .grace_period(Duration::from_secs(3))
        .spawn();
    record.reaches(7).await;
    let began = Instant::now();
    let error = running.stop().await.unwrap_err().to_string();
    assert_eq!(began.elapsed().as_secs(), 3);
    assert!(error.contains("configmaps (shop/map-0 for 3"), "{error}");
    assert!(error.contains("shop/map-4 for 3") && error.contains("2 more"), "{error}");
    assert!(error.contains("past the grace period of 3s"), "{error}");
}

/// Blocks its thread until somebody lets go.
struct Blocks {
    called: Arc<Notify>,
    until: Mutex<mpsc::Receiver<()>>,
}

impl EventHandler<ConfigMap> for Blocks {
    fn on_add(&self, _: Arc<ConfigMap>, _: AddOrigin) {
        self.called.notify_one();
        self.until.lock().unwrap().recv().ok();
    }
}

// C18 C38
// On real time: with a thread that blocks, paused time would stand still. Nothing sleeps but what is tested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_never_returns_does_not_hold_up_a_stop() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map("a")).await;
    let (let_go, blocked) = mpsc::channel();
    let manager = Manager::new(server.client()).grace_period(Duration::from_millis(50));
    let informer = manager.informer::<ConfigMap>().build();
    let called = Arc::new(Notify::new());
    let _registration = informer.add_handler(Blocks { called: called.clone(), until: Mutex::new(blocked) });
    let running = manager.spawn();
    called.notified().await;
    let stopped = tokio::time::timeout(Duration::from_secs(20), running.stop()).await;
    let error = stopped.expect("it holds up the stop").unwrap_err().to_string();
    assert!(error.contains("an event handler of an informer ran on past the grace period"), "{error}");
    drop(let_go);
}

// P15
#[tokio::test(start_paused = true)]
async fn why_a_controller_gave_up_is_not_hidden_by_what_its_end_waited_for() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map("a")).await;
    let _forbidden = server.faults().on_any("secrets").always().then(Fault::Status(403));
    let manager = |endless| {
        let gives_up = does::<Secret, _, _>(async |_, _| Ok(Action::await_change())).0;
        Manager::new(server.client())
            .controller(Controller::new(gives_up).sync_timeout(Duration::from_secs(60)))
            .controller(Controller::<ConfigMap, _>::new(endless))
            .grace_period(Duration::from_secs(3))
    };
    let endless = || does::<ConfigMap, _, _>(|_, _| std::future::pending()).0;
    let error = manager(endless()).run().await.unwrap_err().to_string();
    assert!(error.contains("controller secrets: not synced within 60s"), "{error}");
    // Nor where nobody waited for it before the stop.
    let running = manager(endless()).spawn();
    tokio::time::sleep(Duration::from_secs(61)).await;
    let error = running.stop().await.unwrap_err().to_string();
    assert!(error.contains("controller secrets: not synced within 60s"), "{error}");
}

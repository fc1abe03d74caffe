//! Listers and informers that are asked for once the manager runs.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use tokio::time::sleep;
use watchkeeper::{
    informer::{Dynamic, SyncPhase},
    object::Kind,
    prelude::*,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::does;

const WITHIN: Duration = Duration::from_secs(5);

async fn shop() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    server.create(&ConfigMap { metadata: metadata.clone(), ..ConfigMap::default() }).await;
    server.create(&Secret { metadata, ..Secret::default() }).await;
    server
}

fn manager(server: &ApiServer) -> Manager {
    let (reconciler, _) =
        does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| async { Ok(Action::await_change()) });
    Manager::new(server.client()).controller(Controller::new(reconciler))
}

// P8
#[tokio::test(start_paused = true)]
async fn an_informer_that_is_asked_for_late_starts_fills_and_ends_with_the_manager() {
    let server = shop().await;
    let running = manager(&server).spawn();
    sleep(WITHIN).await;
    assert_eq!(server.requests().count(Verb::Watch, "secrets"), 0);
    let secrets = running.informer::<Secret>().namespace("shop").build();
    secrets.wait_for_sync(WITHIN).await.unwrap();
    assert_eq!(secrets.lister().list().len(), 1);
    let of_run_time = running.informer_of(Watch::of(Dynamic::new(Kind::of::<Secret>()))).lister();
    sleep(WITHIN).await;
    assert_eq!(of_run_time.list().len(), 1);
    running.stop().await.unwrap();
    assert_eq!(secrets.sync_state().phase, SyncPhase::Stopped);
}

// P8
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_watched_already_is_not_listed_again() {
    let server = shop().await;
    let running = manager(&server).spawn();
    sleep(WITHIN).await;
    let asked = server.requests().list().len();
    let maps = running.lister::<ConfigMap>();
    assert_eq!(maps.list().len(), 1, "filled as it is handed out");
    sleep(WITHIN).await;
    assert_eq!(server.requests().list().len(), asked);
    running.stop().await.unwrap();
}

// P8
#[tokio::test(start_paused = true)]
async fn readiness_names_a_late_informer_until_it_has_synced() {
    let server = shop().await;
    let running = manager(&server).spawn();
    sleep(WITHIN).await;
    let inspector = running.inspector();
    assert!(inspector.readiness().is_ok(), "{}", inspector.readiness());
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let secrets = running.lister::<Secret>();
    sleep(WITHIN).await;
    let readiness = inspector.readiness().to_string();
    assert!(readiness.contains("[-]cache/secrets failed"), "{readiness}");
    drop(secrets);
    sleep(WITHIN).await;
    assert!(inspector.readiness().is_ok(), "nobody uses it: {}", inspector.readiness());
    server.faults().clear();
    let _secrets = running.lister::<Secret>();
    sleep(WITHIN).await;
    assert!(inspector.readiness().is_ok(), "{}", inspector.readiness());
    running.stop().await.unwrap();
}

// P8
#[tokio::test(start_paused = true)]
async fn nothing_is_listed_for_a_manager_that_could_not_start() {
    let server = shop().await;
    let running = manager(&server)
        .controller(Controller::new(
            does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| async { Ok(Action::await_change()) }).0,
        ))
        .spawn();
    let secrets = running.informer::<Secret>().build();
    let error = secrets.wait_for_sync(WITHIN).await.unwrap_err();
    assert_eq!(error.laggards[0].phase, SyncPhase::Stopped, "{error}");
    assert_eq!(server.requests().count(Verb::List, "secrets"), 0);
    running.stop().await.unwrap_err();
}

// I18 I22
#[tokio::test(start_paused = true)]
async fn a_manager_is_told_what_a_cache_keeps() {
    let server = shop().await;
    let manager = manager(&server);
    let marked = manager.informer::<Secret>().transform(|secret: &mut Secret| {
        secret.metadata.labels.get_or_insert_default().insert("seen".into(), "yes".into());
    });
    let (marked, bytes) = (marked.lister(), manager.informer::<Secret>().compact().lister());
    let running = manager.spawn();
    sleep(WITHIN).await;
    assert!(marked.list()[0].labels().contains_key("seen"));
    assert!(!bytes.list()[0].labels().contains_key("seen"), "a cache of its own");
    running.stop().await.unwrap();
}

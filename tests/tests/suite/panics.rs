//! Panics of the user's code, wherever a run calls it: contained, or the end of the manager.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    core::{ApiResource, DynamicObject, ObjectMeta},
};
use serde::Deserializer;
use serde_json::json;
use watchkeeper::{controller::Why, prelude::*, store::Lookup};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::does;

/// Kept as bytes; decoding one of glass panics.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "art.example.dev", version = "v1", kind = "Vase", namespaced)]
#[informer(compact)]
struct VaseSpec {
    #[serde(deserialize_with = "fragile")]
    of: String,
}

fn fragile<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let of = String::deserialize(deserializer)?;
    assert_ne!(of, "glass", "it breaks");
    Ok(of)
}

/// Decoding one from a tree panics while told to, as the answer to a write is; from bytes it never does.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "art.example.dev", version = "v1", kind = "Urn", namespaced)]
struct UrnSpec {
    #[serde(deserialize_with = "not_from_a_tree")]
    of: String,
}

static TREES_BREAK: AtomicBool = AtomicBool::new(true);

fn not_from_a_tree<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let from_a_tree = std::any::type_name::<D>() == std::any::type_name::<serde_json::Value>();
    assert!(!from_a_tree || !TREES_BREAK.load(Ordering::SeqCst), "it breaks");
    String::deserialize(deserializer)
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

// C1 C32 R47
#[tokio::test(start_paused = true)]
async fn a_compact_object_whose_decoding_panics_is_unreadable_and_its_worker_lives_on() {
    for panics in [Panics::Contain, Panics::Propagate] {
        let server = ApiServer::in_memory().crd::<Vase>().namespace("shop").start().await;
        let resource = ApiResource::erase::<Vase>(&());
        let vases: Api<DynamicObject> = Api::namespaced_with(server.client(), "shop", &resource);
        for (name, of) in [("a", "glass"), ("b", "clay")] {
            let mut vase = DynamicObject::new(name, &resource);
            vase.data = json!({ "spec": { "of": of } });
            vases.create(&Default::default(), &vase).await.unwrap();
        }
        let (reconciler, record) = does::<Vase, _, _>(|_, _| async { Ok(Action::await_change()) });
        let manager = Manager::new(server.client());
        let vases = manager.lister::<Vase>();
        let running = manager.controller(Controller::new(reconciler).panics(panics)).spawn();
        record.reaches(1).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(record.names(), ["b"]);
        let key = ObjectKey::new("shop", "a");
        let report = running.why::<Vase>(&key).remove(0);
        assert_eq!(report.why, Why::Unreadable("its type panicked as it was decoded".to_owned()));
        assert!(matches!(vases.lookup(&key), Lookup::Unreadable(_)));
        server.patch_merge::<Vase>("shop/a", json!({ "spec": { "of": "clay" } })).await;
        record.reaches(2).await;
        running.stop().await.unwrap();
    }
}

// C1
#[tokio::test(start_paused = true)]
async fn a_panic_over_the_answer_to_a_finalizers_patch_is_a_failure_of_that_run() {
    let server = ApiServer::in_memory().crd::<Urn>().namespace("shop").start().await;
    let (reconciler, record) = does::<Urn, _, _>(|_, _| async { Ok(Action::await_change()) });
    let controller = Controller::new(reconciler).finalizer("example.dev/urn");
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let running = manager.controller(controller).spawn();
    server.create(&Urn::new("a", UrnSpec { of: "clay".into() })).await;
    // The finalizer is there by the second run, which needs no answer.
    record.reaches(1).await;
    assert_eq!(record.starts()[0].attempt, 2);
    assert!(
        metrics
            .encode()
            .contains("controller_runtime_reconcile_panics_total{controller=\"urns.art.example.dev\"} 1")
    );
    TREES_BREAK.store(false, Ordering::SeqCst);
    server.create(&Urn::new("b", UrnSpec { of: "clay".into() })).await;
    record.reaches(2).await;
    running.stop().await.unwrap();
}

/// Tells when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

// C1 C38
#[tokio::test(start_paused = true)]
async fn a_propagated_panic_ends_a_manager_that_nobody_awaits() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map("a")).await;
    let (panicking, _) = does::<ConfigMap, _, _>(|_, _| async { panic!("on purpose") });
    let (healthy, record) = does::<ConfigMap, _, _>(|_, _| async { Ok(Action::await_change()) });
    let dropped = Arc::new(AtomicBool::new(false));
    let held = Mutex::new(Some(Dropped(dropped.clone())));
    let (endless, _) = does::<ConfigMap, _, _>(move |_, _| {
        let held = held.lock().unwrap().take();
        async move {
            let _held = held;
            std::future::pending().await
        }
    });
    let mut running = Manager::new(server.client())
        .controller(Controller::new(panicking).named("panicking").panics(Panics::Propagate))
        .controller(Controller::new(healthy).named("healthy"))
        .controller(Controller::new(endless).named("endless"))
        .grace_period(Duration::from_secs(5))
        .spawn();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reports = running.why::<ConfigMap>(&ObjectKey::new("shop", "a"));
    assert!(reports.iter().all(|report| report.why == Why::Stopped), "{reports:?}");
    assert!(!dropped.load(Ordering::SeqCst), "what runs has the grace period");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(dropped.load(Ordering::SeqCst));
    let (ran, asked) = (record.len(), server.requests().total());
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!((record.len(), server.requests().total()), (ran, asked), "nothing runs, nothing asks");
    let ended = tokio::spawn(async move { running.ended().await }).await;
    assert!(ended.unwrap_err().is_panic(), "the panic resumes in the task that awaits");
}

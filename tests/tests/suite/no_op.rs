//! An apply that would change nothing is not sent.

use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use serde_json::json;
use tracing_subscriber::layer::SubscriberExt as _;
use watchkeeper::{informer::Metadata, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Record, Website, deployment_for, does, hear, website};

struct Shop {
    server: ApiServer,
    record: Record,
    _running: watchkeeper::Running,
}

/// Runs an operator that applies one Deployment a run, and brings its first site to rest.
async fn shop() -> Shop {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let applied = cx.apply(deployment_for(&site)).await?;
        assert_eq!(applied.spec.unwrap().replicas, Some(site.spec.replicas), "the result is the child");
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    let shop = Shop { server, record, _running };
    shop.rests(1, 1).await;
    shop
}

impl Shop {
    /// Waits for rest, then checks the number of runs and of applies sent.
    async fn rests(&self, runs: usize, applies: u64) {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let sent = self.server.requests().count(Verb::Patch, "deployments") - self.edits();
        assert_eq!((self.record.len(), sent), (runs, applies), "runs and applies");
    }

    /// Counts the patches that the test itself sent.
    fn edits(&self) -> u64 {
        let patches = self.server.requests().of(Verb::Patch, "deployments");
        patches
            .iter()
            .filter(|request| request.parameter("fieldManager") != Some("websites.web.example.dev"))
            .count() as u64
    }

    async fn touch_the_site(&self, note: &str) {
        let note = json!({ "metadata": { "annotations": { "note": note } } });
        self.server.patch_merge::<Website>("shop/a", note).await;
    }

    async fn edit_the_child(&self, edit: serde_json::Value) {
        self.server.patch_merge::<Deployment>("shop/a", edit).await;
    }
}

// W2
#[tokio::test(start_paused = true)]
async fn an_apply_that_would_change_nothing_is_not_sent() {
    let shop = shop().await;
    shop.touch_the_site("one").await;
    shop.rests(2, 1).await;
    shop.touch_the_site("two").await;
    shop.rests(3, 1).await;
}

// W2
#[tokio::test(start_paused = true)]
async fn an_outside_edit_of_what_was_applied_makes_the_next_apply_send() {
    let shop = shop().await;
    shop.edit_the_child(json!({ "spec": { "replicas": 9 } })).await;
    shop.rests(2, 2).await;
    let child = shop.server.get::<Deployment>("shop/a").await.unwrap();
    assert_eq!(child.spec.unwrap().replicas, Some(2));
    shop.touch_the_site("one").await;
    shop.rests(3, 2).await;
}

// W2
#[tokio::test(start_paused = true)]
async fn an_outside_edit_of_something_else_sends_nothing() {
    let shop = shop().await;
    shop.edit_the_child(json!({ "metadata": { "annotations": { "stranger": "was here" } } })).await;
    shop.rests(2, 1).await;
    shop.edit_the_child(json!({ "spec": { "paused": true } })).await;
    shop.rests(3, 1).await;
    let image = json!([{ "name": "web", "image": "registry.example.dev/other:1" }]);
    shop.edit_the_child(json!({ "spec": { "template": { "spec": { "containers": image } } } })).await;
    shop.rests(4, 2).await;
}

// W2
#[tokio::test(start_paused = true)]
async fn an_intent_that_changes_there_and_back_is_sent_each_time() {
    let shop = shop().await;
    for (replicas, sent) in [(3, 2), (2, 3), (3, 4)] {
        let edit = json!({ "spec": { "replicas": replicas } });
        shop.server.patch_merge::<Website>("shop/a", edit).await;
        shop.rests(sent as usize, sent).await;
    }
}

// W2
#[tokio::test(start_paused = true)]
async fn a_child_that_was_deleted_is_applied_again() {
    let shop = shop().await;
    shop.server.delete::<Deployment>("shop/a").await;
    shop.rests(2, 2).await;
    assert!(shop.server.get::<Deployment>("shop/a").await.is_some());
}

// W2 C29
#[tokio::test(start_paused = true)]
async fn a_child_that_another_of_its_name_replaced_in_a_gap_is_applied_again() {
    let shop = shop().await;
    let child = shop.server.get::<Deployment>("shop/a").await.unwrap();
    let hold = shop.server.faults().on(Verb::Watch, "deployments").always().then(Fault::Silence);
    let site = shop.server.get::<Website>("shop/a").await.unwrap();
    shop.server.delete::<Deployment>("shop/a").await;
    let mut twin = Deployment { metadata: ObjectMeta::default(), ..child };
    twin.metadata.name = Some("a".into());
    twin.metadata.owner_references = Some(vec![watchkeeper_tests::owned_by(&site)]);
    twin.status = None;
    shop.server.create(&twin).await;
    hold.disarm();
    shop.server.compact();
    shop.server.faults().clear();
    shop.server.faults().on(Verb::Watch, "deployments").once().then(Fault::Cut);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let sent = shop.server.requests().count(Verb::Patch, "deployments");
    assert_eq!(sent, 2, "the same content under another UID is another object");
}

// W2
#[tokio::test(start_paused = true)]
async fn of_a_kind_that_is_not_cached_every_apply_is_sent() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let metadata = ObjectMeta { name: Some(site.name_any()), ..ObjectMeta::default() };
        cx.apply(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        Ok(Action::await_change())
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 3 } })).await;
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.requests().count(Verb::Patch, "configmaps"), 2);
}

/// Touches a site thrice, with an operator that applies a Deployment and watches it as `C`; returns the children that
/// the applies returned, and how many patches and reads were sent.
async fn children_by<C: Watched<DynamicType = ()>>() -> (Vec<Deployment>, u64, u64) {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let children = Arc::new(Mutex::new(Vec::new()));
    let seen = children.clone();
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let seen = seen.clone();
        async move {
            let child = cx.apply(deployment_for(&site)).await?;
            seen.lock().unwrap().push(child);
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler).owns::<C>()).spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let ready = json!({ "replicas": 2, "readyReplicas": 2 });
    server.patch_status::<Deployment>("shop/a", ready).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let note = json!({ "metadata": { "annotations": { "note": "one" } } });
    server.patch_merge::<Website>("shop/a", note).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let sent = |verb| server.requests().count(verb, "deployments");
    let children = children.lock().unwrap().clone();
    (children, sent(Verb::Patch), sent(Verb::Get))
}

/// A Deployment, as far as somebody cares.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "apps", version = "v1", kind = "Deployment", root = "Slim", namespaced)]
struct SlimSpec {
    replicas: i32,
}

// W13 W2
#[tokio::test(start_paused = true)]
async fn an_apply_that_is_not_sent_returns_the_whole_child_whatever_is_cached_of_it() {
    let (typed, patches, reads) = children_by::<Deployment>().await;
    assert_eq!((typed.len(), patches, reads), (3, 1, 0), "of the same type, the cached one");
    let (slim, patches, reads) = children_by::<Slim>().await;
    assert_eq!((slim.len(), patches, reads), (3, 1, 2), "of a slimmer type, the server's");
    let (metadata, patches, reads) = children_by::<Metadata<Deployment>>().await;
    assert_eq!((metadata.len(), patches, reads), (3, 1, 2), "of its metadata alone, the server's");
    for children in [typed, slim, metadata] {
        for child in &children[1..] {
            assert!(child.spec.as_ref().unwrap().template.spec.is_some(), "{child:?}");
            assert_eq!(child.status.as_ref().unwrap().ready_replicas, Some(2));
        }
    }
}

// W2
#[tokio::test(start_paused = true)]
async fn a_selected_parent_that_owns_its_own_kind_applies_its_child_once() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(website("child")).await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).label_selector("tier=gold").unwrap().owns::<Website>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    let mut parent = website("a");
    parent.metadata.labels = Some([("tier".to_owned(), "gold".to_owned())].into());
    server.create(&parent).await;
    for run in 1..4 {
        record.reaches(run).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let note = json!({ "metadata": { "annotations": { "note": run.to_string() } } });
        server.patch_merge::<Website>("shop/a", note).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let sent = server.requests().of(Verb::Patch, "websites");
    let applies = sent.iter().filter(|request| request.parameter("force") == Some("true")).count();
    assert_eq!((record.len(), applies), (4, 1));
    assert_eq!(server.requests().count(Verb::Get, "websites"), 0, "the cache that shows all tells");
}

/// Keeps the warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if *event.metadata().level() == tracing::Level::WARN {
            let mut line = String::new();
            event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                line += &format!("{value:?} ");
            });
            self.0.lock().unwrap().push(line);
        }
    }
}

// W2
#[tokio::test(start_paused = true)]
async fn an_apply_of_a_kind_that_nobody_watches_is_said_once() {
    let warnings = Warnings::default();
    let _heard = hear(tracing_subscriber::registry().with(warnings.clone()));
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(deployment_for(&site)).await?;
        let metadata = ObjectMeta { name: site.metadata.name.clone(), ..ObjectMeta::default() };
        cx.apply(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).owns::<ConfigMap>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    server.create(&website("b")).await;
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let warnings = warnings.0.lock().unwrap();
    let about: Vec<_> = warnings.iter().filter(|line| line.contains(".owns::<")).collect();
    assert_eq!(about.len(), 1, "{warnings:?}");
    assert!(about[0].contains("owns::<Deployment>()") && about[0].contains("shop/a"), "{about:?}");
}

/// A child whose encoding panics once.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Mine", namespaced)]
struct MineSpec {
    #[serde(serialize_with = "step_on", deserialize_with = "look_at")]
    size: i32,
}

static STEPS: AtomicU32 = AtomicU32::new(0);
static LOOKS: AtomicU32 = AtomicU32::new(0);

fn step_on<S: serde::Serializer>(size: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    assert_ne!(STEPS.fetch_add(1, Ordering::SeqCst), 0, "the first step");
    serializer.serialize_i32(*size)
}

fn look_at<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    assert_ne!(LOOKS.fetch_add(1, Ordering::SeqCst), 0, "the first look");
    i32::deserialize(deserializer)
}

// W2 C1
#[tokio::test(start_paused = true)]
async fn a_panic_while_a_child_is_encoded_or_its_answer_decoded_is_an_error_of_that_run_alone() {
    let server = ApiServer::in_memory().crd::<Website>().crd::<Mine>().namespace("shop").start().await;
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(Mine::new("child", MineSpec { size: 7 })).await?;
        Ok(Action::await_change())
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(3).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let attempts: Vec<_> = record.starts().iter().map(|start| start.attempt).collect();
    assert_eq!(
        attempts,
        [1, 2, 3],
        "it panicked at the first step and at the first look, and then went well"
    );
}

//! An apply that would change nothing is not sent.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Record, Website, deployment_for, does, website};

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
    /// Waits for rest; so many runs there were, and so many applies they sent.
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

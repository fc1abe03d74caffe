//! Which objects are reconciled: those that a selector selects, and those that can be read.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use serde_json::{Value, json};
use watchkeeper::{controller::Why, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Website, website};

/// Keeps a diary: a line a call.
#[derive(Clone, Default)]
struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
    /// How often `deleted` fails.
    failures: Arc<AtomicU32>,
}

impl Diary {
    fn write(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    async fn comes_to(&self, wanted: &[&str]) {
        for _ in 0..600 {
            if self.lines() == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(self.lines(), wanted);
    }
}

impl<K: Watched> Reconciler<K> for Diary {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: Arc<K::Object>, cx: &Context<K>) -> anyhow::Result<Action> {
        self.write(format!("reconcile {}", cx.key().name()));
        Ok(Action::await_change())
    }

    async fn cleanup(&self, object: Arc<K::Object>, cx: &Context<K>) -> anyhow::Result<Cleanup> {
        let label = object.labels().get("tier").cloned().unwrap_or_default();
        self.write(format!("cleanup {} {label}", cx.key().name()));
        Ok(Cleanup::Done)
    }

    async fn deleted(&self, last: Deleted<K::Object>, _: &Context<K>) -> anyhow::Result<()> {
        self.write(format!("deleted {}", last.key().name()));
        match self.failures.load(Ordering::SeqCst) {
            0 => Ok(()),
            u32::MAX => Err(Terminal::new("no use").into()),
            left => {
                self.failures.store(left - 1, Ordering::SeqCst);
                anyhow::bail!("not now")
            }
        }
    }
}

fn tiered(name: &str, tier: &str) -> ConfigMap {
    let labels = Some(BTreeMap::from([("tier".to_owned(), tier.to_owned())]));
    let metadata = ObjectMeta { name: Some(name.into()), labels, ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

async fn relabel(server: &ApiServer, tier: &str) {
    server.patch_merge::<ConfigMap>("shop/a", json!({ "metadata": { "labels": { "tier": tier } } })).await;
}

fn gold(diary: &Diary) -> Controller<ConfigMap, Diary> {
    Controller::new(diary.clone()).namespace("shop").label_selector("tier=gold").unwrap()
}

// C31
#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_the_selection_is_not_deleted_and_one_that_goes_is() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&tiered("a", "gold")).await;
    server.create(&tiered("other", "tin")).await;
    let diary = Diary::default();
    let _running = Manager::new(server.client()).controller(gold(&diary)).spawn();
    diary.comes_to(&["reconcile a"]).await;
    relabel(&server, "tin").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    diary.comes_to(&["reconcile a"]).await;
    relabel(&server, "gold").await;
    diary.comes_to(&["reconcile a", "reconcile a"]).await;
    let refused = server.faults().on(Verb::Get, "configmaps").times(2).then(Fault::Status(500));
    server.delete::<ConfigMap>("shop/a").await;
    diary.comes_to(&["reconcile a", "reconcile a", "deleted a"]).await;
    assert_eq!(refused.fired(), 2, "asked until the server said");
}

// C31
#[tokio::test(start_paused = true)]
async fn another_object_of_the_name_outside_the_selection_means_that_the_old_one_is_gone() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&tiered("a", "gold")).await;
    let diary = Diary::default();
    let _running = Manager::new(server.client()).controller(gold(&diary)).spawn();
    diary.comes_to(&["reconcile a"]).await;
    server.delete::<ConfigMap>("shop/a").await;
    server.create(&tiered("a", "tin")).await;
    diary.comes_to(&["reconcile a", "deleted a"]).await;
}

// C31
#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_the_selection_keeps_the_finalizer() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&tiered("a", "gold")).await;
    let diary = Diary::default();
    let controller = gold(&diary).finalizer("example.dev/release");
    let _running = Manager::new(server.client()).controller(controller).spawn();
    // The finalizer is the own write of the run that adds it.
    diary.comes_to(&["reconcile a"]).await;
    relabel(&server, "tin").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.delete::<ConfigMap>("shop/a").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    diary.comes_to(&["reconcile a"]).await;
    relabel(&server, "gold").await;
    server.eventually::<ConfigMap>("shop/a", |map| map.is_none()).await;
    diary.comes_to(&["reconcile a", "cleanup a gold", "deleted a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_selector_that_can_not_be_read_is_refused_where_it_is_said() {
    let controller = || Controller::<ConfigMap, _>::new(Diary::default());
    assert!(controller().label_selector("tier in (").is_err());
    assert!(controller().field_selector("metadata.name").is_err());
}

// C15
#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_given_up_lets_the_new_object_run() {
    // Failures with back-offs of 5 ms and more: the 27th comes after five minutes.
    for (failures, told) in [(3, 4), (100, 27), (u32::MAX, 1)] {
        let server = ApiServer::in_memory().namespace("shop").start().await;
        server.create(&tiered("a", "gold")).await;
        let diary = Diary::default();
        diary.failures.store(failures, Ordering::SeqCst);
        let manager = Manager::new(server.client());
        let (controller, metrics) = (Controller::<ConfigMap, _>::new(diary.clone()), manager.metrics());
        let running = manager.controller(controller.namespace("shop")).spawn();
        diary.comes_to(&["reconcile a"]).await;
        server.delete::<ConfigMap>("shop/a").await;
        server.create(&tiered("a", "gold")).await;
        tokio::time::sleep(Duration::from_secs(400)).await;
        let mut wanted = vec!["reconcile a"];
        wanted.extend(vec!["deleted a"; told]);
        wanted.push("reconcile a");
        diary.comes_to(&wanted).await;
        let dropped = if failures == 3 { 0 } else { 1 };
        let series = format!("watchkeeper_deletions_dropped_total{{controller=\"configmaps\"}} {dropped}");
        assert!(metrics.encode().contains(&series));
        running.stop().await.unwrap();
    }
}

/// A server that takes any website, whatever its schema says, and what writes such ones.
async fn loose() -> (ApiServer, kube::Api<DynamicObject>, ApiResource) {
    let mut loose = serde_json::to_value(Website::crd()).unwrap();
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let server = ApiServer::in_memory().crd_object(loose).namespace("shop").start().await;
    let resource = ApiResource::erase::<Website>(&());
    let anything = kube::Api::namespaced_with(server.client(), "shop", &resource);
    (server, anything, resource)
}

async fn patch(anything: &kube::Api<DynamicObject>, name: &str, patch: Value) {
    anything.patch(name, &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
}

// C32
#[tokio::test(start_paused = true)]
async fn an_outdated_object_is_not_reconciled_and_its_deletion_cleans_up_with_what_was_last_read() {
    let (server, anything, _) = loose().await;
    server.create(&website("a")).await;
    let diary = Diary::default();
    let controller = Controller::<Website, _>::new(diary.clone()).finalizer("example.dev/release");
    let running = Manager::new(server.client()).controller(controller).spawn();
    diary.comes_to(&["reconcile a"]).await;
    patch(&anything, "a", json!({ "spec": { "replicas": "many" } })).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    diary.comes_to(&["reconcile a"]).await;
    let report = running.why::<Website>(&ObjectKey::new("shop", "a")).remove(0);
    let Why::Unreadable(error) = report.why else { panic!("{report:?}") };
    assert!(error.contains("spec.replicas"), "{error}");
    anything.delete("a", &Default::default()).await.unwrap();
    diary.comes_to(&["reconcile a", "cleanup a ", "deleted a"]).await;
    assert!(anything.get_opt("a").await.unwrap().is_none());
}

// C32
#[tokio::test(start_paused = true)]
async fn an_object_that_was_never_read_is_neither_reconciled_nor_cleaned_up() {
    let (server, anything, resource) = loose().await;
    let mut odd = DynamicObject::new("odd", &resource);
    odd.data = json!({ "spec": { "domain": "odd.example", "replicas": "many" } });
    odd.metadata.finalizers = Some(vec!["example.dev/release".to_owned()]);
    anything.create(&Default::default(), &odd).await.unwrap();
    let diary = Diary::default();
    let controller = Controller::<Website, _>::new(diary.clone()).finalizer("example.dev/release");
    let _running = Manager::new(server.client()).controller(controller).spawn();
    anything.delete("odd", &Default::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(diary.lines().is_empty(), "{:?}", diary.lines());
    patch(&anything, "odd", json!({ "spec": { "replicas": 3 } })).await;
    diary.comes_to(&["cleanup odd ", "deleted odd"]).await;
}

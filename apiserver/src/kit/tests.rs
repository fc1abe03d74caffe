//! Claims about the kit, on the server in memory.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::ResourceExt as _;
use serde_json::json;

use crate::server::ApiServer;

fn config_map(namespace: Option<&str>, name: &str) -> ConfigMap {
    let metadata = json!({ "name": name, "namespace": namespace });
    serde_json::from_value(json!({ "metadata": metadata, "data": { "k": "v" } })).unwrap()
}

/// Runs what must panic, and gives its message.
async fn message(failing: impl Future) -> String {
    let failure = AssertUnwindSafe(failing).catch_unwind().await.err().expect("it panics");
    failure.downcast_ref::<String>().expect("a text").clone()
}

#[tokio::test(start_paused = true)]
async fn an_object_without_a_namespace_goes_to_the_only_one_added() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let made = server.create(&config_map(None, "a")).await;
    assert_eq!(made.namespace().as_deref(), Some("shop"));
    let made = server.create(&config_map(Some("default"), "a")).await;
    assert_eq!(made.namespace().as_deref(), Some("default"));
    assert!(server.get::<ConfigMap>("a").await.is_some());
    assert!(server.get::<ConfigMap>("shop/a").await.is_some());
    assert!(server.get::<ConfigMap>("shop/b").await.is_none());
    assert!(server.get::<Namespace>("shop").await.is_some());
    assert_eq!(server.list::<ConfigMap>("*").await.len(), 2);
    assert_eq!(server.list::<ConfigMap>("shop").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn eventually_sees_creation_change_and_deletion() {
    let server = ApiServer::in_memory().start().await;
    let kit = server.kit().clone();
    let visitor = tokio::spawn(async move {
        for step in 0..3 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            match step {
                0 => drop(kit.create(&config_map(None, "a")).await),
                1 => drop(kit.patch_merge::<ConfigMap>("a", json!({ "data": { "k": "w" } })).await),
                _ => drop(kit.delete::<ConfigMap>("a").await),
            }
        }
    });
    let value = |map: &ConfigMap| map.data.clone().unwrap_or_default().remove("k");
    assert!(server.eventually::<ConfigMap>("a", |map| map.is_some()).await.is_some());
    let changed =
        server.eventually::<ConfigMap>("a", |map| map.and_then(value).as_deref() == Some("w")).await;
    assert_eq!(changed.and_then(|map| value(&map)).as_deref(), Some("w"));
    assert!(server.eventually::<ConfigMap>("a", |map| map.is_none()).await.is_none());
    visitor.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn eventually_waits_by_watching_and_its_requests_are_not_counted() {
    let server = ApiServer::in_memory().start().await;
    let kit = server.kit().clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(30)).await;
        kit.create(&config_map(None, "a")).await
    });
    let start = tokio::time::Instant::now();
    server.eventually::<ConfigMap>("a", |map| map.is_some()).await;
    assert!(start.elapsed() < Duration::from_millis(30_500), "{:?}", start.elapsed());
    assert_eq!(server.requests().total(), 0);
}

#[tokio::test(start_paused = true)]
async fn eventually_says_what_it_saw_last() {
    let server = ApiServer::in_memory().start().await;
    server.create(&config_map(None, "a")).await;
    let text = message(server.eventually::<ConfigMap>("default/a", |map| map.is_none())).await;
    for part in
        ["ConfigMap default/a", "not as wanted within 60s", "last seen, at version", "k: v", "kit/tests.rs"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("managedFields"), "{text}");
    let text =
        message(server.within(Duration::from_secs(5)).eventually::<Deployment>("none", |d| d.is_some()))
            .await;
    assert!(text.contains("within 5s") && text.contains("it is not there"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_secret_stays_one() {
    let server = ApiServer::in_memory().start().await;
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "password": "hunter2" } });
    server.create(&serde_json::from_value::<Secret>(secret).unwrap()).await;
    let text = message(server.eventually::<Secret>("s", |secret| secret.is_none())).await;
    assert!(text.contains("password: (not shown)"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn eventually_list_and_never_hold() {
    let server = ApiServer::in_memory().start().await;
    for name in ["a", "b"] {
        server.create(&config_map(None, name)).await;
    }
    assert_eq!(server.eventually_list::<ConfigMap>("*", |maps| maps.len() == 2).await.len(), 2);
    server.never::<ConfigMap>("a", Duration::from_secs(3600), |map| map.is_none()).await;
    let text = message(server.never::<ConfigMap>("a", Duration::from_secs(1), |map| map.is_some())).await;
    assert!(text.contains("came to what it never should be"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_verb_the_key_and_the_caller() {
    let server = ApiServer::in_memory().start().await;
    let text = message(server.delete::<ConfigMap>("default/none")).await;
    for part in ["cannot delete \"default/none\"", "not found", "kit/tests.rs"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

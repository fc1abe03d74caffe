//! Claims about writes under faults, rights and clocks.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use tokio::time::Instant;

use super::whole::{config_map, maps, server};
use super::*;

#[tokio::test(start_paused = true)]
async fn an_answer_is_held_back_after_the_write_is_done() {
    let server = server().await;
    server
        .faults()
        .on(Verb::Create, "configmaps")
        .once()
        .then(Fault::CommitThenHold.lasting(Duration::from_secs(30)));
    let (api, start) = (maps(&server), Instant::now());
    let writing = tokio::spawn(async move { api.create(&PostParams::default(), &config_map("a")).await });
    server.eventually::<ConfigMap>("a", |found| found.is_some()).await;
    assert!(start.elapsed() < Duration::from_secs(30) && !writing.is_finished());
    writing.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    let held = server.faults().on(Verb::Create, "configmaps").then(Fault::CommitThenHold);
    let api = maps(&server);
    let writing = tokio::spawn(async move { api.create(&PostParams::default(), &config_map("b")).await });
    server.eventually::<ConfigMap>("b", |found| found.is_some()).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!writing.is_finished());
    held.disarm();
    writing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn somebody_else_is_always_a_moment_faster() {
    let server = server().await;
    server.create(&config_map("a")).await;
    let storm = server.faults().on_any_write().namespace("shop").times(2).then(Fault::Bump);
    let api = maps(&server);
    for _ in 0..2 {
        let read = api.get("a").await.unwrap();
        let refused = api.replace("a", &PostParams::default(), &read).await.unwrap_err();
        assert!(matches!(refused, kube::Error::Api(status) if status.code == 409));
    }
    let read = api.get("a").await.unwrap();
    api.replace("a", &PostParams::default(), &read).await.unwrap();
    assert_eq!(storm.fired(), 2);
    // A patch without a version can't conflict.
    server.faults().on_any_write().times(1).then(Fault::Bump);
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_made_again_has_its_name_and_another_uid() {
    let server = server().await;
    let mut object = config_map("a");
    object.data = Some([("k".to_owned(), "v".to_owned())].into());
    object.metadata.finalizers = Some(vec!["example.com/f".to_owned()]);
    let before = server.create(&object).await;
    let after = server.recreate::<ConfigMap>("a").await;
    assert_eq!((&after.data, &after.metadata.finalizers), (&before.data, &before.metadata.finalizers));
    assert_ne!(after.metadata.uid, before.metadata.uid);
    assert_eq!(server.get::<ConfigMap>("a").await.unwrap(), after);
}

#[tokio::test(start_paused = true)]
async fn a_skewed_clock_shows_in_what_the_server_writes() {
    let server = server().await;
    let clock = server.clock();
    let right = clock.now();
    clock.skew(SignedDuration::from_secs(-30));
    let made = server.create(&config_map("a")).await.metadata.creation_timestamp.unwrap().0;
    assert_eq!(made.as_second(), right.as_second() - 30);
    server.clock().skew(SignedDuration::ZERO);
    assert_eq!(clock.now(), right);
}

#[tokio::test(start_paused = true)]
async fn a_right_of_one_namespace_is_none_in_others() {
    let server = server().await;
    server.allow_in("shop", "viewer", Verb::List, "configmaps");
    let viewer = server.client_as("viewer");
    let list = async |api: Api<ConfigMap>| match api.list(&ListParams::default()).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    };
    assert_eq!(list(Api::namespaced(viewer.clone(), "shop")).await, 200);
    assert_eq!(list(Api::namespaced(viewer.clone(), "default")).await, 403);
    assert_eq!(list(Api::all(viewer)).await, 403);
}

//! The website operator's whole life.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_tests::{Keeper, Website, backend::Stage, website};

use crate::harness::tests;

tests! {
    Shared: a_site_is_made_followed_healed_and_cleaned_up, a_hundred_edits_end_in_the_last_ones;
}

const FINALIZER: &str = "web.example.dev/domain";

fn replicas(deployment: Option<&Deployment>) -> Option<i32> {
    deployment?.spec.as_ref()?.replicas
}

async fn a_site_is_made_followed_healed_and_cleaned_up(stage: Stage) {
    let kit = stage.kit();
    let keeper = Keeper::default();
    let running =
        stage.run(Controller::new(keeper.clone()).owns::<Deployment>().finalizer(FINALIZER).workers(4));
    let site = kit.create(&website("a")).await;

    let made = kit.eventually::<Deployment>("a", |d| replicas(d) == Some(2)).await.unwrap();
    let owners = made.owner_references();
    assert_eq!(owners.len(), 1, "{owners:?}");
    assert_eq!((&owners[0].uid, owners[0].controller), (&site.uid().unwrap(), Some(true)));
    kit.eventually::<Website>("a", |site| site.is_some_and(|site| site.finalizers() == [FINALIZER])).await;

    kit.patch_status::<Deployment>("a", json!({ "replicas": 2, "readyReplicas": 2 })).await;
    let ready = |site: Option<&Website>| site.and_then(|site| site.status.clone()).unwrap_or_default();
    kit.eventually::<Website>("a", |site| ready(site).ready_replicas == 2).await;

    kit.patch_merge::<Website>("a", json!({ "spec": { "replicas": 3 } })).await;
    kit.eventually::<Deployment>("a", |d| replicas(d) == Some(3)).await;

    kit.delete::<Deployment>("a").await;
    let healed =
        |d: Option<&Deployment>| d.is_some_and(|d| d.uid() != made.uid() && replicas(Some(d)) == Some(3));
    kit.eventually::<Deployment>("a", healed).await;
    kit.eventually::<Website>("a", |site| ready(site).ready_replicas == 0).await;

    kit.delete::<Website>("a").await;
    kit.eventually::<Website>("a", |site| site.is_none()).await;
    kit.eventually::<Deployment>("a", |d| d.is_none()).await;
    running.stop().await.unwrap();
}

async fn a_hundred_edits_end_in_the_last_ones(stage: Stage) {
    let kit = stage.kit();
    let keeper = Keeper::default();
    let _running = stage.run(Controller::new(keeper.clone()).owns::<Deployment>().workers(4));
    let names: Vec<_> = (0..10).map(|n| format!("s{n}")).collect();
    for name in &names {
        kit.create(&website(name)).await;
    }
    for edit in 1..=10 {
        for name in &names {
            kit.patch_merge::<Website>(name, json!({ "spec": { "replicas": edit } })).await;
        }
    }
    for name in &names {
        kit.eventually::<Deployment>(name, |d| replicas(d) == Some(10)).await;
    }
}

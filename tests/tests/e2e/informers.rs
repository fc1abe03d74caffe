//! Informers: every way to list, and what handlers hear.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::{
    informer::{Dynamic, Metadata},
    object::{Kind, Version},
    prelude::*,
};
use watchkeeper_tests::{
    Website,
    backend::{Heard, Stage},
    website,
};

use crate::harness::tests;

tests! {
    Shared: every_way_to_list_shows_the_same, handlers_hear_in_order, a_late_handler_hears_what_is_there,
        metadata_alone_is_asked_for, a_kind_known_only_at_run_time_is_read,
        a_list_at_any_version_in_pages_is_whole;
}

const PATIENCE: Duration = Duration::from_secs(30);

fn map(name: &str, value: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let data = Some([("k".to_owned(), value.to_owned())].into());
    ConfigMap { metadata, data, ..ConfigMap::default() }
}

fn shown(lister: &Lister<ConfigMap>) -> Vec<String> {
    let value = |map: &ConfigMap| map.data.clone().unwrap_or_default().remove("k").unwrap_or_default();
    let mut shown: Vec<_> =
        lister.list().iter().map(|map| format!("{}={}", map.name_any(), value(map))).collect();
    shown.sort();
    shown
}

async fn reaches(lister: &Lister<ConfigMap>, last: &ConfigMap) {
    lister.wait_for_version(Version::of_meta(&last.metadata).unwrap(), PATIENCE).await.unwrap();
}

// R6 R24
async fn every_way_to_list_shows_the_same(stage: Stage) {
    let kit = stage.kit();
    let mut last = kit.create(&map("m0", "old")).await;
    for n in 1..5 {
        last = kit.create(&map(&format!("m{n}"), "old")).await;
    }
    let factory = stage.factory();
    let ask = || factory.informer::<ConfigMap>().namespace(&*stage.namespace);
    let listers = [
        ask().lister(),
        ask().page_size(2).lister(),
        ask().any_version().lister(),
        ask().page_size(2).any_version().lister(),
    ];
    let informers = [
        ask().build(),
        ask().page_size(2).build(),
        ask().any_version().build(),
        ask().page_size(2).any_version().build(),
    ];
    factory.start();
    factory.wait_for_sync(PATIENCE).await.unwrap();
    for lister in &listers {
        reaches(lister, &last).await;
        assert_eq!(shown(lister), ["m0=old", "m1=old", "m2=old", "m3=old", "m4=old"]);
    }
    kit.delete::<ConfigMap>("m1").await;
    kit.patch_merge::<ConfigMap>("m2", json!({ "data": { "k": "new" } })).await;
    let last = kit.create(&map("m5", "old")).await;
    for lister in &listers {
        reaches(lister, &last).await;
        assert_eq!(shown(lister), ["m0=old", "m2=new", "m3=old", "m4=old", "m5=old"]);
    }
    drop(informers);
    factory.shutdown().await;
    assert_eq!(factory.tasks(), 0);
}

// R13
async fn a_list_at_any_version_in_pages_is_whole(stage: Stage) {
    let kit = stage.kit();
    for n in 0..7 {
        kit.create(&map(&format!("m{n}"), "old")).await;
    }
    let factory = stage.factory();
    let informer =
        factory.informer::<ConfigMap>().namespace(&*stage.namespace).page_size(3).any_version().build();
    factory.start();
    factory.wait_for_sync(PATIENCE).await.unwrap();
    reaches(&informer.lister(), &kit.create(&map("m7", "old")).await).await;
    assert_eq!(informer.lister().len(), 8);
}

// I2
async fn handlers_hear_in_order(stage: Stage) {
    let kit = stage.kit();
    kit.create(&map("a", "1")).await;
    let factory = stage.factory();
    let heard = Heard::by(factory.informer::<ConfigMap>().namespace(&*stage.namespace));
    factory.start();
    heard.comes_to(&["+ a (initial list)"]).await;
    kit.create(&map("b", "1")).await;
    heard.comes_to(&["+ a (initial list)", "+ b (watch)"]).await;
    kit.patch_merge::<ConfigMap>("b", json!({ "data": { "k": "2" } })).await;
    heard.comes_to(&["+ a (initial list)", "+ b (watch)", "~ b"]).await;
    kit.delete::<ConfigMap>("b").await;
    heard.comes_to(&["+ a (initial list)", "+ b (watch)", "~ b", "- b (told)"]).await;
    kit.create(&map("b", "3")).await;
    heard.comes_to(&["+ a (initial list)", "+ b (watch)", "~ b", "- b (told)", "+ b (watch)"]).await;
}

// I4
async fn a_late_handler_hears_what_is_there(stage: Stage) {
    let kit = stage.kit();
    kit.create(&map("a", "1")).await;
    let factory = stage.factory();
    let informer = factory.informer::<ConfigMap>().namespace(&*stage.namespace).build();
    factory.start();
    factory.wait_for_sync(PATIENCE).await.unwrap();
    let last = kit.create(&map("b", "1")).await;
    reaches(&informer.lister(), &last).await;
    let heard = Heard::of(&informer);
    heard.comes_to_any_order_of(&["+ a (initial list)", "+ b (initial list)"]).await;
    kit.delete::<ConfigMap>("a").await;
    heard.comes_to_any_order_of(&["+ a (initial list)", "+ b (initial list)", "- a (told)"]).await;
}

async fn metadata_alone_is_asked_for(stage: Stage) {
    let kit = stage.kit();
    kit.create(&map("a", "1")).await;
    let factory = stage.factory();
    let informer = factory.informer::<Metadata<ConfigMap>>().namespace(&*stage.namespace).build();
    let heard = Heard::of(&informer);
    factory.start();
    heard.comes_to(&["+ a (initial list)"]).await;
    kit.patch_merge::<ConfigMap>("a", json!({ "metadata": { "labels": { "tier": "gold" } } })).await;
    heard.comes_to(&["+ a (initial list)", "~ a"]).await;
    let found = informer.lister().get(&ObjectKey::new(&stage.namespace, "a")).unwrap();
    assert_eq!(found.labels().get("tier").map(String::as_str), Some("gold"));
    kit.delete::<ConfigMap>("a").await;
    heard.comes_to(&["+ a (initial list)", "~ a", "- a (told)"]).await;
}

async fn a_kind_known_only_at_run_time_is_read(stage: Stage) {
    let kit = stage.kit();
    kit.create(&website("a")).await;
    let factory = stage.factory();
    let informer =
        factory.informer_of(Dynamic::new(Kind::of::<Website>())).namespace(&*stage.namespace).build();
    factory.start();
    factory.wait_for_sync(PATIENCE).await.unwrap();
    let found = informer.lister().get(&ObjectKey::new(&stage.namespace, "a")).unwrap();
    assert_eq!(found.data["spec"]["domain"], "a.example");
}

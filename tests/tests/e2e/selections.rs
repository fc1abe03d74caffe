//! Selectors: what is in a selection, what enters it, what leaves it.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::{Value, json};
use watchkeeper::prelude::*;
use watchkeeper_tests::backend::{Heard, Stage};

use crate::harness::tests;

tests! {
    Shared: objects_enter_and_leave_a_label_selection, objects_enter_and_leave_a_field_selection,
        fields_of_secrets_select, several_namespaces_make_one_cache;
}

fn object<K: Object>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn map(name: &str, tier: &str) -> ConfigMap {
    object(json!({ "metadata": { "name": name, "labels": { "tier": tier } } }))
}

async fn objects_enter_and_leave_a_label_selection(stage: Stage) {
    let kit = stage.kit();
    kit.create(&map("a", "silver")).await;
    kit.create(&map("b", "gold")).await;
    let factory = stage.factory();
    let ask = || factory.informer::<ConfigMap>().namespace(&*stage.namespace);
    let gold = Heard::by(ask().label_selector("tier in (gold)").unwrap());
    let paged = Heard::by(ask().page_size(1).label_selector("tier=gold,!old").unwrap());
    factory.start();
    let mut lines = vec!["+ b (initial list)"];
    let tier = |tier: &str| json!({ "metadata": { "labels": { "tier": tier } } });
    for (step, line) in
        ["+ b (initial list)", "+ a (watch)", "- b (told)", "~ a", "- a (told)"].iter().enumerate()
    {
        match step {
            0 => lines.clear(),
            1 => drop(kit.patch_merge::<ConfigMap>("a", tier("gold")).await),
            2 => drop(kit.patch_merge::<ConfigMap>("b", tier("silver")).await),
            3 => drop(kit.patch_merge::<ConfigMap>("a", json!({ "data": { "k": "v" } })).await),
            _ => drop(kit.delete::<ConfigMap>("a").await),
        }
        lines.push(line);
        gold.comes_to(&lines).await;
        paged.comes_to(&lines).await;
    }
    kit.delete::<ConfigMap>("b").await;
    kit.create(&map("c", "gold")).await;
    lines.push("+ c (watch)");
    gold.comes_to(&lines).await;
}

async fn objects_enter_and_leave_a_field_selection(stage: Stage) {
    let kit = stage.kit();
    let pod = |name: &str| {
        let spec = json!({ "containers": [{ "name": "c", "image": "registry.example.dev/c:1" }] });
        object::<Pod>(json!({ "metadata": { "name": name }, "spec": spec }))
    };
    kit.create(&pod("a")).await;
    kit.create(&pod("b")).await;
    let factory = stage.factory();
    let ask = || factory.informer::<Pod>().namespace(&*stage.namespace);
    let running = Heard::by(ask().field_selector("status.phase=Running").unwrap());
    let named = Heard::by(ask().field_selector("metadata.name=b").unwrap());
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    kit.patch_status::<Pod>("a", json!({ "phase": "Running" })).await;
    running.comes_to(&["+ a (watch)"]).await;
    kit.patch_status::<Pod>("a", json!({ "phase": "Failed" })).await;
    running.comes_to(&["+ a (watch)", "- a (told)"]).await;
    kit.patch_status::<Pod>("b", json!({ "phase": "Running" })).await;
    running.comes_to(&["+ a (watch)", "- a (told)", "+ b (watch)"]).await;
    named.comes_to(&["+ b (initial list)", "~ b"]).await;
}

async fn fields_of_secrets_select(stage: Stage) {
    let kit = stage.kit();
    let secret =
        |name: &str, kind: &str| object::<Secret>(json!({ "metadata": { "name": name }, "type": kind }));
    kit.create(&secret("a", "example.dev/a")).await;
    kit.create(&secret("b", "example.dev/b")).await;
    let factory = stage.factory();
    let ask = factory.informer::<Secret>().namespace(&*stage.namespace);
    let heard = Heard::by(ask.field_selector("type=example.dev/b,metadata.name!=x").unwrap());
    factory.start();
    heard.comes_to(&["+ b (initial list)"]).await;
    kit.create(&secret("c", "example.dev/a")).await;
    kit.create(&secret("x", "example.dev/b")).await;
    kit.create(&secret("d", "example.dev/b")).await;
    heard.comes_to(&["+ b (initial list)", "+ d (watch)"]).await;
}

async fn several_namespaces_make_one_cache(stage: Stage) {
    let kit = stage.kit();
    let (first, second, third) =
        (stage.namespace.clone(), format!("{}-2", stage.namespace), format!("{}-3", stage.namespace));
    for name in [&second, &third] {
        stage.add_namespace(name).await;
    }
    let into = |namespace: &str| kit.in_namespace(namespace);
    into(&first).create(&map("a", "gold")).await;
    into(&second).create(&map("b", "gold")).await;
    into(&third).create(&map("c", "gold")).await;
    let factory = stage.factory();
    let informer = factory.informer::<ConfigMap>().namespace(&*first).namespace(&*second).build();
    let heard = Heard::of(&informer);
    factory.start();
    heard.comes_to_any_order_of(&["+ a (initial list)", "+ b (initial list)"]).await;
    assert_eq!(informer.lister().namespace(&*second).list().len(), 1);
    into(&third).delete::<ConfigMap>("c").await;
    into(&second).delete::<ConfigMap>("b").await;
    heard.comes_to_any_order_of(&["+ a (initial list)", "+ b (initial list)", "- b (told)"]).await;
}

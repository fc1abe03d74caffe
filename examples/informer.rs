//! Informers alone, as with client-go: handlers receive every change, the lister reads the cache.
//!
//! ```text
//! cargo run --example informer
//! ```

#![expect(clippy::print_stdout, reason = "an example says what it does")]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_examples::Place;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let place = Place::embedded().await?;
    let maps = Api::<ConfigMap>::namespaced(place.client.clone(), "default");
    maps.create(&PostParams::default(), &config_map("early")).await?;

    let factory = SharedInformerFactory::new(place.client.clone());
    let informer = factory.informer::<ConfigMap>().namespace("default").build();
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let (added, updated, deleted) = (told.clone(), told.clone(), told);
    let registration = informer
        .handler()
        .on_add(move |map, origin| drop(added.send(format!("+ {} ({origin})", map.name_any()))))
        .on_update(move |_, map| drop(updated.send(format!("~ {} {:?}", map.name_any(), map.data))))
        .on_delete(move |gone| drop(deleted.send(format!("- {}", gone.key()))))
        .register();
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;
    println!("synced: {} in the cache", informer.lister().list().len());

    maps.create(&PostParams::default(), &config_map("late")).await?;
    let patch = Patch::Merge(json!({ "data": { "colour": "blue" } }));
    maps.patch("late", &PatchParams::default(), &patch).await?;
    maps.delete("late", &DeleteParams::default()).await?;
    while let Some(line) = hears.recv().await {
        println!("{line}");
        if line.starts_with('-') {
            break;
        }
    }
    registration.remove().await;
    factory.shutdown().await;
    Ok(())
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        ..Default::default()
    }
}

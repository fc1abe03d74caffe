//! Informers and the queue without a controller.

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::{prelude::*, workqueue::WorkQueue};

/// Looks after the config maps of a namespace, with a loop of its own.
async fn look_after(
    client: kube::Client,
    namespace: &str,
    seen: impl Fn(&ObjectKey, Option<&ConfigMap>),
) -> Result<(), Box<dyn std::error::Error>> {
    let factory = SharedInformerFactory::new(client);
    let maps = factory.informer::<ConfigMap>().namespace(namespace).build();
    let queue = WorkQueue::new(ItemExponentialFailure::default());
    let (added, updated, deleted) = (queue.clone(), queue.clone(), queue.clone());
    let _registration = maps
        .handler()
        .on_add(move |map, _| added.add(ObjectKey::of(map.as_ref())))
        .on_update(move |_, map| updated.add(ObjectKey::of(map.as_ref())))
        .on_delete(move |gone| deleted.add(gone.key()))
        .register();
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;

    while let Some(item) = queue.get().await {
        let map = maps.lister().get(item.key());
        seen(item.key(), map.as_deref());
        if map.is_none() {
            queue.shut_down(); // this example ends with the first deletion
        }
        item.forget(); // or `item.retry()`
    }
    factory.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use watchkeeper_apiserver::ApiServer;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_of_ones_own_sees_a_map_come_and_go() {
        let server = ApiServer::in_memory().namespace("home").start().await;
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".into());
        server.create(&map).await;
        let seen = Mutex::new(Vec::new());
        let note = |key: &ObjectKey, map: Option<&ConfigMap>| {
            seen.lock().expect("no panic").push((key.to_string(), map.is_some()));
        };
        let deletes = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            server.delete::<ConfigMap>("home/a").await;
        };
        let (looked, ()) =
            tokio::join!(look_after(server.client(), "home", note), deletes);
        looked.expect("it ends by itself");
        let seen = seen.into_inner().expect("no panic");
        assert_eq!(seen, [("home/a".to_owned(), true), ("home/a".to_owned(), false)]);
    }
}

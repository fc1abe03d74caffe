//! Indexes by a function, a part of somebody else's object, requests of the program's own, and what is done for what is gone.

use std::{collections::HashMap, sync::Mutex};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use watchkeeper::{
    Error,
    object::Version,
    prelude::*,
    store::{IndexDefinition, IndexValue},
    writes::Use,
};

/// Lets runs find the pods of a node.
fn index_pods(manager: &Manager) -> Result<(), Error> {
    let node = |pod: &Pod| {
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        name.map(IndexValue::from)
    };
    let pods = manager.informer::<Pod>().build();
    pods.add_index(IndexDefinition::new("node", node)).map_err(Error::other)
}

/// Labels the pods of a node with its zone.
async fn label_pods(node: Arc<Node>, cx: Context<Node>) -> Result<Action, Error> {
    let Some(zone) = node.labels().get("topology.kubernetes.io/zone") else {
        return Ok(Action::await_change());
    };
    let on_it = IndexValue::from(&*node.name_any());
    for pod in &cx.lister::<Pod>().by_index("node", &on_it) {
        // The pod is somebody else's: only these fields are sent, and no owner.
        let mut part = Pod::default();
        part.metadata.name = pod.metadata.name.clone();
        part.metadata.namespace = pod.metadata.namespace.clone();
        part.metadata.labels =
            Some([("example.dev/zone".to_owned(), zone.clone())].into());
        cx.apply(part).unowned().adopt().await?;
    }
    Ok(Action::await_change())
}

fn zones() -> Controller<Node, impl Reconciler<Node>> {
    Controller::from_fn(label_pods).reads::<Pod>().uses::<Pod>(Use::Apply)
}

/// Cordons a node, and waits until the cache shows it.
async fn cordon(
    client: kube::Client,
    nodes: &Lister<Node>,
    name: &str,
) -> Result<(), Error> {
    let change = Patch::Merge(serde_json::json!({ "spec": { "unschedulable": true } }));
    let nodes_api = Api::<Node>::all(client);
    let written = nodes_api.patch(name, &PatchParams::default(), &change).await?;
    if let Some(version) = Version::of_meta(&written.metadata) {
        let shown = nodes.wait_for_version(version, Duration::from_secs(5)).await;
        shown.map_err(Error::other)?;
    }
    Ok(())
}

/// Knows the size of each map that exists.
#[derive(Clone, Default)]
struct Sizes(Arc<Mutex<HashMap<ObjectKey, usize>>>);

impl Reconciler<ConfigMap> for Sizes {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        map: Arc<ConfigMap>,
        cx: &Context<ConfigMap>,
    ) -> Result<Action, Self::Error> {
        let size = map.data.as_ref().map_or(0, |data| data.len());
        self.0.lock().unwrap().insert(cx.key().clone(), size);
        Ok(Action::await_change())
    }

    async fn deleted(
        &self,
        last: Deleted<ConfigMap>,
        _: &Context<ConfigMap>,
    ) -> Result<(), Self::Error> {
        self.0.lock().unwrap().remove(&last.key());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pods_of_others_are_labelled_and_a_cordon_is_seen() {
        let server = ApiServer::in_memory().namespace("shop").start().await;
        let node = json!({
            "metadata": { "name": "one", "labels": { "topology.kubernetes.io/zone": "a" } },
        });
        server.create::<Node>(&serde_json::from_value(node).unwrap()).await;
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true,
        });
        let pod = |name: &str, node: &str| {
            let spec = json!({ "nodeName": node, "containers": [{ "name": "web", "image": "web" }] });
            let metadata = json!({ "name": name, "ownerReferences": [owner] });
            serde_json::from_value::<Pod>(json!({ "metadata": metadata, "spec": spec }))
                .unwrap()
        };
        for (name, node) in [("on-one", "one"), ("on-two", "two")] {
            server.create(&pod(name, node)).await;
        }
        let manager = Manager::new(server.client());
        index_pods(&manager).unwrap();
        let nodes = manager.lister::<Node>();
        let running = manager.controller(zones()).spawn();
        server
            .eventually::<Pod>("shop/on-one", |pod| {
                pod.is_some_and(|pod| pod.labels().get("example.dev/zone").is_some())
            })
            .await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let other = server.get::<Pod>("shop/on-two").await.unwrap();
        assert!(other.labels().is_empty());
        cordon(server.client(), &nodes, "one").await.unwrap();
        let cached = nodes.get(&ObjectKey::cluster("one")).unwrap();
        assert_eq!(cached.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
        running.stop().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_forgotten() {
        let server = ApiServer::in_memory().namespace("shop").start().await;
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".into());
        server.create(&map).await;
        let sizes = Sizes::default();
        let manager =
            Manager::new(server.client()).controller(Controller::new(sizes.clone()));
        let running = manager.spawn();
        let known = async || {
            tokio::time::sleep(Duration::from_secs(5)).await;
            sizes.0.lock().unwrap().len()
        };
        assert_eq!(known().await, 1);
        server.delete::<ConfigMap>("shop/a").await;
        assert_eq!(known().await, 0);
        running.stop().await.unwrap();
    }
}

//! A controller that reads what another cluster has.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use watchkeeper::{manager::Cluster, prelude::*};

use crate::{Website, deployment_for};

/// Takes the image of each site from the hub's map of the same name.
fn controller(hub: &Cluster) -> Controller<Website, impl Reconciler<Website>> {
    let images = hub.informer::<ConfigMap>().namespace("images").lister();
    Controller::from_fn(move |site: Arc<Website>, cx: Context<Website>| {
        let map = images.get(&ObjectKey::new("images", site.name_any()));
        async move {
            let image = map.and_then(|map| map.data.as_ref()?.get("image").cloned());
            let mut deployment = deployment_for(&site);
            let pods = deployment.spec.as_mut().and_then(|it| it.template.spec.as_mut());
            for container in pods.into_iter().flat_map(|pods| &mut pods.containers) {
                container.image = image.clone();
            }
            cx.apply(deployment).await?;
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    })
    .owns::<Deployment>()
    .watch(
        Watch::<ConfigMap>::new()
            .in_cluster(hub)
            .namespace("images")
            .mapped(|map| vec![ObjectKey::new("shop", map.name_any())]),
    )
}

use watchkeeper::manager::Fleet;

/// Keeps a Deployment for each site, in every cluster of a fleet.
fn everywhere(fleet: &Fleet) {
    fleet.controller(|_cluster| {
        Controller::from_fn(|site: Arc<Website>, cx: Context<Website>| async move {
            cx.apply(deployment_for(&site)).await?;
            Ok::<_, watchkeeper::Error>(Action::await_change())
        })
        .named("sites")
        .owns::<Deployment>()
    });
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::ApiServer;

    use super::*;
    use crate::WebsiteSpec;

    #[tokio::test(start_paused = true)]
    async fn what_changes_there_is_written_here() {
        let here =
            ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let there = ApiServer::in_memory().namespace("images").start().await;
        let manager = Manager::new(here.client());
        let hub = manager.cluster("hub", there.client());
        let _running = manager.controller(controller(&hub)).spawn();

        let spec = WebsiteSpec { domain: "hello.example".into(), replicas: 2 };
        here.create(&Website::new("hello", spec)).await;
        let mut map = ConfigMap::default();
        map.metadata.name = Some("hello".into());
        map.data = Some([("image".to_owned(), "caddy:2".to_owned())].into());
        there.create(&map).await;
        here.eventually::<Deployment>("shop/hello", |found| {
            serde_json::json!(found).to_string().contains("caddy:2")
        })
        .await;
    }
}

#[cfg(test)]
mod fleet_tests {
    use futures::channel::mpsc::unbounded;
    use watchkeeper_apiserver::ApiServer;

    use super::*;
    use crate::WebsiteSpec;

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_comes_is_worked_in() {
        let server = || ApiServer::in_memory().crd::<Website>().namespace("shop").start();
        let (here, there) = (server().await, server().await);
        let manager = Manager::new(here.client());
        let (changes, received) = unbounded();
        everywhere(&manager.fleet(Fleet::stream(received)));
        let _running = manager.spawn();

        let spec = WebsiteSpec { domain: "hello.example".into(), replicas: 2 };
        there.create(&Website::new("hello", spec)).await;
        changes.unbounded_send(("north".to_owned(), Some(there.client()))).unwrap();
        there.eventually::<Deployment>("shop/hello", |found| found.is_some()).await;
    }
}

//! Kinds that the program did not define.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{DynamicObject, PartialObjectMeta};
use watchkeeper::{
    Running,
    informer::{Dynamic, Metadata},
    object::Kind,
    prelude::*,
    writes::Use,
};

/// Notes how many keys each object of a kind has, whatever kind that is.
struct Counts;

impl Reconciler<Dynamic> for Counts {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        object: Arc<DynamicObject>,
        cx: &Context<Dynamic>,
    ) -> Result<Action, Self::Error> {
        let keys = object.data["data"].as_object().map_or(0, |data| data.len());
        let keys = keys.to_string();
        let noted = object.annotations().get("example.dev/keys");
        if noted != Some(&keys) {
            let note = serde_json::json!({
                "metadata": { "annotations": { "example.dev/keys": keys } }
            });
            cx.patch(&object, note).await?;
        }
        Ok(Action::await_change())
    }
}

fn of_kind(kind: Kind) -> Controller<Dynamic, Counts> {
    let controller = Controller::for_kind(Dynamic::new(kind.clone()), Counts);
    controller.uses_kind(&kind, Use::Patch)
}

/// Finds the config map that belongs to a secret: only metadata is read.
fn map_of(secret: &PartialObjectMeta<Secret>) -> Vec<ObjectKey> {
    let name = secret.labels().get("map");
    let namespace = secret.namespace().unwrap_or_default();
    name.map(|name| ObjectKey::new(namespace, name)).into_iter().collect()
}

fn by_metadata() -> Controller<ConfigMap, impl Reconciler<ConfigMap>> {
    Controller::from_fn(async |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        cx.event(Event::normal("Seen", format!("{} was looked at", map.name_any())));
        Ok::<_, watchkeeper::Error>(Action::await_change())
    })
    .watches::<Metadata<Secret>>(map_of)
    .records_events()
    .named("by-metadata")
}

/// Counts the keys of a kind until nobody wants that any more.
async fn while_wanted(
    running: &mut Running,
    kind: Kind,
    wanted: impl Future<Output = ()>,
) -> Result<(), watchkeeper::Error> {
    running.add(of_kind(kind).named("counts"))?;
    wanted.await;
    // Its runs end first, within the grace period.
    running.remove("counts").await
}

/// Counts the keys of a kind while its CRD is installed.
fn where_it_is_installed(manager: Manager, kind: Kind) -> Manager {
    manager.controller_while_served(move || of_kind(kind.clone()))
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_kind_of_run_time_is_reconciled() {
        let server = ApiServer::in_memory().namespace("home").start().await;
        let manager = Manager::new(server.client());
        let controllers = manager.controller(of_kind(Kind::of::<ConfigMap>()));
        let _running = controllers.controller(by_metadata()).spawn();
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".into());
        map.data = Some([("one".to_owned(), "1".to_owned())].into());
        server.create(&map).await;
        let noted = |map: Option<&ConfigMap>| {
            map.is_some_and(|map| {
                map.annotations().get("example.dev/keys") == Some(&"1".into())
            })
        };
        server.eventually::<ConfigMap>("home/a", noted).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_comes_and_goes() {
        let server = ApiServer::in_memory().namespace("home").start().await;
        let kind = Kind::of::<Secret>();
        let manager = where_it_is_installed(Manager::new(server.client()), kind.clone());
        let mut running = manager.spawn();
        let mut secret = Secret::default();
        secret.metadata.name = Some("a".into());
        let wanted = async {
            server.create(&secret).await;
            let noted = |found: Option<&Secret>| {
                found.is_some_and(|found| {
                    found.annotations().contains_key("example.dev/keys")
                })
            };
            server.eventually::<Secret>("home/a", noted).await;
        };
        while_wanted(&mut running, kind, wanted).await.expect("it ends in time");
        running.stop().await.expect("all end in time");
    }
}

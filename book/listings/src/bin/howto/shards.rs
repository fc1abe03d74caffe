//! The work shared out among replicas.

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::{Sharding, prelude::*};

struct Notes;

impl Reconciler<ConfigMap> for Notes {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        map: Arc<ConfigMap>,
        cx: &Context<ConfigMap>,
    ) -> Result<Action, Self::Error> {
        let mut child = ConfigMap::default();
        child.metadata.name = Some(format!("{}-note", map.name_any()));
        cx.apply(child).await?;
        Ok(Action::await_change())
    }
}

/// Builds a manager that may run in any number of replicas, each with a part of the work.
fn replica(manager: Manager) -> Manager {
    manager.sharded("notes").controller(controller())
}

fn controller() -> Controller<ConfigMap, Notes> {
    Controller::new(Notes)
        .label_selector("kind=note")
        .expect("it parses")
        .owns::<ConfigMap>()
}

/// The same, for many objects: each replica caches its part alone.
fn large(manager: Manager) -> Manager {
    manager.sharded(Sharding::new("notes").split_caches()).controller(controller())
}

/// The same: each replica watches the namespaces of its slots, and no others.
fn in_namespaces(manager: Manager) -> Result<Manager, Box<dyn std::error::Error>> {
    let manager = manager.sharded(Sharding::new("notes").split_caches());
    Ok(manager.controller_in_namespaces("", controller)?)
}

mod tests {
    use tokio::time::sleep;
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_object_is_one_replicas() {
        let server = ApiServer::in_memory().namespace("notes").start().await;
        let manager = || Manager::new(server.client());
        let replicas = [replica(manager()).spawn(), replica(manager()).spawn()];
        // The first start takes a lease duration: somebody else may have worked until now.
        sleep(Duration::from_secs(25)).await;

        let mut map = ConfigMap::default();
        map.metadata.name = Some("hello".into());
        map.metadata.labels = Some([("kind".to_owned(), "note".to_owned())].into());
        server.create(&map).await;
        server.eventually::<ConfigMap>("notes/hello-note", |child| child.is_some()).await;

        let key = ObjectKey::new("notes", "hello");
        let why =
            |replica: &watchkeeper::Running| replica.why::<ConfigMap>(&key).to_string();
        let elsewhere = |why: &String| why.contains("another replica works on its slot");
        let whys: Vec<_> = replicas.iter().map(why).collect();
        assert_eq!(whys.iter().filter(|why| elsewhere(why)).count(), 1, "{whys:?}");
    }

    #[tokio::test]
    async fn the_leases_of_all_may_be_listed() {
        let rules = large(Manager::offline("notes")).rules().to_string();
        assert!(rules.contains("leases"), "{rules}");
        assert!(rules.contains("\"delete\""), "{rules}");
        let rules = in_namespaces(Manager::offline("notes")).unwrap().rules().to_string();
        assert!(rules.contains("namespaces"), "{rules}");
    }
}

//! Caches that lag: what was written is seen before the key runs again.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use watchkeeper::{Lister, prelude::*};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Website, gates::lagging, website};

/// Creates a child whose name the server chooses, whenever it sees none.
struct Namer {
    children: Lister<ConfigMap>,
}

impl Reconciler<Website> for Namer {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let uid = site.metadata.uid.as_deref();
        let owned = |map: &ConfigMap| map.owner_references().iter().any(|owner| Some(&*owner.uid) == uid);
        if !self.children.list().iter().any(|map| owned(map)) {
            let generate_name = Some(format!("{}-", site.name_any()));
            let metadata = ObjectMeta { generate_name, ..ObjectMeta::default() };
            cx.create(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        }
        // Eager to run: only its own write holds it up.
        Ok(Action::requeue_after(Duration::from_millis(300)))
    }
}

/// Returns whether keys wait for their own writes.
#[derive(Clone, Copy)]
enum Waiting {
    On,
    Off,
}

/// Runs the operator for a minute on a server whose watches lag two seconds; returns how many children there are.
async fn children_made(waiting: Waiting) -> usize {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let manager = Manager::new(lagging(server.client(), Duration::from_secs(2)));
    let controller = Controller::new(Namer { children: manager.lister::<ConfigMap>() }).owns::<ConfigMap>();
    let controller = match waiting {
        Waiting::On => controller,
        Waiting::Off => controller.never_wait_for_own_writes(),
    };
    let _running = manager.controller(controller).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.list::<ConfigMap>("shop").await.iter().filter(|map| map.name_any().starts_with("a-")).count()
}

// W3
#[tokio::test(start_paused = true)]
async fn an_operator_that_creates_a_child_when_it_sees_none_makes_one_on_a_lagging_watch() {
    assert_eq!(children_made(Waiting::On).await, 1);
}

#[tokio::test(start_paused = true)]
async fn without_waiting_for_own_writes_the_same_operator_makes_several() {
    assert!(children_made(Waiting::Off).await > 1, "or the test above shows nothing");
}

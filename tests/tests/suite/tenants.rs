//! Workers and rate, shared out between tenants.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Does, does};

const MANY: usize = 500;
const SMALL: usize = 10;

async fn create(server: &ApiServer, namespace: &str, maps: usize) {
    for at in 0..maps {
        let (name, namespace) = (Some(format!("map-{at}")), Some(namespace.to_owned()));
        let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    }
}

type MapController = Controller<ConfigMap, Does<ConfigMap>>;

/// Runs once for each map, and returns how many runs began until the last one outside of `many` did.
async fn runs_until_all_others_had_theirs(fair: impl FnOnce(MapController) -> MapController) -> usize {
    let small: Vec<_> = (0..SMALL).map(|tenant| format!("small-{tenant}")).collect();
    let server =
        small.iter().fold(ApiServer::in_memory().namespace("many"), |server, name| server.namespace(name));
    let server = server.start().await;
    create(&server, "many", MANY).await;
    for tenant in &small {
        create(&server, tenant, 3).await;
    }
    let (reconciler, record) = does(|_, _| async { Ok(Action::await_change()) });
    let limit = RateLimit::per_second(10).burst(1);
    let controller = fair(Controller::new(reconciler)).workers(4).rate_limit(limit);
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(MANY + 3 * SMALL).await;
    let starts = record.starts();
    running.stop().await.unwrap();
    starts.iter().rposition(|start| start.key.namespace() != Some("many")).unwrap() + 1
}

// Q22
#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_objects_does_not_delay_the_others() {
    let fair = runs_until_all_others_had_theirs(|controller| controller.fair_by_namespace()).await;
    // Eleven namespaces take turns.
    assert!(fair <= 3 * (SMALL + 1) + 4, "{fair}");
    let together = runs_until_all_others_had_theirs(|controller| controller).await;
    assert!(together > 10 * fair, "{together}");
    // Small namespaces are one tenant: two take turns.
    let two = |key: &ObjectKey| {
        key.namespace().unwrap_or_default().split('-').next().unwrap_or_default().to_owned()
    };
    let two = runs_until_all_others_had_theirs(|controller| controller.fair_by(two)).await;
    let turns = 2 * 3 * SMALL;
    assert!((turns - 4..=turns + 4).contains(&two), "{two}");
}

//! Says why a site waits, and calls the reconciler alone.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use watchkeeper::{controller::Why, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, InMemory};

use crate::{Website, WebsiteSpec, Websites};

async fn server() -> ApiServer<InMemory> {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn site() -> Website {
    let domain = "hello.example".into();
    Website::new("hello", WebsiteSpec { domain, replicas: 2 })
}

#[tokio::test(start_paused = true)]
async fn a_site_says_why_it_waits() {
    let server = server().await;
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let controller = Controller::<Website, _>::new(Websites).reads::<Secret>();
    let running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&site()).await;
    tokio::time::sleep(Duration::from_secs(10)).await;

    let hello = ObjectKey::new("shop", "hello");
    let report = running.why::<Website>(&hello).remove(0);
    assert!(matches!(report.why, Why::BlockedOnSync(_)), "{report:?}");
    assert!(report.why.to_string().contains("secrets"));

    server.faults().clear();
    server.eventually::<Deployment>("shop/hello", |found| found.is_some()).await;
    let report = running.why::<Website>(&hello).remove(0);
    assert!(matches!(report.why, Why::WaitsUntil(_)), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn one_run_applies_the_deployment() {
    let server = server().await;
    let hello = server.create(&site()).await;

    let cx = Context::without_manager(server.client(), &hello);
    let action = Websites
        .reconcile(Arc::new(hello), &cx)
        .await
        .expect("the server takes all writes");

    assert_eq!(action, Action::requeue_after(Duration::from_secs(300)));
    let key = ObjectKey::new("shop", "hello");
    let deployment: Deployment = cx.get(&key).await.expect("it was applied");
    assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_running_manager_hands_out_another_cache() {
    let server = server().await;
    let mut secret = Secret::default();
    secret.metadata.name = Some("key".into());
    server.create(&secret).await;
    let controller = Controller::<Website, _>::new(Websites);
    let running = Manager::new(server.client()).controller(controller).spawn();

    let secrets = running.informer::<Secret>().namespace("shop").build();
    secrets.wait_for_sync(Duration::from_secs(30)).await.expect("they can be listed");
    assert_eq!(secrets.lister().list().len(), 1);
    // The controller's own cache.
    assert_eq!(running.lister::<Website>().list().len(), 0);
}

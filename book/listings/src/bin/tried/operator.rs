//! README's operator, tried.

use k8s_openapi::api::apps::v1::Deployment;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_trials::Trials;

use super::{Website, WebsiteSpec, Websites};

fn replicas_of(deployment: Option<&Deployment>) -> Option<i32> {
    deployment?.spec.as_ref()?.replicas
}

#[tokio::test(start_paused = true)]
async fn a_deleted_deployment_comes_back() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let controller = Controller::new(Websites).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();

    let spec = WebsiteSpec { domain: "hello.example".into(), replicas: 2 };
    server.create(&Website::new("hello", spec)).await;
    server.eventually("shop/hello", |found| replicas_of(found) == Some(2)).await;

    server.faults().on(Verb::Watch, "deployments").once().then(Fault::Cut);
    server.delete::<Deployment>("shop/hello").await;
    server.eventually("shop/hello", |found| replicas_of(found) == Some(2)).await;
}

fn site(name: &str) -> Website {
    Website::new(name, WebsiteSpec { domain: format!("{name}.example"), replicas: 2 })
}

#[test]
fn readmes_operator_ends_right_whatever_happens() {
    Trials::of(|client| {
        let rate = RateLimit::per_second(50).burst(100);
        let controller =
            Controller::new(Websites).owns::<Deployment>().workers(8).rate_limit(rate);
        Manager::new(client).controller(controller).run()
    })
    .crd::<Website>()
    .visitor(async move |visit| {
        visit.create(&site("a")).await;
        visit.edit::<Website>("a", |site| site.spec.replicas = 3).await;
        visit
            .patch_status::<Deployment>(
                "a",
                serde_json::json!({ "readyReplicas": 3, "replicas": 3 }),
            )
            .await;
        visit.create(&site("b")).await;
        visit.delete::<Website>("a").await;
    })
    .pairs(20)
    .check();
}

//! README's operator, tried.

use k8s_openapi::api::apps::v1::Deployment;
use watchkeeper::prelude::*;
use watchkeeper_trials::Trials;

use super::{Website, WebsiteSpec, Websites};

#[test]
fn readmes_operator_ends_right_whatever_happens() {
    let site = |name: &str| {
        Website::new(name, WebsiteSpec { domain: format!("{name}.example"), replicas: 2 })
    };
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

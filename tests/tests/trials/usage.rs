//! The trial that the documents print, as it stands there.

use k8s_openapi::api::apps::v1::Deployment;
use watchkeeper::prelude::*;
use watchkeeper_tests::{Keeper, Website};
use watchkeeper_trials::Trials;

fn website(name: &str, replicas: i32) -> Website {
    let mut site = watchkeeper_tests::website(name);
    site.spec.replicas = replicas;
    site
}

#[test]
fn whatever_happens_a_site_ends_right() {
    Trials::of(|client| {
        Manager::new(client).controller(Controller::new(Keeper::default()).owns::<Deployment>()).run()
    })
    .crd::<Website>()
    .visitor(async |visit| {
        visit.create(&website("a", 2)).await;
        visit.edit::<Website>("a", |site| site.spec.replicas = 3).await;
        visit.delete::<Website>("a").await;
    })
    .check();
}

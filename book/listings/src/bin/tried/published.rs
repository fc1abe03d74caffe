//! The printing press, tried.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use watchkeeper::{prelude::*, writes::Use};
use watchkeeper_trials::Trials;

use super::{Page, PageSpec, Press};

#[test]
fn the_press_ends_right_whatever_happens() {
    let page = |name: &str| {
        Page::new(
            name,
            PageSpec { text: "one".to_owned(), password: "printer".to_owned() },
        )
    };
    Trials::of(|client| {
        let controller = Controller::new(Press)
            .owns::<ConfigMap>()
            .uses::<Secret>(Use::Get)
            .records_events();
        Manager::new(client).controller(controller).run()
    })
    .crd::<Page>()
    .visitor(async move |visit| {
        visit.create(&page("a")).await;
        let metadata = kube::core::ObjectMeta {
            name: Some("printer".to_owned()),
            ..Default::default()
        };
        visit.create(&Secret { metadata, ..Secret::default() }).await;
        visit.wait(Duration::from_secs(61)).await;
        visit.edit::<Page>("a", |page| page.spec.text = "two".to_owned()).await;
        visit.create(&page("b")).await;
        visit.delete::<Page>("a").await;
    })
    .pairs(20)
    .check();
}

//! A user that may not read everything.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_tests::backend::{Heard, Stage};

use crate::harness::tests;

tests! { Shared: a_kind_that_may_not_be_read_is_named_and_holds_up_no_other; }

// R31 R40 I15
async fn a_kind_that_may_not_be_read_is_named_and_holds_up_no_other(stage: Stage) {
    let kit = stage.kit();
    stage.server.allow_viewer(kit, "configmaps").await;
    let factory = stage.viewers_factory().await;
    let maps = Heard::by(factory.informer::<ConfigMap>().namespace(&*stage.namespace));
    let secrets = factory.informer::<Secret>().namespace(&*stage.namespace).build();
    let told = Heard::of(&secrets);
    factory.start();
    kit.create(&serde_json::from_value::<ConfigMap>(json!({ "metadata": { "name": "a" } })).unwrap()).await;
    let mut came = tokio::time::interval(Duration::from_millis(20));
    while maps.lines().is_empty() {
        came.tick().await;
    }
    let lag = factory.wait_for_sync(Duration::from_secs(2)).await.unwrap_err();
    let laggards: Vec<_> = lag.laggards.iter().map(|state| state.kind.plural.as_ref()).collect();
    assert_eq!(laggards, ["secrets"], "{lag}");
    assert!(lag.laggards[0].is_forbidden(), "{lag}");
    let text = lag.to_string();
    for part in ["secrets", "forbidden", "viewer", "Role"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    stage.log.says(&["secrets can't be read, a permission is missing", "allow `list` and `watch`"]).await;

    kit.create(&serde_json::from_value::<Secret>(json!({ "metadata": { "name": "s" } })).unwrap()).await;
    stage.server.allow_viewer(kit, "secrets").await;
    told.comes_to(&["+ s (initial list)"]).await;
    factory.wait_for_sync(Duration::from_secs(10)).await.unwrap();
    assert!(secrets.sync_state().failure.is_none());
}

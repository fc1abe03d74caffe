//! A server that comes back with an older state is followed, without anybody's help.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use tokio::time::{Instant, sleep};
use watchkeeper::prelude::*;
use watchkeeper_tests::{
    Keeper, Website,
    backend::{Gateway, Stage},
    website,
};

use crate::harness::tests;

tests! {
    Own: a_backup_restored_under_a_running_operator_is_followed_within_seconds;
}

/// How soon caches and children must be right.
const WITHIN: Duration = Duration::from_secs(15);

/// How many versions the restored state is behind, at least.
const AHEAD: usize = 60;

// R43
async fn a_backup_restored_under_a_running_operator_is_followed_within_seconds(stage: Stage) {
    let (kit, gateway) = (stage.kit(), Gateway::default());
    let manager = stage.manager_through(&gateway).await;
    let (sites, children) = (manager.lister::<Website>(), manager.lister::<Deployment>());
    let controller = Controller::new(Keeper::default()).owns::<Deployment>();
    let _running = manager.controller(controller).spawn();
    for name in ["kept", "lost-child", "gone"] {
        kit.create(&website(name)).await;
        kit.eventually::<Deployment>(name, |d| d.is_some()).await;
    }
    let backup = stage.server.back_up().await;

    // What the backup knows nothing of.
    kit.delete::<Website>("gone").await;
    kit.create(&website("late")).await;
    kit.eventually::<Deployment>("late", |d| d.is_some()).await;
    for n in 0..AHEAD {
        let metadata = ObjectMeta { name: Some(format!("other-{n}")), ..ObjectMeta::default() };
        kit.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    }

    gateway.close();
    stage.server.restore(backup).await;
    assert!(kit.get::<Website>("late").await.is_none(), "the older state is back");
    kit.delete::<Deployment>("lost-child").await;
    kit.create(&website("new")).await;
    gateway.open();

    let back = Instant::now();
    loop {
        let (there, made) = (kit.list::<Website>(&stage.namespace).await, kit.list::<Deployment>("*").await);
        let here = made.iter().filter(|child| child.namespace().as_deref() == Some(&*stage.namespace));
        let names: Vec<_> = here.map(|child| child.name_any()).collect();
        let wanted = ["gone", "kept", "lost-child", "new"];
        let right = wanted.iter().all(|name| names.iter().any(|made| made == name))
            && versions(there.iter()) == versions(sites.list().iter().map(|site| &**site))
            && versions(made.iter()) == versions(children.list().iter().map(|child| &**child));
        if right {
            break;
        }
        assert!(back.elapsed() < WITHIN, "children {names:?}; the cache holds {:?}", children.list().len());
        sleep(Duration::from_millis(100)).await;
    }
    let lost = stage.log.lines_with(&["lost its history"]);
    assert!(lost.len() >= 2, "both kinds notice: {lost:?}");
}

fn versions<'a, K: Object + 'a>(objects: impl Iterator<Item = &'a K>) -> BTreeMap<String, String> {
    let version = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
    objects.map(|object| (ObjectKey::of(object).to_string(), version(object))).collect()
}

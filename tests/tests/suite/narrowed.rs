//! Watches of the own cluster that are narrowed: what is asked for, what is cached, what it takes.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use watchkeeper::{
    informer::{Compact, Dynamic},
    object::{Kind, Scope},
    prelude::*,
};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Website, does, website};

fn config_map(namespace: &str, name: &str) -> ConfigMap {
    let (name, namespace) = (Some(name.to_owned()), Some(namespace.to_owned()));
    ConfigMap { metadata: ObjectMeta { name, namespace, ..Default::default() }, ..Default::default() }
}

fn site() -> Website {
    let mut site = website("a");
    site.metadata.namespace = Some("shop".to_owned());
    site
}

fn defaults() -> Watch<ConfigMap> {
    Watch::new().namespace("ops").named("defaults")
}

// W29
#[tokio::test(start_paused = true)]
async fn one_object_of_another_namespace_feeds_a_controller_and_nothing_else_of_its_kind_is_cached() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").namespace("ops").start().await;
    for (namespace, name) in [("ops", "defaults"), ("ops", "other"), ("shop", "defaults")] {
        server.create(&config_map(namespace, name)).await;
    }
    server.create(&site()).await;
    let (reconciler, record) = does::<Website, _, _>(async |_, _| Ok(Action::await_change()));
    let manager = Manager::new(server.client());
    let lister = manager.informer_of(defaults()).lister();
    let mapped = lister.clone();
    let controller = Controller::new(reconciler)
        .namespace("shop")
        .namespace("other")
        .watch(defaults().mapped(move |_| {
            assert_eq!(mapped.list().len(), 1);
            vec![ObjectKey::new("shop", "a")]
        }))
        .watch(Watch::<Secret>::new().namespace("ops").label_selector("kind=shop").unwrap());
    let running = manager.controller(controller).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let runs = record.len();
    for key in ["ops/other", "shop/defaults"] {
        server.patch_merge::<ConfigMap>(key, serde_json::json!({ "data": { "k": "v" } })).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(record.len(), runs, "changes of others wake nobody");
    server.patch_merge::<ConfigMap>("ops/defaults", serde_json::json!({ "data": { "k": "v" } })).await;
    record.reaches(runs + 1).await;
    assert_eq!(lister.list().len(), 1);
    assert_eq!(server.watches("configmaps").open(), 1, "one informer for both");
    assert_eq!(server.watches("secrets").open(), 1);
    running.stop().await.unwrap();
}

// W29
#[tokio::test(start_paused = true)]
async fn the_printed_rules_allow_just_what_is_watched_and_suffice() {
    let server =
        ApiServer::in_memory().crd::<Website>().namespace("shop").namespace("ops").rbac().start().await;
    server.create(&config_map("ops", "defaults")).await;
    server.create(&site()).await;
    let (reconciler, record) = does::<Website, _, _>(async |_, _| Ok(Action::await_change()));
    let manager = Manager::new(server.client_as("operator"));
    let controller = Controller::new(reconciler)
        .namespace("shop")
        .watch(defaults().mapped(|_| vec![ObjectKey::new("shop", "a")]));
    let manager = manager.controller(controller);
    let rules = manager.rules();
    assert!(rules.cluster_role().is_none(), "{rules}");
    let roles = rules.roles();
    let of = |namespace: &str| {
        let role = roles.iter().find(|role| role.namespace().as_deref() == Some(namespace)).unwrap();
        role.rules.clone().unwrap_or_default()
    };
    let [maps] = of("ops").try_into().unwrap();
    assert_eq!(maps.resource_names, Some(vec!["defaults".to_owned()]));
    assert_eq!(
        (maps.resources, maps.verbs),
        (Some(vec!["configmaps".into()]), vec!["list".into(), "watch".into()])
    );
    assert!(of("shop").iter().all(|rule| rule.resources != Some(vec!["configmaps".into()])), "{rules}");
    for role in &roles {
        let namespace = role.namespace().unwrap();
        server.create(role).await;
        let binding = serde_json::json!({
            "metadata": { "name": "operator", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role.name_any() },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "operator" }],
        });
        let binding: k8s_openapi::api::rbac::v1::RoleBinding = serde_json::from_value(binding).unwrap();
        server.create(&binding).await;
    }
    let running = manager.spawn();
    record.reaches(1).await;
    running.stop().await.unwrap();
}

// W29
#[tokio::test(start_paused = true)]
async fn markers_stand_for_watches_of_all_that_they_mark() {
    let kind = Kind {
        group: "".into(),
        version: "v1".into(),
        kind: "Secret".into(),
        plural: "secrets".into(),
        scope: Scope::Namespaced,
    };
    let (reconciler, _) = does::<Website, _, _>(async |_, _| Ok(Action::await_change()));
    let controller = Controller::new(reconciler)
        .watch(
            Watch::of(Dynamic::new(kind.clone()))
                .mapped(|secret| vec![ObjectKey::new("shop", secret.name_any())]),
        )
        .watch(Watch::<Compact<Secret>>::new().namespace("ops").owned())
        .watch(Watch::of(Dynamic::new(kind)).named("a"));
    let server = ApiServer::in_memory().start().await;
    let rules = Manager::new(server.client()).controller(controller).rules().to_string();
    let secrets = rules.matches("secrets").count();
    assert!(secrets >= 2, "a rule for all namespaces, and one for `ops`: {rules}");
    assert!(rules.contains("namespace: \"ops\""), "{rules}");
}

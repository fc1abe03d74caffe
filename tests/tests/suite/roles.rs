//! Roles: what a program must be allowed to do, as it says itself.

use std::sync::Mutex;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Secret},
};
use kube::core::ObjectMeta;
use tracing_subscriber::layer::SubscriberExt as _;
use watchkeeper::{informer::Metadata, manager::Rules, object::Kind, prelude::*, writes::Use};
use watchkeeper_apiserver::{ApiServer, Verb};
use watchkeeper_tests::{Keeper, Looker, Website, does, hear, website};

/// Writes rules as `verbs resource.group` a line.
fn shown(rules: &Rules) -> Vec<String> {
    let of = |place: &str, rules: Option<Vec<k8s_openapi::api::rbac::v1::PolicyRule>>| {
        let place = place.to_owned();
        rules.into_iter().flatten().map(move |rule| {
            let (groups, resources) =
                (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default());
            let names = rule.resource_names.unwrap_or_default().concat();
            format!("{place}{} {}.{} {names}", rule.verbs.join(","), resources.concat(), groups.concat())
                .trim_end()
                .to_owned()
        })
    };
    let cluster = of("", rules.cluster_role().and_then(|role| role.rules)).collect::<Vec<_>>();
    let roles = rules.roles().into_iter().flat_map(|role| {
        let place = format!("{}: ", role.metadata.namespace.unwrap_or_default());
        of(&place, role.rules).collect::<Vec<_>>()
    });
    cluster.into_iter().chain(roles).collect()
}

async fn server() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

// W20
#[tokio::test(start_paused = true)]
async fn the_rules_are_what_is_watched_owned_read_and_declared_and_nothing_else() {
    let server = server().await;
    let looker = Controller::new(Looker::default()).named("looker");
    let manager = Manager::new(server.client()).controller(looker);
    assert_eq!(
        shown(&manager.rules()),
        ["get,list,watch websites.web.example.dev", "patch websites/status.web.example.dev"]
    );

    let keeper = Controller::new(Keeper::default())
        .owns::<Deployment>()
        .watches::<Secret>(|_| Vec::new())
        .watches::<Metadata<Namespace>>(|_| Vec::new())
        .finalizer("web.example.dev/domain")
        .uses::<Namespace>(Use::Apply)
        .uses_kind(&Kind::of::<ConfigMap>(), Use::Delete)
        .records_events();
    let manager = Manager::new(server.client()).controller(keeper);
    let _pods = manager.lister::<k8s_openapi::api::core::v1::Pod>();
    let rules = manager.rules().with_crd::<Website>();
    let wanted = [
        "get,delete configmaps.",
        "get,list,watch,create,patch namespaces.",
        "list,watch pods.",
        "list,watch secrets.",
        "get,create,patch customresourcedefinitions.apiextensions.k8s.io websites.web.example.dev",
        "get,list,watch,create,patch deployments.apps",
        "create,patch events.events.k8s.io",
        "get,list,watch,patch websites.web.example.dev",
        "patch websites/status.web.example.dev",
    ];
    assert_eq!(shown(&rules), wanted);
}

// W20
#[tokio::test(start_paused = true)]
async fn a_controller_that_keeps_to_namespaces_needs_no_more_than_roles_in_them() {
    let server = server().await;
    let keeper = Controller::new(Keeper::default())
        .namespace("shop")
        .namespace("farm")
        .owns::<Deployment>()
        .uses::<Namespace>(Use::Get);
    let manager = Manager::new(server.client()).controller(keeper);
    let _secrets = manager.informer::<Secret>().namespace("shop").lister();
    let rules = manager.rules();
    let wanted = [
        "get namespaces.",
        "farm: get,list,watch,create,patch deployments.apps",
        "farm: get,list,watch websites.web.example.dev",
        "farm: patch websites/status.web.example.dev",
        "shop: list,watch secrets.",
        "shop: get,list,watch,create,patch deployments.apps",
        "shop: get,list,watch websites.web.example.dev",
        "shop: patch websites/status.web.example.dev",
    ];
    assert_eq!(shown(&rules), wanted);
    let yaml = rules.with_name("sites").to_string();
    let documents: Vec<_> = yaml.split("---\n").collect();
    assert_eq!(documents.len(), 3);
    assert_eq!(
        documents[0],
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: \"sites\"\nrules:\n  \
         - apiGroups: [\"\"]\n    resources: [\"namespaces\"]\n    verbs: [\"get\"]\n"
    );
    assert!(documents[2].contains("kind: Role\n") && documents[2].contains("namespace: \"shop\"\n"));
}

/// Keeps the lines that say what was not declared.
#[derive(Clone, Default)]
struct Undeclared(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Undeclared {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut line = String::new();
        event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line += &format!("{value:?} ");
        });
        if line.contains(".uses::<") {
            self.0.lock().unwrap().push(line);
        }
    }
}

// W20
#[tokio::test(start_paused = true)]
async fn what_a_run_does_and_nobody_declared_is_said_once_with_the_remedy() {
    let heard = Undeclared::default();
    let _heard = hear(tracing_subscriber::registry().with(heard.clone()));
    let server = server().await;
    let metadata = |name: &str| ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    let (reconciler, record) = does(move |_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(Namespace { metadata: metadata("farm"), ..Namespace::default() }).unowned().await?;
        let map = cx.apply(ConfigMap { metadata: metadata("map"), ..ConfigMap::default() }).adopt().await?;
        cx.delete(&map).await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).owns::<ConfigMap>().uses::<Namespace>(Use::Apply);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    server.create(&website("b")).await;
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let heard = heard.0.lock().unwrap();
    assert_eq!(heard.len(), 1, "{heard:#?}");
    assert!(heard[0].contains("`.uses::<ConfigMap>(Use::Delete)`"), "{heard:#?}");
}

// W20
#[tokio::test(start_paused = true)]
async fn an_operator_works_under_its_own_rules() {
    let server = server().await;
    let controller =
        || Controller::new(Keeper::default()).owns::<Deployment>().finalizer("web.example.dev/domain");
    let rules = Manager::new(server.client()).controller(controller()).rules();
    for rule in rules.cluster_role().unwrap().rules.unwrap() {
        for (verb, resource) in
            rule.verbs.iter().zip(std::iter::repeat(rule.resources.unwrap_or_default().concat()))
        {
            let verbs = [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Patch];
            let verb = verbs.into_iter().find(|one| one.as_str() == verb).expect("no other is needed");
            server.allow("viewer", verb, &resource);
        }
    }
    let _running = Manager::new(server.client_as("viewer")).controller(controller()).spawn();
    server.create(&website("a")).await;
    server.eventually::<Deployment>("shop/a", |child| child.is_some()).await;
    server.delete::<Website>("shop/a").await;
    server.eventually::<Website>("shop/a", |site| site.is_none()).await;
    let refused: Vec<_> =
        server.requests().list().into_iter().filter(|one| one.status == Some(403)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

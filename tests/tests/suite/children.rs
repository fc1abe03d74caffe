//! Children: who wakes for them, whose they are, and what is never taken over.

use std::sync::Mutex;

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Keeper, Looker, Record, Website, deployment_for, gates::Gates, owned_by, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn owned_map(name: &str, owners: Vec<OwnerReference>) -> ConfigMap {
    let metadata =
        ObjectMeta { name: Some(name.into()), owner_references: Some(owners), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn keys_after(record: &Record, seen: usize) -> Vec<String> {
    let mut keys: Vec<_> = record.starts()[seen..].iter().map(|start| start.key.to_string()).collect();
    keys.sort();
    keys
}

// C16
#[tokio::test(start_paused = true)]
async fn a_child_that_changes_owners_wakes_the_old_one_and_the_new_one() {
    let server = shop().await;
    let (a, b) = (server.create(&website("a")).await, server.create(&website("b")).await);
    server.create(&website("c")).await;
    let record = Record::default();
    let looker = Looker { record: record.clone() };
    let controller = Controller::new(looker).owns::<ConfigMap>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(3).await;
    let mut stranger = owned_by(&a);
    stranger.kind = "Blog".into();
    server.create(&owned_map("not-ours", vec![stranger])).await;
    let mut of_another_group = owned_by(&a);
    of_another_group.api_version = "blog.example.org/v1".into();
    server.create(&owned_map("of-another-group", vec![of_another_group])).await;
    let mut uncontrolled = owned_by(&a);
    uncontrolled.controller = None;
    server.create(&owned_map("not-controlled", vec![uncontrolled])).await;
    server.create(&owned_map("child", vec![owned_by(&a)])).await;
    record.reaches(4).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(keys_after(&record, 3), ["shop/a"]);
    let handover = json!({ "metadata": { "ownerReferences": [owned_by(&b)] } });
    server.patch_merge::<ConfigMap>("shop/child", handover).await;
    record.reaches(6).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(keys_after(&record, 4), ["shop/a", "shop/b"]);
}

/// Applies the given children, and keeps the results.
struct Maker {
    errors: Arc<Mutex<Vec<String>>>,
    adopts: bool,
}

impl Reconciler<Website> for Maker {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let apply = cx.apply(deployment_for(&site));
        let applied = if self.adopts { apply.adopt().await } else { apply.await };
        if let Err(error) = applied {
            self.errors.lock().unwrap().push(error.to_string());
            return Err(Terminal::new(error).into());
        }
        Ok(Action::await_change())
    }
}

fn strangers_deployment() -> Deployment {
    let mut deployment = deployment_for(&website("a"));
    deployment.spec.as_mut().unwrap().replicas = Some(77);
    deployment
}

// C26
#[tokio::test(start_paused = true)]
async fn a_strangers_object_that_is_cached_is_not_taken_over() {
    let server = shop().await;
    server.create(&strangers_deployment()).await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let maker = Maker { errors: errors.clone(), adopts: false };
    let controller = Controller::new(maker).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let found = server.get::<Deployment>("shop/a").await.unwrap();
    assert_eq!(found.spec.unwrap().replicas, Some(77));
    let errors = errors.lock().unwrap().clone();
    assert!(errors[0].contains("Deployment shop/a") && errors[0].contains("nobody"), "{errors:?}");
}

// C26
#[tokio::test(start_paused = true)]
async fn a_strangers_object_created_a_moment_ago_is_not_taken_over() {
    let server = shop().await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let maker = Maker { errors: errors.clone(), adopts: false };
    // Nobody watches Deployments: the server is asked, says that there is none, and then a stranger makes one.
    let (gates, client) = Gates::before(server.client());
    gates.hold_a_write();
    let _running = Manager::new(client).controller(Controller::new(maker)).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.requests().count(Verb::Get, "deployments"), 1, "it has asked");
    assert!(errors.lock().unwrap().is_empty(), "it is about to write");
    server.create(&strangers_deployment()).await;
    gates.let_writes_pass();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let found = server.get::<Deployment>("shop/a").await.unwrap();
    assert_eq!(found.spec.unwrap().replicas, Some(77));
    let errors = errors.lock().unwrap().clone();
    assert!(errors[0].contains("Deployment shop/a") && errors[0].contains("nobody"), "{errors:?}");
}

// C26
#[tokio::test(start_paused = true)]
async fn a_cache_that_lags_behind_a_stranger_does_not_take_over_either() {
    let server = shop().await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let maker = Maker { errors: errors.clone(), adopts: false };
    let controller = Controller::new(maker).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.faults().on(Verb::Watch, "deployments").always().then(Fault::Silence);
    server.create(&strangers_deployment()).await;
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let found = server.get::<Deployment>("shop/a").await.unwrap();
    assert_eq!(found.spec.unwrap().replicas, Some(77));
    assert!(!errors.lock().unwrap().is_empty(), "the cache said absent, the server knew better");
}

#[tokio::test(start_paused = true)]
async fn adopting_takes_over_what_nobody_controls() {
    let server = shop().await;
    server.create(&strangers_deployment()).await;
    let maker = Maker { errors: Arc::default(), adopts: true };
    let controller = Controller::new(maker).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    let ours = |deployment: Option<&Deployment>| {
        let deployment = deployment.expect("it was there before");
        deployment.owner_references().iter().any(|owner| owner.controller == Some(true))
            && deployment.spec.as_ref().unwrap().replicas == Some(2)
    };
    server.eventually::<Deployment>("shop/a", ours).await;
}

/// A parent of its own kind: every site whose name is short makes a longer one.
struct Family {
    record: Record,
}

impl Reconciler<Website> for Family {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        let name = site.name_any();
        if name.len() < 3 {
            cx.apply(website(&format!("{name}x"))).await?;
        }
        Ok(Action::await_change())
    }
}

// C28
#[tokio::test(start_paused = true)]
async fn a_parent_that_creates_children_of_its_own_kind_gets_each_child_reconciled() {
    let server = shop().await;
    let record = Record::default();
    let controller = Controller::new(Family { record: record.clone() }).owns::<Website>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    server.eventually::<Website>("shop/axx", |site| site.is_some()).await;
    record.reaches(3).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(keys_after(&record, 0), ["shop/a", "shop/ax", "shop/axx"], "own children wake no parent");
}

#[tokio::test(start_paused = true)]
async fn a_second_apply_of_the_same_run_is_based_on_the_first_answer() {
    struct Twice(Keeper);
    impl Reconciler<Website> for Twice {
        type Error = watchkeeper::Error;
        async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
            self.0.record.start(cx);
            let mut child = deployment_for(&site);
            cx.apply(child.clone()).await?;
            child.spec.as_mut().expect("it has one").replicas = Some(9);
            cx.apply(child).await?;
            Ok(Action::await_change())
        }
    }
    let server = shop().await;
    let keeper = Keeper::default();
    let controller = Controller::new(Twice(keeper.clone())).owns::<Deployment>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    let nine = |d: Option<&Deployment>| d.is_some_and(|d| d.spec.as_ref().unwrap().replicas == Some(9));
    server.eventually::<Deployment>("shop/a", nine).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(keeper.record.len(), 1, "both writes are own");
}

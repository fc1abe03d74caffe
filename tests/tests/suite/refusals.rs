//! What writes say, what the server refuses, what strangers get in the way of, and what comes of it.

use std::sync::Mutex;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentCondition, DeploymentStatus},
        core::v1::{ConfigMap, Namespace},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::{WriteError, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Record, Website, WebsiteStatus, deployment_for, does, gates::lagging, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn status(replicas: i32) -> WebsiteStatus {
    WebsiteStatus { replicas, ready_replicas: 0 }
}

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Runs writes that fail, once; returns how they failed.
async fn failures_of<F, Fut>(server: &ApiServer, writes: F) -> Vec<WriteError>
where
    F: Fn(Arc<Website>, Context<Website>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Vec<Result<(), WriteError>>> + Send + 'static,
{
    let failures = Arc::new(Mutex::new(Vec::new()));
    let (seen, writes) = (failures.clone(), Arc::new(writes));
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let (seen, writes) = (seen.clone(), writes.clone());
        async move {
            let failed = writes(site, cx).await.into_iter().map(|done| done.expect_err("it is refused"));
            seen.lock().unwrap().extend(failed);
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    std::mem::take(&mut *failures.lock().unwrap())
}

// W1
#[tokio::test(start_paused = true)]
async fn an_apply_is_forced_owned_and_signed() {
    let server = shop().await;
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map("child")).await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).named("signed");
    let _running = Manager::new(server.client()).controller(controller).spawn();
    let site = server.create(&website("a")).await;
    record.reaches(1).await;
    server.eventually::<ConfigMap>("shop/child", |child| child.is_some()).await;
    let child = server.get::<ConfigMap>("shop/child").await.unwrap();
    let owner = &child.owner_references()[0];
    assert_eq!((Some(&owner.uid), owner.controller), (site.metadata.uid.as_ref(), Some(true)));
    let manager = &child.managed_fields()[0];
    assert_eq!((manager.manager.as_deref(), manager.operation.as_deref()), (Some("signed"), Some("Apply")));
    let sent = server.requests().of(Verb::Patch, "configmaps");
    assert_eq!(sent[0].parameter("force"), Some("true"));
}

// W1
#[tokio::test(start_paused = true)]
async fn an_owner_that_kubernetes_forbids_is_refused_with_the_rule() {
    let server = shop().await;
    let failures = failures_of(&server, |_, cx| async move {
        let mut elsewhere = config_map("child");
        elsewhere.metadata.namespace = Some("other".into());
        let cluster = Namespace { metadata: config_map("child").metadata, ..Namespace::default() };
        vec![cx.apply(elsewhere).await.map(|_| ()), cx.create(cluster).await.map(|_| ())]
    });
    for (failure, rule) in failures.await.iter().zip(["live in one namespace", "own a cluster-scoped one"]) {
        assert!(matches!(failure, WriteError::ForbiddenOwner { .. }), "{failure:?}");
        assert!(failure.to_string().contains(rule), "{failure}");
    }
    assert!(server.requests().of(Verb::Patch, "configmaps").is_empty(), "nothing was sent");
}

// W4
#[tokio::test(start_paused = true)]
async fn a_status_patch_touches_the_status_alone() {
    let server = shop().await;
    let (reconciler, _) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let mut edited = (*site).clone();
        edited.spec.replicas = 99;
        edited.metadata.labels = None;
        cx.patch_status(&edited, status(1)).await?;
        Ok(Action::await_change())
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    let mut site = website("a");
    site.labels_mut().insert("tier".into(), "gold".into());
    server.create(&site).await;
    let done = |site: Option<&Website>| site.is_some_and(|site| site.status == Some(status(1)));
    server.eventually::<Website>("shop/a", done).await;
    let found = server.get::<Website>("shop/a").await.unwrap();
    assert_eq!((found.spec.replicas, found.labels().len()), (2, 1));
    let sent = server.requests().of(Verb::Patch, "websites");
    assert!(sent.iter().all(|request| request.subresource == "status"), "{sent:?}");
}

// W5
#[tokio::test(start_paused = true)]
async fn a_refusal_is_typed_by_its_code_and_names_verb_and_object() {
    let server = shop().await;
    server.faults().on(Verb::Patch, "configmaps").name("forbidden").always().then(Fault::Status(403));
    server.faults().on(Verb::Patch, "configmaps").name("busy").always().then(Fault::Status(429));
    let failures = failures_of(&server, |_, cx| async move {
        let apply = async |name| cx.apply(config_map(name)).await.map(|_| ());
        vec![apply("forbidden").await, apply("busy").await, apply("No-Name").await]
    });
    let failures = failures.await;
    assert!(matches!(failures[0], WriteError::Forbidden { .. }), "{failures:?}");
    assert!(
        failures[0].to_string().starts_with("apply ConfigMap shop/forbidden: forbidden"),
        "{}",
        failures[0]
    );
    assert!(matches!(&failures[1], WriteError::Refused { status, .. } if status.code == 429), "{failures:?}");
    assert!(matches!(failures[2], WriteError::Invalid { .. }), "{failures:?}");
}

// W5
#[tokio::test(start_paused = true)]
async fn a_status_patch_of_what_is_gone_says_not_found() {
    let server = shop().await;
    let gone = server.create(&website("gone")).await;
    server.delete::<Website>("shop/gone").await;
    let failures = failures_of(&server, move |_, cx| {
        let gone = gone.clone();
        async move { vec![cx.patch_status(&gone, status(1)).await] }
    });
    assert!(matches!(failures.await[0], WriteError::NotFound { .. }));
}

/// A kind without a status subresource.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema, Informer)]
#[kube(group = "web.example.dev", version = "v1", kind = "Plain", namespaced)]
struct PlainSpec {
    size: i32,
}

// W5
#[tokio::test(start_paused = true)]
async fn a_status_patch_of_a_kind_without_that_subresource_names_the_remedy() {
    let server = ApiServer::in_memory().crd::<Plain>().namespace("shop").start().await;
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = failures.clone();
    let (reconciler, record) = does(move |plain: Arc<Plain>, cx: Context<Plain>| {
        let seen = seen.clone();
        async move {
            let done = cx.patch_status_as(&plain, json!({ "size": 1 })).await;
            seen.lock().unwrap().push(done.expect_err("there is no such subresource"));
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&Plain::new("a", PlainSpec { size: 1 })).await;
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let failures = failures.lock().unwrap();
    let WriteError::NoStatusSubresource { .. } = &failures[0] else { panic!("{failures:?}") };
    assert!(failures[0].to_string().contains("subresources: {status: {}}"), "{}", failures[0]);
}

// W5 W7
#[tokio::test(start_paused = true)]
async fn a_finalizer_for_an_object_whose_deletion_began_unseen_is_no_failure() {
    let server = shop().await;
    let lag = Duration::from_secs(2);
    let (reconciler, record) =
        does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| async { Ok(Action::await_change()) });
    let controller = Controller::new(reconciler).finalizer("example.dev/ours");
    let _running = Manager::new(lagging(server.client(), lag)).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut held = config_map("a");
    held.metadata.finalizers = Some(vec!["example.dev/theirs".into()]);
    server.create(&held).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.delete::<ConfigMap>("shop/a").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.requests().count(Verb::Patch, "configmaps"), 1, "it is not tried again");
    assert!(record.is_empty(), "what is deleted is not reconciled");
}

/// Writes the status through A, B and back to A, on a watch that lags.
async fn there_and_back(lag: Duration) -> (ApiServer, Record) {
    let server = shop().await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        for replicas in [1, 2, 1] {
            cx.patch_status(&site, status(replicas)).await?;
        }
        Ok(Action::await_change())
    });
    let _running =
        Manager::new(lagging(server.client(), lag)).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    (server, record)
}

// W9
#[tokio::test(start_paused = true)]
async fn a_status_set_to_a_b_a_in_one_run_ends_as_a() {
    for lag in [0, 2] {
        let (server, record) = there_and_back(Duration::from_secs(lag)).await;
        let site = server.get::<Website>("shop/a").await.unwrap();
        assert_eq!(site.status, Some(status(1)));
        assert_eq!(record.len(), 1);
        assert_eq!(server.requests().count(Verb::Patch, "websites"), 3);
    }
}

// W9
#[tokio::test(start_paused = true)]
async fn a_status_set_to_a_b_a_across_runs_ends_as_a() {
    let server = shop().await;
    let runs = Mutex::new([1, 2, 1].into_iter());
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let next = runs.lock().unwrap().next();
        async move {
            let Some(replicas) = next else { return Ok(Action::await_change()) };
            cx.patch_status(&site, status(replicas)).await?;
            Ok(Action::requeue_after(Duration::from_millis(100)))
        }
    });
    let client = lagging(server.client(), Duration::from_secs(2));
    let _running = Manager::new(client).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(4).await;
    assert_eq!(server.get::<Website>("shop/a").await.unwrap().status, Some(status(1)));
    assert!(record.starts().iter().all(|start| start.attempt == 1));
}

fn condition(type_: &str) -> DeploymentCondition {
    DeploymentCondition { type_: type_.into(), status: "True".into(), ..DeploymentCondition::default() }
}

fn conditions_of(deployment: &Deployment) -> Vec<DeploymentCondition> {
    deployment.status.clone().and_then(|status| status.conditions).unwrap_or_default()
}

// W9
#[tokio::test(start_paused = true)]
async fn another_writers_condition_survives() {
    let server = shop().await;
    let stranger = server.client();
    let (reconciler, record) = does(move |deployment: Arc<Deployment>, cx: Context<Deployment>| {
        let stranger = stranger.clone();
        async move {
            let mut conditions = conditions_of(&deployment);
            if conditions.iter().any(|condition| condition.type_ == "Ours") {
                return Ok(Action::await_change());
            }
            if conditions.is_empty() {
                let kit = watchkeeper_apiserver::Kit::new(stranger).in_namespace("shop");
                let theirs = json!({ "conditions": [condition("Theirs")] });
                kit.patch_status::<Deployment>("shop/a", theirs).await;
            }
            conditions.push(condition("Ours"));
            let status = DeploymentStatus { conditions: Some(conditions), ..DeploymentStatus::default() };
            cx.patch_status_as(&deployment, status).await?;
            Ok(Action::await_change())
        }
    });
    let client = lagging(server.client(), Duration::from_millis(700));
    let _running = Manager::new(client).controller(Controller::new(reconciler)).spawn();
    let mut deployment = deployment_for(&website("a"));
    deployment.metadata.owner_references = None::<Vec<OwnerReference>>;
    server.create(&deployment).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let conditions = conditions_of(&server.get::<Deployment>("shop/a").await.unwrap());
    let mut types: Vec<_> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
    types.sort_unstable();
    assert_eq!(types, ["Ours", "Theirs"]);
    let starts = record.starts();
    assert!(starts.iter().all(|start| start.attempt == 1), "a conflict is no failure: {starts:?}");
    assert_eq!(starts.len(), 2, "the second run begins with what the first did not know: {starts:?}");
}

// W9
#[tokio::test(start_paused = true)]
async fn an_edit_elsewhere_in_the_object_does_not_hold_up_a_status_patch() {
    let server = shop().await;
    let stranger = server.client();
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let stranger = stranger.clone();
        async move {
            if site.status.is_none() {
                let kit = watchkeeper_apiserver::Kit::new(stranger).in_namespace("shop");
                kit.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 8 } })).await;
            }
            cx.patch_status(&site, status(1)).await?;
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.get::<Website>("shop/a").await.unwrap().status, Some(status(1)));
    assert_eq!(record.len(), 2, "it ran again for the edit alone");
    assert!(record.starts().iter().all(|start| start.attempt == 1));
}

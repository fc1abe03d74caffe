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
use watchkeeper::{WriteError, prelude::*, writes::ForbiddenBy};
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
    let controller = Controller::new(reconciler).named("new-name").field_manager("signed");
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
    let failures = failures.await;
    assert_eq!(failures.len(), 2, "both were refused");
    for (failure, rule) in failures.iter().zip(["live in one namespace", "own a cluster-scoped one"]) {
        let WriteError::ForbiddenOwner { object, owner, .. } = failure else { panic!("{failure:?}") };
        assert_eq!((object.key.name(), owner.to_string().as_str()), ("child", "Website shop/a"));
        assert!(failure.to_string().contains(rule), "{failure}");
    }
    assert_eq!(server.requests().count(Verb::Patch, "configmaps"), 0, "nothing was sent");
    assert_eq!(server.requests().count(Verb::Create, "namespaces"), 0, "nothing was sent");
}

// W1
#[tokio::test(start_paused = true)]
async fn a_field_manager_that_the_server_would_refuse_is_refused_at_the_start() {
    let server = shop().await;
    let start = async |field_manager: &str| {
        let (reconciler, _) =
            does(|_: Arc<Website>, _: Context<Website>| async { Ok(Action::await_change()) });
        let controller = Controller::new(reconciler).field_manager(field_manager);
        Manager::new(server.client()).controller(controller).spawn().stop().await
    };
    for refused in ["", "a b", "a&force=true", "ä", "m".repeat(129).as_str()] {
        let error = start(refused).await.unwrap_err().to_string();
        assert!(error.contains("websites.web.example.dev") && error.contains("1 to 128"), "{error}");
    }
    start(&"m".repeat(128)).await.unwrap();
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

/// Runs an operator whose first two applies get this answer; returns the attempts, when the runs began, in
/// milliseconds, and how many applies there were.
async fn attempts_after(code: u16, end: fn(WriteError) -> anyhow::Error) -> (Vec<u32>, Vec<u128>, u64) {
    let server = shop().await;
    server.faults().on(Verb::Patch, "configmaps").times(4).then(Fault::Status(code));
    let (reconciler, record) = does(move |_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map("child")).await.map_err(end)?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).owns::<ConfigMap>();
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let starts = record.starts();
    let since = starts[0].at;
    let attempts = starts.iter().map(|start| start.attempt).collect();
    let times = starts.iter().map(|start| (start.at - since).as_millis()).collect();
    (attempts, times, server.requests().count(Verb::Patch, "configmaps"))
}

// W5
#[tokio::test(start_paused = true)]
async fn a_refusal_is_retried_with_growing_delay_until_it_is_none_and_a_terminal_one_never() {
    for code in [400, 403, 404, 413, 422, 429] {
        let (attempts, times, sent) = attempts_after(code, anyhow::Error::from).await;
        assert_eq!((attempts, sent), (vec![1, 2, 3, 4, 5], 5), "{code}");
        let delays: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(delays.windows(2).all(|pair| pair[1] > pair[0] && pair[0] >= 5), "{code}: {delays:?}");
        let (attempts, _, sent) = attempts_after(code, |error| Terminal::new(error).into()).await;
        assert_eq!((attempts, sent), (vec![1], 1), "{code}");
    }
}

// W5
#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_uncounted() {
    // Each run tries twice: once as it knows the child, once more as the server does.
    let (attempts, _, sent) = attempts_after(409, anyhow::Error::from).await;
    assert_eq!((attempts, sent), (vec![1, 1, 1], 5));
}

// W5
#[tokio::test(start_paused = true)]
async fn what_exists_already_is_told_apart_from_what_has_changed() {
    let server = shop().await;
    let failures = failures_of(&server, |_, cx| async move {
        let first = cx.create(config_map("child")).await;
        assert!(first.is_ok(), "{first:?}");
        vec![cx.create(config_map("child")).await.map(drop)]
    });
    let failures = failures.await;
    let WriteError::AlreadyExists { object, cause } = &failures[0] else { panic!("{failures:?}") };
    assert_eq!((object.kind.kind.as_ref(), object.key.to_string().as_str()), ("ConfigMap", "shop/child"));
    assert_eq!(cause.status().unwrap().reason, "AlreadyExists");
    assert!(failures[0].is_conflict() && failures[0].status().is_some());
}

// W5
#[tokio::test(start_paused = true)]
async fn who_forbids_is_told_and_only_a_missing_right_advises_a_role() {
    let server = shop().await;
    let says = [
        ("right", r#"configmaps is forbidden: User "me" cannot patch resource "configmaps" in API group """#),
        ("quota", r#"configmaps "quota" is forbidden: exceeded quota: few, requested: count/configmaps=1"#),
        ("hook", r#"admission webhook "guard.example.dev" denied the request: no"#),
    ];
    for (name, message) in says {
        let denied = Fault::Status(403).message(message);
        server.faults().on(Verb::Patch, "configmaps").name(name).always().then(denied);
    }
    let failures = failures_of(&server, move |_, cx| async move {
        let mut failures = Vec::new();
        for (name, _) in says {
            failures.push(cx.apply(config_map(name)).await.map(drop));
        }
        failures
    });
    let failures = failures.await;
    let by = |at: usize| match &failures[at] {
        WriteError::Forbidden { by, .. } => *by,
        other => panic!("{other:?}"),
    };
    assert_eq!([by(0), by(1), by(2)], [ForbiddenBy::Rights, ForbiddenBy::Quota, ForbiddenBy::Webhook]);
    let texts: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert!(
        texts[0].contains("Role") && !texts[1].contains("Role") && !texts[2].contains("Role"),
        "{texts:?}"
    );
    assert!(texts[1].contains("raise it") && texts[2].contains("by an admission webhook"), "{texts:?}");
}

/// What a webhook says that protects what is in use.
const IN_USE: &str = r#"admission webhook "usage.example.dev" denied the request: in use"#;

// W5
#[tokio::test(start_paused = true)]
async fn a_webhook_that_refuses_with_another_code_is_not_taken_for_the_server() {
    let server = shop().await;
    for code in [404, 409] {
        let denied = Fault::Status(code).message(IN_USE);
        server.faults().on(Verb::Patch, "configmaps").name(code.to_string()).always().then(denied);
    }
    let failures = failures_of(&server, |_, cx| async move {
        let mut failures = Vec::new();
        for name in ["404", "409"] {
            failures.push(cx.apply(config_map(name)).await.map(drop));
        }
        failures
    });
    for (failure, code) in failures.await.iter().zip([404, 409]) {
        assert!(matches!(failure, WriteError::Refused { status, .. } if status.code == code), "{failure:?}");
        assert!(failure.to_string().ends_with(&format!("the server answered {code}: {IN_USE}")), "{failure}");
    }
}

/// Deletes a child before its website goes.
struct Closer;

impl Reconciler<Website> for Closer {
    type Error = WriteError;

    async fn reconcile(&self, _: Arc<Website>, _: &Context<Website>) -> Result<Action, WriteError> {
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, WriteError> {
        if let Some(child) = cx.get_opt::<ConfigMap>(&ObjectKey::cluster("child")).await? {
            cx.delete(&child).await?;
        }
        Ok(Cleanup::Done)
    }
}

// W19 W5
#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_refused_with_any_code_is_not_taken_for_done() {
    let refusals = [404, 409].map(|code| Fault::Status(code).message(IN_USE));
    for refusal in refusals.into_iter().chain([Fault::Status(409)]) {
        let server = shop().await;
        server.create(&config_map("child")).await;
        let refused = server.faults().on(Verb::Delete, "configmaps").always().then(refusal);
        let controller = Controller::new(Closer).finalizer("example.dev/close");
        let _running = Manager::new(server.client()).controller(controller).spawn();
        server.create(&website("a")).await;
        server.eventually::<Website>("shop/a", |site| site.is_some_and(|s| !s.finalizers().is_empty())).await;
        server.delete::<Website>("shop/a").await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(server.get::<ConfigMap>("shop/child").await.is_some());
        assert!(server.get::<Website>("shop/a").await.is_some(), "it keeps its finalizer");
        refused.disarm();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(server.get::<ConfigMap>("shop/child").await.is_none());
        assert!(server.get::<Website>("shop/a").await.is_none());
    }
}

// W5
#[tokio::test(start_paused = true)]
async fn names_at_their_limits_are_taken_and_those_beyond_are_refused() {
    let server = shop().await;
    let long = |length: usize| "n".repeat(length);
    let failures = failures_of(&server, move |_, cx| async move {
        let apply = async |name: String| cx.apply(config_map(&name)).await.map(drop);
        let longest = apply(long(253)).await;
        assert!(longest.is_ok(), "{longest:?}");
        let mut names = vec![apply(long(254)).await];
        for name in ["", "..", "a/b", "a%2fb", "a b", "ä"] {
            names.push(apply(name.to_owned()).await);
        }
        names
    });
    let failures = failures.await;
    assert_eq!(failures.len(), 7);
    assert!(matches!(failures[0], WriteError::Invalid { .. }), "{failures:?}");
    assert!(matches!(failures[1], WriteError::Unnamed { .. }), "{failures:?}");
    assert!(
        failures[2..5].iter().all(|failure| matches!(failure, WriteError::Misnamed { .. })),
        "{failures:?}"
    );
    assert!(
        failures[5..].iter().all(|failure| matches!(failure, WriteError::Invalid { .. })),
        "{failures:?}"
    );
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
    assert!(starts.iter().all(|start| start.attempt == 1), "a conflict is not a failure: {starts:?}");
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

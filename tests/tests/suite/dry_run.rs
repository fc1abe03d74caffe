//! A dry run of a whole operator: the server tries each write, stores none, and what would be written is logged.

use std::sync::Mutex;

use http::Method;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use serde_json::json;
use tokio::time::Instant;
use tracing_subscriber::layer::SubscriberExt as _;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{ApiServer, Fault};
use watchkeeper_tests::{Bodies, Keeper, Record, Website, deployment_for, does, hear, website};

/// Keeps what is said of a dry run, by object.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Said {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line += &format!("{field}={value:?} ");
        });
        if *event.metadata().level() <= tracing::Level::INFO && line.contains("dry run") {
            self.0.lock().unwrap().push(line);
        }
    }
}

impl Said {
    fn of(&self, parts: &[&str]) -> usize {
        let said = self.0.lock().unwrap();
        said.iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }
}

/// Checks that all writes were trials, and that there were some.
fn assert_only_tried(bodies: &Bodies) {
    let all = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let all: Vec<_> = all.iter().flat_map(|method| bodies.with(method)).collect();
    assert!(!all.is_empty());
    for sent in all {
        assert!(sent.uri.contains("dryRun=All"), "{sent:?}");
        assert!(sent.method != Method::DELETE || sent.body["dryRun"] == json!(["All"]), "{sent:?}");
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

// W6
#[tokio::test(start_paused = true)]
async fn a_dry_run_sends_no_write_and_says_what_each_would_change() {
    let said = Said::default();
    let _heard = hear(tracing_subscriber::registry().with(said.clone()));
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (bodies, client) = Bodies::of(server.client());
    let manager = Manager::new(client).dry_run();
    manager.install_crd::<Website>().await.unwrap();
    let keeper = Keeper::default();
    let record = keeper.record.clone();
    let controller = Controller::new(keeper).owns::<Deployment>().finalizer("web.example.dev/domain");
    let metrics = manager.metrics();
    let running = manager.controller(controller).spawn();
    server.create(&website("a")).await;
    let site = server.create(&website("b")).await;
    let mut child = deployment_for(&site);
    child.metadata.owner_references = Some(vec![watchkeeper_tests::owned_by(&site)]);
    child.spec.as_mut().unwrap().replicas = Some(9);
    server.create(&child).await;
    record.reaches(2).await;
    let (runs, edited) = (record.len(), Instant::now());
    server.patch_merge::<Website>("shop/b", json!({ "metadata": { "annotations": { "note": "x" } } })).await;
    record.reaches(runs + 1).await;
    assert!(edited.elapsed() < Duration::from_secs(1), "{:?}: nothing was written", edited.elapsed());
    // Its finalizer is taken off, and no cache will ever show that.
    let mut going = website("c");
    going.metadata.finalizers = Some(vec!["web.example.dev/domain".into()]);
    server.create(&going).await;
    server.delete::<Website>("shop/c").await;
    seconds(60).await;
    assert!(record.len() <= 7, "{} runs", record.len());
    assert!(server.get::<Website>("shop/c").await.is_some());
    running.stop().await.unwrap();

    assert_only_tried(&bodies);
    assert!(server.get::<Deployment>("shop/a").await.is_none());
    assert_eq!(server.get::<Deployment>("shop/b").await.unwrap().spec.unwrap().replicas, Some(9));
    assert!(server.get::<Website>("shop/a").await.unwrap().finalizers().is_empty());
    for (parts, times) in [
        (
            &["patch", "websites.web.example.dev shop/a", "metadata.finalizers", "web.example.dev/domain"][..],
            1,
        ),
        (&["apply", "deployments.apps shop/a", "+ spec.replicas: 2"], 1),
        (&["apply", "deployments.apps shop/b", "~ spec.replicas: 9 -> 2"], 1),
        // Only the record of what installed it is new.
        (
            &[
                "apply",
                "customresourcedefinitions.apiextensions.k8s.io websites.web.example.dev",
                "diff=\"+ metadata.annotations.watchkeeper.dev/definitions: ",
            ],
            1,
        ),
        (&["diff=\"\""], 0),
    ] {
        assert_eq!(said.of(parts), times, "{parts:?} in {:#?}", said.0.lock().unwrap());
    }
    let (encoded, overdue) =
        (metrics.encode(), "own_writes_overdue_total{controller=\"websites.web.example.dev\"}");
    let overdue: Vec<_> = encoded.lines().filter(|line| line.contains(overdue)).collect();
    assert!(overdue.len() == 1 && overdue[0].ends_with(" 0"), "{overdue:?}");
}

// W6
#[tokio::test(start_paused = true)]
async fn a_reconciler_goes_on_with_what_its_writes_would_have_come_to() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (bodies, client) = Bodies::of(server.client());
    let metadata = || ObjectMeta { name: Some("kept".into()), ..ObjectMeta::default() };
    server.create(&ConfigMap { metadata: metadata(), ..ConfigMap::default() }).await;
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| async move {
        cx.event(Event::warning("Refused", "nobody hears of it"));
        let map = || ConfigMap { metadata: metadata(), ..ConfigMap::default() };
        let patched = cx.patch(&site, json!({ "metadata": { "labels": { "seen": "yes" } } })).await?;
        assert_eq!((patched.labels()["seen"].as_str(), patched.uid()), ("yes", site.uid()));
        let child = cx.apply(deployment_for(&site)).await?;
        assert_eq!(child.owner_references().len(), 1);
        assert!(cx.apply(map()).await.unwrap_err().to_string().contains("controlled by nobody"));
        cx.delete(&cx.get::<ConfigMap>(&ObjectKey::cluster("kept")).await?).await?;
        let api = Api::<Secret>::namespaced(cx.client().clone(), "shop");
        let secret = Secret { metadata: metadata(), ..Secret::default() };
        assert_eq!(api.create(&PostParams::default(), &secret).await?.name_any(), "kept");
        let evicted = Api::<Deployment>::namespaced(cx.client().clone(), "shop").restart("a").await;
        assert!(evicted.is_err(), "it is not there");
        Ok(Action::await_change())
    });
    let running = Manager::new(client).dry_run().controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    seconds(60).await;
    running.stop().await.unwrap();
    let attempts: Vec<_> = record.starts().iter().map(|start| start.attempt).collect();
    assert_eq!(attempts, [1], "it went through at once");
    assert_only_tried(&bodies);
    assert!(server.get::<ConfigMap>("shop/kept").await.is_some());
}

// W6 C23
#[tokio::test(start_paused = true)]
async fn what_is_to_go_is_cleaned_up_for_show() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (bodies, client) = Bodies::of(server.client());
    let mut site = website("a");
    site.metadata.finalizers = Some(vec!["web.example.dev/domain".into()]);
    server.create(&site).await;
    server.delete::<Website>("shop/a").await;
    let cleaned = Record::default();
    struct Cleaner(Record);
    impl Reconciler<Website> for Cleaner {
        type Error = watchkeeper::Error;
        async fn reconcile(&self, _: Arc<Website>, _: &Context<Website>) -> Result<Action, Self::Error> {
            unreachable!("it is to go")
        }
        async fn cleanup(&self, _: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, Self::Error> {
            self.0.start(cx);
            Ok(Cleanup::Done)
        }
    }
    let controller = Controller::new(Cleaner(cleaned.clone())).finalizer("web.example.dev/domain");
    let _running = Manager::new(client).dry_run().controller(controller).spawn();
    cleaned.reaches(1).await;
    seconds(600).await;
    assert_eq!(cleaned.len(), 1, "once, and not again and again");
    assert_only_tried(&bodies);
    assert!(server.get::<Website>("shop/a").await.is_some());
}

/// Says in one word how a request went.
fn code<T>(answer: Result<T, kube::Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

// W27
#[tokio::test(start_paused = true)]
async fn no_verb_writes_through_any_clone_of_the_client_whenever_it_was_made() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let metadata = |name: &str| ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    let map = |name: &str| ConfigMap { metadata: metadata(name), ..ConfigMap::default() };
    server.create(&map("a")).await;
    server.create(&website("a")).await;
    server.settle().await;
    let before = server.resource_version();
    let manager = Manager::new(server.client());
    let earlier = manager.client().clone();
    let manager = manager.dry_run();
    for client in [earlier, manager.client().clone()] {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "shop");
        let (raw, sites) = (client.clone(), Api::<Website>::namespaced(client, "shop"));
        let (apply, patch) = (PatchParams::apply("me").force(), PatchParams::default());
        let label = |name: &str| {
            let meta = json!({ "name": name, "labels": { "a": "b" } });
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta })
        };
        let status = json!({ "status": { "replicas": 1 } });
        let add = json!([{ "op": "add", "path": "/data", "value": { "k": "v" } }]).to_string().into_bytes();
        let add = http::Request::patch("/api/v1/namespaces/shop/configmaps/a?fieldManager=me")
            .header("content-type", "application/json-patch+json")
            .body(add)
            .unwrap();
        let found = maps.get("a").await.unwrap();
        let wrote = [
            code(maps.create(&PostParams::default(), &map("b")).await),
            code(maps.replace("a", &PostParams::default(), &found).await),
            code(maps.patch("a", &apply, &Patch::Apply(label("a"))).await),
            code(maps.patch("c", &apply, &Patch::Apply(label("c"))).await),
            code(maps.patch("a", &patch, &Patch::Merge(label("a"))).await),
            code(raw.request::<ConfigMap>(add).await),
            code(sites.patch_status("a", &patch, &Patch::Merge(&status)).await),
            code(maps.delete("a", &DeleteParams::default()).await),
            code(maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await),
        ];
        assert_eq!(wrote, [200; 9], "the server takes all of them");
    }
    assert_eq!(server.resource_version(), before, "and stores none");
}

// W30
#[tokio::test(start_paused = true)]
async fn a_rehearsal_waits_until_it_knows_where_controllers_work() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.patch_merge::<Namespace>("shop", json!({ "metadata": { "labels": { "tenant": "a" } } })).await;
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    server.create(&Secret { metadata, ..Secret::default() }).await;
    let rehearse = async |selector: &str| {
        let make = || {
            let maps = does(|secret: Arc<Secret>, cx: Context<Secret>| async move {
                let metadata = ObjectMeta { name: secret.metadata.name.clone(), ..ObjectMeta::default() };
                cx.apply(ConfigMap { metadata, ..ConfigMap::default() }).await?;
                Ok(Action::await_change())
            });
            Controller::new(maps.0).named("maps")
        };
        let manager = Manager::new(server.client()).controller_in_namespaces(selector, make).unwrap();
        manager.rehearse(Duration::from_secs(60)).await.unwrap()
    };
    // The list of namespaces is late.
    server.faults().on_any("namespaces").times(3).then(Fault::Status(500));
    let rehearsal = rehearse("tenant").await;
    assert!(rehearsal.is_whole() && rehearsal.would_write(), "{rehearsal}");
    // No namespace matches: it knows that, too.
    let rehearsal = rehearse("nobody").await;
    assert!(rehearsal.is_whole() && !rehearsal.would_write(), "{rehearsal}");
    // It never comes to know.
    server.faults().on_any("namespaces").always().then(Fault::Status(403));
    let rehearsal = rehearse("tenant").await;
    assert!(!rehearsal.is_whole() && rehearsal.to_string().contains("maps does not know yet"), "{rehearsal}");
}

// W30
#[tokio::test(start_paused = true)]
async fn a_rehearsal_shows_what_it_has_seen_though_a_run_never_ends() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    server.create(&Secret { metadata, ..Secret::default() }).await;
    let (reconciler, _) = does(|secret: Arc<Secret>, cx: Context<Secret>| async move {
        let metadata = ObjectMeta { name: secret.metadata.name.clone(), ..ObjectMeta::default() };
        cx.apply(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        // A dry run makes nothing ready.
        std::future::pending::<anyhow::Result<Action>>().await
    });
    let manager = Manager::new(server.client()).controller(Controller::new(reconciler).named("maps"));
    let manager = manager.grace_period(Duration::from_secs(1));
    let shown = manager.rehearse(Duration::from_secs(10)).await.unwrap().to_string();
    for part in ["maps has 1 objects to look at", "past the grace period of 1s", "would create 1 configmaps"]
    {
        assert!(shown.contains(part), "{shown}");
    }
}

// W30
#[tokio::test(start_paused = true)]
async fn a_rehearsal_lists_no_change_that_is_none() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let deployment = deployment_for(&website("a"));
    server.create(&deployment).await;
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    let reconcile = |_: Arc<ConfigMap>, cx: Context<ConfigMap>| async move {
        let secrets = Api::<Secret>::namespaced(cx.client().clone(), "shop");
        secrets.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let deployments = Api::<Deployment>::namespaced(cx.client().clone(), "shop");
        let scale = deployments.get_scale("a").await?;
        let spec = json!({ "spec": { "replicas": scale.spec.and_then(|spec| spec.replicas) } });
        deployments.patch_scale("a", &PatchParams::default(), &Patch::Merge(spec)).await?;
        Ok::<_, anyhow::Error>(Action::await_change())
    };
    let (reconciler, record) = does(reconcile);
    let manager = Manager::new(server.client()).controller(Controller::new(reconciler));
    let rehearsal = manager.rehearse(Duration::from_secs(60)).await.unwrap();
    assert!(record.len() == 1 && rehearsal.is_whole() && !rehearsal.would_write(), "{rehearsal}");
}

// W27
#[tokio::test(start_paused = true)]
async fn what_was_written_before_the_dry_run_began_ends_its_start() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let manager = Manager::new(server.client());
    manager.install_crd::<Website>().await.unwrap();
    let error = manager.dry_run().spawn().ended().await.unwrap_err().to_string();
    assert!(error.contains("/customresourcedefinitions/websites.web.example.dev"), "{error}");
    assert!(error.contains("call `.dry_run()` before"), "{error}");
    let manager = Manager::new(server.client()).dry_run();
    manager.install_crd::<Website>().await.unwrap();
    manager.spawn().stop().await.unwrap();
}

// W28
#[tokio::test(start_paused = true)]
async fn a_write_on_an_old_version_or_a_foreign_uid_fails_as_it_would_for_real() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    server.create(&website("a")).await;
    let client = Manager::new(server.client()).dry_run().client().clone();
    let sites = Api::<Website>::namespaced(client, "shop");
    let old = sites.get("a").await.unwrap().metadata.resource_version.unwrap();
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 3 } })).await;
    for (field, value) in
        [("resourceVersion", old), ("uid", "00000000-0000-4000-8000-000000000000".to_owned())]
    {
        let write = json!({ "metadata": { field: value }, "status": { "replicas": 1 } });
        let (params, refused) = (PatchParams::default(), if field == "uid" { 422 } else { 409 });
        assert_eq!(code(sites.patch("a", &params, &Patch::Merge(&write)).await), refused, "{field}");
        assert_eq!(code(sites.patch_status("a", &params, &Patch::Merge(&write)).await), refused, "{field}");
    }
    let invalid = json!({ "spec": { "replicas": "many" } });
    assert_eq!(code(sites.patch("a", &PatchParams::default(), &Patch::Merge(&invalid)).await), 422);
}

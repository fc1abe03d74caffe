//! A dry run of a whole operator: no write leaves the process, and what would be written is said.

use std::sync::Mutex;

use http::Method;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::{Api, api::PostParams, core::ObjectMeta};
use serde_json::json;
use tokio::time::Instant;
use tracing_subscriber::layer::SubscriberExt as _;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::ApiServer;
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
    seconds(60).await;
    assert!(record.len() <= 5, "{} runs", record.len());
    running.stop().await.unwrap();

    assert!(bodies.is_empty(), "{:?}", bodies.with(&Method::PATCH));
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
        (&["apply", "customresourcedefinitions.apiextensions.k8s.io websites.web.example.dev"], 1),
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
    assert!(bodies.is_empty());
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
    assert!(bodies.is_empty() && server.get::<Website>("shop/a").await.is_some());
}

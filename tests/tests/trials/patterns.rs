//! What many operators on kube's runtime look like, after the patterns of its examples: what comes of them.

#![expect(clippy::print_stdout, reason = "what came of it is the point")]

use bytes::Bytes;
use futures::StreamExt;
use http::Method;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams},
    runtime::{
        Controller as KubeController,
        controller::Action as KubeAction,
        finalizer::{Event as FinalizerEvent, finalizer},
        watcher,
    },
};
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_trials::{Event, External, ForeignChange, Trials, Trouble, Visit};

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Finalizer(#[from] Box<kube::runtime::finalizer::Error<kube::Error>>),
    #[error(transparent)]
    Served(Box<kube::runtime::finalizer::Error<Failed>>),
    #[error("the zone does not answer")]
    Zone,
}

/// Makes one ConfigMap of its content.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "patterns.example.dev", version = "v1", kind = "Generator", namespaced)]
struct GeneratorSpec {
    content: String,
}

/// Says whether a server-side apply takes fields from others.
#[derive(Clone, Copy, Debug)]
enum Force {
    No,
    Yes,
}

struct Generating {
    client: Client,
    force: Force,
}

/// Applies a child with an owner reference, and looks again after five minutes.
async fn generate(generator: Arc<Generator>, cx: Arc<Generating>) -> Result<KubeAction, Failed> {
    let (name, owner) = (generator.name_any(), generator.controller_owner_ref(&()));
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "ownerReferences": owner.into_iter().collect::<Vec<_>>() },
        "data": { "content": generator.spec.content } });
    let by = PatchParams::apply("generators");
    let by = if matches!(cx.force, Force::Yes) { by.force() } else { by };
    Api::<ConfigMap>::namespaced(cx.client.clone(), "shop").patch(&name, &by, &Patch::Apply(map)).await?;
    Ok(KubeAction::requeue(Duration::from_secs(300)))
}

async fn generators(client: Client, force: Force) {
    let all = Api::<Generator>::namespaced(client.clone(), "shop");
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "shop");
    KubeController::new(all, watcher::Config::default())
        .owns(maps, watcher::Config::default())
        .run(
            generate,
            |_, _, _| KubeAction::requeue(Duration::from_secs(1)),
            Arc::new(Generating { client, force }),
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

/// Keeps a Secret for each ConfigMap that asks for one; a finalizer removes it, for it has no owner.
async fn sync(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<KubeAction, Failed> {
    let maps = Api::<ConfigMap>::namespaced((*client).clone(), "shop");
    let secrets = Api::<Secret>::namespaced((*client).clone(), "shop");
    let synced = finalizer(&maps, "patterns.example.dev/cleanup", map, |event| async {
        match event {
            FinalizerEvent::Apply(map) => {
                let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": map.name_any() },
                    "stringData": map.data });
                let by = PatchParams::apply("secret-syncer").force();
                secrets.patch(&map.name_any(), &by, &Patch::Apply(secret)).await?;
            }
            FinalizerEvent::Cleanup(map) => {
                match secrets.delete(&map.name_any(), &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    gone => drop(gone?),
                }
            }
        }
        Ok(KubeAction::await_change())
    });
    Ok(synced.await.map_err(Box::new)?)
}

async fn syncer(client: Client) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "shop");
    KubeController::new(maps, watcher::Config::default().labels("sync=yes"))
        .run(sync, |_, _, _| KubeAction::requeue(Duration::from_secs(1)), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
}

/// A document that may be hidden.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "patterns.example.dev",
    version = "v1",
    kind = "Document",
    namespaced,
    status = "DocumentStatus"
)]
struct DocumentSpec {
    hide: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct DocumentStatus {
    hidden: bool,
}

/// Writes the status by a forced apply, under a finalizer that has nothing to clean up.
async fn show(document: Arc<Document>, client: Arc<Client>) -> Result<KubeAction, Failed> {
    let documents = Api::<Document>::namespaced((*client).clone(), "shop");
    let shown = finalizer(&documents, "patterns.example.dev/document", document, |event| async {
        if let FinalizerEvent::Apply(document) = event {
            let status = json!({ "apiVersion": "patterns.example.dev/v1", "kind": "Document",
                "status": { "hidden": document.spec.hide } });
            let by = PatchParams::apply("documents").force();
            documents.patch_status(&document.name_any(), &by, &Patch::Apply(status)).await?;
        }
        Ok(KubeAction::requeue(Duration::from_secs(300)))
    });
    Ok(shown.await.map_err(Box::new)?)
}

async fn documents(client: Client) {
    let documents = Api::<Document>::namespaced(client.clone(), "shop");
    KubeController::new(documents, watcher::Config::default().any_semantic())
        .run(show, |_, _, _| KubeAction::requeue(Duration::from_secs(300)), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
}

/// A record in a zone that another system serves.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "patterns.example.dev", version = "v1", kind = "Record", namespaced, status = "RecordStatus")]
struct RecordSpec {
    target: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct RecordStatus {
    id: Option<String>,
}

/// Asks the other system, and takes every answer but a success or 404 for a failure.
async fn ask(
    zone: &External,
    method: Method,
    path: &str,
    body: serde_json::Value,
) -> Result<serde_json::Value, Failed> {
    let mut request = http::Request::new(Bytes::from(body.to_string()));
    (*request.method_mut(), *request.uri_mut()) = (method, path.parse().expect("it is a path"));
    let answer = zone.send(request).await.map_err(|_| Failed::Zone)?;
    match answer.status().is_success() || answer.status() == 404 {
        true => Ok(serde_json::from_slice(answer.body()).unwrap_or_default()),
        false => Err(Failed::Zone),
    }
}

/// Makes a record where the status names none, notes its id, and removes it by that.
async fn serve(record: Arc<Record>, cx: Arc<(Client, External)>) -> Result<KubeAction, Failed> {
    let (client, zone) = &*cx;
    let records = Api::<Record>::namespaced(client.clone(), "shop");
    let all = &records;
    let served = finalizer(all, "patterns.example.dev/record", record, |event| async move {
        let (FinalizerEvent::Apply(record) | FinalizerEvent::Cleanup(record)) = &event;
        let id = record.status.as_ref().and_then(|status| status.id.clone());
        match (&event, id) {
            (FinalizerEvent::Apply(_), Some(id)) => {
                ask(zone, Method::PUT, &format!("/records/{id}"), json!({ "target": record.spec.target }))
                    .await?;
            }
            (FinalizerEvent::Apply(_), None) => {
                let made =
                    ask(zone, Method::POST, "/records", json!({ "target": record.spec.target })).await?;
                let status = Patch::Merge(json!({ "status": { "id": made["id"] } }));
                all.patch_status(&record.name_any(), &PatchParams::default(), &status).await?;
            }
            (FinalizerEvent::Cleanup(_), Some(id)) => {
                ask(zone, Method::DELETE, &format!("/records/{id}"), json!(null)).await?;
            }
            (FinalizerEvent::Cleanup(_), None) => {}
        }
        Ok::<_, Failed>(KubeAction::await_change())
    });
    served.await.map_err(|error| Failed::Served(Box::new(error)))
}

async fn zone(client: Client, external: External) {
    let records = Api::<Record>::namespaced(client.clone(), "shop");
    KubeController::new(records, watcher::Config::default())
        .run(serve, |_, _, _| KubeAction::requeue(Duration::from_secs(1)), Arc::new((client, external)))
        .for_each(|_| std::future::ready(()))
        .await;
}

/// Writes what a map holds into the template of the Deployment that it names, so that this restarts its Pods.
async fn reload(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<KubeAction, Failed> {
    let deployments = Api::<Deployment>::namespaced((*client).clone(), "shop");
    let text = format!("{:?}", map.data);
    let template = json!({ "metadata": { "annotations": { "patterns.example.dev/map": text } } });
    let patch = Patch::Merge(json!({ "spec": { "template": template } }));
    deployments.patch(&map.labels()["reloads"], &PatchParams::default(), &patch).await?;
    Ok(KubeAction::await_change())
}

async fn reloader(client: Client) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "shop");
    KubeController::new(maps, watcher::Config::default().labels("reloads"))
        .run(reload, |_, _, _| KubeAction::requeue(Duration::from_secs(1)), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
}

/// kube's runtime does not notice that a server went back to an older state.
fn noticed(trouble: Trouble) -> bool {
    trouble != Trouble::Server(Event::Restored)
}

fn of_generators(force: Force) -> Trials {
    Trials::of(move |client| generators(client, force))
        .crd::<Generator>()
        .namespace("shop")
        .pairs(40)
        .only(noticed)
        .visitor(async |visit: Visit| {
            visit.create(&Generator::new("a", GeneratorSpec { content: "one".into() })).await;
            visit.edit::<Generator>("a", |generator| generator.spec.content = "two".into()).await;
            visit.delete::<Generator>("a").await;
            visit.create(&Generator::new("b", GeneratorSpec { content: "one".into() })).await;
        })
}

fn of_the_syncer() -> Trials {
    let map = |name: &str| -> ConfigMap {
        serde_json::from_value(json!({ "metadata": { "name": name, "labels": { "sync": "yes" } },
            "data": { "key": "one" } }))
        .expect("it is a map")
    };
    Trials::of(syncer).namespace("shop").pairs(40).only(noticed).visitor(async move |visit: Visit| {
        visit.create(&map("a")).await;
        visit.patch::<ConfigMap>("a", json!({ "data": { "key": "two" } })).await;
        visit.create(&map("b")).await;
        visit.delete::<ConfigMap>("a").await;
    })
}

fn of_documents() -> Trials {
    Trials::of(documents).crd::<Document>().namespace("shop").pairs(40).only(noticed).visitor(
        async |visit: Visit| {
            visit.create(&Document::new("a", DocumentSpec { hide: false })).await;
            visit.edit::<Document>("a", |document| document.spec.hide = true).await;
            visit.create(&Document::new("b", DocumentSpec { hide: false })).await;
            visit.delete::<Document>("a").await;
        },
    )
}

fn of_the_zone() -> Trials {
    Trials::of_calling(zone).crd::<Record>().namespace("shop").pairs(0).only(noticed).visitor(
        async |visit: Visit| {
            visit.create(&Record::new("a", RecordSpec { target: "one".into() })).await;
            visit.edit::<Record>("a", |record| record.spec.target = "two".into()).await;
            visit.create(&Record::new("b", RecordSpec { target: "one".into() })).await;
            visit.delete::<Record>("a").await;
        },
    )
}

fn of_the_reloader() -> Trials {
    Trials::of(reloader).namespace("shop").pairs(0).only(noticed).visitor(async |visit: Visit| {
        let labels = json!({ "app": "web" });
        let web = serde_json::from_value::<Deployment>(json!({ "metadata": { "name": "web" }, "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "web", "image": "web:1" }] } } } }));
        visit.create(&web.expect("it is a Deployment")).await;
        let map = serde_json::from_value::<ConfigMap>(json!({ "metadata": { "name": "settings",
            "labels": { "reloads": "web" } }, "data": { "key": "one" } }));
        visit.create(&map.expect("it is a map")).await;
        visit.patch::<ConfigMap>("settings", json!({ "data": { "key": "two" } })).await;
    })
}

/// Says what came of a pattern, and returns the trial that it fails.
fn outcome(name: &str, trials: Trials) -> String {
    let report = trials.run();
    println!("{name}: {report}");
    let failure = report.failures.first();
    failure.inspect(|failure| println!("{failure}")).map_or(String::new(), |failure| failure.trial.clone())
}

fn nobody_takes_names(trouble: Trouble) -> bool {
    noticed(trouble) && !matches!(trouble, Trouble::Stranger(ForeignChange::TakesTheName, ..))
}

#[test]
fn a_generator_takes_over_what_has_the_name() {
    let failed = outcome("generator", of_generators(Force::No));
    assert!(failed.contains("stranger-takes-the-name-of-it"), "{failed}");
}

#[test]
fn a_generator_that_does_not_force_is_stuck_when_somebody_edits() {
    let failed = outcome("generator", of_generators(Force::No).only(nobody_takes_names));
    assert!(failed.contains("stranger-edits-it"), "{failed}");
}

#[test]
fn a_generator_that_forces_holds_where_names_are_its_own() {
    of_generators(Force::Yes).only(nobody_takes_names).check();
}

#[test]
fn a_syncer_that_does_not_watch_what_it_makes_misses_its_deletion() {
    let failed = outcome("secret syncer", of_the_syncer());
    assert!(failed.contains("patch secrets") && failed.contains("stranger-deletes-it"), "{failed}");
}

#[test]
fn a_syncer_holds_where_nobody_touches_its_secrets() {
    of_the_syncer().only(|trouble| noticed(trouble) && !matches!(trouble, Trouble::Stranger(..))).check();
}

#[test]
fn a_document_with_a_finalizer_and_an_applied_status_holds() {
    of_documents().check();
}

// T28
#[test]
fn a_record_whose_id_the_status_holds_is_made_twice() {
    let failed = outcome("zone", of_the_zone());
    assert!(failed.contains("post /external/records") || failed.contains("patch records/status"), "{failed}");
}

#[test]
fn a_reloader_that_watches_the_maps_alone_misses_what_becomes_of_the_deployment() {
    let failed = outcome("reloader", of_the_reloader());
    assert!(failed.contains("patch deployments shop/web") && failed.contains("stranger-"), "{failed}");
}

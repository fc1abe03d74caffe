//! The functions that controller-rs has, run as they are: the first step of its migration.

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::{
        controller::Action as KubeAction,
        finalizer::{Error as FinalizerError, Event, finalizer},
    },
};
use serde_json::json;
use watchkeeper::{Action, prelude::*}; // was: kube::runtime::controller::Action
use watchkeeper_apiserver::{ApiServer, Fault, InMemory, Verb};

use super::{Document, DocumentSpec};

/// What the functions share.
struct Ctx {
    client: Client,
}

type Failed = FinalizerError<kube::Error>;

async fn reconcile(document: Arc<Document>, ctx: Arc<Ctx>) -> Result<Action, Failed> {
    let namespace = document.namespace().unwrap_or_default();
    let documents = Api::<Document>::namespaced(ctx.client.clone(), &namespace);
    let ended = finalizer(&documents, "documents.kube.rs/old", document, |event| async {
        if let Event::Apply(document) = event {
            let status = json!({ "status": { "hidden": document.spec.hide } });
            let by = PatchParams::default();
            let name = document.name_any();
            documents.patch_status(&name, &by, &Patch::Merge(status)).await?;
        }
        Ok(KubeAction::await_change())
    });
    ended.await?;
    Ok(Action::requeue(Duration::from_secs(5 * 60)))
}

fn error_policy(_: Arc<Document>, _: &Failed, _: Arc<Ctx>) -> Action {
    Action::requeue(Duration::from_secs(60))
}

fn controller(client: Client) -> Controller<Document, impl Reconciler<Document>> {
    Controller::from_kube_rs(reconcile, error_policy, Arc::new(Ctx { client })).workers(8)
}

async fn server() -> ApiServer<InMemory> {
    ApiServer::in_memory().crd::<Document>().namespace("home").start().await
}

fn document(name: &str) -> Document {
    let (title, content) = ("A title".to_owned(), "Some text".to_owned());
    Document::new(name, DocumentSpec { title, hide: true, content })
}

fn is_hidden(document: Option<&Document>) -> bool {
    let status = document.and_then(|document| document.status.as_ref());
    status.is_some_and(|status| status.hidden)
}

#[tokio::test(start_paused = true)]
async fn functions_of_kube_rs_hide_a_document_and_clean_up() {
    let server = server().await;
    let client = server.client();
    let _running = Manager::new(client.clone()).controller(controller(client)).spawn();
    server.create(&document("samuel")).await;
    server.eventually::<Document>("home/samuel", is_hidden).await;
    server.delete::<Document>("home/samuel").await;
    server.eventually::<Document>("home/samuel", |gone| gone.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn their_error_policy_says_when_to_try_again() {
    let server = server().await;
    let status = server.faults().on(Verb::Patch, "documents").subresource("status");
    let broken = status.always().then(Fault::Status(500));
    let client = server.client();
    let _running = Manager::new(client.clone()).controller(controller(client)).spawn();
    server.create(&document("samuel")).await;

    tokio::time::sleep(Duration::from_secs(599)).await;
    let tries =
        server.requests().list().iter().filter(|it| it.path.ends_with("status")).count();
    assert_eq!(tries, 10, "one a minute");
    broken.disarm();
    server.eventually::<Document>("home/samuel", is_hidden).await;
}

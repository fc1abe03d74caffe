//! Mistakes that a write meets.

use std::sync::Mutex;

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::core::ObjectMeta;
use watchkeeper::{Error, WriteError, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Website, WebsiteStatus, deployment_for, website};

use crate::{Mistake, paused, start::shown};

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Lets a reconciler write once, on a server that something was done to; returns how that fails.
fn failure<F, Fut>(prepare: impl AsyncFnOnce(&ApiServer), write: F) -> String
where
    F: Fn(Arc<Website>, Context<Website>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), WriteError>> + Send + 'static,
{
    paused(async {
        let server = ApiServer::in_memory().seed(7).crd::<Website>().namespace("shop").start().await;
        prepare(&server).await;
        let failed = Arc::new(Mutex::new(None));
        let (seen, write) = (failed.clone(), Arc::new(write));
        let controller = Controller::from_fn(move |site: Arc<Website>, cx: Context<Website>| {
            let (seen, write) = (seen.clone(), write.clone());
            async move {
                let failed = write(site, cx).await.expect_err("it is refused");
                seen.lock().unwrap().get_or_insert(shown(failed.into()));
                Ok::<_, Error>(Action::await_change())
            }
        });
        let _running = Manager::new(server.client()).controller(controller).spawn();
        server.create(&website("a")).await;
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        failed.lock().unwrap().take().expect("it ran")
    })
}

/// An apply of a ConfigMap that the server answers with a status.
fn apply_answered(code: u16, message: &'static str) -> String {
    let prepare = async |server: &ApiServer| {
        let answers = server.faults().on(Verb::Patch, "configmaps").always();
        answers.then(Fault::Status(code).message(message));
    };
    failure(prepare, |_, cx| async move { cx.apply(config_map("settings")).await.map(drop) })
}

async fn nothing(_: &ApiServer) {}

pub(crate) fn mistakes() -> Vec<Mistake> {
    let mut found = refusals();
    found.extend(owners());
    found.extend(objects());
    found
}

fn refusals() -> Vec<Mistake> {
    vec![
        (
            "A permission is missing (403)",
            apply_answered(
                403,
                "configmaps \"settings\" is forbidden: User \"operator\" cannot patch resource \"configmaps\" in API group \
                 \"\" in the namespace \"shop\"",
            ),
        ),
        (
            "A quota is used up (403)",
            apply_answered(
                403,
                "configmaps \"settings\" is forbidden: exceeded quota: small, requested: count/configmaps=1, used: \
                 count/configmaps=3, limited: count/configmaps=3",
            ),
        ),
        (
            "An admission webhook refuses (403)",
            apply_answered(
                403,
                "admission webhook \"policy.example.dev\" denied the request: every ConfigMap needs a team",
            ),
        ),
        (
            "The owner's finalizers may not be updated (403)",
            apply_answered(
                403,
                "configmaps \"settings\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource \
                 you can't set finalizers on: , <nil>",
            ),
        ),
        ("The user's token or certificate has expired (401)", apply_answered(401, "Unauthorized")),
        (
            "The kind is not served (404)",
            apply_answered(404, "the server could not find the requested resource"),
        ),
        ("The server is overloaded (429)", apply_answered(429, "too many requests, please try again later")),
        ("The server fails (500)", apply_answered(500, "etcdserver: leader changed")),
        (
            "The object is invalid (422)",
            failure(nothing, |_, cx| async move { cx.apply(config_map("No_Name")).await.map(drop) }),
        ),
        (
            "The connection breaks during a write",
            failure(
                async |server: &ApiServer| {
                    server.faults().on(Verb::Patch, "configmaps").always().then(Fault::Reset);
                },
                |_, cx| async move { cx.apply(config_map("settings")).await.map(drop) },
            ),
        ),
        (
            "The server does not answer a write",
            failure(
                async |server: &ApiServer| {
                    server.faults().on(Verb::Patch, "configmaps").always().then(Fault::Silence);
                },
                |_, cx| async move { cx.apply(config_map("settings")).await.map(drop) },
            ),
        ),
    ]
}

fn owners() -> Vec<Mistake> {
    vec![
        (
            "The child is in another namespace than its owner",
            failure(nothing, |_, cx| async move {
                let mut elsewhere = config_map("settings");
                elsewhere.metadata.namespace = Some("other".into());
                cx.apply(elsewhere).await.map(drop)
            }),
        ),
        (
            "The child is cluster-scoped, and its owner is not",
            failure(nothing, |_, cx| async move {
                let cluster = Namespace { metadata: config_map("settings").metadata, ..Namespace::default() };
                cx.apply(cluster).await.map(drop)
            }),
        ),
        (
            "The child exists already, and nobody controls it",
            failure(
                async |server: &ApiServer| drop(server.create(&config_map("settings")).await),
                |_, cx| async move { cx.apply(config_map("settings")).await.map(drop) },
            ),
        ),
        (
            "The child exists already, and somebody else controls it",
            failure(
                async |server: &ApiServer| {
                    let mut owned = config_map("settings");
                    owned.metadata.owner_references = Some(vec![OwnerReference {
                        api_version: "web.example.dev/v1".into(),
                        kind: "Website".into(),
                        name: "b".into(),
                        uid: "b-uid".into(),
                        controller: Some(true),
                        ..OwnerReference::default()
                    }]);
                    server.create(&owned).await;
                },
                |_, cx| async move { cx.apply(config_map("settings")).await.map(drop) },
            ),
        ),
    ]
}

fn objects() -> Vec<Mistake> {
    vec![
        (
            "The child has no name",
            failure(nothing, |_, cx| async move { cx.apply(ConfigMap::default()).await.map(drop) }),
        ),
        (
            "The name has a slash",
            failure(nothing, |_, cx| async move { cx.apply(config_map("a/b")).await.map(drop) }),
        ),
        (
            "The object was built by the program, not read",
            failure(nothing, |site, cx| async move { cx.delete(&deployment_for(&site)).await.map(drop) }),
        ),
        (
            "The CRD has no status subresource",
            failure(
                async |server: &ApiServer| {
                    let answers = server.faults().on(Verb::Patch, "websites").subresource("status").always();
                    answers
                        .then(Fault::Status(404).message("the server could not find the requested resource"));
                },
                |site, cx| async move { cx.patch_status(&site, WebsiteStatus::default()).await.map(drop) },
            ),
        ),
        (
            "The CRD does not know a field of the status",
            failure(nothing, |site, cx| async move {
                let status = serde_json::json!({ "replicas": 1, "phase": "Ready" });
                cx.patch_status_as(&*site, status).await.map(drop)
            }),
        ),
        (
            "The object whose status is patched was not read",
            failure(nothing, |_, cx| async move {
                cx.patch_status(&Website::new("a", website("a").spec), WebsiteStatus::default())
                    .await
                    .map(drop)
            }),
        ),
        (
            "The child lacks required fields",
            failure(nothing, |site, cx| async move {
                let mut child = deployment_for(&site);
                child.spec = None;
                cx.apply::<Deployment>(child).await.map(drop)
            }),
        ),
    ]
}

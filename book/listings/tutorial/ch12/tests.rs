//! The operator on an API server in this process.

use std::{collections::BTreeMap, sync::Mutex};

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use serde_json::{Value, json};
use watchkeeper::Running;
use watchkeeper_apiserver::{ApiServer, Fault, InMemory, Verb};

use super::*;
use crate::website::WebsiteSpec;

/// A registrar that is a map from domains to owners.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<BTreeMap<String, String>>>);

impl Book {
    fn owner(&self, domain: &str) -> Option<String> {
        self.0.lock().unwrap().get(domain).cloned()
    }

    pub fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl Registrar for Book {
    async fn register(
        &self,
        domain: &str,
        owner: &str,
    ) -> Result<(), RegistrarError> {
        let mut owners = self.0.lock().unwrap();
        match owners.get(domain) {
            Some(other) if other != owner => {
                Err(RegistrarError::Taken(domain.into()))
            }
            _ => {
                owners.insert(domain.into(), owner.into());
                Ok(())
            }
        }
    }

    async fn release(
        &self,
        domain: &str,
        owner: &str,
    ) -> Result<(), RegistrarError> {
        let mut owners = self.0.lock().unwrap();
        match owners.get(domain) {
            Some(other) if other != owner => {
                Err(RegistrarError::Taken(domain.into()))
            }
            _ => {
                owners.remove(domain);
                Ok(())
            }
        }
    }
}

async fn server() -> ApiServer<InMemory> {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn start(server: &ApiServer<InMemory>, book: &Book) -> Running {
    Manager::new(server.client()).controller(controller(book.clone())).spawn()
}

pub fn site(name: &str) -> Website {
    let spec = WebsiteSpec {
        domain: "hello.example".into(),
        replicas: 2,
        tls_secret: None,
    };
    Website::new(name, spec)
}

fn replicas(deployment: Option<&Deployment>) -> Option<i32> {
    deployment?.spec.as_ref()?.replicas
}

fn says(site: Option<&Website>, message: &str) -> bool {
    let status = site.and_then(|site| site.status.as_ref());
    let ready = status.and_then(|status| status.conditions.get("Ready"));
    ready.is_some_and(|ready| ready.message == message)
}

#[tokio::test(start_paused = true)]
async fn a_deleted_deployment_comes_back() {
    let server = server().await;
    let _running = start(&server, &Book::default());
    server.create(&site("hello")).await;
    server.eventually("shop/hello", |found| replicas(found) == Some(2)).await;

    server.faults().on(Verb::Watch, "deployments").once().then(Fault::Cut);
    server.delete::<Deployment>("shop/hello").await;
    server.eventually("shop/hello", |found| replicas(found) == Some(2)).await;
}

#[tokio::test(start_paused = true)]
async fn the_domain_cannot_change() {
    let server = server().await;
    let mut site = server.create(&site("hello")).await;
    site.spec.domain = "other.example".into();
    let sites = kube::Api::<Website>::namespaced(server.client(), "shop");
    let refused =
        sites.replace("hello", &Default::default(), &site).await.unwrap_err();
    assert!(refused.to_string().contains("the domain can't change"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn the_next_process_finishes_what_the_last_one_began() {
    let (server, book) = (server().await, Book::default());
    let status = server.faults().on(Verb::Patch, "websites").subresource("status");
    let broken = status.always().then(Fault::Status(500));
    let first = start(&server, &book);
    server.create(&site("hello")).await;
    server.eventually("shop/hello", |found| replicas(found) == Some(2)).await;
    first.stop().await.unwrap();
    broken.disarm();

    let _second = start(&server, &book);
    let has_status = |site: &Website| site.status.is_some();
    server.eventually("shop/hello", |site| site.is_some_and(has_status)).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_of_others_is_taken_over_only_if_the_site_says_so() {
    let server = server().await;
    let _running = start(&server, &Book::default());
    let mut theirs = Service::default();
    theirs.metadata.name = Some("hello".into());
    theirs.spec = service_for(&site("other")).spec;
    server.create(&theirs).await;
    server.create(&site("hello")).await;

    let owned = |found: Option<&Service>| {
        found.is_some_and(|service| !service.owner_references().is_empty())
    };
    server.kit().never("shop/hello", Duration::from_secs(60), owned).await;

    let adopt =
        json!({"metadata": {"annotations": {"web.example.dev/adopt": "yes"}}});
    server.patch_merge::<Website>("shop/hello", adopt).await;
    server.eventually("shop/hello", owned).await;
}

#[tokio::test(start_paused = true)]
async fn a_site_is_ready_once_its_pods_are() {
    let server = server().await;
    let _running = start(&server, &Book::default());
    server.create(&site("hello")).await;
    server
        .eventually("shop/hello", |site| says(site, "0 of 2 pods are ready"))
        .await;

    let pods = json!({"replicas": 2, "readyReplicas": 2});
    server.patch_status::<Deployment>("shop/hello", pods).await;
    server.eventually("shop/hello", |site| says(site, "every pod is ready")).await;
}

#[tokio::test(start_paused = true)]
async fn a_domain_is_registered_for_the_first_who_asks() {
    let (server, book) = (server().await, Book::default());
    let _running = start(&server, &book);
    server.create(&site("hello")).await;
    server.eventually::<Deployment>("shop/hello", |found| found.is_some()).await;

    server.create(&site("copycat")).await;
    let taken = "the domain hello.example is taken";
    server.eventually("shop/copycat", |site| says(site, taken)).await;
    assert_eq!(book.owner("hello.example").as_deref(), Some("shop/hello"));
    assert!(server.get::<Deployment>("shop/copycat").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_domain_of_a_deleted_site_is_released() {
    let (server, book) = (server().await, Book::default());
    let first = start(&server, &book);
    server.create(&site("hello")).await;
    server.eventually::<Deployment>("shop/hello", |found| found.is_some()).await;

    // The operator is down when the site is deleted.
    first.stop().await.unwrap();
    server.delete::<Website>("shop/hello").await;
    assert!(server.get::<Website>("shop/hello").await.is_some());

    let _second = start(&server, &book);
    server.eventually::<Website>("shop/hello", |site| site.is_none()).await;
    assert_eq!(book.owner("hello.example"), None);
    server.eventually::<Deployment>("shop/hello", |found| found.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_site_waits_for_its_certificate() {
    let server = server().await;
    let _running = start(&server, &Book::default());
    let mut site = site("hello");
    site.spec.tls_secret = Some("tls".into());
    server.create(&site).await;
    let missing = "the Secret tls does not exist";
    server.eventually("shop/hello", |site| says(site, missing)).await;

    let mut secret = Secret::default();
    secret.metadata.name = Some("tls".into());
    server.create(&secret).await;
    let empty = "the Secret tls has no tls.crt";
    server.eventually("shop/hello", |site| says(site, empty)).await;

    let certificate = json!({"stringData": {"tls.crt": "PEM"}});
    server.patch_merge::<Secret>("shop/tls", certificate).await;
    server
        .eventually("shop/hello", |site| says(site, "0 of 2 pods are ready"))
        .await;
}

#[test]
fn a_site_without_pods_waits() {
    let condition = readiness(&site("hello"), 1);
    let waiting = Condition::not_ready("Waiting", "1 of 2 pods are ready");
    assert_eq!(condition, waiting);
}

#[tokio::test(start_paused = true)]
async fn a_run_returns_what_the_registrar_refused() {
    let (server, book) = (server().await, Book::default());
    book.register("hello.example", "shop/first").await.unwrap();
    let site = server.create(&site("hello")).await;

    let cx = Context::without_manager(server.client(), &site);
    let error =
        Websites { registrar: book }.reconcile(site.into(), &cx).await.unwrap_err();
    assert_eq!(error.to_string(), "the domain hello.example is taken");
    assert!(Websites::<Book>::is_terminal(&error));
}

#[tokio::test(start_paused = true)]
async fn an_operator_at_rest_writes_nothing() {
    let server = server().await;
    let _running = start(&server, &Book::default());
    server.create(&site("hello")).await;
    server
        .eventually("shop/hello", |site| says(site, "0 of 2 pods are ready"))
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.requests().clear();

    tokio::time::sleep(Duration::from_secs(3600)).await;
    let writes = [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
    let requests = server.requests().list();
    let written: Vec<_> = requests
        .iter()
        .filter(|it| it.verb.is_some_and(|verb| writes.contains(&verb)))
        .collect();
    assert!(written.is_empty(), "{written:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_deployment() {
    let server = server().await;
    server
        .faults()
        .on(Verb::Patch, "deployments")
        .once()
        .then(Fault::CommitThenDrop);
    let _running = start(&server, &Book::default());
    server.create(&site("hello")).await;
    server
        .eventually("shop/hello", |site| says(site, "0 of 2 pods are ready"))
        .await;
    assert_eq!(server.list::<Deployment>("shop").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named() {
    let server = server().await;
    let refused =
        server.faults().on_any("secrets").always().then(Fault::Status(403));
    let running = start(&server, &Book::default());
    server.create(&site("hello")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;

    let key = ObjectKey::new("shop", "hello");
    let why = running.why::<Website>(&key).to_string();
    assert!(why.contains("secrets (permission to list it is missing"), "{why}");

    refused.disarm();
    server.eventually::<Deployment>("shop/hello", |found| found.is_some()).await;
}

/// Gives a role to the user `websites`.
fn binding(kind: &str, role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "websites"}],
    })
}

#[tokio::test(start_paused = true)]
async fn the_printed_role_is_enough() {
    let server = ApiServer::in_memory().rbac().namespace("shop").start().await;
    let rules = operator(Manager::offline("shop"), Book::default()).rules();
    if let Some(role) = rules.cluster_role() {
        let binding = binding("ClusterRole", role.name());
        server.create(&role).await;
        let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
        server.create(&binding).await;
    }
    for role in rules.roles() {
        let binding = binding("Role", role.name());
        server.create(&role).await;
        let binding: RoleBinding = serde_json::from_value(binding).unwrap();
        server.create(&binding).await;
    }

    let manager = Manager::new(server.client_as("websites"));
    let _running = operator(manager, Book::default()).spawn();
    // It installs its CRD, and is elected.
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.create(&site("hello")).await;
    server
        .eventually("shop/hello", |site| says(site, "0 of 2 pods are ready"))
        .await;
    server.delete::<Website>("shop/hello").await;
    server.eventually::<Website>("shop/hello", |site| site.is_none()).await;
}

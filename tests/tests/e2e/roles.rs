//! The website operator, under exactly the role that it prints, and under that role short of one verb.

#![expect(clippy::print_stdout, reason = "what was refused is the report")]

#[expect(dead_code, reason = "only the example's demo reads it")]
#[path = "../../../examples/website/journal.rs"]
mod journal;
#[path = "../../../examples/website/operator.rs"]
mod operator;

use std::sync::{Mutex, PoisonError};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
        core::v1::Namespace,
        rbac::v1::{ClusterRole, ClusterRoleBinding, RoleRef, Subject},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, api::PostParams, client::Body, core::ObjectMeta};
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{Kit, Verb};
use watchkeeper_examples::Cuts;
use watchkeeper_tests::{
    backend::{Server, Stage, User},
    gates::Gates,
};

use self::operator::{FINALIZER, Website, WebsiteSpec, operator};
use crate::harness::tests;

tests! { Own: the_website_operator_needs_its_role_and_no_less; }

/// How long something may take that is to come.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// The name of the role.
const ROLE: &str = "websites";
/// The name of the definition of websites.
const DEFINITION: &str = "websites.web.example.dev";

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Right {
    group: String,
    resource: String,
    verb: String,
}

impl Right {
    /// Whether a server says that this is missing.
    fn is_named_by(&self, said: &str) -> bool {
        said.contains(&format!(
            "cannot {} resource {:?} in API group {:?}",
            self.verb, self.resource, self.group
        ))
    }
}

// W20
async fn the_website_operator_needs_its_role_and_no_less(stage: Stage) {
    let rules = operator(stage.client.clone(), Arc::default()).rules().with_name(ROLE).with_crd::<Website>();
    let role = rules.cluster_role().expect("the operator watches all namespaces");
    let granted = rights(&role);
    assert!(rules.roles().is_empty() && granted.len() == 13, "{rules}");
    let mut ground = Ground::of(stage, &role).await;
    let refused = ground.play(0, None).await;
    assert_eq!(refused, Vec::<String>::new(), "under the whole role nothing is refused");
    // On the embedded server, `patch` is enough to create an object by an apply; a real one also requires `create`.
    let tells = |right: &&Right| right.verb != "create" || matches!(ground.server, Server::KubeApiserver(_));
    let taken: Vec<_> = granted.iter().filter(tells).collect();
    for (round, right) in taken.into_iter().enumerate() {
        ground.grant(&short_of(&role, right), Some(right)).await;
        let refused = ground.play(round + 1, Some(right)).await;
        println!("without {} {}: {}", right.verb, right.resource, refused[0]);
        let others: Vec<_> = refused.iter().filter(|said| !right.is_named_by(said)).collect();
        assert!(others.is_empty(), "without {right:?} something else was refused: {others:#?}");
    }
}

fn rights(role: &ClusterRole) -> Vec<Right> {
    let all = role.rules.iter().flatten().flat_map(|rule| {
        let group = rule.api_groups.iter().flatten().next().cloned().unwrap_or_default();
        let resource = rule.resources.iter().flatten().next().cloned().unwrap_or_default();
        let right = move |verb: &String| Right {
            group: group.clone(),
            resource: resource.clone(),
            verb: verb.clone(),
        };
        rule.verbs.iter().map(right).collect::<Vec<_>>()
    });
    all.collect()
}

/// Takes one verb away.
fn short_of(role: &ClusterRole, right: &Right) -> ClusterRole {
    let mut role = role.clone();
    for rule in role.rules.iter_mut().flatten() {
        if rule.resources.iter().flatten().any(|resource| *resource == right.resource) {
            rule.verbs.retain(|verb| *verb != right.verb);
        }
    }
    role.rules.iter_mut().for_each(|rules| rules.retain(|rule| !rule.verbs.is_empty()));
    role
}

/// Where the operator runs: a server on which the viewer has a role.
struct Ground {
    server: Server,
    kit: Kit,
    namespace: String,
}

/// An operator under way, and what the server refused it.
struct Play {
    refused: Arc<Mutex<Vec<String>>>,
    gates: Arc<Gates>,
    cuts: Cuts,
    /// What is to be refused.
    lacks: Option<(String, String)>,
}

impl Play {
    fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until something is so, or until something was refused; for that alone, where it is to be.
    async fn until(&self, needs: (&str, &str), so: impl AsyncFn() -> bool) -> bool {
        let lacks = self.lacks.as_ref().is_some_and(|(verb, resource)| (&**verb, &**resource) == needs);
        let wait = async {
            while self.refused().is_empty() && (lacks || !so().await) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let done = tokio::time::timeout(PATIENCE, wait).await;
        assert!(done.is_ok(), "{needs:?} was to be used, and without {:?} refused", self.lacks);
        self.refused().is_empty()
    }
}

impl Ground {
    async fn of(stage: Stage, role: &ClusterRole) -> Self {
        let kit = stage.kit().clone();
        if let Server::KubeApiserver(_) = stage.server {
            kit.create(role).await;
            let metadata = ObjectMeta { name: Some(ROLE.to_owned()), ..ObjectMeta::default() };
            let group = "rbac.authorization.k8s.io".to_owned();
            let role_ref =
                RoleRef { api_group: Some(group.clone()), kind: "ClusterRole".into(), name: ROLE.into() };
            let viewer = Subject {
                api_group: Some(group),
                kind: "User".into(),
                name: "viewer".into(),
                namespace: None,
            };
            kit.create(&ClusterRoleBinding { metadata, role_ref, subjects: Some(vec![viewer]) }).await;
        }
        let mut ground = Self { server: stage.server, kit, namespace: stage.namespace };
        ground.grant(role, None).await;
        ground
    }

    /// Lets the viewer do what a role says, and no more.
    async fn grant(&mut self, role: &ClusterRole, without: Option<&Right>) {
        match &self.server {
            Server::KubeApiserver(_) => {
                self.kit.patch_merge::<ClusterRole>(ROLE, json!({ "rules": role.rules })).await;
            }
            Server::Embedded(_) => {
                // It can't take back what it allowed.
                let server = Server::embedded().await;
                let (admin, _) = server.client(User::Admin, &self.namespace).await;
                self.kit = Kit::new(admin.clone());
                let metadata = ObjectMeta { name: Some(self.namespace.clone()), ..ObjectMeta::default() };
                self.kit.create(&Namespace { metadata, ..Namespace::default() }).await;
                Manager::new(admin).install_crd::<Website>().await.unwrap();
                let Server::Embedded(embedded) = &server else { unreachable!("it was just made") };
                for Right { verb, resource, .. } in rights(role) {
                    embedded.allow("viewer", verb_of(&verb), &resource);
                }
                self.server = server;
            }
        }
        let wait = async {
            while !self.holds(role, without).await {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("a role takes effect");
    }

    /// Whether the server goes by a role by now.
    async fn holds(&self, role: &ClusterRole, without: Option<&Right>) -> bool {
        let (viewer, _) = self.server.client(User::Viewer, &self.namespace).await;
        let reviews = Api::<SelfSubjectAccessReview>::all(viewer);
        let wanted = rights(role).into_iter().map(|right| (right, true));
        for (right, allowed) in wanted.chain(without.cloned().map(|right| (right, false))) {
            let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
            let named = resource == "customresourcedefinitions";
            let asked = ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                verb: Some(right.verb.clone()),
                name: named.then(|| DEFINITION.to_owned()),
                ..ResourceAttributes::default()
            };
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(asked),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
            if answer.status.unwrap().allowed != allowed {
                return false;
            }
        }
        true
    }

    /// Installs the definition and runs the operator through all that it does; returns what was refused.
    async fn play(&self, round: usize, lacks: Option<&Right>) -> Vec<String> {
        let (viewer, cuts) = self.server.client(User::Viewer, &self.namespace).await;
        let refused = Arc::new(Mutex::new(Vec::new()));
        let (gates, client) = overheard(viewer, refused.clone());
        let lacks = lacks.map(|right| (right.verb.clone(), right.resource.clone()));
        let play = Play { refused, gates, cuts, lacks };
        let manager = operator(client, Arc::default());
        let installed = Box::pin(manager.install_crd::<Website>());
        if self.install(&play, installed, round).await {
            let running = manager.spawn();
            self.visit(&play, round).await;
            running.stop().await.unwrap();
        }
        if let Server::KubeApiserver(_) = self.server {
            self.tidy_up().await;
        }
        play.refused()
    }

    async fn install(
        &self,
        play: &Play,
        installed: impl Future<Output = Result<(), watchkeeper::Error>>,
        round: usize,
    ) -> bool {
        let definitions = "customresourcedefinitions";
        let creates =
            play.lacks.as_ref().is_some_and(|lacks| *lacks == ("create".into(), definitions.into()));
        if round == 0 || creates {
            self.kit.delete::<CustomResourceDefinition>(DEFINITION).await;
            self.kit.eventually::<CustomResourceDefinition>(DEFINITION, |found| found.is_none()).await;
        }
        let installed = installed.await;
        if installed.is_err() && creates {
            let (admin, _) = self.server.client(User::Admin, &self.namespace).await;
            Manager::new(admin).install_crd::<Website>().await.unwrap();
        }
        let lists = play.lacks.as_ref().is_some_and(|lacks| *lacks == ("list".into(), "websites".into()));
        if lists {
            // To see whether a definition is served is one use of it, and not the one that counts.
            play.refused.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        assert_eq!(installed.is_ok(), play.refused().is_empty(), "{installed:?}");
        installed.is_ok()
    }

    /// Does what makes the operator use each of its rights.
    async fn visit(&self, play: &Play, round: usize) {
        let (first, second) = (format!("r{round}-a"), format!("r{round}-b"));
        let site = |name: &str| {
            let spec = WebsiteSpec { domain: format!("{name}.example"), tags: Vec::new(), replicas: 2 };
            Website::new(name, spec)
        };
        self.kit.create(&site(&first)).await;
        let reported = async || {
            let found = self.kit.get::<Website>(&first).await.unwrap();
            found.status.is_some() && found.finalizers().iter().any(|held| held == FINALIZER)
        };
        for needs in [
            ("watch", "websites"),
            ("watch", "deployments"),
            ("patch", "websites"),
            ("patch", "deployments"),
            ("create", "deployments"),
            ("patch", "websites/status"),
        ] {
            if !play.until(needs, reported).await {
                return;
            }
        }
        // A child that belongs to an earlier site of its name: whether it is the cache that is behind, the server knows.
        let mut child = self.kit.get::<Deployment>(&first).await.unwrap();
        child.metadata = ObjectMeta { name: Some(second.clone()), ..ObjectMeta::default() };
        child.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "web.example.dev/v1".into(),
            kind: "Website".into(),
            name: second.clone(),
            uid: "00000000-0000-4000-8000-000000000000".into(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        child.status = None;
        self.kit.create(&child).await;
        self.kit.create(&site(&second)).await;
        let tried = async || !self.kit.get::<Website>(&second).await.unwrap().finalizers().is_empty();
        if !play.until(("get", "websites"), tried).await {
            return;
        }
        // An apply that is refused as stale looks at what is there.
        play.gates.hold_events();
        self.kit
            .patch_merge::<Deployment>(&first, json!({ "metadata": { "annotations": { "a": "b" } } }))
            .await;
        self.kit.patch_merge::<Website>(&first, json!({ "spec": { "replicas": 3 } })).await;
        let applied = async || {
            let child = self.kit.get::<Deployment>(&first).await.unwrap();
            child.spec.unwrap().replicas == Some(3)
        };
        let goes_on = play.until(("get", "deployments"), applied).await;
        play.gates.let_events_pass();
        if !goes_on {
            return;
        }
        // Whether a server that was out of reach lost its history is found out by a list.
        for resource in ["deployments", "websites"] {
            play.cuts.cut(resource);
            play.cuts.heal(resource);
            let waited = async || true;
            if !play.until(("list", resource), waited).await {
                return;
            }
        }
        self.kit.delete::<Website>(&first).await;
        play.until(("patch", "websites"), async || self.kit.get::<Website>(&first).await.is_none()).await;
    }

    /// Removes all that is left, without regard to finalizers.
    async fn tidy_up(&self) {
        for site in self.kit.list::<Website>(&self.namespace).await {
            let name = site.name_any();
            self.kit.patch_merge::<Website>(&name, json!({ "metadata": { "finalizers": null } })).await;
            if site.metadata.deletion_timestamp.is_none() {
                self.kit.delete::<Website>(&name).await;
            }
        }
        for child in self.kit.list::<Deployment>(&self.namespace).await {
            self.kit.delete::<Deployment>(&child.name_any()).await;
        }
    }
}

fn verb_of(verb: &str) -> Verb {
    let all = [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
    all.into_iter().find(|one| one.as_str() == verb).expect("it is a verb of an API")
}

/// A client whose refusals are overheard, and whose watches of Deployments can be held.
fn overheard(client: Client, refused: Arc<Mutex<Vec<String>>>) -> (Arc<Gates>, Client) {
    let namespace = client.default_namespace().to_owned();
    let (gates, gated) = Gates::before(client.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let of_deployments = request.uri().path().ends_with("/deployments");
        let client = if of_deployments { gated.clone() } else { client.clone() };
        let refused = refused.clone();
        async move {
            let answer = client.send(request).await?;
            if answer.status() != StatusCode::FORBIDDEN {
                return Ok(answer);
            }
            let (head, body) = answer.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let status: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let message = status["message"].as_str().unwrap_or_default().to_owned();
            refused.lock().unwrap_or_else(PoisonError::into_inner).push(message);
            Ok::<_, kube::Error>(Response::from_parts(head, Body::from(bytes.to_vec())))
        }
    });
    (gates, Client::new(service, namespace))
}

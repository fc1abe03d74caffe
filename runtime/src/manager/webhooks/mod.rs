//! A program's own API: the kinds that it installs and migrates, and the webhooks that it serves.
//!
//! Webhooks have one TLS port in every replica, with certificates that the replicas share. The port is a task of the
//! manager, which begins at once: conversions are answered before caches have synced, since caches may need them. When the
//! manager stops, the port goes on to answer for a while, with `Connection: close`: an API server may not know yet that
//! this replica goes.

mod objects;
mod keeper;
mod port;
mod migrate;
mod policies;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::util::BoxCloneSyncService;

use self::{
    keeper::{Keeper, ServedLeaf},
    migrate::Migration,
    objects::{BundleHolder, OF_CONFIGURATIONS, RawObjects, WAITS},
    policies::PolicyKeeper,
    port::WebhookService,
};
use super::{
    Inspector, Rules, Running, Stopping,
    client::crypto_provider,
    http::{Bound, Http, PortLimits},
    install::Installer,
    tasks::Task,
};
use crate::{
    clock::WallClock,
    error::Error,
    versions::Convert,
    webhook::{GeneratedPolicy, Rotation, Webhooks},
};

/// How often it is looked whether caches have synced.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most connections.
const MOST_CONNECTIONS: usize = 1_000;
/// How the port treats connections: an API server keeps them, and uses them again after minutes.
const LIMITS: PortLimits = PortLimits {
    idle: Duration::from_secs(120),
    life: Duration::from_secs(600),
    farewell: Duration::from_secs(5),
};

/// The kinds that a manager installs, and the webhooks that it serves.
#[derive(Default)]
pub(super) struct ProgramApi {
    pub(super) kinds: Vec<Arc<dyn Convert>>,
    pub(super) webhooks: Option<Webhooks>,
    /// The policies and their bindings.
    pub(super) policies: Vec<GeneratedPolicy>,
    /// The names of the definitions whose objects are migrated.
    pub(super) migrated: Vec<String>,
}

/// What a program's own API needs of its manager.
pub(super) struct ApiParts {
    /// A client that does not depend on leadership.
    pub(super) direct: kube::Client,
    /// The client of the replica that leads.
    pub(super) client: kube::Client,
    pub(super) clock: WallClock,
    pub(super) inspector: Inspector,
    /// The program's name.
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) dry_run: bool,
    pub(super) grace_period: Duration,
}

impl ProgramApi {
    /// Returns the webhooks with everything that was not set, and the name of what belongs to them.
    fn completed(&self, namespace: &str, name: &str) -> (Option<Webhooks>, String) {
        // The name of a Service has no dots.
        let service = format!("{}-webhooks", name.split('.').next().unwrap_or_default());
        let webhooks = self.webhooks.clone().map(|webhooks| {
            let converted = self.kinds.iter().filter(|kind| kind.versions().len() > 1);
            converted.fold(webhooks, |all, kind| all.converting(kind)).served_by(namespace, &service)
        });
        (webhooks, format!("{name}-webhooks"))
    }

    /// Adds what it takes to serve webhooks and to install kinds.
    pub(super) fn rules(&self, rules: &mut Rules, namespace: &str, name: &str) {
        let (webhooks, name) = self.completed(namespace, name);
        if let Some(webhooks) = webhooks {
            rules.serve_webhooks(webhooks.namespace().unwrap_or(namespace), &name);
        }
        let definitions = self.kinds.iter().filter_map(|kind| kind.definition().ok());
        definitions.for_each(|definition| rules.install(&definition.name_any()));
        self.migrated.iter().for_each(|name| rules.migrate(name));
        self.policies.iter().for_each(|policy| rules.install_policy(&policy.plural(), &policy.name));
    }

    /// Makes the tasks that install kinds, migrate objects and serve webhooks.
    ///
    /// # Errors
    /// A kind has several versions, and nothing converts them.
    pub(super) fn tasks(&self, parts: &ApiParts) -> Result<(Vec<Task>, Option<Webhooks>), Error> {
        let (webhooks, name) = self.completed(parts.direct.default_namespace(), &parts.name);
        let mut tasks = Vec::new();
        for kind in &self.kinds {
            tasks.push(installs(definition(kind.as_ref(), webhooks.as_ref())?, parts));
        }
        for name in &self.migrated {
            let (objects, name) = (RawObjects::new(parts.client.clone()), name.clone());
            let migration = Migration { objects, name };
            if !parts.dry_run {
                tasks.push(Task::new("migration".to_owned(), true, move |stopping| {
                    migration.clone().run(stopping)
                }));
            }
        }
        if !self.policies.is_empty() && !parts.dry_run {
            let (objects, policies) = (RawObjects::new(parts.client.clone()), self.policies.clone());
            let keeper = PolicyKeeper { objects, policies };
            tasks.push(Task::new("policies".to_owned(), true, move |stopping| keeper.clone().run(stopping)));
        }
        if let Some(webhooks) = webhooks.clone().filter(|_| !parts.dry_run) {
            let (client, clock, inspector) =
                (parts.direct.clone(), parts.clock.clone(), parts.inspector.clone());
            let linger = webhooks.linger().min(parts.grace_period / 2);
            let server = WebhookServer { webhooks, client, clock, inspector, name, linger };
            let (configurator, client) = (server.clone(), parts.client.clone());
            tasks.push(Task::new("webhooks".to_owned(), false, move |stopping| server.clone().run(stopping)));
            tasks.push(Task::new("webhook configurations".to_owned(), true, move |stopping| {
                configurator.clone().configure_all(client.clone(), stopping)
            }));
        }
        Ok((tasks, webhooks))
    }
}

/// Returns the definition of all versions of a kind, which says how they are converted.
fn definition(kind: &dyn Convert, webhooks: Option<&Webhooks>) -> Result<CustomResourceDefinition, Error> {
    let versions = kind.versions().join(", ");
    let wrong = |why: String| Error::Definition { name: versions.clone(), why, status: None };
    let mut definition = kind.definition().map_err(wrong)?;
    if kind.versions().len() > 1 {
        let Some(webhooks) = webhooks else {
            let (name, status) = (definition.name_any(), None);
            let why = "it has several versions, and nothing converts them: add `.webhooks(..)`".to_owned();
            return Err(Error::Definition { name, why, status });
        };
        definition.spec.conversion = Some(webhooks.conversion(None));
    }
    Ok(definition)
}

/// Makes a task that installs a definition.
fn installs(definition: CustomResourceDefinition, parts: &ApiParts) -> Task {
    let (client, seed, dry_run) = (parts.direct.clone(), parts.seed, parts.dry_run);
    let stored = definition.spec.versions.iter().find(|version| version.storage);
    let version = stored.map(|version| version.name.clone()).unwrap_or_default();
    Task::new(format!("install {}", definition.name_any()), false, move |stopping: Stopping| {
        let installer = Installer::new(client.clone(), definition.clone(), version.clone(), seed, dry_run);
        async move {
            tokio::select! {
                () = stopping.wait() => Ok(()),
                installed = installer.install() => installed,
            }
        }
    })
}

/// Calls the webhooks of a manager in the process; a manager without any knows no path.
impl From<&Running> for BoxCloneSyncService<Request<Bytes>, Response<Bytes>, std::convert::Infallible> {
    fn from(running: &Running) -> Self {
        match &running.webhooks {
            Some(webhooks) => webhooks.into(),
            None => (&Webhooks::new("")).into(),
        }
    }
}

/// Serves the webhooks of one manager.
#[derive(Clone)]
pub(super) struct WebhookServer {
    pub(super) webhooks: Webhooks,
    /// A client that does not depend on leadership.
    pub(super) client: kube::Client,
    pub(super) clock: WallClock,
    pub(super) inspector: Inspector,
    /// The name of the configurations and of the Secret.
    pub(super) name: String,
    pub(super) linger: Duration,
}

impl WebhookServer {
    /// Serves until the manager stops, and a while longer.
    pub(super) async fn run(self, stopping: Stopping) -> Result<(), Error> {
        let closing = CancellationToken::new();
        let service = WebhookService::new(self.webhooks.clone(), closing.clone());
        let (bound, keeper) = self.bind()?;
        let serving = bound.serve_with(service, LIMITS);
        let _keeper = keeper.map(|keeper| AbortOnDropHandle::new(tokio::spawn(keeper)));
        let synced = tokio::spawn(wait_for_caches(self.inspector.clone(), self.webhooks.clone()));
        let _synced = AbortOnDropHandle::new(synced);
        stopping.wait().await;
        closing.cancel();
        sleep(self.linger).await;
        serving.stop().await;
        Ok(())
    }

    /// Takes the port; what else is returned keeps its certificates.
    fn bind(&self) -> Result<(Bound, Option<BoxFuture<'static, ()>>), Error> {
        let http = Http::on(self.webhooks.address.clone()).max_connections(MOST_CONNECTIONS);
        if let Some(folder) = &self.webhooks.files {
            let http = http.tls(folder.join("tls.crt"), folder.join("tls.key"));
            return Ok((Bound::required(&http)?, None));
        }
        let (provider, leaf) = (crypto_provider(), ServedLeaf::default());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(Error::other)?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(leaf.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let namespace = self.webhooks.namespace().unwrap_or(self.client.default_namespace());
        let keeper = Keeper {
            objects: RawObjects::new(self.client.clone()),
            secret: format!("/api/v1/namespaces/{namespace}/secrets/{}", self.name),
            holders: self.holders(),
            names: self.webhooks.names(),
            clock: self.clock.clone(),
            provider,
            leaf,
            rotation: Rotation::default(),
            served: None,
        };
        let bound = Bound::required(&http)?.with_tls(Arc::new(config).into());
        Ok((bound, Some(Box::pin(keeper.run()))))
    }

    /// Lists the objects that say whom an API server trusts.
    fn holders(&self) -> Vec<BundleHolder> {
        let configurations =
            self.configurations().into_iter().map(|(path, _)| BundleHolder::Configuration(path));
        let definitions = self.webhooks.converted().into_iter().map(|name| {
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            BundleHolder::Definition(path)
        });
        configurations.chain(definitions).collect()
    }

    /// Lists the configurations and their paths.
    fn configurations(&self) -> Vec<(String, Value)> {
        let made = self.webhooks.configurations(&self.name, None);
        let path = |plural: &str| format!("/apis/admissionregistration.k8s.io/v1/{plural}/{}", self.name);
        let mutating = made.mutating.map(|made| (path("mutatingwebhookconfigurations"), json!(made)));
        let validating = made.validating.map(|made| (path("validatingwebhookconfigurations"), json!(made)));
        mutating.into_iter().chain(validating).collect()
    }

    /// Applies a configuration; webhooks that the program does not have any more go.
    async fn configure(&self, objects: &RawObjects, path: &str, wanted: &Value) -> Result<(), kube::Error> {
        let holder = BundleHolder::Configuration(path.to_owned());
        if let Some(mut found) = objects.read(path).await? {
            let names = |object: &Value| -> Vec<Value> {
                let webhooks = object["webhooks"].as_array().into_iter().flatten();
                webhooks.map(|webhook| webhook["name"].clone()).collect()
            };
            let (kept, all) = (names(wanted), names(&found));
            if let Some(webhooks) =
                found["webhooks"].as_array_mut().filter(|_| all.iter().any(|name| !kept.contains(name)))
            {
                // Who owns a bundle alone would keep a webhook that has nothing else.
                webhooks.retain(|webhook| kept.contains(&webhook["name"]));
                let bundle = webhooks.first().map(|webhook| webhook["clientConfig"]["caBundle"].clone());
                holder.publish(objects, &found, &bundle.unwrap_or_default()).await?;
            }
        }
        objects.apply(path, wanted, OF_CONFIGURATIONS).await.map(drop)
    }

    /// Applies the configurations, at the beginning of each term: so those of the program that leads stay.
    async fn configure_all(self, client: kube::Client, stopping: Stopping) -> Result<(), Error> {
        let objects = RawObjects::new(client);
        tokio::select! {
            () = stopping.wait() => {}
            () = self.install(&objects) => {}
        }
        Ok(())
    }

    /// Applies the configurations, until that succeeds.
    async fn install(&self, objects: &RawObjects) {
        for (path, configuration) in self.configurations() {
            let [mut wait, longest] = WAITS;
            while let Err(error) = self.configure(objects, &path, &configuration).await {
                if wait == longest {
                    tracing::warn!(%error, path, "a webhook configuration can't be applied; trying again");
                }
                sleep(wait).await;
                wait = (wait * 2).min(longest);
            }
        }
    }
}

/// Lets handlers run that read caches once these have synced.
async fn wait_for_caches(inspector: Inspector, webhooks: Webhooks) {
    while !inspector.caches_have_synced() {
        sleep(LOOK_EVERY).await;
    }
    webhooks.caches_have_synced();
}

//! A program's own API: the kinds that it installs and migrates, and the webhooks that it serves.
//!
//! Webhooks have one TLS port in every replica, with certificates that the replicas share. The port is a task of the
//! manager, which begins at once: conversions are answered before caches have synced, since caches may need them. When the
//! manager stops, the port goes on to answer for a while, with `Connection: close`: an API server may not know yet that
//! this replica goes.

mod objects;
mod peers;
mod keeper;
mod port;
mod migrate;
mod policies;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::{
    ByteString, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::ResourceExt;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::util::BoxCloneSyncService;

use self::{
    keeper::{Keeper, ServedLeaf},
    migrate::Migration,
    objects::{BundleHolder, Called, OF_CONFIGURATIONS, RawObjects, WAITS},
    peers::{Peers, PortState, wait_for},
    policies::PolicyKeeper,
    port::WebhookService,
};
use super::{
    Inspector, Rules, Running, Stopping,
    client::crypto_provider,
    http::{Bound, Http, PortLimits},
    install::{Installer, passes},
    manifests::{GeneratedApi, WebhookPort, port_of},
    tasks::Task,
};
use crate::{
    clock::WallClock,
    error::Error,
    metrics::{Metrics, MigrationMetrics, WebhookMetrics},
    object::{ObjectKey, is_domain},
    versions::Convert,
    webhook::{GeneratedPolicy, Rotation, Webhooks, configuration},
};

/// The path of all definitions.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How long it may take until a replica that is ready gets calls: its probe, the endpoints of the Service, and the proxies.
const CALLED_WITHIN: Duration = Duration::from_secs(15);
/// How long that is waited for.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How soon it is looked again whether the replica is ready.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often it is looked whether caches have synced.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most connections.
const MOST_CONNECTIONS: usize = 1_000;
/// How often configurations are applied again; an apply that changes nothing writes nothing.
const REPAIR_EVERY: Duration = Duration::from_secs(30);
/// How long it may take to say that this replica is gone.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);
/// How the port treats connections: an API server closes them after 90 s without a call, and must be the one who does.
const LIMITS: PortLimits = PortLimits {
    idle: Duration::from_secs(120),
    life: Duration::from_secs(86_400),
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
    /// The Lease by which the program leads.
    pub(super) lease: Option<ObjectKey>,
    /// Whether each replica has a Lease as well.
    pub(super) has_lease_each: bool,
}

/// What a program's own API needs of its manager.
pub(super) struct ApiParts {
    /// A client that does not depend on leadership.
    pub(super) direct: kube::Client,
    /// The client of the replica that leads.
    pub(super) client: kube::Client,
    pub(super) clock: WallClock,
    pub(super) inspector: Inspector,
    pub(super) metrics: Metrics,
    /// The program's name.
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) dry_run: bool,
    pub(super) grace_period: Duration,
}

impl ProgramApi {
    /// Returns the webhooks with everything that was not set, and the name of what belongs to them.
    fn completed(&self, namespace: &str, name: &str) -> (Option<Webhooks>, String) {
        let name = self.webhooks.as_ref().and_then(|webhooks| webhooks.name.as_deref()).unwrap_or(name);
        // The name of a Service has no dots.
        let service = format!("{}-webhooks", name.split('.').next().unwrap_or_default());
        let webhooks = self.webhooks.clone().map(|webhooks| {
            let converted = self.kinds.iter().filter(|kind| kind.versions().len() > 1);
            let webhooks = converted.fold(webhooks, |all, kind| all.converting(kind));
            webhooks.served_by(namespace, &service).led_by(self.lease.clone(), self.has_lease_each)
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
        self.policies.iter().for_each(|policy| rules.install_policy(policy));
    }

    /// Generates what an API server has of the program's own API, but for the authority that it trusts.
    ///
    /// # Errors
    /// A kind has several versions, and nothing converts them; or a webhook port has no number.
    pub(super) fn generated(&self, namespace: &str, name: &str) -> Result<GeneratedApi, Error> {
        let (webhooks, name) = self.completed(namespace, name);
        let definitions = self.kinds.iter().map(|kind| definition(kind.as_ref(), webhooks.as_ref()));
        let definitions = definitions.collect::<Result<_, _>>()?;
        let policies = self.policies.iter().map(GeneratedPolicy::object).collect();
        let Some(webhooks) = webhooks else {
            return Ok(GeneratedApi { definitions, policies, ..GeneratedApi::default() });
        };
        let made = configuration::configurations(&webhooks, &name, None);
        let mutating = made.mutating.map(|made| json!(made));
        let configurations = mutating.into_iter().chain(made.validating.map(|made| json!(made))).collect();
        let service = webhooks.service_in().map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let secret = || match webhooks.certificate_name() {
            Some(certificate) => certificate.to_owned(),
            None => format!("{}-tls", service.as_ref().map_or(name.as_str(), |(_, service)| service)),
        };
        let files = webhooks.files.clone().map(|folder| (folder, secret()));
        let port = port_of(&webhooks.address)?;
        let port = Some(WebhookPort { port, service, files });
        Ok(GeneratedApi { definitions, configurations, policies, port })
    }

    /// Makes the tasks that install kinds, migrate objects and serve webhooks.
    ///
    /// # Errors
    /// A kind has several versions, and nothing converts them.
    pub(super) fn tasks(&self, parts: &ApiParts) -> Result<(Vec<Task>, Option<Webhooks>), Error> {
        let (webhooks, name) = self.completed(parts.direct.default_namespace(), &parts.name);
        if let Some(wrong) = webhooks.as_ref().and(Some(&name)).filter(|name| !is_domain(name)) {
            return Err(Error::other(format!(
                "{wrong:?} can't be the name of webhooks: use a-z, 0-9, '-' and '.' in `Webhooks::named`"
            )));
        }
        let webhooks = webhooks.map(|webhooks| webhooks.counted_in(WebhookMetrics::of(&parts.metrics)));
        let mut tasks = Vec::new();
        let state = PortState {
            agreed: !keeps_certificates(webhooks.as_ref()) || parts.dry_run,
            ..PortState::default()
        };
        let state = watch::Sender::new(PortState { uninstalled: self.kinds.len(), ..state });
        for kind in &self.kinds {
            tasks.push(installs(definition(kind.as_ref(), webhooks.as_ref())?, parts, state.clone()));
        }
        if !self.migrated.is_empty() && !parts.dry_run {
            let metrics = MigrationMetrics::of(&parts.metrics);
            for name in &self.migrated {
                let (objects, meter) = (RawObjects::new(parts.client.clone()), metrics.kind(name));
                let migration = Migration { objects, name: name.clone(), meter };
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
            let drain = match linger.is_zero() {
                true => Duration::ZERO,
                false => parts.grace_period.saturating_sub(linger + LIMITS.farewell + LEAVES_WITHIN),
            };
            let port = state.clone();
            parts.inspector.manager.readiness_checks.add("webhooks".to_owned(), move || {
                match port.borrow().serves {
                    true => Ok(()),
                    false => Err("the port has no certificate yet"),
                }
            });
            let peers = Peers::new(parts.seed, webhooks.answers());
            let server =
                WebhookServer { webhooks, client, clock, inspector, name, linger, drain, state, peers };
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
        definition.spec.conversion = Some(configuration::conversion(webhooks, None));
        definition.metadata.annotations = configuration::injection(webhooks);
    }
    Ok(definition)
}

/// Returns whether a program keeps its certificates in a Secret.
fn keeps_certificates(webhooks: Option<&Webhooks>) -> bool {
    webhooks.is_some_and(|webhooks| webhooks.files.is_none())
}

/// Makes a task that installs a definition; one that is converted waits until all replicas can do that.
fn installs(definition: CustomResourceDefinition, parts: &ApiParts, state: watch::Sender<PortState>) -> Task {
    let (client, seed, dry_run) = (parts.direct.clone(), parts.seed, parts.dry_run);
    let inspector = parts.inspector.clone();
    let stored = definition.spec.versions.iter().find(|version| version.storage);
    let version = stored.map(|version| version.name.clone()).unwrap_or_default();
    Task::new(format!("install {}", definition.name_any()), false, move |stopping: Stopping| {
        let installer = Installer::new(client.clone(), definition.clone(), version.clone(), seed, dry_run);
        let (state, conversion) = (state.clone(), definition.spec.conversion.as_ref());
        let is_converted = conversion.is_some();
        let client_config =
            conversion.and_then(|conversion| conversion.webhook.as_ref()?.client_config.as_ref());
        let is_behind_a_service = client_config.is_some_and(|config| config.service.is_some());
        let called = Called::of(&json!(client_config));
        let (objects, inspector) = (RawObjects::new(client.clone()), inspector.clone());
        let path = format!("{DEFINITIONS}/{}", definition.name_any());
        let installation = async move {
            wait_for(&state, |state| state.agreed || !is_converted).await;
            if is_behind_a_service && !dry_run {
                wait_for_calls(&objects, &path, &called, &inspector).await;
            }
            if !is_converted && !dry_run {
                wait_to_end_conversion(&objects, &path, &inspector).await;
            }
            let bundle = state.borrow().bundle.clone().map(|bundle| ByteString(bundle.into_bytes()));
            installer.of_whole_kind().trusting(bundle).install().await?;
            state.send_modify(|state| state.uninstalled -= 1);
            Ok::<_, Error>(())
        };
        async move {
            tokio::select! {
                () = stopping.wait() => Ok(()),
                installed = installation => installed,
            }
        }
    })
}

/// Waits until an API server can call this program, before a kind is converted that nobody or another program converts: from then
/// on nobody can use it otherwise.
async fn wait_for_calls(objects: &RawObjects, path: &str, called: &Called, inspector: &Inspector) {
    let found = read_definition(objects, path).await;
    if found.is_some_and(|found| !called.converts(&found)) {
        tracing::info!(
            path,
            "this program does not convert the kind so far: waiting until this replica gets calls"
        );
        // A check of the program's own may wait for the new version.
        if timeout(READY_WITHIN, is_ready(inspector)).await.is_err() {
            tracing::warn!(
                path,
                "the replica is not ready after {READY_WITHIN:?}: the kind is converted all the same"
            );
        }
        sleep(CALLED_WITHIN).await;
    }
}

/// Reads a definition; `None` if there is none, or it can't be read for good.
async fn read_definition(objects: &RawObjects, path: &str) -> Option<Value> {
    let mut is_told = false;
    loop {
        match objects.read(path).await {
            Ok(found) => return found,
            // Who may install a definition need not be allowed to read it; and what is wrong for good, the installation says.
            Err(kube::Error::Api(status)) if !passes(status.code) => return None,
            Err(kube::Error::Auth(_) | kube::Error::BuildRequest(_)) => return None,
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(path, %error, "the CRD can't be read; trying again");
                }
                sleep(ASK_AGAIN).await;
            }
        }
    }
}

/// Waits until this replica is ready, if its release drops versions.
///
/// One that never is ready must not take them from the replicas before it.
async fn wait_to_end_conversion(objects: &RawObjects, path: &str, inspector: &Inspector) {
    let found = read_definition(objects, path).await;
    if found.is_some_and(|found| found["spec"]["conversion"]["webhook"].is_object()) {
        tracing::info!(path, "a webhook converts the kind so far: waiting until this replica is ready");
        is_ready(inspector).await;
    }
}

async fn is_ready(inspector: &Inspector) {
    while !inspector.readiness().is_ok() {
        sleep(ASK_AGAIN).await;
    }
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
struct WebhookServer {
    webhooks: Webhooks,
    /// A client that does not depend on leadership.
    client: kube::Client,
    clock: WallClock,
    inspector: Inspector,
    /// The name of the configurations and of the Secret.
    name: String,
    linger: Duration,
    /// How long clients have after that to close their connections.
    drain: Duration,
    state: watch::Sender<PortState>,
    peers: Peers,
}

impl WebhookServer {
    /// Serves until the manager stops, and a while longer.
    async fn run(self, stopping: Stopping) -> Result<(), Error> {
        let closing = CancellationToken::new();
        let service = WebhookService::new(self.webhooks.clone(), closing.clone());
        let (bound, keeper) = self.bind()?;
        let serving = bound.serve_with(BoxCloneSyncService::new(service), LIMITS);
        self.state.send_modify(|state| state.serves = keeper.is_none());
        let keeper = keeper.map(|keeper| AbortOnDropHandle::new(tokio::spawn(keeper)));
        let synced = tokio::spawn(wait_for_caches(self.inspector.clone(), self.webhooks.clone()));
        let _synced = AbortOnDropHandle::new(synced);
        stopping.wait().await;
        closing.cancel();
        sleep(self.linger).await;
        // A request may be under way on any connection that seems idle. Only its client can close it without a loss.
        let _ = timeout(self.drain, serving.closed_by_clients()).await;
        serving.stop().await;
        if let Some(keeper) = keeper {
            // It would enter itself again.
            keeper.abort();
            let _ = keeper.await;
            let _ = timeout(LEAVES_WITHIN, self.leave()).await;
        }
        Ok(())
    }

    /// Says to the other replicas that this one is gone. If that fails, they find out by themselves.
    async fn leave(&self) -> Result<(), kube::Error> {
        let (objects, path) = (RawObjects::new(self.client.clone()), self.secret());
        while let Some(mut secret) = objects.read(&path).await? {
            if !self.peers.leave(&mut secret) || objects.rewrite(&path, &secret).await? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the path of the Secret.
    fn secret(&self) -> String {
        let namespace = self.webhooks.namespace().unwrap_or(self.client.default_namespace());
        format!("/api/v1/namespaces/{namespace}/secrets/{}", self.name)
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
        let keeper = Keeper {
            objects: RawObjects::new(self.client.clone()),
            secret: self.secret(),
            holders: self.holders(),
            names: configuration::names(&self.webhooks),
            clock: self.clock.clone(),
            provider,
            leaf,
            rotation: Rotation::default(),
            served: None,
            state: self.state.clone(),
            peers: self.peers.clone(),
        };
        let bound = Bound::required(&http)?.with_tls(Arc::new(config).into());
        Ok((bound, Some(Box::pin(keeper.run()))))
    }

    /// Lists the objects that say whom an API server trusts.
    fn holders(&self) -> Vec<BundleHolder> {
        let configurations = self.configurations().into_iter().filter(|(_, wanted)| wanted.is_some());
        let configurations = configurations.map(|(path, _)| BundleHolder::Configuration(path));
        let conversion = json!(configuration::conversion(&self.webhooks, None));
        let called = Called::of(&conversion["webhook"]["clientConfig"]);
        let definitions = self.webhooks.converted().into_iter().map(|name| {
            let path = format!("{DEFINITIONS}/{name}");
            BundleHolder::Definition(path, called.clone())
        });
        configurations.chain(definitions).collect()
    }

    /// Returns the paths of both configurations, and those that are to be there.
    fn configurations(&self) -> [(String, Option<Value>); 2] {
        let bundle = self.state.borrow().bundle.clone();
        let made = configuration::configurations(&self.webhooks, &self.name, bundle.as_deref());
        let path = |plural: &str| format!("/apis/admissionregistration.k8s.io/v1/{plural}/{}", self.name);
        [
            (path("mutatingwebhookconfigurations"), made.mutating.map(|made| json!(made))),
            (path("validatingwebhookconfigurations"), made.validating.map(|made| json!(made))),
        ]
    }

    /// Applies a configuration; webhooks that the program does not have any more go.
    async fn configure(
        &self,
        objects: &RawObjects,
        path: &str,
        wanted: Option<&Value>,
    ) -> Result<(), kube::Error> {
        let found = objects.read(path).await?;
        // Without webhooks of this purpose, one of the same name is somebody else's, unless it was applied here.
        let is_own = |found: &Value| {
            let mut managers = found["metadata"]["managedFields"].as_array().into_iter().flatten();
            wanted.is_some() || managers.any(|entry| entry["manager"] == OF_CONFIGURATIONS)
        };
        if let Some(mut found) = found.filter(is_own) {
            let wanted = wanted.and_then(|wanted| wanted["webhooks"].as_array());
            let is_wanted = |found: &Value| {
                wanted.is_some_and(|wanted| wanted.iter().any(|wanted| wanted["name"] == found["name"]))
            };
            let webhooks = found["webhooks"].take();
            let all = webhooks.as_array().map(Vec::as_slice).unwrap_or_default();
            let kept: Vec<_> = all.iter().filter(|webhook| is_wanted(webhook)).collect();
            if kept.len() < all.len() {
                // Who has applied manifests owns them as well, so that an apply would leave them there.
                let version = &found["metadata"]["resourceVersion"];
                let part = json!({"metadata": {"resourceVersion": version}, "webhooks": kept});
                objects.merge(path, &part, OF_CONFIGURATIONS).await?;
            }
        }
        match wanted {
            Some(wanted) => objects.apply(path, wanted, OF_CONFIGURATIONS).await.map(drop),
            None => Ok(()),
        }
    }

    /// Applies the configurations at the beginning of each term, so those of the program that leads stay; and again and again,
    /// since somebody may delete or edit them.
    async fn configure_all(self, client: kube::Client, stopping: Stopping) -> Result<(), Error> {
        let objects = RawObjects::new(client);
        let keeps = async {
            loop {
                self.install(&objects).await;
                sleep(REPAIR_EVERY).await;
            }
        };
        tokio::select! {
            () = stopping.wait() => Ok(()),
            never = keeps => never,
        }
    }

    /// Applies the configurations, until that succeeds, once all replicas have these webhooks and the kinds are there.
    async fn install(&self, objects: &RawObjects) {
        wait_for(&self.state, |state| state.agreed && state.uninstalled == 0).await;
        for (path, configuration) in self.configurations() {
            let [mut wait, longest] = WAITS;
            while let Err(error) = self.configure(objects, &path, configuration.as_ref()).await {
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

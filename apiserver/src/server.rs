//! The server as tests and tools hold it.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::control::Control;
use crate::core::{Core, CoreConfig, Restart};
use crate::faults::{Armed, Fault, Faults, Lag, Requests, Watches};
use crate::http::{Listener, StartError, loopback};
use crate::kit::{DEADLINE, Kit, Observer, Scope};
use crate::route::Verb;
use crate::service::{Front, IN_MEMORY_URL, LocalService, Passage};
use crate::state::Grant;
use crate::store::Forgotten;

/// An API server inside the process; dropping it stops it and breaks its connections.
///
/// It is also a [`Kit`]: `create`, `delete`, `eventually` and so on act on it directly. What the kit does goes
/// past the fault rules and isn't counted among the [`requests`](ApiServer::requests).
///
/// Users are known by their tokens: `admin-token` may do everything, `viewer-token` nothing but discovery unless
/// [`allow`](ApiServer::allow) says so. There is no kubelet, scheduler or workload controller: a Deployment gets
/// no Pods and a status only from those who write it.
pub struct ApiServer<T = InMemory> {
    running: Running,
    kit: Kit,
    setup: Setup,
    transport: T,
}

/// A server reached by clients of the same process; works under paused time.
#[derive(Debug)]
pub struct InMemory(());

/// A server reached over TLS on loopback, by any client.
#[derive(Debug)]
pub struct OverHttp {
    listener: Listener,
    control: Option<Control>,
}

/// Stops the front when it goes.
#[derive(Debug)]
struct Running(Arc<Front>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<T> fmt::Debug for ApiServer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("kit", &self.kit).finish_non_exhaustive()
    }
}

impl<T> Deref for ApiServer<T> {
    type Target = Kit;

    fn deref(&self) -> &Kit {
        &self.kit
    }
}

impl ApiServer<InMemory> {
    /// Builds a server in memory: no sockets, and tokio's clock, paused or not, from the start of 2026.
    pub fn in_memory() -> Builder<ForMemory> {
        Builder::new(ForMemory(()))
    }
}

impl ApiServer<OverHttp> {
    /// Builds a server that listens on loopback with TLS; its clock shows the machine's time.
    pub fn http() -> Builder<ForHttp> {
        let mut builder = Builder::new(ForHttp { address: loopback(0), control: None });
        builder.config.clock = Clock::wall();
        builder
    }

    /// Gives the address, e.g. `https://127.0.0.1:6443`.
    #[must_use]
    pub fn url(&self) -> String {
        self.transport.listener.url()
    }

    /// Gives the address of the control port, if there is one.
    #[must_use]
    pub fn control_url(&self) -> Option<String> {
        self.transport.control.as_ref().map(Control::url)
    }

    /// Gives a kubeconfig for the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.transport.listener.kubeconfig("admin-token", &self.setup.namespace())
    }

    /// Gives the same kubeconfig as YAML, token and authority inside.
    #[must_use]
    pub fn kubeconfig_yaml(&self) -> String {
        self.transport.listener.kubeconfig_yaml("admin-token", &self.setup.namespace())
    }

    /// Builds a client for the administrator, kube's retries off.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_as("admin")
    }

    /// Builds a client for a user, e.g. `viewer`; a name not seen before is a user without rights.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn client_as(&self, user: &str) -> kube::Client {
        let token = self.running.0.tokens().issue(user);
        let client = self.transport.listener.client(Some(&token), &self.setup.namespace());
        client.expect("a client was built from the same parts at the start")
    }

    /// Builds a client that sends no token: its requests are anonymous, or carry their own `Authorization`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn anonymous_client(&self) -> kube::Client {
        let client = self.transport.listener.client(None, &self.setup.namespace());
        client.expect("a client was built from the same parts at the start")
    }

    /// Stops the server; when this returns, the port is free again.
    pub async fn stop(self) {
        let Self { running, transport, .. } = self;
        drop(running);
        transport.listener.stop().await;
        if let Some(control) = transport.control {
            control.stop().await;
        }
    }
}

impl ApiServer<InMemory> {
    /// Gives the address that clients in memory believe they talk to.
    #[must_use]
    pub fn url(&self) -> String {
        IN_MEMORY_URL.to_owned()
    }

    /// Builds a client for the administrator; it behaves as one over HTTP does, kube's retries off.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_as("admin")
    }

    /// Builds a client for a user, e.g. `viewer`; a name not seen before is a user without rights.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn client_as(&self, user: &str) -> kube::Client {
        let token = self.running.0.tokens().issue(user);
        let service = LocalService::new(Arc::clone(&self.running.0), Passage::Ruled);
        service.client(Some(&token), &self.setup.namespace())
    }

    /// Builds a client that sends no token: its requests are anonymous, or carry their own `Authorization`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn anonymous_client(&self) -> kube::Client {
        let service = LocalService::new(Arc::clone(&self.running.0), Passage::Ruled);
        service.client(None, &self.setup.namespace())
    }
}

impl<T> ApiServer<T> {
    /// Gives the desk of fault rules.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        self.running.0.faults()
    }

    /// Gives the recorder of requests.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        self.running.0.requests()
    }

    /// Gives the test kit; the server is one itself.
    #[must_use]
    pub fn kit(&self) -> &Kit {
        &self.kit
    }

    /// Gives the version of the last write.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.core().resource_version()
    }

    /// Lets a user use a verb on a resource, by its plural, in every group and namespace: a ClusterRole.
    pub fn allow(&self, user: &str, verb: Verb, resource: &str) {
        self.grant(user, verb, resource, None);
    }

    /// Lets a user use a verb on a resource, by its plural, in one namespace: a Role.
    ///
    /// Lists and watches across all namespaces stay forbidden.
    pub fn allow_in(&self, namespace: &str, user: &str, verb: Verb, resource: &str) {
        self.grant(user, verb, resource, Some(namespace.to_owned()));
    }

    fn grant(&self, user: &str, verb: Verb, resource: &str, namespace: Option<String>) {
        let (user, verb, resource) = (user.to_owned(), verb.as_str().to_owned(), resource.to_owned());
        self.core().allow(Grant { user, verb, resource, namespace });
    }

    /// Gives the clock of what the server writes.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.core().clock()
    }

    /// Gives the handle by which the watches of a resource, by its plural, are stopped and stepped.
    #[must_use]
    pub fn watches(&self, resource: &str) -> Watches {
        self.faults().watches(resource)
    }

    /// Freezes what reads and watches of a resource, by its plural, show, until the rule is disarmed.
    ///
    /// Writes go on, unseen but by the test kit. It is
    /// [`Fault::Stale`](crate::Fault::Stale) at the present version, for consistent reads too.
    pub fn freeze_reads(&self, resource: &str) -> Armed {
        let frozen = Fault::Stale(Lag::Frozen(self.resource_version())).even_consistent();
        self.faults().on_reads(resource).then(frozen)
    }

    /// Cuts every client off from the server: what is sent either way is lost, and no connection ends.
    ///
    /// It is [`Fault::Silence`](crate::Fault::Silence) for everything, the test kit left out.
    pub fn partition(&self) {
        self.running.0.partition();
    }

    /// Ends a [`partition`](ApiServer::partition): what was held back arrives, as packets sent again do.
    pub fn heal(&self) {
        self.running.0.heal();
    }

    /// Forgets all history: watches and lists from earlier versions get 410.
    ///
    /// Streams that are open go on.
    pub fn compact(&self) {
        self.compact_to(self.resource_version());
    }

    /// Forgets the history up to a version.
    pub fn compact_to(&self, version: u64) {
        self.core().compact_to(version);
    }

    /// Breaks every connection, then comes back with what `what` leaves.
    ///
    /// After [`Restart::Empty`] the builder's definitions and namespaces are gone too;
    /// [`install`](ApiServer::install) brings them back.
    ///
    /// # Panics
    ///
    /// When the version of [`Restart::At`] is no longer remembered.
    #[track_caller]
    pub fn restart(&self, what: Restart) {
        if let Err(Forgotten(oldest)) = self.running.0.restart(what) {
            panic!("cannot restart with {what:?}: no version before {oldest} is remembered");
        }
    }

    /// Creates the builder's namespaces and definitions where they are missing.
    ///
    /// # Errors
    ///
    /// When the server refuses one of them, or a definition doesn't become established.
    pub async fn install(&self) -> Result<(), StartError> {
        self.setup.install(&self.kit).await
    }

    /// Lets the server's own controllers finish what is due now: garbage, namespaces, definitions.
    pub async fn settle(&self) {
        self.core().settle();
        tokio::task::yield_now().await;
    }

    /// Collects garbage now; gives the number of objects it deleted or changed.
    pub fn collect_garbage(&self) -> usize {
        self.core().collect_garbage()
    }

    fn core(&self) -> &Core {
        self.running.0.core()
    }
}

/// What a server is to hold from its start.
#[derive(Clone, Debug, Default)]
struct Setup {
    namespaces: Vec<String>,
    crds: Vec<Value>,
}

impl Setup {
    /// The namespace of what names none: the only one added, else `default`.
    fn namespace(&self) -> String {
        match self.namespaces.as_slice() {
            [one] => one.clone(),
            _ => "default".to_owned(),
        }
    }

    async fn install(&self, kit: &Kit) -> Result<(), StartError> {
        for name in &self.namespaces {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            post(kit, "/api/v1/namespaces", &namespace)
                .await
                .map_err(|message| StartError::Namespace { name: name.clone(), message })?;
        }
        for crd in &self.crds {
            let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            install_crd(kit, &name, crd).await.map_err(|message| StartError::Crd { name, message })?;
        }
        Ok(())
    }
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn install_crd(kit: &Kit, name: &str, crd: &Value) -> Result<(), String> {
    post(kit, CRDS, crd).await?;
    let mut observer = Observer::new(kit.client_ref().clone(), Scope::one(CRDS.to_owned(), name));
    let established = observer.until(DEADLINE, |objects| {
        let conditions = objects.first()?["status"]["conditions"].as_array()?;
        conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True").then_some(())
    });
    established.await.map_err(|error| {
        let seen = observer.objects().first().map(|crd| crd["status"]["conditions"].to_string());
        let why = error.failure.or(seen).unwrap_or_default();
        format!("not established within {DEADLINE:?}: {why}")
    })
}

/// Creates an object; one of the same name may be there already.
async fn post(kit: &Kit, path: &str, object: &Value) -> Result<(), String> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| error.to_string())?;
    match kit.client_ref().request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sets up a server; `start` starts it.
#[derive(Debug)]
#[must_use = "a builder does nothing before `start`"]
pub struct Builder<F> {
    form: F,
    config: CoreConfig,
    setup: Setup,
    deadline: Duration,
}

/// The form of a server in memory.
#[derive(Debug)]
pub struct ForMemory(());

/// The form of a server over HTTP.
#[derive(Debug)]
pub struct ForHttp {
    address: SocketAddr,
    control: Option<SocketAddr>,
}

impl<F> Builder<F> {
    fn new(form: F) -> Self {
        Self { form, config: CoreConfig::default(), setup: Setup::default(), deadline: DEADLINE }
    }

    /// Serves a custom resource; it is established before `start` returns.
    pub fn crd<K: kube::CustomResourceExt>(self) -> Self {
        let crd = serde_json::to_value(K::crd()).expect("a definition is JSON");
        self.crd_object(crd)
    }

    /// Serves a custom resource by its `CustomResourceDefinition` in JSON.
    pub fn crd_object(mut self, crd: Value) -> Self {
        self.setup.crds.push(crd);
        self
    }

    /// Adds a namespace to the four that are always there.
    ///
    /// When it is the only one added, the kit and the clients use it for objects and keys that name none;
    /// otherwise that is `default`.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.setup.namespaces.push(name.into());
        self
    }

    /// Sets the seed of uids and generated names; equal seeds and requests give equal objects.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Sets the time between two bookmarks of a watch that asks for them.
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.config.bookmark_period = period;
        self
    }

    /// Sets the number of changes kept for each resource; older versions get 410.
    pub fn history(mut self, changes: usize) -> Self {
        self.config.history = changes;
        self
    }

    /// Sets the version before the first write.
    pub fn first_version(mut self, version: u64) -> Self {
        self.config.first_version = version;
        self
    }

    /// Sets the time from a definition's creation to its being served.
    pub fn establish_delay(mut self, delay: Duration) -> Self {
        self.config.establish_delay = delay;
        self
    }

    /// Sets the deadline of the kit's waits, 60 s of tokio's time unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    fn split(self) -> (Parts, F) {
        let running = Running(Arc::new(Front::new(Core::new(self.config))));
        let service = LocalService::new(Arc::clone(&running.0), Passage::Unruled);
        let client = service.client(Some("admin-token"), &self.setup.namespace());
        let kit = Kit::new(client).within(self.deadline);
        (Parts { running, kit, setup: self.setup }, self.form)
    }
}

/// A server but for its transport.
struct Parts {
    running: Running,
    kit: Kit,
    setup: Setup,
}

impl Parts {
    fn with<T>(self, transport: T) -> ApiServer<T> {
        let Self { running, kit, setup } = self;
        ApiServer { running, kit, setup, transport }
    }
}

impl Builder<ForMemory> {
    /// Starts the server; namespaces and definitions are there when it returns.
    ///
    /// # Panics
    ///
    /// When the server refuses a definition, saying why; outside a tokio runtime.
    pub async fn start(self) -> ApiServer {
        let (parts, ForMemory(())) = self.split();
        let server = parts.with(InMemory(()));
        match server.install().await {
            Ok(()) => server,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Builder<ForHttp> {
    /// Listens on this port of 127.0.0.1; 0, the default, takes a free one.
    pub fn port(self, port: u16) -> Self {
        self.listen(loopback(port))
    }

    /// Listens on this loopback address.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.form.address = address;
        self
    }

    /// Opens a control port without TLS on this loopback address, for tools in other processes.
    pub fn control(mut self, address: SocketAddr) -> Self {
        self.form.control = Some(address);
        self
    }

    /// Starts the server; namespaces and definitions are there when it returns.
    ///
    /// # Errors
    ///
    /// When the port is taken, TLS can't be set up, or a definition is refused.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<ApiServer<OverHttp>, StartError> {
        let (parts, form) = self.split();
        parts.setup.install(&parts.kit).await?;
        let listener = Listener::start(Arc::clone(&parts.running.0), form.address).await?;
        let client = listener.client(Some("admin-token"), "default");
        client.map_err(|error| StartError::Client(Box::new(error)))?;
        let control = match form.control {
            Some(address) => Some(Control::start(Arc::clone(&parts.running.0), address).await?),
            None => None,
        };
        Ok(parts.with(OverHttp { listener, control }))
    }
}

#[cfg(test)]
mod tests;

//! The server as tests and tools hold it.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
#[cfg(feature = "persistence")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use kube::config::Kubeconfig;
use serde_json::Value;

use crate::call::{Handler, WebhookAddress, WebhookService};
use crate::clock::Clock;
#[cfg(feature = "tls")]
use crate::control::Control;
use crate::core::{Controllers, Core, CoreConfig, Restart, Restored};
use crate::faults::{Armed, Fault, Faults, Lag, Requests, Watches};
#[cfg(feature = "tls")]
use crate::http::{Listener, loopback};
use crate::kit::{DEADLINE, Kit};
use crate::route::Verb;
use crate::service::{Front, IN_MEMORY_URL, LocalService, Passage};
use crate::start_error::StartError;
#[cfg(feature = "rbac")]
use crate::state::Authorization;
use crate::state::Grant;
use crate::store::Forgotten;

mod setup;

use setup::{Setup, There};

/// An API server inside the process; dropping it stops it and breaks its connections.
///
/// It is also a [`Kit`]: `create`, `delete`, `eventually` and so on act on it directly. What the kit does goes
/// past the fault rules and isn't counted among the [`requests`](ApiServer::requests).
///
/// Users are known by their tokens: `admin-token` may do everything, `viewer-token` nothing but discovery unless
/// [`allow`](ApiServer::allow) says so. Kubelet, scheduler and workload controllers are absent: a Deployment gets
/// no Pods and a status only from those who write it.
///
/// The book has more: [tests](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/tutorial/tests.md).
pub struct ApiServer<T = InMemory> {
    running: Running,
    kit: Kit,
    setup: Setup,
    restored: Option<Restored>,
    transport: T,
}

/// A server reached by clients of the same process; works under paused time.
#[derive(Debug)]
pub struct InMemory(());

/// A server reached over TLS on loopback, by any client.
#[cfg(feature = "tls")]
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
        self.0.core().abandon();
    }
}

impl Running {
    /// Stops the front and closes the data file.
    async fn close(self) {
        self.0.stop();
        if let Err(error) = self.0.core().close().await {
            tracing::error!(%error, "the server stops; changes that no client has seen are lost");
        }
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

#[cfg(feature = "tls")]
impl ApiServer<OverHttp> {
    /// Builds a server that listens on loopback with TLS; its clock shows the machine's time.
    pub fn http() -> Builder<ForHttp> {
        Builder::new(ForHttp { address: loopback(0), control: None })
    }

    /// Returns the address, e.g. `https://127.0.0.1:6443`.
    #[must_use]
    pub fn url(&self) -> String {
        self.transport.listener.url()
    }

    /// Returns the address of the control port, if there is one.
    #[must_use]
    pub fn control_url(&self) -> Option<String> {
        self.transport.control.as_ref().map(Control::url)
    }

    /// Returns a kubeconfig for the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.transport.listener.kubeconfig("admin-token", &self.setup.namespace())
    }

    /// Returns the same kubeconfig as YAML, token and authority inside.
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

    /// Stops the server; when this returns, the port is free again, and the data file if there is one.
    ///
    /// A data file holds a snapshot then. Where that can't be written, the log in it says the same, and a line is
    /// logged.
    pub async fn stop(self) {
        let Self { running, transport, .. } = self;
        running.close().await;
        transport.listener.stop().await;
        if let Some(control) = transport.control {
            control.stop().await;
        }
    }
}

impl ApiServer<InMemory> {
    /// Builds a server in memory: no sockets, and the machine's time, which follows tokio's clock where that is paused.
    pub fn in_memory() -> Builder<ForMemory> {
        Builder::new(ForMemory(()))
    }

    /// Returns the address that clients in memory use.
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

    /// Stops the server; when this returns, the data file is free again, if there is one.
    ///
    /// Dropping the server does as much but for the snapshot, and doesn't wait.
    pub async fn stop(self) {
        self.running.close().await;
    }
}

impl<T> ApiServer<T> {
    /// Returns what was in the data file at the start; `None` without a file, or with a new one.
    #[must_use]
    pub fn restored(&self) -> Option<&Restored> {
        self.restored.as_ref()
    }

    /// Returns the registry of fault rules.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        self.running.0.faults()
    }

    /// Returns the recorder of requests.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        self.running.0.requests()
    }

    /// Returns the test kit; the server is one itself.
    #[must_use]
    pub fn kit(&self) -> &Kit {
        &self.kit
    }

    /// Returns the version of the last write.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.core().resource_version()
    }

    /// Calls the webhooks of a program in this process, whatever Service or URL their configurations name.
    ///
    /// Without a socket, and thus also under paused time. It is any service that answers a `POST` of a review as a
    /// webhook port does; a path that it answers with 404 is called elsewhere, as without it. A program of watchkeeper
    /// gives its own: `server.webhooks(&running)`.
    pub fn webhooks(&self, program: impl Into<WebhookService>) {
        self.core().answer_by(program.into());
    }

    /// Allows a user a verb on a resource, by its plural, in every group and namespace: a ClusterRole.
    pub fn allow(&self, user: &str, verb: Verb, resource: &str) {
        self.grant(user, verb, resource, None);
    }

    /// Allows a user a verb on a resource, by its plural, in one namespace: a Role.
    ///
    /// Lists and watches across all namespaces stay forbidden.
    pub fn allow_in(&self, namespace: &str, user: &str, verb: Verb, resource: &str) {
        self.grant(user, verb, resource, Some(namespace.to_owned()));
    }

    fn grant(&self, user: &str, verb: Verb, resource: &str, namespace: Option<String>) {
        let (user, verb, resource) = (user.to_owned(), verb.as_str().to_owned(), resource.to_owned());
        self.core().allow(Grant { user, verb, resource, namespace });
    }

    /// Returns the clock of what the server writes.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.core().clock()
    }

    /// Returns the handle by which the watches of a resource, by its plural, are stopped and stepped.
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

    /// Cuts all clients off from the server: data in both directions is lost, and connections stay open.
    ///
    /// It is [`Fault::Silence`](crate::Fault::Silence) for everything, the test kit left out.
    pub fn partition(&self) {
        self.running.0.partition();
    }

    /// Ends a [`partition`](ApiServer::partition): held data arrives, like packets that are sent again.
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

    /// Breaks every connection, then restarts with the state that `what` selects.
    ///
    /// After [`Restart::Empty`] the builder's CRDs and namespaces are gone too;
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

    /// Creates missing CRDs and namespaces of the builder.
    ///
    /// # Errors
    ///
    /// When the server refuses one of them, or a definition doesn't become established.
    pub async fn install(&self) -> Result<(), StartError> {
        self.setup.install(&self.kit, There::Stays).await
    }

    /// Runs the server's own controllers until all due work is done: garbage, namespaces, CRDs.
    pub async fn settle(&self) {
        self.core().settle();
        tokio::task::yield_now().await;
    }

    /// Collects garbage now; returns the number of objects that it deleted or changed.
    pub fn collect_garbage(&self) -> usize {
        self.core().collect_garbage()
    }

    pub(crate) fn front(&self) -> &Arc<Front> {
        &self.running.0
    }

    pub(crate) fn core(&self) -> &Core {
        self.running.0.core()
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
pub struct ForMemory(pub(super) ());

/// The form of a server over HTTP.
#[cfg(feature = "tls")]
#[derive(Debug)]
pub struct ForHttp {
    pub(super) address: SocketAddr,
    pub(super) control: Option<SocketAddr>,
}

impl<F> Builder<F> {
    pub(super) fn new(form: F) -> Self {
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

    /// Keeps the state in a file: what a server says is written outlives the process.
    ///
    /// What is there is loaded, and the builder's namespaces and definitions are added; a definition that has changed
    /// is replaced. No answer and no event tells of a change before that is synced to disk; writes that come together
    /// share one sync. An unfinished write at the end, as a crash leaves it, is cut off; a file that is damaged in
    /// another way is refused. Objects, versions, definitions and the tokens of service accounts are kept; fault rules,
    /// records of requests, what [`allow`](ApiServer::allow) gave and certificates are not. Watches from versions
    /// before the last snapshot get 410. A lock on the file keeps a second server away.
    ///
    /// Without it nothing touches the disk.
    #[cfg(feature = "persistence")]
    pub fn data(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.data = Some(path.into());
        self
    }

    /// Enforces roles, as with `--authorization-mode=RBAC` of kube-apiserver.
    ///
    /// Roles, bindings and aggregated roles count as they are written; members of `system:masters`, the administrator
    /// among them, may do everything. The default roles of a cluster are there, those of its own components left out.
    /// A user who writes a role or a binding must have the permissions in it, or `escalate` or `bind`. What
    /// [`allow`](ApiServer::allow) gives counts as well. Without this users have nothing but what `allow` gives, and
    /// roles are stored only.
    #[cfg(feature = "rbac")]
    pub fn rbac(mut self) -> Self {
        self.config.authorization = Authorization::Rbac;
        self
    }

    /// Leaves garbage and terminating namespaces to somebody else, as kube-apiserver alone does.
    ///
    /// Dependents stay after their owners, and finalizers of deletions in the foreground wait. A namespace that is
    /// deleted stays until somebody empties its `spec.finalizers` by its subresource `finalize`. This is for suites
    /// that play these controllers themselves, or look at what is there before they act.
    pub fn without_controllers(mut self) -> Self {
        self.config.controllers = Controllers::Off;
        self
    }

    /// Serves the URL of a webhook configuration by a function of this process; TLS is not needed.
    ///
    /// The handler gets an `AdmissionReview` and gives one back, both as JSON. Configurations are stored and deleted like
    /// any object. A handler that panics has failed, and one that takes longer than its configuration says is late: what
    /// follows is its failure policy.
    pub fn webhook<H, Fut>(mut self, url: impl Into<String>, handler: H) -> Self
    where
        H: Fn(Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Value> + Send + 'static,
    {
        self.config.caller.handle(WebhookAddress::Url(url.into()), boxed(handler));
        self
    }

    /// Serves the service and path of a webhook configuration by a function of this process; TLS is not needed.
    ///
    /// See [`webhook`](Builder::webhook).
    pub fn service_webhook<H, Fut>(mut self, namespace: &str, name: &str, path: &str, handler: H) -> Self
    where
        H: Fn(Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Value> + Send + 'static,
    {
        let path = format!("/{}", path.trim_start_matches('/'));
        let place = WebhookAddress::Service { namespace: namespace.to_owned(), name: name.to_owned(), path };
        self.config.caller.handle(place, boxed(handler));
        self
    }

    /// Sets the address of a webhook's service, since the server has no cluster network.
    ///
    /// It is called over TLS as `NAME.NAMESPACE.svc`, and its certificate is checked by the configuration's `caBundle`.
    pub fn webhook_service(mut self, namespace: &str, name: &str, address: SocketAddr) -> Self {
        self.config.caller.resolve(namespace, name, address);
        self
    }

    /// Sets the seed of uids and generated names: 1 unless set. Equal seeds and requests give equal objects, but for times.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Sets the time that the server's clock shows at first, instead of the machine's.
    ///
    /// Then objects of two runs have equal times, and a client that compares them with its own clock is wrong by years.
    pub fn starting_at(mut self, moment: jiff::Timestamp) -> Self {
        self.config.clock = Clock::starting_at(moment);
        self
    }

    /// Sets the time between two bookmarks of a watch that requests them: 60 s unless set.
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.config.bookmark_period = period;
        self
    }

    /// Sets the number of changes kept for each resource: 100,000 unless set. Older versions get 410.
    pub fn history(mut self, changes: usize) -> Self {
        self.config.history = changes;
        self
    }

    /// Sets the version before the first write: 1 unless set.
    pub fn first_version(mut self, version: u64) -> Self {
        self.config.first_version = version;
        self
    }

    /// Sets the time from a definition's creation to its being served: 30 ms unless set.
    pub fn establish_delay(mut self, delay: Duration) -> Self {
        self.config.establish_delay = delay;
        self
    }

    /// Sets the deadline of the kit's waits, 60 s of tokio's time unless set.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    fn split(self) -> Result<(Parts, F), StartError> {
        let (core, restored) = Core::open(self.config)?;
        let running = Running(Arc::new(Front::new(core)));
        let kit = kit_of(&running, &self.setup, self.deadline);
        Ok((Parts { running, kit, setup: self.setup, restored }, self.form))
    }
}

fn boxed<F, Fut>(handler: F) -> Handler
where
    F: Fn(Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Value> + Send + 'static,
{
    Arc::new(move |review| Box::pin(handler(review)))
}

/// A server in memory as it is at its start, from which any number of others start at once.
#[derive(Debug)]
pub struct Prepared {
    core: Core,
    config: CoreConfig,
    setup: Setup,
    deadline: Duration,
}

impl Prepared {
    /// Starts a server as the prepared one was; what becomes of it is its own.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(&self) -> ApiServer {
        let running = Running(Arc::new(Front::new(self.core.fork(&self.config))));
        let kit = kit_of(&running, &self.setup, self.deadline);
        ApiServer { running, kit, setup: self.setup.clone(), restored: None, transport: InMemory(()) }
    }
}

fn kit_of(running: &Running, setup: &Setup, deadline: Duration) -> Kit {
    let service = LocalService::new(Arc::clone(&running.0), Passage::Unruled);
    Kit::new(service.client(Some("admin-token"), &setup.namespace())).within(deadline)
}

/// A server but for its transport.
struct Parts {
    running: Running,
    kit: Kit,
    setup: Setup,
    restored: Option<Restored>,
}

impl Parts {
    fn with<T>(self, transport: T) -> ApiServer<T> {
        let Self { running, kit, setup, restored } = self;
        ApiServer { running, kit, setup, restored, transport }
    }
}

impl Builder<ForMemory> {
    /// Starts the server; namespaces and CRDs exist when it returns.
    ///
    /// # Panics
    ///
    /// When the server refuses a definition or the data file can't be used, saying why; outside a tokio runtime.
    pub async fn start(self) -> ApiServer {
        match self.try_start().await {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a server without a data file, and keeps its initial state as a template for other servers.
    ///
    /// # Panics
    ///
    /// See [`start`](Self::start).
    pub(crate) async fn prepare(self) -> Prepared {
        let (config, deadline) = (self.config.clone(), self.deadline);
        let server = self.start().await;
        server.settle().await;
        Prepared { core: server.core().clone(), config, setup: server.setup.clone(), deadline }
    }

    /// Starts the server, and reports failures as errors.
    ///
    /// # Errors
    ///
    /// When the server refuses a definition, or the data file can't be used.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn try_start(self) -> Result<ApiServer, StartError> {
        let (parts, ForMemory(())) = self.split()?;
        let server = parts.with(InMemory(()));
        server.setup.install(&server.kit, There::Updated).await?;
        Ok(server)
    }
}

#[cfg(feature = "tls")]
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

    /// Starts the server; namespaces and CRDs exist when it returns.
    ///
    /// # Errors
    ///
    /// When the port is taken, TLS can't be set up, a definition is refused, or the data file can't be used.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<ApiServer<OverHttp>, StartError> {
        let (parts, form) = self.split()?;
        parts.setup.install(&parts.kit, There::Updated).await?;
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
mod http2_tests;
#[cfg(test)]
mod tests;

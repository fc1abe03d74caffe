//! Building a server: what it is to hold, how it is reached.

use std::net::SocketAddr;
#[cfg(feature = "persistence")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

#[cfg(feature = "tls")]
use super::OverHttp;
use super::setup::{Setup, There};
use super::{ApiServer, InMemory, Running};
use crate::call::{Handler, WebhookAddress};
use crate::clock::Clock;
#[cfg(feature = "tls")]
use crate::control::Control;
use crate::core::{Controllers, Core, CoreConfig, Restored};
#[cfg(feature = "tls")]
use crate::http::{Listener, loopback};
use crate::kit::{DEADLINE, Kit};
use crate::service::{Front, LocalService, Passage};
use crate::start_error::StartError;
#[cfg(feature = "rbac")]
use crate::state::Authorization;

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
    /// Whoever writes a role or a binding must have the rights in it, or `escalate` or `bind`. What
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

    /// Sets the seed of uids and generated names; equal seeds and requests give equal objects, but for times.
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

    /// Sets the time between two bookmarks of a watch that requests them.
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

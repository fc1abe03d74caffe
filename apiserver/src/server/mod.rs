//! The server as tests and tools hold it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

#[cfg(feature = "tls")]
use kube::config::Kubeconfig;

use crate::clock::Clock;
#[cfg(feature = "tls")]
use crate::control::Control;
use crate::core::{Core, Restart, Restored};
use crate::faults::{Armed, Fault, Faults, Lag, Requests, Watches};
#[cfg(feature = "tls")]
use crate::http::{Listener, loopback};
use crate::kit::Kit;
use crate::route::Verb;
use crate::service::{Front, IN_MEMORY_URL, LocalService, Passage};
use crate::start_error::StartError;
use crate::state::Grant;
use crate::store::Forgotten;

mod builder;
mod setup;

#[cfg(feature = "tls")]
pub use builder::ForHttp;
pub use builder::{Builder, ForMemory, Prepared};

use setup::{Setup, There};

/// An API server inside the process; dropping it stops it and breaks its connections.
///
/// It is also a [`Kit`]: `create`, `delete`, `eventually` and so on act on it directly. What the kit does goes
/// past the fault rules and isn't counted among the [`requests`](ApiServer::requests).
///
/// Users are known by their tokens: `admin-token` may do everything, `viewer-token` nothing but discovery unless
/// [`allow`](ApiServer::allow) says so. Kubelet, scheduler and workload controllers are absent: a Deployment gets
/// no Pods and a status only from those who write it.
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

#[cfg(test)]
mod http2_tests;
#[cfg(test)]
mod tests;

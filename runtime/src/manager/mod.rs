//! The process: one factory of informers, the controllers that share it, start and stop.
//!
//! Order of a start: HTTP, informers, then, controller by controller, workers as soon as the caches that this one
//! reads have synced. Order of a stop: workers finish what runs, then informers close their watches, then HTTP ends.
//! SIGTERM and SIGINT stop; a second signal ends the process.

mod process;
mod recorded;
mod rehearse;
mod health;
mod debug_report;
mod inspector;
mod replica;
mod campaign;
mod dry_run;
mod client;
#[cfg(feature = "http")]
pub mod http;
mod lineage;
mod install;
mod rules;
#[cfg(feature = "webhooks")]
mod manifests;
mod serve;
mod supply;
mod end;
mod controller_set;
mod fleet;
mod fleet_source;
mod fleet_view;
mod running;
mod signals;
mod tasks;
#[cfg(feature = "webhooks")]
mod webhooks;

pub use crate::controller::Cluster;
pub use client::client;
pub use debug_report::DebugReport;
pub use fleet::{Fleet, FleetCluster};
pub use fleet_view::FleetView;
pub use health::HealthReport;
#[cfg(feature = "http")]
pub use http::{Http, HttpService};
pub use inspector::Inspector;
#[cfg(feature = "webhooks")]
pub use manifests::Manifests;
#[cfg(feature = "cli")]
pub(crate) use manifests::write_documents;
pub use rules::Rules;
pub use running::Running;
pub use tasks::Stopping;

use std::{
    collections::HashSet,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use controller_set::ControllerSet;
use dry_run::DryRun;
pub use dry_run::Rehearsal;
use end::ManagerEnd;
use fleet::Connect;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
#[cfg(feature = "cli")]
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use parking_lot::Mutex;
use process::{ClientOrigin, Clusters, ManagerProcess};
use prometheus_client::registry::Registry;
use recorded::RecordedManager;
use replica::{Replica, ReplicaEnv};
use serve::Serve;
use supply::ControllerSupply;
use tasks::Task;
use tower::BoxError;

use crate::{
    backoff::random_seed,
    chain::one_line,
    clock::{Moment, WallClock},
    controller::{Controller, FindTraceId, Leftovers, Plan, RunningController, Watch},
    error::Error,
    flight_recorder::{FlightRecorder, Recording, RecordingSlot},
    informer::{InformerBuilder, Marker, SharedInformerFactory, Watched},
    leader_election::{ElectionError, LeaderElection, Leadership, TermGate, gated},
    metrics::Metrics,
    reflector::ReflectorConfig,
    shards::Sharding,
    store::InvalidSelector,
    writes::Sender,
};

/// How long running reconciles may take to end after a stop.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Runs controllers over one set of shared informers.
///
/// ```no_run
/// # use watchkeeper::prelude::*;
/// # use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// struct Noted;
///
/// impl Reconciler<ConfigMap> for Noted {
///     type Error = watchkeeper::Error;
///
///     async fn reconcile(&self, map: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
///         println!("{}", map.name_any());
///         Ok(Action::await_change())
///     }
/// }
///
/// # async fn run() -> Result<(), watchkeeper::Error> {
/// Manager::infer().await?.controller(Controller::new(Noted)).run().await
/// # }
/// ```
///
/// Running takes the manager, so that none is started twice, nor changed once it runs:
///
/// ```compile_fail,E0382
/// # use watchkeeper::prelude::*;
/// # async fn twice(manager: Manager) {
/// let running = manager.spawn();
/// let again = manager.spawn();
/// # }
/// ```
///
/// The book has more: [a production `main`](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/tutorial/production.md).
#[must_use = "a manager does something once it is run or spawned"]
pub struct Manager {
    /// What controllers and the program use: gated, where there is an election.
    client: kube::Client,
    /// A client that does not depend on leadership: for informers and the Lease.
    direct: kube::Client,
    client_taken: AtomicBool,
    /// Its place among its replicas, if it campaigns.
    replica: Option<Replica>,
    /// What its terms open; not in a dry run.
    gate: Option<Arc<TermGate>>,
    clock: WallClock,
    /// Its own cluster: the informers that controllers and the program asked for.
    own: Cluster,
    /// The other clusters that it reads from.
    clusters: Mutex<Vec<Cluster>>,
    plans: Vec<Plan>,
    /// Controllers that come and go.
    sets: Vec<ControllerSet>,
    fleets: Mutex<Vec<Fleet>>,
    tasks: Vec<Task>,
    grace_period: Duration,
    metrics: Metrics,
    inspector: Inspector,
    seed: Option<u64>,
    dry_run: Arc<DryRun>,
    flight_recorder: Option<FlightRecorder>,
    recorder: RecordingSlot,
    trace_id: Option<FindTraceId>,
    cluster: ClientOrigin,
    serve: Serve,
    #[cfg(feature = "webhooks")]
    api: webhooks::ProgramApi,
}

impl Manager {
    /// Works with any client. Its requests are counted, and what the server warns of is logged, once each text.
    ///
    /// A client built by `kube::Client::try_from` hides 429, 503 and 504 behind retries of its own, and has no
    /// read timeout: set `config.default_retry = false`, or use [`Manager::infer`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(client: kube::Client) -> Self {
        Self::with_config(client, ReflectorConfig::default())
    }

    /// Works with any client, and with informers that list and watch as a configuration says.
    ///
    /// Name, first list and page size are each informer's own. With a `seed` everything that is random is decided
    /// by it, what controllers draw included: under paused time, and against a server that answers alike, two runs
    /// on a runtime of one thread reconcile the same keys at the same times.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_config(client: kube::Client, config: ReflectorConfig) -> Self {
        let metrics = config.metrics.clone().unwrap_or_default();
        let config = ReflectorConfig { metrics: Some(metrics.clone()), ..config };
        let (dry_run, recorder) = (Arc::default(), RecordingSlot::default());
        let client = client::observed(client, &metrics, &dry_run, &recorder, true);
        Self {
            seed: config.seed,
            clock: config.clock.clone(),
            own: Cluster::new("".into(), SharedInformerFactory::with_config(client.clone(), config)),
            direct: client.clone(),
            client,
            client_taken: AtomicBool::new(false),
            replica: None,
            gate: None,
            clusters: Mutex::default(),
            plans: Vec::new(),
            sets: Vec::new(),
            fleets: Mutex::default(),
            tasks: Vec::new(),
            grace_period: GRACE_PERIOD,
            metrics,
            inspector: Inspector::default(),
            dry_run,
            flight_recorder: None,
            recorder,
            trace_id: None,
            cluster: ClientOrigin::default(),
            serve: Serve::default(),
            #[cfg(feature = "webhooks")]
            api: webhooks::ProgramApi::default(),
        }
    }

    /// Finds the cluster by `KUBECONFIG`, `~/.kube/config`, or the pod's service account.
    ///
    /// With a pod's service account, HTTP is served at `:8080` unless [`http`](Self::http) says otherwise.
    ///
    /// # Errors
    /// [`Error::Configuration`] if none is found, [`Error::Client`] if it can't be used.
    pub async fn infer() -> Result<Self, Error> {
        let (client, cluster) = client::infer().await?;
        Ok(Self { cluster, ..Self::new(client) })
    }

    /// Makes a manager without a cluster, for what only prints: [`rules`](Self::rules) and manifests.
    ///
    /// It is as if the program ran in this namespace. Every request is refused.
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # fn print(operator: impl Fn(Manager) -> Manager) {
    /// println!("{}", operator(Manager::offline("websites")).rules());
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn offline(namespace: impl Into<String>) -> Self {
        Self::new(client::offline(namespace.into()))
    }

    /// Returns the client that controllers use.
    ///
    /// With [`leader_election`](Self::leader_election) its requests are refused unless this replica leads.
    pub fn client(&self) -> &kube::Client {
        self.client_taken.store(true, Ordering::Relaxed);
        &self.client
    }

    /// Works only while this replica is the elected one among those that name the same Lease.
    ///
    /// All replicas run their caches; workers run in the one that leads. Call this before [`client`](Self::client):
    /// otherwise the start ends with [`Error::Election`]. It does so for settings that are not valid, too. See
    /// [`leader_election`](crate::leader_election) for what is promised, [`LeaderElection`] for what can be set:
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # fn elected(manager: Manager) -> Manager {
    /// manager.leader_election("websites")
    /// # }
    /// ```
    pub fn leader_election(self, election: impl Into<LeaderElection>) -> Self {
        self.campaign(|env| Replica::leading(election.into(), env))
    }

    /// Shares the work out among the replicas that name the same shards: each works on the keys of its slots.
    ///
    /// In place of [`leader_election`](Self::leader_election), and before [`client`](Self::client) for the same reason. See
    /// [`shards`](crate::shards) for what is promised, [`Sharding`] for what can be set:
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # fn sharded(manager: Manager) -> Manager {
    /// manager.sharded("websites")
    /// # }
    /// ```
    ///
    /// All replicas run their caches, and each key runs in one of them. A replica that comes gets slots from the others, one
    /// that stops hands its slots over, and one that is gone keeps them for a lease duration. A
    /// [`leader_task`](Self::leader_task) runs in the replica that works on the slot of the task's name.
    ///
    /// Replicas need different seeds, if their [configuration](Self::with_config) has one: Leases are named by it.
    ///
    /// A controller's rate limits are shared out as the slots are. The number of workers is each replica's own.
    pub fn sharded(self, sharding: impl Into<Sharding>) -> Self {
        self.campaign(|env| Replica::sharing(sharding.into(), env))
    }

    fn campaign(mut self, replica: impl FnOnce(ReplicaEnv<'_>) -> Replica) -> Self {
        let seed = self.seed.unwrap_or_else(random_seed);
        let (client, clock, metrics) = (&self.direct, self.clock.clone(), &self.metrics.shared.election);
        let mut replica = replica(ReplicaEnv { client, clock, metrics, seed });
        if *self.client_taken.get_mut() {
            replica.candidate = Err(ElectionError::ClientTaken);
        }
        // A dry run works next to the replica that leads, and writes nothing.
        if !self.dry_run.is_on() {
            self.client = gated(&self.direct, &replica.gate);
            self.gate = Some(replica.gate.clone());
        }
        #[cfg(feature = "webhooks")]
        {
            self.api.lease = Some(replica.lease.clone());
            self.api.has_lease_each = replica.share.is_some();
        }
        self.replica = Some(replica);
        self
    }

    /// Returns a handle that shows the state of this replica's election, if it takes part in one.
    pub fn leadership(&self) -> Option<Leadership> {
        self.replica.as_ref().map(|replica| replica.leadership.clone())
    }

    /// Writes nothing: the server is asked to try each write, which is logged with what it would change.
    ///
    /// Each write of the controllers and their events, of [`install_crd`](Self::install_crd), and of every clone of
    /// [`client`](Self::client) and of a context's client goes to the server with `dryRun=All`: defaults, validation,
    /// conflicts, permissions and admission webhooks (those without side effects) are the real ones, and nothing is
    /// stored. It needs the permissions of a real run. So a write fails that depends on an earlier one, such as an object in a namespace that was only tried.
    /// The log shows a write again only when it would change something else. Values and annotations of Secrets are not
    /// shown.
    ///
    /// What the server can't be asked to try is not sent, and is answered with 501: commands in pods, proxied requests,
    /// tokens of ServiceAccounts, and subresources that Kubernetes itself does not have. An aggregated API server that stores what it is asked to
    /// try is noticed by the first object that it creates; after that no write is sent.
    ///
    /// No election takes place: a dry run holds no Lease and works next to the leader.
    ///
    /// A client that the program made itself writes as before. A program that wrote through the manager before it
    /// called this can't be started: [`Error::WroteBeforeDryRun`].
    ///
    /// ```no_run
    /// # use watchkeeper::prelude::*;
    /// # async fn run<R: Reconciler<k8s_openapi::api::core::v1::ConfigMap>>(reconciler: R) -> Result<(), watchkeeper::Error> {
    /// Manager::infer().await?.dry_run().controller(Controller::new(reconciler)).run().await
    /// # }
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.dry_run.begin();
        (self.client, self.gate) = (self.direct.clone(), None);
        self
    }

    /// Runs as a [dry run](Self::dry_run) until all is at rest, then stops, and reports what it would have written.
    ///
    /// At rest is what has synced, has run for each of its objects, and has had nothing to do for two seconds; what waits for
    /// a timer or a retry counts as at rest. A set of controllers moves until its namespaces, or whether its kinds are served,
    /// are known; a fleet does not. After `at_most` it stops all the same: the report says what was still moving.
    /// If one write builds on another, only the first is shown: what is not stored is not there.
    ///
    /// Next to a running older version that is at rest itself, what would change is where the two disagree; the report names
    /// who set the fields until now.
    ///
    /// # Errors
    /// As [`run`](Self::run), but for what outlives the grace period: the report names it.
    ///
    /// ```no_run
    /// # use watchkeeper::prelude::*;
    /// # async fn rehearsed<R: Reconciler<k8s_openapi::api::core::v1::ConfigMap>>(reconciler: R) -> Result<(), watchkeeper::Error> {
    /// let manager = Manager::infer().await?.controller(Controller::new(reconciler));
    /// let rehearsal = manager.rehearse(Duration::from_secs(300)).await?;
    /// println!("{rehearsal}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rehearse(self, at_most: Duration) -> Result<Rehearsal, Error> {
        self.rehearse_unless(at_most, std::future::pending()).await
    }

    /// Rehearses as a program does: after a signal it reports what it has seen by then.
    #[cfg(feature = "cli")]
    pub(crate) async fn rehearse_until_signal(self, at_most: Duration) -> Result<Rehearsal, Error> {
        let mut signals = signals::Signals::listen()?;
        let interrupted = async {
            let _ = signals.nth(1).await;
        };
        self.rehearse_unless(at_most, interrupted).await
    }

    async fn rehearse_unless(
        self,
        at_most: Duration,
        interrupted: impl Future<Output = ()>,
    ) -> Result<Rehearsal, Error> {
        let manager = self.dry_run();
        let dry_run = manager.dry_run.clone();
        dry_run.rehearse();
        rehearse::until_rest(manager.spawn(), &dry_run, at_most, interrupted).await
    }

    /// Records all requests, answers, events and runs into a [bounded file](FlightRecorder), from the start on.
    ///
    /// A crash of the process loses at most the last second. `GET /debug/recording` downloads it, if the client may
    /// see `/debug`. `Trials::replay` of the crate `watchkeeper-trials` plays it again. If the file can't be opened, the
    /// start fails. If a later write fails, this is logged, and recording ends.
    pub fn flight_recorder(mut self, recorder: FlightRecorder) -> Self {
        self.flight_recorder = Some(recorder);
        self
    }

    /// Opens the recording, and gives the task that writes it.
    fn open_recorder(&self) -> Result<Option<Recording>, Error> {
        // A dry run next to the operator must not write into its recording.
        let settings = self.flight_recorder.as_ref().filter(|_| !self.dry_run.is_on());
        let Some(settings) = settings else { return Ok(None) };
        let recorder = recorded::open(settings, &self.clock)?;
        Ok(Some(self.recorder.get_or_init(|| recorder).clone()))
    }

    /// Returns the metrics of everything that this manager runs.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Adds metrics of the program's own to the manager's: see [`Metrics::register`].
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # use watchkeeper::prometheus_client::metrics::counter::Counter;
    /// # fn counted(manager: Manager, refused: Counter) -> Manager {
    /// manager.registry(|registry| registry.register("domains_refused", "Domains that were refused", refused))
    /// # }
    /// ```
    pub fn registry(self, add: impl FnOnce(&mut Registry)) -> Self {
        self.metrics.register(add);
        self
    }

    /// Returns what tells how the manager is doing, and why an object is not being reconciled, once it runs.
    pub fn inspector(&self) -> Inspector {
        self.inspector.clone()
    }

    /// Returns the least that this program must be allowed to do, as roles; shown as YAML.
    ///
    /// For what its controllers watch, own and are [said to use](Controller::uses), for the informers that were asked
    /// for so far, and for its Lease: ask last, before it runs. What is read in other clusters is in
    /// [`rules_in`](Self::rules_in) each.
    pub fn rules(&self) -> Rules {
        let mut rules = Rules::named(self.role_name());
        for plan in self.all_plans() {
            rules.add_plan(plan);
        }
        rules.add_reads(&self.own);
        if let Some(Replica { leadership, share, .. }) = &self.replica {
            rules.campaign(leadership.lease(), share.is_some());
        }
        if self.serve.reviews() {
            rules.review();
        }
        #[cfg(feature = "webhooks")]
        self.api.rules(&mut rules, self.direct.default_namespace(), &self.role_name());
        rules
    }

    /// Returns what the program needs in a cluster, to be printed: see [`Manifests`]. Ask last, before it runs.
    ///
    /// # Errors
    /// [`Error::Definition`] if the versions of a kind contradict each other, or nothing converts them;
    /// [`Error::Manifests`] if an address has no fixed port.
    #[cfg(feature = "webhooks")]
    pub fn manifests(&self) -> Result<Manifests, Error> {
        let (namespace, name) = (self.direct.default_namespace().to_owned(), self.role_name());
        Ok(Manifests::new(manifests::ProgramFacts {
            rules: self.rules(),
            api: self.api.generated(&namespace, &name)?,
            http: manifests::HttpPort::of(self.serve.http.as_ref())?,
            is_elected: self.replica.is_some(),
            looks_on: self.replica.as_ref().and_then(|replica| Some(replica.share.as_ref()?.looks_on)),
            has_controllers: self.all_plans().next().is_some() || self.fleets.lock().iter().any(Fleet::works),
            grace_period: self.grace_period,
            namespace,
            name,
        }))
    }

    /// Returns the definitions of the kinds that it installs.
    #[cfg(feature = "cli")]
    pub(crate) fn definitions(&self) -> Result<Vec<CustomResourceDefinition>, Error> {
        Ok(self.api.generated(self.direct.default_namespace(), &self.role_name())?.definitions)
    }

    /// Returns the kinds that controllers reconcile, and the controllers' names; those of fleets begin with `/`.
    #[cfg(feature = "cli")]
    pub(crate) fn reconciled(&self) -> Vec<(crate::object::Kind, Arc<str>)> {
        let named = |plan: &Plan| (plan.definition.kind.clone(), plan.name().clone());
        let of_fleets = self.fleets.lock().iter().flat_map(Fleet::known_plans).collect::<Vec<_>>();
        let of_fleets = of_fleets.iter().map(named).map(|(kind, name)| (kind, format!("/{name}").into()));
        self.all_plans().map(named).chain(of_fleets).collect()
    }

    fn role_name(&self) -> String {
        self.all_plans().next().map_or("watchkeeper", |plan| plan.name()).replace('/', ".")
    }

    fn all_plans(&self) -> impl Iterator<Item = &Plan> {
        self.plans.iter().chain(self.sets.iter().map(ControllerSet::plan))
    }

    /// Adds a controller.
    pub fn controller<K: Marker, R>(mut self, controller: Controller<K, R>) -> Self {
        self.plans.push(controller.plan());
        self
    }

    /// Runs a controller for as long as the API server serves its kinds: the one that it reconciles, and all others that
    /// it watches or reads in this cluster.
    ///
    /// A kind whose CRD is not installed yet is waited for, without a failure in the log or in `/readyz`. Once it is
    /// served, the function makes the controller, within 5 s. When a CRD is deleted, the controller stops after a few
    /// seconds, as by [`Running::remove`]; when it comes back, the function makes another. For that, every replica asks the
    /// server each 5 s which resources the kinds' versions have, one request for each kind. All users may ask that by
    /// default. If the server does not answer, nothing changes.
    ///
    /// The function is called once here, even if nothing is to run yet, and again for each further controller.
    ///
    /// # Panics
    /// If that first call of the function panics.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use watchkeeper::prelude::*;
    /// # #[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "backup.example.dev", version = "v1", kind = "Backup", namespaced)]
    /// # struct BackupSpec {}
    /// # struct Backups;
    /// # impl Reconciler<Backup> for Backups {
    /// #     type Error = watchkeeper::Error;
    /// #     async fn reconcile(&self, _: Arc<Backup>, _: &Context<Backup>) -> Result<Action, Self::Error> {
    /// #         Ok(Action::await_change())
    /// #     }
    /// # }
    /// # fn with_backups(manager: Manager) -> Manager {
    /// manager.controller_while_served(|| Controller::new(Backups).owns::<ConfigMap>())
    /// # }
    /// ```
    pub fn controller_while_served<K: Marker, R>(
        mut self,
        mut make: impl FnMut() -> Controller<K, R> + Send + 'static,
    ) -> Self {
        self.sets.push(ControllerSet::while_served(Box::new(move || make().plan())));
        self
    }

    /// Runs a controller in each namespace whose labels match; namespaces come and go.
    ///
    /// The function makes each controller, which is then restricted to its namespace, as by
    /// [`Controller::namespace`]. It has caches, workers, a queue and a rate limit of its own, and the name
    /// `NAME/NAMESPACE`, in the metrics as well; field manager and events have the name alone. One whose namespace
    /// no longer matches, or is gone, stops as by [`Running::remove`]. While a namespace is being deleted, its controller
    /// still works, for the sake of finalizers.
    ///
    /// If replicas share the work with [split caches](crate::Sharding::split_caches), each runs the controllers of the
    /// namespaces in its slots alone.
    ///
    /// The function is called once here, even if nothing is to run yet, and again for each further controller.
    ///
    /// The program must be allowed to list and watch namespaces, and the kinds in all namespaces that may match:
    /// [`rules`](Self::rules) says so.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use watchkeeper::prelude::*;
    /// # struct Notes;
    /// # impl Reconciler<ConfigMap> for Notes {
    /// #     type Error = watchkeeper::Error;
    /// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
    /// #         Ok(Action::await_change())
    /// #     }
    /// # }
    /// # fn of_tenants(manager: Manager) -> Result<Manager, Box<dyn std::error::Error>> {
    /// Ok(manager.controller_in_namespaces("tenant", || Controller::new(Notes).workers(2))?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// The selector does not parse.
    pub fn controller_in_namespaces<K: Marker, R>(
        mut self,
        labels: &str,
        mut make: impl FnMut() -> Controller<K, R> + Send + 'static,
    ) -> Result<Self, InvalidSelector> {
        let namespaces = self.own.informer::<Namespace>().label_selector(labels)?.build();
        self.sets.push(ControllerSet::in_namespaces(Box::new(move || make().plan()), namespaces));
        Ok(self)
    }

    /// Runs a task for as long as the manager runs, in every replica; it may end sooner.
    ///
    /// It begins at once, with caches that may not have synced. [`Stopping`] shows when it has to end. It has the grace
    /// period for that, and is then dropped. If it fails or panics, [`run`](Self::run) stops the manager. After
    /// [`spawn`](Self::spawn) the rest continues, and [`Running::ended`] returns the error.
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # fn with_a_report(manager: Manager) -> Manager {
    /// manager.task("report", |stopping| async move {
    ///     while !stopping.is_told() {
    ///         tokio::select! {
    ///             () = stopping.wait() => {}
    ///             () = tokio::time::sleep(Duration::from_secs(60)) => println!("still here"),
    ///         }
    ///     }
    ///     Ok::<_, watchkeeper::Error>(())
    /// })
    /// # }
    /// ```
    pub fn task<F: Future<Output = Result<(), E>> + Send + 'static, E: Into<BoxError>>(
        mut self,
        name: impl Into<String>,
        run: impl Fn(Stopping) -> F + Send + Sync + 'static,
    ) -> Self {
        self.tasks.push(Task::new(name.into(), false, run));
        self
    }

    /// Runs a task in the replica that leads: once in each term, which also ends it.
    ///
    /// If it fails because the end of the term cancelled its request, it runs again in the next term. Without
    /// [`leader_election`](Self::leader_election), and otherwise, it is like [`task`](Self::task).
    pub fn leader_task<F: Future<Output = Result<(), E>> + Send + 'static, E: Into<BoxError>>(
        mut self,
        name: impl Into<String>,
        run: impl Fn(Stopping) -> F + Send + Sync + 'static,
    ) -> Self {
        self.tasks.push(Task::new(name.into(), true, run));
        self
    }

    /// Adds a check to `/healthz`: while it fails, the process should be restarted.
    ///
    /// Each probe calls it, so it must return at once. A check that panics fails.
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # fn checked(manager: Manager, disk_is_full: impl Fn() -> bool + Send + Sync + 'static) -> Manager {
    /// manager.health_check("disk", move || if disk_is_full() { Err("the disk is full") } else { Ok(()) })
    /// # }
    /// ```
    pub fn health_check<E: Into<BoxError>>(
        self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.inspector.manager.health_checks.add(name.into(), check);
        self
    }

    /// Adds a check to `/readyz`: while it fails, the program does not do its work. Otherwise like
    /// [`health_check`](Self::health_check).
    pub fn readiness_check<E: Into<BoxError>>(
        self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.inspector.manager.readiness_checks.add(name.into(), check);
        self
    }

    /// Serves `/healthz`, `/readyz`, `/metrics` and `/debug` at an address; see [`manager::http`](http).
    ///
    /// In a pod, which [`infer`](Self::infer) finds out, and with `watchkeeper::cli`, the default is `:8080`; otherwise
    /// nothing is served.
    /// `/debug` is shown only to this machine, unless [`Http`] says otherwise. The start takes the port first, and the
    /// stop gives it up last. If the port is in use or the address can't be read, the start ends with
    /// [`Error::Http`].
    ///
    /// ```no_run
    /// # use watchkeeper::prelude::*;
    /// # async fn run() -> Result<(), watchkeeper::Error> {
    /// Manager::infer().await?.http("0.0.0.0:8080").run().await
    /// # }
    /// ```
    #[cfg(feature = "http")]
    pub fn http(mut self, http: impl Into<Http>) -> Self {
        self.serve.http = Some(http.into());
        self
    }

    /// Serves at another address than the program has said, with the same settings.
    #[cfg(feature = "cli")]
    pub(crate) fn http_at(mut self, address: String) -> Self {
        self.serve.http = Some(self.serve.http.unwrap_or_else(Http::off).at(address));
        self
    }

    /// Returns a service that answers the same, for an HTTP server of your own.
    ///
    /// It has the settings that [`http`](Self::http) was given so far; with [`Http::off`] the manager itself serves
    /// nothing.
    #[cfg(feature = "http")]
    pub fn http_service(&self) -> HttpService {
        self.serve.service((&self.inspector, &self.metrics, &self.direct, &self.recorder))
    }

    /// Names the trace of a run: its id is in the run's log lines, and in the annotations of its events.
    ///
    /// The function is asked as each run begins, inside the run's span `reconcile`, and must return at once. What it
    /// returns is recorded in that span as `trace_id`, is [`Context::trace_id`](crate::Context::trace_id), and goes into
    /// the annotation [`TRACE_ID_ANNOTATION`](crate::writes::TRACE_ID_ANNOTATION). With OpenTelemetry (the book says
    /// more):
    ///
    /// ```ignore
    /// use opentelemetry::trace::TraceContextExt;
    /// use tracing_opentelemetry::OpenTelemetrySpanExt;
    ///
    /// let manager = manager.trace_id(|| {
    ///     let context = tracing::Span::current().context();
    ///     let trace = context.span().span_context().clone();
    ///     trace.is_valid().then(|| trace.trace_id().to_string())
    /// });
    /// ```
    pub fn trace_id(mut self, find: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.trace_id = Some(Arc::new(find));
        self
    }

    /// Sets how long running reconciles may take to end after a stop: 30 s unless set.
    pub fn grace_period(mut self, grace_period: Duration) -> Self {
        self.grace_period = grace_period;
        self
    }

    /// Reads a kind from the shared cache; empty until the manager runs and the cache has synced.
    ///
    /// Controllers without [`reads`](Controller::reads) start only after it has synced.
    pub fn lister<W: Watched<DynamicType = ()>>(&self) -> W::Lister {
        self.informer::<W>().lister()
    }

    /// Asks for a kind's shared informer, to be narrowed by namespace or selectors.
    ///
    /// The builder says what its cache keeps: `.compact()`, `.transform(..)`. Equal queries share an informer.
    pub fn informer<W: Watched<DynamicType = ()>>(&self) -> InformerBuilder<W> {
        self.own.informer()
    }

    /// Asks for the shared informer of a [`Watch`]: the one that a controller with an equal watch uses.
    ///
    /// For a kind that is known only at run time: `manager.informer_of(Watch::of(Dynamic::new(kind))).lister()`.
    pub fn informer_of<W: Watched>(&self, watch: Watch<W>) -> InformerBuilder<W> {
        watch.cluster.clone().unwrap_or_else(|| self.own.clone()).informer_of(watch)
    }

    /// Installs or updates the CRD of a custom resource, and waits until the server serves the type's version.
    ///
    /// It is a forced server-side apply as field manager `watchkeeper`: fields of the CRD are taken over, and all other
    /// fields keep their owner and value. A CRD that a later program has replaced stays as it is; this is logged. In a dry
    /// run it does not wait.
    ///
    /// It waits only for the version of the type, not for other versions of the CRD. If a webhook converts objects, it
    /// does not list them: the webhook may be part of this program, and answer only once the manager runs.
    ///
    /// If the server is unreachable or overloaded, it tries again until it succeeds. This is logged at the beginning,
    /// after 30 s, and then less and less often. After one second, probes are served meanwhile, if HTTP was configured
    /// before this call: `/healthz` passes, `/readyz` does not.
    ///
    /// # Errors
    /// [`Error::Definition`] if the server refuses the CRD for good (it names the missing permission), if it would drop a
    /// version in which objects may be stored, or if one step (established, in discovery, listed) takes more than 30 s,
    /// outages not counted. [`Error::Client`] if no request can be made.
    pub fn install_crd<K: CustomResourceExt>(
        &self,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<K> {
        // The future holds the client, not the manager, so that it can be sent to another thread.
        let seed = self.seed.unwrap_or_else(random_seed);
        let (version, dry_run) = (K::api_resource().version, self.dry_run.is_on());
        let install =
            install::Installer::new(self.direct.clone(), K::crd(), version, seed, dry_run).install();
        let (serve, in_a_pod) = (self.serve.clone(), self.cluster.in_a_pod);
        let (inspector, metrics, client) = (self.inspector(), self.metrics(), self.direct.clone());
        let recorder = self.recorder.clone();
        // Boxed, so that the futures of programs that await it stay small.
        Box::pin(async move {
            tokio::pin!(install);
            if let Ok(installed) = tokio::time::timeout(install::UNPROBED, &mut install).await {
                return installed;
            }
            // If the port can't be taken, the start fails later.
            let port = serve.bind(in_a_pod).unwrap_or_else(|error| {
                tracing::warn!(%error, "probes are not answered while CRDs are installed");
                Default::default()
            });
            let mut served = serve.start(port, (&inspector, &metrics, &client, &recorder));
            let installed = install.await;
            served.stop().await;
            installed
        })
    }

    /// Installs a kind with all its versions, in every replica and as soon as the manager runs.
    ///
    /// The CRD has all versions that `#[informer(versions(..))]` lists, and the [webhooks](Self::webhooks) convert
    /// them. A CRD of a later program is never replaced by that of an earlier one, such as a replica that is about to
    /// be replaced: an annotation keeps the order. A version that this program leaves out is dropped, unless objects may still
    /// be stored in it: then the manager ends with [`Error::Definition`]. Otherwise this is like
    /// [`install_crd`](Self::install_crd), but the program does not wait.
    #[cfg(feature = "webhooks")]
    pub fn kind<K>(mut self) -> Self
    where
        K: crate::versions::Versioned + crate::writes::TypedObject + CustomResourceExt,
    {
        self.api.kinds.push(crate::versions::Conversions::<K>::shared());
        self
    }

    /// Serves webhooks, in every replica: see [`Webhooks`](crate::webhook::Webhooks).
    ///
    /// The replica that leads applies the webhook configurations. They and the Secret of certificates are named after the
    /// program's first controller, or as [`named`](crate::webhook::Webhooks::named) says, with `-webhooks` at the end. So is
    /// the Service, after the first part of that name: `stalls-webhooks` for `stalls.market.example.dev`. It is in the
    /// namespace of the client, unless the webhooks say otherwise. In a [dry run](Self::dry_run) nothing is served.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use watchkeeper::{prelude::*, webhook::{Validator, Webhooks}};
    /// # fn validated(manager: Manager, rules: impl Validator<ConfigMap>) -> Manager {
    /// manager.webhooks(Webhooks::new(":9443").validates::<ConfigMap>(rules))
    /// # }
    /// ```
    #[cfg(feature = "webhooks")]
    pub fn webhooks(mut self, webhooks: crate::webhook::Webhooks) -> Self {
        self.api.webhooks = Some(webhooks);
        self
    }

    /// Has the API server decide about a kind by itself: see [`Policy`](crate::webhook::Policy).
    ///
    /// The replica that leads applies the policy and its binding, and applies them again when somebody has edited them. A
    /// server that does not have such policies, or refuses this one, ends the manager with [`Error::Policy`]. A policy that
    /// a later release of the program leaves out stays in the cluster until somebody deletes it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use watchkeeper::{prelude::*, webhook::Policy};
    /// # fn guarded(manager: Manager) -> Manager {
    /// manager.policy(Policy::<ConfigMap>::new("small").rule("size(object.data) < 9", "has too much data"))
    /// # }
    /// ```
    #[cfg(feature = "webhooks")]
    pub fn policy<K: crate::writes::TypedObject>(mut self, policy: crate::webhook::Policy<K>) -> Self {
        self.api.policies.extend(policy.generated());
        self
    }

    /// Rewrites the objects of a kind that are stored in an older version, and then drops that version from
    /// `status.storedVersions`.
    ///
    /// The replica that leads does so in the background. If the API server has `storagemigration.k8s.io`, whose controller
    /// needs no requests of the program, it asks for a migration there. If nothing takes that up within a minute, if it
    /// fails, or if the server has no such API, the program rewrites the objects itself: page by page, at most 50
    /// objects a second. After a failure it continues where it was. An object that the server refuses to write is named in
    /// the log, and keeps the older version in the CRD until it is corrected. Progress is in the log, and in the metrics
    /// `watchkeeper_storage_migration_*`.
    ///
    /// After that, a program without the older version can install its CRD.
    ///
    /// See <https://kubernetes.io/docs/tasks/manage-kubernetes-objects/storage-version-migration/>.
    #[cfg(feature = "webhooks")]
    pub fn migrate_storage<K: CustomResourceExt>(mut self) -> Self {
        self.api.migrated.push(K::crd_name().to_owned());
        self
    }

    /// Adds what installs its kinds and serves its webhooks; returns the definitions of the kinds that these convert.
    #[cfg(feature = "webhooks")]
    fn add_own_tasks(&mut self) -> Result<Vec<String>, Error> {
        let parts = webhooks::ApiParts {
            direct: self.direct.clone(),
            client: self.client.clone(),
            clock: self.clock.clone(),
            inspector: self.inspector.clone(),
            metrics: self.metrics(),
            name: self.role_name(),
            seed: self.seed.unwrap_or_else(random_seed),
            dry_run: self.dry_run.is_on(),
            grace_period: self.grace_period,
        };
        let (tasks, webhooks) = self.api.tasks(&parts)?;
        self.tasks.extend(tasks);
        let converted = webhooks.as_ref().map(|webhooks| webhooks.converted());
        self.api.webhooks = webhooks;
        Ok(converted.unwrap_or_default())
    }

    /// Adds nothing: webhooks are not built in.
    #[cfg(not(feature = "webhooks"))]
    fn add_own_tasks(&mut self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Runs until SIGTERM or SIGINT, then stops within the grace period.
    ///
    /// A second signal gives up waiting, whatever the stop waits for. It ends the process too: with code 128 and the
    /// signal's number (143, 130), unless that has ended by itself a second later. This holds after the end of `run` as
    /// well, and while the program's threads are blocked: work that outlives the grace period can't keep the process.
    ///
    /// # Errors
    /// What keeps a controller from starting, or makes it give up; [`Error::Task`] if a task failed. Else [`Error::PastGracePeriod`] or
    /// [`Error::HandlerPastGracePeriod`] if something outlived the grace period, and [`Error::SecondSignal`] if a second
    /// signal came.
    ///
    /// # Panics
    /// With the panic of a reconciler whose controller says `Panics::Propagate`; outside a tokio runtime.
    pub async fn run(self) -> Result<(), Error> {
        self.until_stopped().await
    }

    /// Boxed: so it is compiled here, once, and not in each program that awaits it.
    fn until_stopped(self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            let mut signals = signals::Signals::listen()?;
            let mut running = self.start()?;
            let failed = tokio::select! {
                signal = signals.nth(1) => {
                    tracing::info!(
                        signal = signal.name,
                        "stopping: running reconciles end first (a second signal gives up waiting)"
                    );
                    None
                }
                // Only without controllers, with one that has given up, or by a panic that goes on here.
                ended = running.ended() => match ended {
                    Ok(()) => {
                        signals.nth(1).await;
                        None
                    }
                    Err(error) => {
                        tracing::error!(error = one_line(&error), "stopping: a controller has given up");
                        Some(error)
                    }
                }
            };
            let stopped = tokio::select! {
                stopped = running.stop() => stopped,
                _ = signals.nth(2) => Err(Error::SecondSignal),
            };
            match &stopped {
                Ok(()) => tracing::info!("stopped"),
                Err(error @ Error::SecondSignal) => {
                    tracing::warn!(error = one_line(error), "not waiting any longer: the process ends")
                }
                Err(error) => {
                    tracing::warn!(error = one_line(error), "stopped; a second signal ends the process")
                }
            }
            failed.map_or(stopped, Err)
        })
    }

    /// Runs in the background, until what it returns is dropped or stopped.
    ///
    /// A controller that can't be started is reported as soon as [`Running::stop`] or [`Running::ended`] is
    /// awaited, and logged at once.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn(self) -> Running {
        let clusters = Clusters::new(self.own.clone(), self.clusters.lock().clone());
        self.start().unwrap_or_else(|error| {
            tracing::error!(error = one_line(&error), "the manager can't be started");
            Running::failed(error, clusters)
        })
    }

    /// Refuses two controllers of one name.
    fn check_names(&self) -> Result<(), Error> {
        let mut names = HashSet::new();
        match self.all_plans().map(Plan::name).find(|name| !names.insert(*name)) {
            Some(twice) => Err(Error::DuplicateController(twice.to_string())),
            None => Ok(()),
        }
    }

    fn start(mut self) -> Result<Running, Error> {
        self.check_names()?;
        let converted = self.add_own_tasks()?;
        if let Some(sent) = self.dry_run.written_before().filter(|_| self.dry_run.is_on()) {
            return Err(Error::WroteBeforeDryRun(sent.to_owned()));
        }
        let recorder = self.open_recorder()?;
        let http = self.serve.bind(self.cluster.in_a_pod)?;
        let others = self.clusters.into_inner();
        process::check(&others, self.plans.iter().chain(self.sets.iter().map(ControllerSet::plan)))?;
        let mut asked = self.own.take_informers();
        asked.extend(others.iter().flat_map(Cluster::take_informers));
        let replica = self.replica.filter(|_| !self.dry_run.is_on());
        let (candidate, leadership, share) = replica.map_or((None, None, None), |replica| {
            (Some(replica.candidate), Some(replica.leadership), replica.share)
        });
        let (member, slots, part) =
            share.map_or((None, None, None), |share| (Some(share.member), Some(share.slots), share.part));
        let candidate = candidate.transpose()?.zip(Some(member.transpose()?));
        let leftovers = Arc::new(Leftovers::default());
        if let Some(slots) = &slots {
            let (leftovers, of) = (leftovers.clone(), slots.of());
            slots.wait_while(move |slot| leftovers.goes_on_of(|key| of.slot(key) == slot));
        }
        let supply = ControllerSupply {
            sender: Sender::new(self.client.clone()),
            metrics: self.metrics.clone(),
            seed: self.seed,
            slots: slots.clone(),
            part,
            is_elected: candidate.is_some(),
            leftovers,
            is_dry_run: self.dry_run.is_on(),
            recorder: recorder.clone(),
            trace_id: self.trace_id,
        };
        let env = supply.env(self.own.factory(), &asked);
        let planned = self.plans.into_iter().map(|plan| plan.prepare(&env));
        let planned: Vec<RunningController> = planned.collect::<Result<_, _>>()?;
        planned.iter().for_each(|controller| self.inspector.add(controller.core()));
        let clusters = Clusters::new(self.own, others);
        let end = ManagerEnd::new(clusters.clone(), self.grace_period);
        let recording = recorder.map(|recorder| {
            let (clusters, leadership) = (clusters.clone(), leadership.clone());
            RecordedManager { clusters, leadership, inspector: self.inspector.clone() }.record(recorder, &end)
        });
        let inspector = self.inspector;
        inspector.begin(ManagerProcess {
            started: Moment::now(),
            clusters: clusters.clone(),
            leadership,
            slots,
            cluster: self.cluster,
            client: self.direct.clone(),
            stop: end.stop.finish.clone(),
            converted,
            version: Default::default(),
        });
        let served = self.serve.start(http, (&inspector, &self.metrics, &self.direct, &self.recorder));
        clusters.start();
        let mut running = Running::start(end, planned, self.tasks, candidate, inspector, supply, served);
        running.recording = recording;
        self.sets.into_iter().for_each(|set| running.attend(set, &self.direct));
        let (metrics, dry_run, recorder, gate) = (self.metrics, self.dry_run, self.recorder, self.gate);
        let connect: Connect = Arc::new(move |client| {
            let client = client::observed(client, &metrics, &dry_run, &recorder, false);
            (client.clone(), gate.as_ref().map_or(client.clone(), |gate| gated(&client, gate)))
        });
        for fleet in self.fleets.into_inner() {
            running.attend_fleet(fleet, &self.direct, connect.clone());
        }
        #[cfg(feature = "webhooks")]
        let running = running.with_webhooks(self.api.webhooks);
        Ok(running)
    }

    /// Adds another cluster to read from: what its objects say is watched there, what follows is written here.
    ///
    /// What controllers [watch there](crate::controller::Watch::in_cluster) and the program reads there has caches of its own,
    /// which start and stop with the manager and ask through this client; configuration and metrics are the manager's.
    /// Messages, readiness, metrics and the debug page name what is read there as `hub/configmaps`. The name is 1 to 63 of
    /// a-z, 0-9, '-' and '.'. Writes go to the manager's own cluster alone, and so does the election. To write there, use the client
    /// that you passed; it is not gated by leadership.
    ///
    /// While that cluster is out of reach, controllers that read from it go on with what they have; one that never had
    /// anything waits. Other controllers know nothing of it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::prelude::*;
    /// # fn read_there(manager: Manager, client: kube::Client) {
    /// let hub = manager.cluster("hub", client);
    /// let settings = hub.informer::<ConfigMap>().namespace("settings").lister();
    /// # }
    /// ```
    pub fn cluster(&self, name: impl Into<String>, client: kube::Client) -> Cluster {
        let name: Arc<str> = name.into().into();
        let client = client::observed(client, &self.metrics, &self.dry_run, &self.recorder, false);
        let factory = self.own.factory().of_cluster(Arc::clone(&name), client);
        let cluster = Cluster::new(name, factory);
        self.clusters.lock().push(cluster.clone());
        cluster
    }

    /// Runs controllers for clusters that come and go: see [`Fleet`].
    pub fn fleet(&self, fleet: Fleet) -> Fleet {
        fleet.join(&self.own);
        self.fleets.lock().push(fleet.clone());
        fleet
    }

    /// Returns the least that the program must be allowed to do in another cluster: to read what it reads there.
    ///
    /// For what was asked for so far, as [`rules`](Self::rules), which says what must be allowed in the manager's own.
    pub fn rules_in(&self, cluster: &Cluster) -> Rules {
        let mut rules = Rules::named(self.role_name());
        rules.add_reads(cluster);
        rules
    }
}

impl_debug!(Manager, this => controllers: this.plans);

//! Clusters that come and go, and the controllers that run for each of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    panic::resume_unwind,
    sync::Arc,
    time::Duration,
};

use futures::{
    Stream, StreamExt,
    future::{join_all, pending},
};
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::timeout,
};

use super::{
    client,
    controller_set::SetSupply,
    end::ending_all_by_a_panic,
    fleet_source::FleetSource,
    fleet_view::{FleetView, View},
    process,
    rules::Rules,
    supply::ControllerSupply,
};
use crate::{
    chain::one_line,
    controller::{Cluster, Controller, Plan, RunningController, Stop},
    error::Error,
    informer::{Marker, Watched},
    shards::{ShownVersions, SlotStage, SlotUser, Slots},
    store::{InvalidSelector, Lister},
    users_code::contained,
    writes::Sender,
};

/// How long the watches of a cluster that left may take to close.
const CLOSING: Duration = Duration::from_secs(5);

/// Clusters that come and go while the manager runs. Controllers run for each of them.
///
/// A [`Cluster`] that the manager reads from is there from the start to the end, and nothing is written there. To a
/// cluster of a fleet the controllers also write, as in the manager's own:
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use watchkeeper::{manager::{Fleet, FleetCluster}, prelude::*};
/// # struct Agents;
/// # impl Agents { fn new(_: &FleetCluster) -> Self { Self } }
/// # impl Reconciler<ConfigMap> for Agents {
/// #     type Error = watchkeeper::Error;
/// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
/// #         Ok(Action::await_change())
/// #     }
/// # }
/// # fn of_a_fleet(manager: &Manager) {
/// let fleet = manager.fleet(Fleet::kubeconfig_secrets("fleet-system"));
/// fleet.controller(|cluster| Controller::new(Agents::new(cluster)).named("agents"));
/// # }
/// ```
///
/// - Each cluster has its own caches, queues, workers and rate limits. So a cluster that is out of reach holds up no
///   other. `/readyz` does not depend on it: the debug page shows how each stands.
/// - A controller has the name `CLUSTER/NAME` in the log, in metrics and on the debug page. Its writes and events have
///   the name alone.
/// - If replicas [share the work](super::Manager::sharded), each has some of the clusters, by their names, and knows nothing of
///   the others.
/// - With [leader election](super::Manager::leader_election) they run in the replica that leads, and their client is
///   gated as the manager's is. All replicas keep the caches of all clusters.
/// - When a cluster leaves, its runs end within the grace period, and its watches close. Nothing is cleaned up there.
/// - What the program needs in a cluster is not in [`Manager::rules`](super::Manager::rules), which are those of the
///   manager's own cluster.
///
/// Clones are the same fleet.
#[derive(Clone)]
pub struct Fleet {
    shared: Arc<FleetShared>,
}

struct FleetShared {
    /// `None` once it runs.
    source: Mutex<Option<FleetSource>>,
    controllers: Mutex<Vec<FleetMake>>,
    views: Mutex<Vec<Arc<dyn View>>>,
}

/// Makes a controller for a cluster.
type FleetMake = Box<dyn FnMut(&FleetCluster) -> Plan + Send>;

/// A cluster of a [`Fleet`].
#[derive(Clone)]
pub struct FleetCluster {
    name: Arc<str>,
    client: kube::Client,
}

impl FleetCluster {
    /// Returns its name. Give each cluster of a manager another one, also those of other fleets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client for it, which refuses requests while this replica does not lead.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }
}

impl_debug!(FleetCluster, this => name: this.name);

impl Fleet {
    /// Finds clusters in the Secrets of a namespace that have the label `watchkeeper.dev/kubeconfig`, whatever its value.
    ///
    /// The key `kubeconfig` holds a kubeconfig, and the Secret's name is the cluster's: 1 to 63 of a-z, 0-9, '-' and '.'. When
    /// the kubeconfig changes, the cluster leaves and comes back. One that can't be used is logged with the Secret's name. A
    /// kubeconfig must hold what it needs: one that names a file or a program is refused. Otherwise users who may write
    /// Secrets there could run programs here.
    ///
    /// The program must be allowed to list and watch Secrets in that namespace.
    ///
    /// # Panics
    /// When the namespace is empty.
    pub fn kubeconfig_secrets(namespace: impl Into<String>) -> Self {
        Self::of(FleetSource::secrets(namespace.into()))
    }

    /// Finds the Secrets by another label selector, and their kubeconfig under another key.
    ///
    /// Those of Cluster API are `.labels("cluster.x-k8s.io/cluster-name", "value")`: of its Secrets only those count whose
    /// names end in `-kubeconfig`. Of ClusterProfiles it selects those with these
    /// labels, and the key means nothing. Say so before the manager gets the fleet; one of a stream ignores it.
    ///
    /// # Errors
    /// The selector does not parse.
    pub fn labels(self, labels: &str, in_key: &str) -> Result<Self, InvalidSelector> {
        labels.parse::<crate::store::Selector>()?;
        if let Some(source) = &mut *self.shared.source.lock() {
            source.select(labels, in_key);
        }
        Ok(self)
    }

    /// Finds clusters in the ClusterProfiles of a namespace, in which a cluster manager tells what it manages: the
    /// [cluster inventory API](https://github.com/kubernetes-sigs/cluster-inventory-api), KEP-4322 and KEP-5339.
    ///
    /// The ClusterProfile's name is the cluster's: 1 to 63 of a-z, 0-9, '-' and '.'. Its `status.accessProviders` say where the cluster
    /// is; the older `credentialProviders` are not read. The function returns the credentials for the name of a provider. The first
    /// provider counts for which it returns some. It must be quick, because it is asked at each change of a profile. A program of
    /// `exec` may take a minute; if `provide_cluster_info` is set, it gets the profile's extension `client.authentication.k8s.io/exec`.
    ///
    /// When the provider's entry changes, the cluster leaves and comes back. New credentials alone are not noticed. A profile that can't
    /// be used is logged with its name; where the credentials failed, they are asked for again after 30 seconds. A profile that names no
    /// provider yet waits. The condition `ControlPlaneHealthy` is not looked at: a cluster that can't be reached holds up no other.
    ///
    /// The kind must be installed, with the version `v1alpha1`: until then the informer that looks for it fails, and the replica is not
    /// ready. The program must be allowed to list and watch `clusterprofiles` in that namespace. Those who may write their status
    /// decide where the credentials are sent.
    ///
    /// # Panics
    /// When the namespace is empty.
    ///
    /// ```
    /// # use watchkeeper::{kube::config::{AuthInfo, ExecConfig}, manager::Fleet, prelude::*};
    /// # fn of_an_inventory(manager: &Manager) {
    /// let fleet = manager.fleet(Fleet::cluster_profiles("inventory", |provider| match provider {
    ///     "google" => Some(AuthInfo {
    ///         exec: Some(ExecConfig {
    ///             api_version: Some("client.authentication.k8s.io/v1".to_owned()),
    ///             command: Some("gke-gcloud-auth-plugin".to_owned()),
    ///             provide_cluster_info: true,
    ///             ..ExecConfig::default()
    ///         }),
    ///         ..AuthInfo::default()
    ///     }),
    ///     _ => None,
    /// }));
    /// # let _ = fleet;
    /// # }
    /// ```
    pub fn cluster_profiles(
        namespace: impl Into<String>,
        access: impl Fn(&str) -> Option<AuthInfo> + Send + Sync + 'static,
    ) -> Self {
        Self::of(FleetSource::profiles(namespace.into(), access))
    }

    /// Takes clusters from a stream: a name and a client when one comes, `None` when it leaves.
    ///
    /// A client for a name that is there replaces it. Clusters stay when the stream ends.
    pub fn stream(changes: impl Stream<Item = (String, Option<kube::Client>)> + Send + 'static) -> Self {
        let changes = changes.map(|(name, client)| (Arc::from(name), client));
        Self::of(FleetSource::stream(changes))
    }

    fn of(source: FleetSource) -> Self {
        let shared = FleetShared {
            source: Mutex::new(Some(source)),
            controllers: Mutex::default(),
            views: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Runs a controller for each cluster; the function makes it, once for each. Say so before the manager starts: later it
    /// is refused, which is logged.
    ///
    /// Controllers of a fleet need different names. The controller reads and writes there. By [`Watch::in_cluster`](crate::controller::Watch::in_cluster) it can read from
    /// clusters of the manager as well.
    pub fn controller<K: Marker, R>(
        &self,
        mut make: impl FnMut(&FleetCluster) -> Controller<K, R> + Send + 'static,
    ) {
        if self.shared.source.lock().is_none() {
            tracing::error!("the fleet runs: a controller that is added now is left out");
            return;
        }
        self.shared.controllers.lock().push(Box::new(move |cluster| make(cluster).plan()));
    }

    /// Caches a kind of each cluster, for controllers of the manager's own cluster: see [`FleetView`]. Say so before the manager starts:
    /// later it stays empty, which is logged.
    pub fn view<W>(&self) -> FleetView<W>
    where
        W: Watched<DynamicType = (), Lister = Lister<<W as Watched>::Object>>,
    {
        let view = FleetView::new();
        if self.shared.source.lock().is_none() {
            tracing::error!("the fleet runs: a view that is asked for now stays empty");
        }
        self.shared.views.lock().push(Arc::new(view.clone()));
        view
    }

    /// Returns the least that its controllers and views must be allowed to do in each of its clusters, for what was said so far.
    ///
    /// [`Manager::rules`](super::Manager::rules) says what must be allowed in the manager's own cluster: to read the Secrets, or the ClusterProfiles.
    ///
    /// # Panics
    /// As a function that makes a controller does.
    pub fn rules(&self) -> Rules {
        let mut rules = Rules::named("fleet");
        self.plans().iter().for_each(|plan| rules.add_plan(plan));
        self.shared.views.lock().iter().for_each(|view| rules.add_watch(&view.kind()));
        rules
    }

    /// Returns whether it has controllers.
    #[cfg(feature = "webhooks")]
    pub(super) fn works(&self) -> bool {
        !self.shared.controllers.lock().is_empty()
    }

    /// Makes the controllers of a cluster that is not there.
    pub(super) fn plans(&self) -> Vec<Plan> {
        let name: Arc<str> = "fleet".into();
        let cluster = FleetCluster { client: client::offline(name.to_string()), name };
        self.shared.controllers.lock().iter_mut().map(|make| make(&cluster)).collect()
    }

    /// Makes the same, if its functions can: they may not know the cluster.
    #[cfg(feature = "cli")]
    pub(super) fn known_plans(&self) -> Vec<Plan> {
        contained(|| self.plans()).unwrap_or_default()
    }

    /// Asks the manager's own cluster for what it needs.
    pub(super) fn join(&self, own: &Cluster) {
        if let Some(source) = &mut *self.shared.source.lock() {
            source.join(own);
        }
    }

    /// Runs controllers for the clusters until the manager stops.
    pub(super) async fn attend(self, manager: SetSupply, connect: Connect, stop: Stop) {
        let source = self.shared.source.lock().take();
        // It runs already.
        let Some(changes) = source.and_then(FleetSource::changes) else { return };
        // A user's stream may end, and must not be polled after that.
        let mut changes = changes.fuse();
        let mut makes = mem::take(&mut *self.shared.controllers.lock());
        let views: Arc<[_]> = mem::take(&mut *self.shared.views.lock()).into();
        let (mut running, mut known) = (BTreeMap::<Arc<str>, Stop>::new(), BTreeMap::new());
        let (mut share, mut ends) = (FleetShare::new(manager.supply.slots.as_ref()), JoinSet::new());
        loop {
            tokio::select! {
                biased;
                () = stop.finish.cancelled() => break,
                Some(ended) = ends.join_next() => drop(running.remove(&left(ended))),
                () = share.changed() => {}
                Some((name, client)) = changes.next() => {
                    running.get(&name).iter().for_each(|one| one.finish.cancel());
                    match client {
                        Some(_) if !process::is_a_name(&name) => tracing::error!(
                            cluster = &*name,
                            "a cluster's name must be 1 to 63 of a-z, 0-9, '-' and '.': {name:?} is left out"
                        ),
                        Some(client) => drop(known.insert(name, client)),
                        None => drop(known.remove(&name)),
                    }
                }
            }
            running.iter().filter(|(name, _)| !share.holds(name)).for_each(|(_, one)| one.finish.cancel());
            share.let_go(running.keys());
            // One that comes back waits until it has left.
            let comes = known.iter().filter(|(name, _)| share.holds(name) && !running.contains_key(*name));
            for (name, client) in
                comes.map(|(name, client)| (name.clone(), client.clone())).collect::<Vec<_>>()
            {
                let member =
                    FleetMember::new(&manager, name.clone(), connect(client), &mut makes, views.clone());
                let stop = stop.child();
                ends.spawn(member.run(manager.clone(), stop.clone()));
                running.insert(name, stop);
            }
        }
        while let Some(ended) = ends.join_next().await {
            left(ended);
        }
    }
}

/// The clusters that are this replica's, if replicas share the work: those whose names are in its slots.
struct FleetShare {
    slots: Option<(Slots, SlotUser, watch::Receiver<()>)>,
}

impl FleetShare {
    fn new(slots: Option<&Slots>) -> Self {
        Self {
            slots: slots.map(|slots| (slots.clone(), slots.join(None, ShownVersions::new), slots.changes())),
        }
    }

    fn holds(&self, cluster: &str) -> bool {
        let works = |slots: &Slots| matches!(slots.stage(slots.named(cluster)), SlotStage::Works(_));
        self.slots.as_ref().is_none_or(|(slots, ..)| works(slots))
    }

    async fn changed(&mut self) {
        match &mut self.slots {
            // The sender is here.
            Some((_, _, changes)) => drop(changes.changed().await),
            None => pending().await,
        }
    }

    /// Gives up slots that leave, once none of their clusters runs.
    fn let_go<'a>(&self, running: impl Iterator<Item = &'a Arc<str>>) {
        let Some((slots, user, _)) = &self.slots else { return };
        let busy: BTreeSet<_> = running.map(|cluster| slots.named(cluster)).collect();
        for (slot, stage) in (0..).zip(slots.stages()) {
            if let SlotStage::Drains(turn) = stage
                && !busy.contains(&slot)
            {
                user.drained(slot, turn);
            }
        }
    }
}

/// Returns which cluster has left; a panic that is to propagate goes on.
fn left(ended: Result<Arc<str>, JoinError>) -> Arc<str> {
    ended.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

impl_debug!(Fleet, this => controllers: this.shared.controllers.lock().len());

/// Gives a client of a cluster what the manager's have: one for informers, and one that is gated.
pub(super) type Connect = Arc<dyn Fn(kube::Client) -> (kube::Client, kube::Client) + Send + Sync>;

/// A cluster of a fleet at work.
struct FleetMember {
    cluster: Cluster,
    controllers: Vec<RunningController>,
    views: Arc<[Arc<dyn View>]>,
}

impl FleetMember {
    fn new(
        manager: &SetSupply,
        name: Arc<str>,
        (direct, client): (kube::Client, kube::Client),
        makes: &mut [FleetMake],
        views: Arc<[Arc<dyn View>]>,
    ) -> Self {
        let factory = manager.clusters.own().factory().of_cluster(name.clone(), direct);
        let cluster = Cluster::new(name.clone(), factory);
        let supply = manager.supply.sending(Sender::new(client.clone()));
        // The cluster is this replica's as a whole.
        let supply = ControllerSupply { part: None, ..supply };
        let shown = FleetCluster { name: name.clone(), client };
        let mut names = BTreeSet::new();
        let make = |make: &mut FleetMake| {
            let mut plan = contained(|| make(&shown)).ok_or_else(|| Error::other("its function panicked"))?;
            let settings = &mut plan.definition.settings;
            let full: Arc<str> = format!("{name}/{}", settings.name).into();
            if !names.insert(full.clone()) {
                return Err(Error::DuplicateController(full.to_string()));
            }
            settings.author = Some(mem::replace(&mut settings.name, full));
            // A cluster that is away for long must not stay without its controllers.
            settings.sync_timeout = None;
            process::check(manager.clusters.others(), [&plan])?;
            Ok(plan.prepare(&supply.env(cluster.factory(), &[]))?)
        };
        let made = makes.iter_mut().map(make).filter_map(|made: Result<RunningController, Error>| {
            let failed = |error: &Error| {
                tracing::error!(
                    cluster = &*name,
                    error = one_line(error),
                    "a controller can't be started for the cluster {name}"
                );
            };
            made.inspect_err(failed).ok()
        });
        let controllers: Vec<_> = made.collect();
        Self { cluster, controllers, views }
    }

    /// Works until it is stopped, or each controller has given up; returns the cluster's name.
    async fn run(self, manager: SetSupply, stop: Stop) -> Arc<str> {
        let Self { cluster, controllers, views } = self;
        let (name, grace_period) = (Arc::<str>::from(cluster.name()), manager.end.grace_period);
        tracing::info!(cluster = &*name, "the cluster {name} has come");
        controllers.iter().for_each(|controller| manager.inspector.add_of_fleet(controller.core()));
        manager.clusters.join(&cluster);
        views.iter().for_each(|view| view.come(&cluster));
        cluster.start();
        // A controller of it may watch one of the manager's clusters as well.
        manager.clusters.start();
        let names: Vec<_> = controllers.iter().map(|one| one.core().settings.name.clone()).collect();
        let runs = controllers.into_iter().map(|controller| {
            let run = ending_all_by_a_panic(
                controller,
                manager.terms.clone().whole(),
                stop.clone(),
                manager.end.clone(),
            );
            let name = name.clone();
            async move {
                if let Err(error) = run.await {
                    tracing::error!(
                        cluster = &*name,
                        error = one_line(&error),
                        "a controller of the cluster {name} gives up"
                    );
                }
            }
        });
        let ended = async {
            join_all(runs).await;
            // The cluster is there for as long as the fleet has it.
            stop.finish.cancelled().await;
        };
        stop.within(grace_period, ended).await;
        views.iter().for_each(|view| view.leave(cluster.name()));
        let _ = timeout(CLOSING, cluster.factory().shutdown()).await;
        let metrics = &manager.supply.metrics.shared;
        for name in &names {
            manager.inspector.remove(name);
            metrics.reconcile.forget(name);
        }
        metrics.fetch.forget_cluster(cluster.name());
        manager.clusters.leave(&cluster);
        tracing::info!(cluster = &*name, "the cluster {name} has left");
        cluster.name().into()
    }
}

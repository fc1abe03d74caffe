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
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};

use super::{
    client, controller_set::SetSupply, end::ending_all_by_a_panic, process, rules::Rules,
    supply::ControllerSupply,
};
use crate::{
    chain::one_line,
    controller::{Cluster, Controller, Plan, RunningController, Stop},
    error::Error,
    informer::{Marker, SharedInformer},
    shards::{ShownVersions, SlotStage, SlotUser, Slots},
    store::InvalidSelector,
    users_code::contained,
    writes::Sender,
};

/// The label of Secrets that hold a kubeconfig, unless a fleet says otherwise.
const LABEL: &str = "watchkeeper.dev/kubeconfig";
/// Where such a Secret holds it.
const KEY: &str = "kubeconfig";
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
}

/// Makes a controller for a cluster.
type FleetMake = Box<dyn FnMut(&FleetCluster) -> Plan + Send>;

/// A cluster came, with its client, or left.
type FleetChange = (Arc<str>, Option<kube::Client>);

enum FleetSource {
    Secrets { namespace: String, labels: String, key: String, informer: Option<Box<SharedInformer<Secret>>> },
    Changes(BoxStream<'static, FleetChange>),
}

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
    pub fn kubeconfig_secrets(namespace: impl Into<String>) -> Self {
        let (namespace, labels, key) = (namespace.into(), LABEL.to_owned(), KEY.to_owned());
        Self::of(FleetSource::Secrets { namespace, labels, key, informer: None })
    }

    /// Finds the Secrets by another label selector, and their kubeconfig under another key.
    ///
    /// Those of Cluster API are `.labels("cluster.x-k8s.io/cluster-name", "value")`. Say so before the manager gets the fleet;
    /// one of a stream ignores it.
    ///
    /// # Errors
    /// The selector does not parse.
    pub fn labels(self, labels: &str, in_key: &str) -> Result<Self, InvalidSelector> {
        labels.parse::<crate::store::Selector>()?;
        if let Some(FleetSource::Secrets { labels: of, key, .. }) = &mut *self.shared.source.lock() {
            (*of, *key) = (labels.to_owned(), in_key.to_owned());
        }
        Ok(self)
    }

    /// Takes clusters from a stream: a name and a client when one comes, `None` when it leaves.
    ///
    /// A client for a name that is there replaces it. Clusters stay when the stream ends.
    pub fn stream(changes: impl Stream<Item = (String, Option<kube::Client>)> + Send + 'static) -> Self {
        let changes = changes.map(|(name, client)| (Arc::from(name), client));
        Self::of(FleetSource::Changes(changes.boxed()))
    }

    fn of(source: FleetSource) -> Self {
        let shared = FleetShared { source: Mutex::new(Some(source)), controllers: Mutex::default() };
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

    /// Returns the least that its controllers must be allowed to do in each of its clusters, for what was said so far.
    ///
    /// [`Manager::rules`](super::Manager::rules) says what must be allowed in the manager's own cluster: to read the Secrets.
    ///
    /// # Panics
    /// As a function that makes a controller does.
    pub fn rules(&self) -> Rules {
        let name: Arc<str> = "fleet".into();
        let cluster = FleetCluster { client: client::offline(name.to_string()), name };
        let mut rules = Rules::named("fleet");
        self.shared.controllers.lock().iter_mut().for_each(|make| rules.add_plan(&make(&cluster)));
        rules
    }

    /// Asks the manager's own cluster for what it needs.
    pub(super) fn join(&self, own: &Cluster) {
        if let Some(FleetSource::Secrets { namespace, labels, informer, .. }) =
            &mut *self.shared.source.lock()
        {
            let secrets = own.informer::<Secret>().namespace(namespace.as_str()).label_selector(labels);
            *informer = Some(Box::new(secrets.expect("it has parsed before").build()));
        }
    }

    /// Runs controllers for the clusters until the manager stops.
    pub(super) async fn attend(self, manager: SetSupply, connect: Connect, stop: Stop) {
        let source = self.shared.source.lock().take();
        let mut changes = match source {
            Some(FleetSource::Secrets { key, informer: Some(informer), .. }) => of_secrets(*informer, key),
            Some(FleetSource::Changes(changes)) => changes,
            // It runs already.
            Some(FleetSource::Secrets { informer: None, .. }) | None => return,
        };
        let mut makes = mem::take(&mut *self.shared.controllers.lock());
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
                let member = FleetMember::new(&manager, name.clone(), connect(client), &mut makes);
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
}

impl FleetMember {
    fn new(
        manager: &SetSupply,
        name: Arc<str>,
        (direct, client): (kube::Client, kube::Client),
        makes: &mut [FleetMake],
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
        Self { cluster, controllers }
    }

    /// Works until it is stopped, or each controller has given up; returns the cluster's name.
    async fn run(self, manager: SetSupply, stop: Stop) -> Arc<str> {
        let Self { cluster, controllers } = self;
        let (name, grace_period) = (Arc::<str>::from(cluster.name()), manager.end.grace_period);
        tracing::info!(cluster = &*name, "the cluster {name} has come");
        controllers.iter().for_each(|controller| manager.inspector.add_of_fleet(controller.core()));
        manager.clusters.join(&cluster);
        cluster.start();
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
        let overdue = async {
            stop.finish.cancelled().await;
            sleep(grace_period).await;
        };
        tokio::pin!(ended);
        tokio::select! {
            biased;
            () = &mut ended => {}
            () = overdue => {
                stop.abort.cancel();
                ended.await;
            }
        }
        let _ = timeout(CLOSING, cluster.factory().shutdown()).await;
        names.iter().for_each(|name| manager.inspector.remove(name));
        manager.clusters.leave(&cluster);
        tracing::info!(cluster = &*name, "the cluster {name} has left");
        cluster.name().into()
    }
}

/// Follows the kubeconfigs in Secrets.
fn of_secrets(secrets: SharedInformer<Secret>, key: String) -> BoxStream<'static, FleetChange> {
    let changed = Arc::new(Notify::new());
    let notes = [(); 3].map(|()| {
        let changed = changed.clone();
        move || changed.notify_one()
    });
    let [came, moved, went] = notes;
    let handler = secrets.handler().on_add(move |_, _| came()).on_update(move |_, _| moved());
    let registration = handler.on_delete(move |_| went()).register();
    // A Secret without the key is known as well, so that it is logged once.
    let known = BTreeMap::<Arc<str>, Option<Vec<u8>>>::new();
    let following = (secrets, registration, changed, key, known);
    let changes = stream::unfold(following, |mut following| async {
        let (secrets, _, changed, key, known) = &mut following;
        changed.notified().await;
        let mut found = BTreeMap::new();
        for secret in secrets.lister().list().iter() {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            let kubeconfig = secret.data.as_ref().and_then(|data| data.get(key.as_str()));
            found.insert(Arc::from(name), kubeconfig.map(|kubeconfig| kubeconfig.0.clone()));
        }
        let before = mem::replace(known, found);
        let gone = before.keys().filter(|name| !known.contains_key(*name));
        let mut changes: Vec<FleetChange> = gone.map(|name| (name.clone(), None)).collect();
        for (name, kubeconfig) in known.iter().filter(|(name, new)| before.get(*name) != Some(new)) {
            let connected = match kubeconfig {
                Some(kubeconfig) => connected(kubeconfig).await,
                None => Err(format!("its key {key:?} is missing")),
            };
            if let Err(why) = &connected {
                tracing::error!(secret = &**name, "the kubeconfig in the Secret {name} can't be used: {why}");
            }
            changes.push((name.clone(), connected.ok()));
        }
        Some((stream::iter(changes), following))
    });
    changes.flatten().boxed()
}

/// Makes a client of a kubeconfig, or says why that fails.
async fn connected(kubeconfig: &[u8]) -> Result<kube::Client, String> {
    let text = std::str::from_utf8(kubeconfig).map_err(|_| "it is not text".to_owned())?;
    // The error may show what stands there, such as a token.
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| "it is not a kubeconfig in YAML".to_owned())?;
    if let Some(outside) = outside(&kubeconfig) {
        return Err(format!(
            "{outside} is not in it: put tokens, certificates and keys into the kubeconfig itself"
        ));
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    client::client(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// Names what a kubeconfig reads from this machine.
fn outside(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_cluster = clusters.filter(|cluster| cluster.certificate_authority.is_some());
    let of_cluster = of_cluster.map(|_| "the file of `certificate-authority`");
    let of_user = users.flat_map(|user| {
        [
            user.exec.as_ref().map(|_| "the program of `exec`"),
            user.auth_provider.as_ref().map(|_| "the program of `auth-provider`"),
            user.token_file.as_ref().map(|_| "the file of `tokenFile`"),
            user.client_certificate.as_ref().map(|_| "the file of `client-certificate`"),
            user.client_key.as_ref().map(|_| "the file of `client-key`"),
        ]
    });
    of_cluster.chain(of_user.flatten()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'{cluster}}}}}]\n\
             users: [{{name: a, user: {{{user}}}}}]\n"
        )
    }

    // P31
    #[tokio::test]
    async fn a_kubeconfig_that_needs_something_of_this_machine_is_refused() {
        for (cluster, user, named) in [
            (", certificate-authority: /ca.crt", "token: a", "certificate-authority"),
            ("", "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}", "exec"),
            ("", "tokenFile: /var/run/token", "tokenFile"),
            ("", "client-certificate: /a.crt", "client-certificate"),
            ("", "client-key: /a.key", "client-key"),
        ] {
            let why = connected(kubeconfig(cluster, user).as_bytes()).await.map(drop).unwrap_err();
            assert!(why.contains(named) && why.contains("put tokens"), "{why}");
        }
        assert!(connected(kubeconfig("", "token: a").as_bytes()).await.is_ok());
        let token = kubeconfig("", "token: {hunter2: []}");
        for rubbish in [&b"\xff"[..], b"", b"a: [", b"{}", token.as_bytes()] {
            let why = connected(rubbish).await.map(drop).unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}

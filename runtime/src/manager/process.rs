//! The manager as a process: its clusters, its start, its server and its election.

use std::{iter::once, sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Moment,
    controller::{Cluster, Plan},
    error::Error,
    informer::{InformerReport, SyncState},
    leader_election::Leadership,
    shards::Slots,
};

/// How long the server may take to say its version.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long that is believed.
const BELIEVED: Duration = Duration::from_secs(60);

/// Where a manager's client was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientOrigin {
    /// The server's address, where the manager built the client.
    pub(super) url: Option<String>,
    /// Its configuration is a pod's service account.
    pub(super) in_a_pod: bool,
}

/// A manager that was started.
pub(super) struct ManagerProcess {
    pub(super) started: Moment,
    pub(super) clusters: Clusters,
    pub(super) leadership: Option<Leadership>,
    /// Its part of the work, if replicas share it.
    pub(super) slots: Option<Slots>,
    pub(super) cluster: ClientOrigin,
    /// A client that does not depend on leadership.
    pub(super) client: kube::Client,
    pub(super) stop: CancellationToken,
    /// The kinds that the program converts, by the names of their definitions.
    pub(super) converted: Vec<String>,
    /// The server's version, and when it was asked for.
    pub(super) version: Mutex<Option<(Instant, Option<String>)>>,
}

impl ManagerProcess {
    /// Asks the server for its version, unless that is known.
    pub(super) async fn server_version(&self) -> Option<String> {
        // One asks, the others wait for the answer.
        let mut known = self.version.lock().await;
        if let Some((at, version)) = &*known
            && at.elapsed() < BELIEVED
        {
            return version.clone();
        }
        let answer = timeout(PATIENCE, self.client.apiserver_version()).await;
        let version = answer.ok().and_then(Result::ok).map(|version| version.git_version);
        *known = Some((Instant::now(), version.clone()));
        version
    }
}

/// All clusters of a manager, its own one first: started, stopped and shown together. Clones are the same.
#[derive(Clone)]
pub(super) struct Clusters {
    fixed: Arc<[Cluster]>,
    /// Those of fleets. Nobody waits for them.
    fleet: Arc<parking_lot::Mutex<Vec<Cluster>>>,
}

impl Clusters {
    pub(super) fn new(own: Cluster, others: Vec<Cluster>) -> Self {
        Self { fixed: once(own).chain(others).collect(), fleet: Arc::default() }
    }

    /// Returns the manager's own cluster.
    pub(super) fn own(&self) -> &Cluster {
        &self.fixed[0]
    }

    /// Returns the other ones.
    pub(super) fn others(&self) -> &[Cluster] {
        &self.fixed[1..]
    }

    /// Adds a cluster of a fleet.
    pub(super) fn join(&self, cluster: &Cluster) {
        self.fleet.lock().push(cluster.clone());
    }

    /// Takes away a cluster of a fleet.
    pub(super) fn leave(&self, cluster: &Cluster) {
        self.fleet.lock().retain(|other| !other.is(cluster));
    }

    fn all(&self) -> Vec<Cluster> {
        self.fixed.iter().chain(self.fleet.lock().iter()).cloned().collect()
    }

    pub(super) fn start(&self) {
        self.fixed.iter().for_each(Cluster::start);
    }

    /// Stops all without waiting for it.
    pub(super) fn stop(&self) {
        self.all().iter().for_each(Cluster::stop);
    }

    /// Stops all, and waits until no task is left.
    pub(super) async fn shutdown(&self) {
        self.stop();
        join_all(self.all().iter().map(|cluster| cluster.factory().shutdown())).await;
    }

    /// Shows how the caches stand on which readiness depends.
    pub(super) fn sync_states(&self) -> Vec<SyncState> {
        self.fixed.iter().flat_map(|cluster| cluster.factory().sync_states()).collect()
    }

    pub(super) fn reports(&self) -> Vec<InformerReport> {
        self.all().iter().flat_map(|cluster| cluster.factory().reports()).collect()
    }
}

/// Checks that each other cluster has a name of its own, and that controllers name no further one.
pub(super) fn check<'p>(others: &[Cluster], plans: impl IntoIterator<Item = &'p Plan>) -> Result<(), Error> {
    let refused = |cluster: &Cluster, problem: &str| {
        Err(Error::Cluster { name: cluster.name().to_owned(), problem: problem.to_owned() })
    };
    for (at, cluster) in others.iter().enumerate() {
        if !is_a_name(cluster.name()) {
            return refused(cluster, "its name must be 1 to 63 of a-z, 0-9, '-' and '.'");
        }
        if others[..at].iter().any(|other| other.name() == cluster.name()) {
            return refused(cluster, "another one has that name: give each its own");
        }
    }
    let mut named = plans.into_iter().flat_map(|plan| &plan.definition.clusters);
    match named.find(|cluster| !others.iter().any(|one| one.is(cluster))) {
        None => Ok(()),
        Some(unknown) => refused(
            unknown,
            "it is another manager's: ask the one that runs the controller, by `manager.cluster(..)`",
        ),
    }
}

/// Names are shown in messages, in paths of probes, and as labels.
pub(super) fn is_a_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(fits)
}

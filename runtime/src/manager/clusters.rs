//! The manager's own cluster, and the others that it reads from.

use std::{iter::once, sync::Arc};

use futures::future::join_all;

use crate::{
    controller::{Cluster, Plan},
    error::Error,
    informer::{InformerReport, SyncState},
};

/// All clusters of a manager, its own one first: started, stopped and shown together. Clones are the same.
#[derive(Clone)]
pub(super) struct Clusters(Arc<[Cluster]>);

impl Clusters {
    pub(super) fn new(own: Cluster, others: Vec<Cluster>) -> Self {
        Self(once(own).chain(others).collect())
    }

    /// Returns the manager's own cluster.
    pub(super) fn own(&self) -> &Cluster {
        &self.0[0]
    }

    pub(super) fn start(&self) {
        self.0.iter().for_each(Cluster::start);
    }

    /// Stops all without waiting for it.
    pub(super) fn stop(&self) {
        self.0.iter().for_each(Cluster::stop);
    }

    /// Stops all, and waits until no task is left.
    pub(super) async fn shutdown(&self) {
        self.stop();
        join_all(self.0.iter().map(Cluster::shutdown)).await;
    }

    pub(super) fn sync_states(&self) -> Vec<SyncState> {
        self.0.iter().flat_map(Cluster::sync_states).collect()
    }

    pub(super) fn reports(&self) -> Vec<InformerReport> {
        self.0.iter().flat_map(Cluster::reports).collect()
    }
}

/// Checks that each other cluster has a name of its own, and that controllers name no further one.
pub(super) fn check(others: &[Cluster], plans: &[Plan]) -> Result<(), Error> {
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
    let mut named = plans.iter().flat_map(|plan| &plan.clusters);
    match named.find(|cluster| !others.iter().any(|one| one.is(cluster))) {
        None => Ok(()),
        Some(unknown) => refused(
            unknown,
            "it is another manager's: ask the one that runs the controller, by `manager.cluster(..)`",
        ),
    }
}

/// Names are shown in messages, in paths of probes, and as labels.
fn is_a_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(fits)
}

//! The informers of the manager's own cluster, and of the others that it reads from.

use std::sync::Arc;

use futures::future::join_all;

use crate::{
    controller::Cluster,
    informer::{InformerReport, SyncState},
};

/// All that is started, stopped and shown together; clones are the same.
#[derive(Clone)]
pub(super) struct Factories {
    own: Cluster,
    clusters: Arc<[Cluster]>,
}

impl Factories {
    pub(super) fn new(own: Cluster, clusters: Vec<Cluster>) -> Self {
        Self { own, clusters: clusters.into() }
    }

    /// Returns the manager's own cluster.
    pub(super) fn own(&self) -> &Cluster {
        &self.own
    }

    pub(super) fn start(&self) {
        self.own.start();
        self.clusters.iter().for_each(Cluster::start);
    }

    /// Stops all without waiting for it.
    pub(super) fn stop(&self) {
        self.own.stop();
        self.clusters.iter().for_each(Cluster::stop);
    }

    /// Stops all, and waits until no task is left.
    pub(super) async fn shutdown(&self) {
        self.stop();
        self.own.shutdown().await;
        join_all(self.clusters.iter().map(Cluster::shutdown)).await;
    }

    pub(super) fn sync_states(&self) -> Vec<SyncState> {
        let others = self.clusters.iter().flat_map(Cluster::sync_states);
        self.own.sync_states().into_iter().chain(others).collect()
    }

    pub(super) fn reports(&self) -> Vec<InformerReport> {
        let others = self.clusters.iter().flat_map(Cluster::reports);
        self.own.reports().into_iter().chain(others).collect()
    }
}

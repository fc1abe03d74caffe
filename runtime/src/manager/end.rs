//! How a manager ends, and a panic that ends it.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    time::Duration,
};

use futures::FutureExt;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::process::Clusters;
use crate::{
    controller::{RunningController, Stop, Terms},
    error::Error,
};

/// What it takes to end a manager.
#[derive(Clone)]
pub(super) struct ManagerEnd {
    pub(super) stop: Stop,
    pub(super) clusters: Clusters,
    /// The controllers and tasks that run.
    pub(super) live: TaskTracker,
    pub(super) grace_period: Duration,
}

impl ManagerEnd {
    pub(super) fn new(clusters: Clusters, grace_period: Duration) -> Self {
        Self { stop: Stop::new(), clusters, live: TaskTracker::new(), grace_period }
    }

    /// Ends everything, as a stop does.
    pub(super) async fn all(self) {
        self.stop.finish.cancel();
        if timeout(self.grace_period, self.live.wait()).await.is_err() {
            self.stop.abort.cancel();
        }
        self.clusters.stop();
    }
}

/// Runs a controller; its panic ends the manager, and propagates to the task that awaits it.
pub(super) async fn ending_all_by_a_panic(
    controller: RunningController,
    terms: Terms,
    stop: Stop,
    end: ManagerEnd,
) -> Result<(), Error> {
    let name = controller.core().settings.name.clone();
    let run = AssertUnwindSafe(controller.run(stop, terms)).catch_unwind();
    let ended = run.await.unwrap_or_else(|panic| {
        tracing::error!(controller = %name, "a panic that is to propagate ends the manager");
        tokio::spawn(end.all());
        resume_unwind(panic)
    });
    ended.map_err(Error::from)
}

//! Controllers under way, and how they stop.

use std::{fmt, time::Duration};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{controller::Planned, error::Error, informer::SharedInformerFactory};

/// A manager that runs in the background; dropping it stops everything without waiting.
#[must_use = "dropping it stops the manager"]
pub struct Running {
    stop: CancellationToken,
    controllers: JoinSet<()>,
    factory: Option<SharedInformerFactory>,
    grace_period: Duration,
    failed: Option<Error>,
}

impl Running {
    pub(super) fn start(
        planned: Vec<Planned>,
        factory: SharedInformerFactory,
        grace_period: Duration,
    ) -> Self {
        let stop = CancellationToken::new();
        let mut controllers = JoinSet::new();
        for controller in planned {
            controllers.spawn(controller.run(stop.clone()));
        }
        Self { stop, controllers, factory: Some(factory), grace_period, failed: None }
    }

    pub(super) fn failed(error: Error) -> Self {
        Self {
            stop: CancellationToken::new(),
            controllers: JoinSet::new(),
            factory: None,
            grace_period: Duration::ZERO,
            failed: Some(error),
        }
    }

    /// Stops: running reconciles end, queued keys are dropped, watches are closed, no task is left.
    ///
    /// # Errors
    /// [`Error::Stopped`] where a reconcile outlived the grace period and was aborted; whatever kept the manager
    /// from starting.
    ///
    /// # Panics
    /// With the panic of a reconciler whose controller says `Panics::Propagate`.
    pub async fn stop(mut self) -> Result<(), Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.stop.cancel();
        let ended = tokio::time::timeout(self.grace_period, join(&mut self.controllers)).await;
        if ended.is_err() {
            self.controllers.shutdown().await;
        }
        if let Some(factory) = self.factory.take() {
            factory.shutdown().await;
        }
        ended.map_err(|_| {
            Error::Stopped(format!("reconciles ran on past the grace period of {:?}", self.grace_period))
        })
    }

    /// Ends when every controller has ended: never of itself, but for a propagated panic.
    ///
    /// # Errors
    /// Whatever kept the manager from starting.
    ///
    /// # Panics
    /// With the panic of a reconciler whose controller says `Panics::Propagate`.
    pub async fn ended(&mut self) -> Result<(), Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        join(&mut self.controllers).await;
        Ok(())
    }
}

async fn join(controllers: &mut JoinSet<()>) {
    while let Some(ended) = controllers.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        self.controllers.detach_all();
        if let Some(factory) = &self.factory {
            factory.stop();
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("controllers", &self.controllers.len()).finish_non_exhaustive()
    }
}

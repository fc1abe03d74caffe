//! Controllers under way, and how they stop.

use std::{fmt, mem, time::Duration};

use tokio::{runtime::Handle, task::JoinSet, time::timeout};

use crate::{
    controller::{Planned, Stop},
    error::Error,
    informer::SharedInformerFactory,
};

/// How long aborted reconciles may take to be dropped; only one that blocks its thread takes longer.
const ABORT: Duration = Duration::from_secs(1);

/// A manager that runs in the background; dropping it stops everything without waiting.
///
/// Reconciles that run when it is dropped may go on for the grace period, and are then aborted.
#[must_use = "dropping it stops the manager"]
pub struct Running {
    stop: Stop,
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
        let stop = Stop::new();
        let mut controllers = JoinSet::new();
        for controller in planned {
            controllers.spawn(controller.run(stop.clone()));
        }
        Self { stop, controllers, factory: Some(factory), grace_period, failed: None }
    }

    pub(super) fn failed(error: Error) -> Self {
        Self {
            stop: Stop::new(),
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
        self.stop.finish.cancel();
        let ended = timeout(self.grace_period, join(&mut self.controllers)).await;
        if ended.is_err() {
            self.stop.abort.cancel();
            let _ = timeout(ABORT, join(&mut self.controllers)).await;
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
    /// At once where there is none.
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
        self.stop.finish.cancel();
        if let Some(factory) = &self.factory {
            factory.stop();
        }
        let mut controllers = mem::take(&mut self.controllers);
        let (abort, grace_period) = (self.stop.abort.clone(), self.grace_period);
        if controllers.is_empty() {
            return;
        }
        // Without a runtime nothing can be waited for: dropping the set aborts what is in it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ =
                    timeout(grace_period, async { while controllers.join_next().await.is_some() {} }).await;
                abort.cancel();
                while controllers.join_next().await.is_some() {}
            });
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("controllers", &self.controllers.len()).finish_non_exhaustive()
    }
}

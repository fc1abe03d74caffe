//! The user's own tasks: started and stopped with the manager, or with each term of leadership.

use std::{
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use super::Inspector;
use crate::{
    controller::{Stop, Term, Terms},
    error::Error,
};

/// Shows a task when to end; clones share the signal.
#[derive(Clone, Debug)]
pub struct Stopping {
    told: CancellationToken,
}

impl Stopping {
    /// Waits until the task is to end.
    pub async fn wait(&self) {
        self.told.cancelled().await;
    }

    /// Returns whether the task is to end.
    pub fn is_told(&self) -> bool {
        self.told.is_cancelled()
    }
}

type Run = dyn Fn(Stopping) -> BoxFuture<'static, Result<(), Error>> + Send + Sync;

/// A task that a manager runs.
pub(super) struct Task {
    name: Arc<str>,
    runs: Runs,
    run: Arc<Run>,
    running: Arc<AtomicBool>,
}

/// When a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Once, for as long as the manager does.
    Always,
    /// Once in each term.
    WhileLeading,
}

/// Names what runs: reconciles and tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    inspector: Inspector,
    tasks: Vec<(Arc<str>, Arc<AtomicBool>)>,
}

impl InFlight {
    pub(super) fn new(inspector: Inspector, tasks: &[Task]) -> Self {
        let tasks = tasks.iter().map(|task| (task.name.clone(), task.running.clone())).collect();
        Self { inspector, tasks }
    }

    /// Names it in one line; `None` if nothing runs.
    pub(super) fn named(&self) -> Option<String> {
        let running = self.tasks.iter().filter(|(_, running)| running.load(Ordering::Relaxed));
        let tasks = running.map(|(name, _)| format!("task {name}"));
        let all: Vec<_> = self.inspector.in_flight().into_iter().chain(tasks).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

impl Task {
    pub(super) fn new<F, E>(
        name: String,
        runs: Runs,
        run: impl Fn(Stopping) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let run = move |stopping| -> BoxFuture<'static, Result<(), Error>> {
            let ends = run(stopping);
            Box::pin(async move { ends.await.map_err(Error::other) })
        };
        Self { name: name.into(), runs, run: Arc::new(run), running: Arc::default() }
    }

    /// Runs until it ends, or the manager does.
    ///
    /// # Errors
    /// What the task failed with.
    pub(super) async fn attend(self, stop: Stop, mut terms: Terms) -> Result<(), Error> {
        match self.runs {
            Runs::Always => self.during(&Term::endless(&stop)).await,
            Runs::WhileLeading => {
                while let Some(term) = terms.next(&stop).await {
                    self.during(&term).await?;
                    term.stop.finish.cancelled().await;
                }
                Ok(())
            }
        }
    }

    /// Runs for a time at most, and is dropped when what runs in it is.
    async fn during(&self, term: &Term) -> Result<(), Error> {
        let stopping = Stopping { told: term.stop.finish.clone() };
        self.running.store(true, Ordering::Relaxed);
        let called = AssertUnwindSafe(async { (self.run)(stopping).await }).catch_unwind();
        let ended = term.stop.abort.run_until_cancelled(called).await;
        self.running.store(false, Ordering::Relaxed);
        let failed = |source| Err(Error::Task { name: self.name.to_string(), source: Box::new(source) });
        match ended {
            Some(Ok(Err(error))) => failed(error),
            Some(Err(_)) => failed(Error::from("it panicked")),
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("name", &self.name).field("runs", &self.runs).finish_non_exhaustive()
    }
}

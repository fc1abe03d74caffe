//! The user's own tasks: started and stopped with the manager, or with each term of leadership.

use std::{
    any::Any,
    convert::Infallible,
    future::{Future, pending},
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::Inspector;
use crate::{
    chain::{chain, one_line},
    controller::{Leftovers, Stop, Term, Terms},
    error::Error,
    leader_election::NotLeading,
    shards::{ShownVersions, SlotStage, Slots},
    users_code::discard,
};

/// How long a term may go on after its requests were refused.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Shows a task when to end; clones share the signal.
///
/// A clone says that the task's work goes on: hand one to what it spawns, above all to what blocks. A leader that stops
/// does not release its Lease while somebody holds a clone of a leader task's.
#[derive(Clone, Debug)]
pub struct Stopping {
    told: CancellationToken,
    _held: Arc<()>,
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
    /// It runs once in each term of leadership; others run once, for as long as the manager does.
    leads: bool,
    run: Arc<Run>,
    running: Arc<AtomicBool>,
    /// Where work is noted that outlives the task, if it is a leader's.
    leftovers: Option<Arc<Leftovers>>,
}

/// Names what runs: reconciles and tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkInFlight {
    inspector: Inspector,
    tasks: Vec<(Arc<str>, Arc<AtomicBool>)>,
    pub(super) leftovers: Arc<Leftovers>,
}

impl WorkInFlight {
    pub(super) fn new(inspector: Inspector, tasks: &[Task], leftovers: Arc<Leftovers>) -> Self {
        let tasks = tasks.iter().map(|task| (task.name.clone(), task.running.clone())).collect();
        Self { inspector, tasks, leftovers }
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
    pub(super) fn new<F: Future<Output = Result<(), E>> + Send + 'static, E: Into<BoxError>>(
        name: String,
        leads: bool,
        run: impl Fn(Stopping) -> F + Send + Sync + 'static,
    ) -> Self {
        let run = move |stopping| -> BoxFuture<'static, Result<(), Error>> {
            let ends = run(stopping);
            Box::pin(async move { ends.await.map_err(Error::other) })
        };
        Self { name: name.into(), leads, run: Arc::new(run), running: Arc::default(), leftovers: None }
    }

    /// Whether it runs only while this replica leads.
    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    /// Notes in a leader's task what outlives it.
    pub(super) fn noting(mut self, leftovers: &Arc<Leftovers>) -> Self {
        self.leftovers = self.leads.then(|| leftovers.clone());
        self
    }

    /// Runs until it ends, or the manager does.
    ///
    /// # Errors
    /// What the task failed with.
    pub(super) async fn attend(self, stop: Stop, mut terms: Terms) -> Result<(), Error> {
        if !self.leads {
            return self.during(&Term::endless(&stop)).await;
        }
        while let Some(term) = terms.next(&stop).await {
            match &term.slots {
                None => self.during(&term).await?,
                Some(slots) => self.during_turns(&term, slots).await?,
            }
            // Without an election the one term ends with the manager: like any task, this one has ended.
            if term.start.is_none() {
                break;
            }
            term.stop.finish.cancelled().await;
        }
        Ok(())
    }

    /// Runs each time that the slot of the task's name is this replica's, for a term at most.
    async fn during_turns(&self, term: &Term, slots: &Slots) -> Result<(), Error> {
        let slot = slots.named(&self.name);
        let (user, mut changes) = (slots.join(Some([slot].into()), ShownVersions::new), slots.changes());
        while !term.stop.finish.is_cancelled() {
            match slots.stage(slot) {
                stage @ SlotStage::Works(_) => {
                    let turn = term.part();
                    // If the slot leaves and comes back meanwhile, that is another turn.
                    let works = || slots.stage(slot) == stage;
                    let left = async {
                        while works() && changes.changed().await.is_ok() {}
                        turn.stop.finish.cancel();
                        pending::<Infallible>().await
                    };
                    tokio::select! {
                        biased;
                        ended = self.during(&turn) => ended?,
                        never = left => match never {},
                    }
                    while works() && !term.stop.finish.is_cancelled() {
                        tokio::select! {
                            biased;
                            () = term.stop.finish.cancelled() => {}
                            _ = changes.changed() => {}
                        }
                    }
                }
                SlotStage::Drains(turn) => {
                    user.drained(slot, turn);
                    let _ = term.stop.finish.run_until_cancelled(changes.changed()).await;
                }
                SlotStage::Elsewhere => {
                    let _ = term.stop.finish.run_until_cancelled(changes.changed()).await;
                }
            }
        }
        Ok(())
    }

    /// Runs for a time at most, and is dropped when what runs in it is.
    async fn during(&self, term: &Term) -> Result<(), Error> {
        let scope = TaskScope { task: self, held: Arc::new(()) };
        let stopping = Stopping { told: term.stop.finish.clone(), _held: scope.held.clone() };
        self.running.store(true, Ordering::Relaxed);
        let called = AssertUnwindSafe(async { (self.run)(stopping).await }).catch_unwind();
        let ended = term.stop.abort.run_until_cancelled(called).await;
        self.running.store(false, Ordering::Relaxed);
        drop(scope);
        let failed = |source| Err(Error::Task { name: self.name.to_string(), source: Box::new(source) });
        match ended {
            Some(Ok(Err(error))) => match self.ended_with(term, &error).await {
                true => {
                    tracing::warn!(
                        task = &*self.name,
                        error = one_line(&error),
                        "the task ended with its term"
                    );
                    Ok(())
                }
                false => failed(error),
            },
            Some(Err(panic)) => {
                discard(panic);
                failed(Error::from("it panicked"))
            }
            Some(Ok(Ok(()))) | None => Ok(()),
        }
    }

    /// Says whether a leader's task failed because its term ended, which cancels its requests.
    async fn ended_with(&self, term: &Term, error: &Error) -> bool {
        let is_refused = chain(error).any(|cause| cause.is::<NotLeading>());
        if !(self.leads && term.start.is_some() && is_refused) {
            return false;
        }
        // Where a clock jumped, requests are refused before the replica has seen that it leads no more.
        timeout(ENDS_WITHIN, term.stop.finish.cancelled()).await.is_ok()
    }
}

/// One run of a task; what still holds a clone of what it was given then outlives it.
struct TaskScope<'a> {
    task: &'a Task,
    held: Arc<()>,
}

impl Drop for TaskScope<'_> {
    fn drop(&mut self) {
        if let Some(leftovers) = &self.task.leftovers
            && Arc::strong_count(&self.held) > 1
        {
            let held: Arc<dyn Any + Send + Sync> = self.held.clone();
            leftovers.add(format!("task {}", self.task.name), None, Arc::downgrade(&held));
        }
    }
}

//! What a worker does with a key: find out what it needs, run the reconciler, hand the verdict to the queue.

use std::{
    collections::HashMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use kube::Resource as _;
use rand::{Rng, rngs::SmallRng};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Action, Cleanup, Context, LastError, Panics, Reconciler,
    action::Next,
    budget::Budgets,
    context::Ticket,
    feed::{Objects, Selection},
    graves::{Fate, Grave, Graves},
    intake::Intake,
    run::{Failure, Run, Way},
    start::Waits,
    terminating::with_metadata_of,
};
use crate::{
    informer::Watched,
    metrics::{ControllerMetrics, Ended},
    object::ObjectKey,
    reflector::Doubt,
    store::Lookup,
    workqueue::Item,
    writes::{Gate, Writer, add_finalizer, remove_finalizer, request::Target},
};

/// What all workers of a controller share.
pub(crate) struct Engine<K: Watched, R> {
    pub(crate) name: Arc<str>,
    /// The reconciled kind, as spans show it.
    pub(crate) kind: String,
    pub(crate) question: K::Question,
    pub(crate) reconciler: Arc<R>,
    pub(crate) objects: Objects<K::Object>,
    pub(crate) selection: Selection,
    pub(crate) graves: Arc<Graves<K::Object>>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) finalizer: Option<String>,
    pub(crate) panics: Panics,
    pub(crate) deadline: Option<Duration>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) budgets: Mutex<Budgets<ObjectKey>>,
    /// How the last runs of keys failed that have not succeeded since.
    pub(crate) failures: Mutex<HashMap<ObjectKey, LastError>>,
    pub(crate) jitter: Mutex<SmallRng>,
    pub(crate) runs: AtomicU64,
}

/// Counts a worker as active while it is held.
struct Active<'a>(&'a ControllerMetrics);

impl<'a> Active<'a> {
    fn begin(metrics: &'a ControllerMetrics) -> Self {
        metrics.active_workers.inc();
        Self(metrics)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active_workers.dec();
    }
}

impl<K: Watched, R: Reconciler<K>> Engine<K, R> {
    /// Works until the queue is shut down, which comes after a stop.
    pub(crate) async fn work(self: Arc<Self>, stop: CancellationToken) {
        while let Some(item) = self.next_item(&stop).await {
            if let Some(doubt) = self.gate.doubt(item.key()) {
                self.put_off(item, doubt);
                continue;
            }
            let active = Active::begin(&self.metrics);
            let ticket = self.ticket(&item);
            let run = Run::begin(&self.writer, &self.intake, item);
            let span = tracing::info_span!(
                "reconcile",
                controller = %self.name,
                kind = %self.kind,
                key = %ticket.key,
                attempt = ticket.attempt,
                reason = %ticket.reason,
                id = ticket.id,
            );
            self.perform(&ticket, run).instrument(span).await;
            drop(active);
        }
    }

    /// Waits for the next key, and before that until caches are in no doubt that all keys read.
    async fn next_item(&self, stop: &CancellationToken) -> Option<Item<ObjectKey>> {
        // Whether it was stopped, the queue says.
        let _ = stop.run_until_cancelled(self.gate.opened()).await;
        self.intake.queue.get().await
    }

    fn put_off(&self, item: Item<ObjectKey>, doubt: Doubt) {
        self.intake.hold_in_doubt(item, doubt.until);
        // It may have ended meanwhile, unseen by who lets keys go.
        self.intake.let_go(|key| self.gate.doubt(key).is_none());
    }

    fn ticket(&self, item: &Item<ObjectKey>) -> Ticket {
        let (key, attempt) = (item.key().clone(), item.attempt());
        let reason = self.intake.begin(item);
        Ticket { key, attempt, reason, id: self.runs.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    async fn perform(&self, ticket: &Ticket, run: Run<'_>) {
        let started = Instant::now();
        tracing::debug!("reconcile started");
        let mut began_with = None;
        let outcome = self.run(ticket, &mut began_with).await;
        self.metrics.ended(ended(&outcome), started.elapsed());
        self.charge(ticket, began_with.as_deref());
        run.finish(|item| self.settle(item, outcome));
    }

    /// Runs the reconciler, or what is to be done instead; tells with which object it began.
    async fn run(&self, ticket: &Ticket, began_with: &mut Option<Arc<K::Object>>) -> Result<Action, Failure> {
        let key = &ticket.key;
        while let Some(grave) = self.graves.next(key) {
            self.bury(ticket, grave).await?;
        }
        let found = self.objects.lookup(key);
        if let Lookup::Found(object) = &found {
            *began_with = Some(object.clone());
        }
        match found {
            Lookup::Absent => Ok(Action::await_change()),
            Lookup::Outdated { unreadable, kept } => {
                tracing::warn!(controller = %self.name, %key, error = %unreadable.error, "not reconciled: outdated");
                match with_metadata_of(&*kept, &unreadable.identity) {
                    Some(terminating) => self.clean_up(ticket, Arc::new(terminating)).await,
                    None => Ok(Action::await_change()),
                }
            }
            Lookup::Unreadable(unreadable) => {
                tracing::warn!(controller = %self.name, %key, error = %unreadable.error, "not reconciled: unreadable");
                Ok(Action::await_change())
            }
            Lookup::Found(object) if object.meta().deletion_timestamp.is_some() => {
                self.clean_up(ticket, object).await
            }
            Lookup::Found(object) => self.reconcile(ticket, object).await,
        }
    }

    async fn reconcile(&self, ticket: &Ticket, object: Arc<K::Object>) -> Result<Action, Failure> {
        let object = match &self.finalizer {
            Some(finalizer) if !holds(&*object, finalizer) => {
                let target = self.target(&ticket.key);
                let held = add_finalizer(&self.writer, &target, object.meta(), finalizer).await?;
                match held {
                    Some(held) => Arc::new(held),
                    None => return Ok(Action::await_change()),
                }
            }
            _ => object,
        };
        let cx = self.context(ticket, Some(object.clone()));
        self.contain(|| self.reconciler.reconcile(object, &cx)).await
    }

    async fn clean_up(&self, ticket: &Ticket, object: Arc<K::Object>) -> Result<Action, Failure> {
        let Some(finalizer) = self.finalizer.as_ref().filter(|finalizer| holds(&*object, finalizer)) else {
            return Ok(Action::await_change());
        };
        let cx = self.context(ticket, Some(object.clone()));
        match self.contain(|| self.reconciler.cleanup(object.clone(), &cx)).await? {
            Cleanup::Pending(action) => Ok(action),
            Cleanup::Done => {
                let target = self.target(&ticket.key);
                remove_finalizer(&self.writer, &target, object.meta(), finalizer).await?;
                Ok(Action::await_change())
            }
        }
    }

    /// Tells the reconciler of a deletion; one that keeps failing is given up, so that it holds up nothing.
    async fn bury(&self, ticket: &Ticket, grave: Grave<K::Object>) -> Result<(), Failure> {
        let key = &ticket.key;
        let told = match self.is_gone(key, &grave).await {
            Ok(false) => {
                self.graves.close(key, &grave);
                return Ok(());
            }
            Ok(true) => {
                let cx = self.context(ticket, None);
                self.contain(|| self.reconciler.deleted(grave.last.deleted(), &cx)).await
            }
            Err(failure) => Err(failure),
        };
        let Err(failure) = told else {
            self.graves.close(key, &grave);
            return Ok(());
        };
        let fate = match failure.way {
            Way::Terminal => {
                self.graves.close(key, &grave);
                Fate::GivenUp
            }
            _ => self.graves.failed(key, &grave),
        };
        match fate {
            Fate::Waits => Err(failure),
            Fate::GivenUp => {
                let error = failure.report;
                self.metrics.deletions_dropped.inc();
                tracing::error!(controller = %self.name, %key, error, "a deletion was not handled, and is given up");
                Ok(())
            }
        }
    }

    /// Tells a deletion from an object that only left the selection: the server knows.
    async fn is_gone(&self, key: &ObjectKey, grave: &Grave<K::Object>) -> Result<bool, Failure> {
        if self.selection.is_everything() {
            return Ok(true);
        }
        let found = self.writer.fetch(&self.target(key)).await?;
        let there = found.as_ref().and_then(|object| object["metadata"]["uid"].as_str());
        Ok(match (found.is_some(), grave.last.uid()) {
            (false, _) => true,
            (true, Some(gone)) => there != Some(gone),
            (true, None) => false,
        })
    }

    fn context(&self, ticket: &Ticket, object: Option<Arc<K::Object>>) -> Context<K> {
        Context::new(self.question.clone(), ticket.clone(), object, self.writer.clone())
    }

    fn target(&self, key: &ObjectKey) -> Target {
        Target { kind: K::kind_of(&self.question), key: key.clone() }
    }

    /// Runs the user's code, all of it: its errors are classified and worded, its panics become errors.
    async fn contain<T, F>(&self, call: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, R::Error>>,
    {
        let judged = async { call().await.map_err(Failure::judge::<K, R>) };
        let in_time = async {
            let Some(deadline) = self.deadline else { return judged.await };
            tokio::time::timeout(deadline, judged).await.unwrap_or_else(|_| {
                self.metrics.timeouts.inc();
                let report = format!("the reconciler did not end within its deadline of {deadline:?}");
                Err(Failure { report, way: Way::Retry })
            })
        };
        match self.panics {
            Panics::Propagate => in_time.await,
            Panics::Contain => AssertUnwindSafe(in_time).catch_unwind().await.unwrap_or_else(|panic| {
                self.metrics.panics.inc();
                Err(Failure::panicked(&*panic))
            }),
        }
    }

    fn settle(&self, item: Item<ObjectKey>, outcome: Result<Action, Failure>) {
        self.remember(&item, outcome.as_ref().err());
        let item = match outcome {
            Ok(Action { priority: Some(priority), .. }) => item.with_priority(priority),
            _ => item,
        };
        match outcome.map(|action| action.next) {
            Ok(Next::AwaitChange) => {
                self.pace(item.key());
                item.forget();
            }
            Ok(Next::RequeueAfter { after, jitter }) => {
                self.pace(item.key());
                item.requeue_after(after.saturating_add(self.random_up_to(jitter)));
            }
            Ok(Next::Backoff { at_least }) => item.retry_at_least(at_least),
            Err(Failure { report: error, way }) => {
                let key = item.key().clone();
                match way {
                    Way::AfterFirstStep => {
                        tracing::debug!(controller = %self.name, %key, error, "computed from an old version");
                        self.intake.expect(&key, super::Reason::Conflict);
                        item.retry_uncounted();
                    }
                    Way::Terminal => {
                        tracing::error!(controller = %self.name, %key, error, "failed for good: waiting for a change");
                        item.terminal();
                    }
                    Way::Retry => {
                        let failures = item.attempt();
                        tracing::warn!(controller = %self.name, %key, error, failures, "reconcile failed: retrying");
                        item.retry();
                    }
                }
            }
        }
    }

    /// Keeps what debug pages show of a key that fails.
    fn remember(&self, item: &Item<ObjectKey>, failure: Option<&Failure>) {
        let mut failures = self.failures();
        match failure {
            Some(failure) if failure.way != Way::AfterFirstStep => {
                let (error, at, attempt) = (failure.report.clone(), Instant::now(), item.attempt());
                failures.insert(item.key().clone(), LastError { error, at, attempt });
            }
            Some(_) => {}
            None if failures.is_empty() => {}
            None => drop(failures.remove(item.key())),
        }
    }

    fn random_up_to(&self, most: Duration) -> Duration {
        let mut jitter = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        up_to(most, &mut jitter)
    }

    pub(crate) fn failures(&self) -> MutexGuard<'_, HashMap<ObjectKey, LastError>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what a run counts as; one that was computed from an old version is no failure.
fn ended(outcome: &Result<Action, Failure>) -> Ended {
    match outcome.as_ref().map(|action| action.next) {
        Ok(Next::AwaitChange) => Ended::Success,
        Ok(Next::RequeueAfter { .. }) => Ended::RequeueAfter,
        Ok(Next::Backoff { .. }) => Ended::Requeue,
        Err(failure) => match failure.way {
            Way::AfterFirstStep => Ended::Requeue,
            Way::Retry => Ended::Error,
            Way::Terminal => Ended::TerminalError,
        },
    }
}

fn holds(object: &impl kube::Resource, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|held| held == finalizer)
}

fn up_to(most: Duration, rng: &mut impl Rng) -> Duration {
    // A product that rounds up past the longest duration there is stays at that.
    Duration::try_from_secs_f64(most.as_secs_f64() * rng.random::<f64>()).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn jitter_stays_within_what_was_asked_for_even_the_longest() {
        let mut rng = SmallRng::seed_from_u64(7);
        for most in [Duration::ZERO, Duration::from_millis(3), Duration::MAX] {
            assert!((0..1_000).all(|_| up_to(most, &mut rng) <= most));
        }
    }
}

//! What a worker does with a key: find out what it needs, run the reconciler, tell the queue how it ended.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use kube::Resource as _;
use rand::{Rng, rngs::SmallRng};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field, level_filters::LevelFilter};

use super::{
    Action, Cleanup, Context, Panics, Reason, Reconciler,
    action::NextRun,
    context::{ContextBase, RunInfo, RunScope},
    recent::RecentRuns,
    run::{Active, FailureAction, RunFailure, RunGuard, ended},
    sources::ReconciledObjects,
    starts::{Ready, Starts},
    terminating::with_metadata_of,
    trace::TraceIds,
    waits::Waits,
    watch::Selection,
};
use crate::{
    informer::{Gone, Watched},
    keys::{HoldReason, Keys, RunActivity, RunCost, RunDone, Tombstone},
    list_watch::{ItemForm, Unreadable},
    metrics::{ControllerMetrics, Ended},
    object::{ObjectKey, Version},
    store::{CachedObject, Lookup},
    users_code::discard,
    workqueue::{Item, Token},
    writes::{Removed, WriteError, add_finalizer, remove_finalizer, request::Target},
};

/// When a key looks again whose object the server does not know, although a cache shows it: by then the cache has seen
/// of the deletion, or has been compared. The answer may have been another server's.
const UNTIL_SHOWN: Duration = Duration::from_secs(6);

/// What all workers of a controller share.
pub(crate) struct ControllerCore<K: Watched, R> {
    pub(crate) name: Arc<str>,
    /// The reconciled kind, as spans show it.
    pub(crate) kind_name: String,
    pub(crate) reconciler: Arc<R>,
    pub(crate) objects: ReconciledObjects<K::Object>,
    pub(crate) selection: Selection,
    pub(crate) keys: Arc<Keys>,
    /// The kind, and how runs write.
    pub(crate) base: Arc<ContextBase<K::Object>>,
    pub(crate) finalizer: Option<String>,
    pub(crate) panics: Panics,
    pub(crate) deadline: Option<Duration>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) jitter: Mutex<SmallRng>,
    pub(crate) runs: AtomicU64,
    pub(crate) workers: usize,
    /// The last runs that ended.
    pub(crate) recent: RecentRuns,
    /// Whether another replica works in its place.
    pub(crate) stands_by: AtomicBool,
    pub(crate) trace_ids: TraceIds,
}

impl<K: Watched, R: Reconciler<K>> ControllerCore<K, R> {
    /// Works until the queue is shut down, which comes after a stop.
    pub(crate) async fn work(self: Arc<Self>, stop: CancellationToken) {
        while let Some((item, token)) = self.keys.next(&stop).await {
            let active = Active::begin(&self.metrics);
            let (key, attempt) = (item.key().clone(), item.attempt());
            let started = item.handed_out().unwrap_or_else(Instant::now);
            let (run, reason) = RunGuard::begin(&self.keys, item);
            let id = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
            let took_client = AtomicBool::default();
            let mut run_info = RunInfo { key, attempt, reason, id, trace_id: None, took_client };
            let span = self.span(&run_info);
            run_info.trace_id = self.trace_ids.of(&span);
            let run_info = Arc::new(run_info);
            // Pinned, so that what is large is not moved.
            pin!(self.perform(&run_info, run, token, started)).instrument(span).await;
            drop(active);
        }
    }

    /// Makes the span of a run, unless nobody looks: it would be made, entered and left for nothing.
    fn span(&self, run_info: &RunInfo) -> Span {
        if LevelFilter::current() < LevelFilter::INFO {
            return Span::none();
        }
        let span = tracing::info_span!(
            "reconcile",
            controller = %self.name,
            kind = %self.kind_name,
            key = %run_info.key,
            attempt = run_info.attempt,
            reason = &*run_info.reason.text(),
            id = run_info.id,
            trace_id = field::Empty,
            otel.status_code = field::Empty,
        );
        if span.is_disabled() { Span::none() } else { span }
    }

    async fn perform(
        &self,
        run_info: &Arc<RunInfo>,
        run: RunGuard<'_>,
        token: Token<ObjectKey>,
        started: Instant,
    ) {
        tracing::debug!("reconcile started");
        let mut began_with = None;
        let outcome = {
            let run = pin!(self.run(run_info, token, &mut began_with));
            self.caught(run_info, run).await
        };
        let (ended, now) = (ended(&outcome), Instant::now());
        let took = now.duration_since(started);
        if let Some(ended) = ended {
            self.metrics.ended(ended, took);
        }
        run.finish(|item, done| {
            self.charge(run_info, done, began_with.as_deref(), &outcome, now);
            let error = outcome.as_ref().err().map(|failure| &*failure.report);
            self.recent.note(run_info, (started, took), (ended, error), done.writes);
            self.settle(item, outcome, now);
        });
        if matches!(ended, Some(Ended::Error | Ended::TerminalError)) {
            // Tracers ask for it; the line that tells of the failure needs it not.
            Span::current().record("otel.status_code", "ERROR");
        }
    }

    /// Runs the reconciler, or what is to be done instead; tells with which object it began.
    ///
    /// The user's code starts right after its token is paid. If that took a wait, it is looked again what is to be done.
    /// What is rare is boxed: a worker takes memory for the largest of its futures all the time.
    async fn run(
        &self,
        run_info: &Arc<RunInfo>,
        token: Token<ObjectKey>,
        began_with: &mut Option<Arc<K::Object>>,
    ) -> Result<Action, RunFailure> {
        let key = &run_info.key;
        let (mut starts, mut finalized) = (Starts::new(&self.keys.queue, token), None);
        loop {
            while let Some(tombstone) = self.next_deletion(key) {
                if Box::pin(self.deliver_deletion(run_info, tombstone, &mut starts)).await? == Ready::Never {
                    return Ok(Action::not_reconciled());
                }
            }
            let due = match self.due(key, began_with, finalized.as_ref()) {
                DueWork::Nothing(action) => return Ok(action),
                DueWork::Finalizer(object, finalizer) => {
                    if finalized.is_some() {
                        return Err(
                            WriteError::conflict(&self.target(key), "its finalizers keep changing").into()
                        );
                    }
                    starts.give_back();
                    let target = self.target(key);
                    let add = Box::pin(add_finalizer(&self.base.writer, &target, object.meta(), finalizer));
                    match add.await? {
                        Some(answer) => finalized = Some(Arc::new(answer)),
                        None => return Ok(Action::backoff_at_least(UNTIL_SHOWN)),
                    }
                    continue;
                }
                DueWork::Cleanup(object) => Ok(object),
                DueWork::Reconcile(object) => Err(object),
            };
            match starts.ready().await {
                Ready::AtOnce => starts.pay(),
                // A cache may have come into doubt meanwhile: the key waits for it in the queue.
                Ready::AfterWait if self.keys.gate.doubt(key).is_some() => {
                    return Ok(Action::backoff_at_least(Duration::ZERO));
                }
                Ready::AfterWait => continue,
                Ready::Never => return Ok(Action::not_reconciled()),
            }
            return match due {
                Ok(terminating) => Box::pin(self.clean_up(run_info, terminating)).await,
                Err(object) => {
                    let cx = self.context(run_info, Some(object.clone()));
                    self.call(|| self.reconciler.reconcile(object, &cx)).await
                }
            };
        }
    }

    /// Decides what to do for a key, once its deletions have been handled.
    fn due(
        &self,
        key: &ObjectKey,
        began_with: &mut Option<Arc<K::Object>>,
        finalized: Option<&Arc<K::Object>>,
    ) -> DueWork<'_, K::Object> {
        let found = self.objects.lookup(key);
        if let Lookup::Found(object) = &found {
            *began_with = Some(object.clone());
            self.keep_read(key);
        }
        match found {
            Lookup::Absent => {
                if self.finalizer.is_some() {
                    self.keys.table().keep_read(key, None);
                }
                DueWork::Nothing(Action::await_change())
            }
            Lookup::Outdated { unreadable, kept } => self.not_reconciled(Some(kept), &unreadable),
            Lookup::Unreadable(unreadable) => self.not_reconciled(self.last_read(key), &unreadable),
            Lookup::Found(object) if object.meta().deletion_timestamp.is_some() => self.cleanup_of(object),
            Lookup::Found(object) => {
                // The cache may not show yet what the answer did.
                let object =
                    finalized.filter(|answer| is_as_new(&***answer, &*object)).cloned().unwrap_or(object);
                match self.finalizer.as_ref().filter(|finalizer| !has_finalizer(&*object, finalizer)) {
                    Some(finalizer) => DueWork::Finalizer(object, finalizer),
                    None => DueWork::Reconcile(object),
                }
            }
        }
    }

    /// Keeps what a compact cache holds of a key for its cleanup: that cache keeps no earlier state of what it can't read.
    fn keep_read(&self, key: &ObjectKey) {
        if self.finalizer.is_none() {
            return;
        }
        // It may have been replaced since it was read.
        let readable = |cached: &CachedObject<_>| cached.form() == ItemForm::Bytes && cached.object().is_ok();
        if let Some(cached) = self.objects.cached(key).filter(readable) {
            self.keys.table().keep_read(key, Some(Arc::new(cached)));
        }
    }

    fn last_read(&self, key: &ObjectKey) -> Option<Arc<K::Object>> {
        let stored = self.keys.table().last_read(key)?;
        stored.downcast_ref::<CachedObject<K::Object>>()?.object().ok()
    }

    /// Reports an object whose latest state can't be read; if it is to go, cleanup gets the last one that could be.
    fn not_reconciled(
        &self,
        kept: Option<Arc<K::Object>>,
        unreadable: &Unreadable,
    ) -> DueWork<'_, K::Object> {
        tracing::warn!(error = unreadable.error, "not reconciled: the object can't be read");
        match kept.and_then(|kept| with_metadata_of(&*kept, &unreadable.identity)) {
            Some(terminating) => self.cleanup_of(Arc::new(terminating)),
            None => DueWork::Nothing(Action::not_reconciled()),
        }
    }

    fn cleanup_of(&self, terminating: Arc<K::Object>) -> DueWork<'_, K::Object> {
        match self.finalizer.as_ref().is_some_and(|finalizer| has_finalizer(&*terminating, finalizer)) {
            true => DueWork::Cleanup(terminating),
            false => DueWork::Nothing(Action::await_change()),
        }
    }

    async fn clean_up(&self, run_info: &Arc<RunInfo>, object: Arc<K::Object>) -> Result<Action, RunFailure> {
        let cx = self.context(run_info, Some(object.clone()));
        match (self.call(|| self.reconciler.cleanup(object.clone(), &cx)).await?, &self.finalizer) {
            (Cleanup::Pending(action), _) => Ok(action),
            (Cleanup::Done, None) => Ok(Action::await_change()),
            (Cleanup::Done, Some(finalizer)) => {
                let target = self.target(&run_info.key);
                match remove_finalizer(&self.base.writer, &target, object.meta(), finalizer).await? {
                    Removed::Released => Ok(Action::await_change()),
                    Removed::NotFound => Ok(Action::backoff_at_least(UNTIL_SHOWN)),
                }
            }
        }
    }

    fn context(&self, run_info: &Arc<RunInfo>, object: Option<Arc<K::Object>>) -> RunScope<K> {
        RunScope::begin(Context::new(self.base.clone(), run_info.clone(), object))
    }

    fn target(&self, key: &ObjectKey) -> Target {
        Target { kind: self.base.kind.clone(), key: key.clone() }
    }

    /// Runs the user's code within its deadline; its errors are classified and worded.
    async fn call<T, F>(&self, call: impl FnOnce() -> F) -> Result<T, RunFailure>
    where
        F: Future<Output = Result<T, R::Error>>,
    {
        let judged = async { call().await.map_err(RunFailure::judge::<K, R>) };
        let in_time = async {
            let Some(deadline) = self.deadline else { return judged.await };
            tokio::time::timeout(deadline, judged).await.unwrap_or_else(|_| {
                self.metrics.timeouts.inc();
                let report = format!("the reconciler did not end within its deadline of {deadline:?}");
                Err(RunFailure { report, action: FailureAction::Retry })
            })
        };
        in_time.await
    }

    /// Contains the panics of a run, wherever in it they arise; one that is to propagate is recorded before.
    async fn caught<T>(
        &self,
        run_info: &Arc<RunInfo>,
        run: impl Future<Output = Result<T, RunFailure>>,
    ) -> Result<T, RunFailure> {
        let caught = AssertUnwindSafe(run).catch_unwind().await;
        caught.unwrap_or_else(|panic| {
            self.metrics.panics.inc();
            let failure = RunFailure::panicked(&*panic);
            if self.panics == Panics::Propagate {
                let error = failure.as_last_error(run_info.attempt);
                self.keys.table().failed(&run_info.key, error);
                resume_unwind(panic);
            }
            discard(panic);
            Err(failure)
        })
    }

    fn settle(&self, item: Item<ObjectKey>, outcome: Result<Action, RunFailure>, ended: Instant) {
        let item = item.ended_at(ended);
        let mut table = self.keys.table();
        let recovered = match &outcome {
            Ok(Action { next: NextRun::NotReconciled, .. }) => None,
            Ok(_) => table.succeeded(item.key()),
            Err(failure) => {
                if failure.action != FailureAction::RetryUncounted {
                    table.failed(item.key(), failure.as_last_error(item.attempt()));
                }
                None
            }
        };
        let wait = table.budget_wait(item.key(), ended);
        drop(table);
        if let Some(failures) = recovered {
            tracing::info!(failures, "reconciled again");
        }
        let item = match outcome {
            Ok(Action { priority: Some(priority), .. }) => item.with_priority(priority),
            _ => item,
        };
        match outcome.map(|action| action.next) {
            Ok(NextRun::AwaitChange) => {
                self.pace(item.key(), wait, ended);
                item.forget();
            }
            Ok(NextRun::RequeueAfter { after, jitter }) => {
                self.pace(item.key(), wait, ended);
                item.requeue_after(after.saturating_add(self.random_up_to(jitter)));
            }
            Ok(NextRun::Backoff { at_least }) => item.retry_at_least(at_least),
            // Its failures stay counted, and the state that can be read again runs it, whatever predicates say.
            Ok(NextRun::NotReconciled) => item.done(),
            Err(failure) => self.settle_failure(item, failure, wait, ended),
        }
    }

    /// Reports a failure, within the run's span, which names controller and key.
    fn settle_failure(
        &self,
        item: Item<ObjectKey>,
        RunFailure { report: error, action }: RunFailure,
        wait: Duration,
        ended: Instant,
    ) {
        match action {
            FailureAction::RetryUncounted => {
                tracing::debug!(error, "computed from an old version");
                self.keys.table().expect_run(item.key(), Reason::Conflict);
                self.pace(item.key(), wait, ended);
                item.retry_uncounted();
            }
            FailureAction::Overloaded(asked) => {
                tracing::debug!(error, "held back: the server asks for quiet");
                self.keys.table().expect_run(item.key(), Reason::Overload);
                self.keys.queue.add_after(item.key().clone(), asked.left());
                item.done();
            }
            FailureAction::RetryAfter(asked) => {
                tracing::warn!(error, failures = item.attempt(), "reconcile failed: retrying");
                item.retry_at_least(asked.left());
            }
            FailureAction::Terminal => {
                tracing::error!(error, "reconcile failed for good: waiting for a change");
                item.terminal();
            }
            FailureAction::Retry => {
                tracing::warn!(error, failures = item.attempt(), "reconcile failed: retrying");
                item.retry();
            }
        }
    }

    fn random_up_to(&self, most: Duration) -> Duration {
        let mut jitter = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        up_to(most, &mut jitter)
    }

    // --- deletions

    fn next_deletion(&self, key: &ObjectKey) -> Option<Tombstone> {
        self.keys.table().deletion(key)
    }

    /// Calls the reconciler for a deletion. One that keeps failing is given up, so that it holds up nothing for good.
    ///
    /// Returns [`Ready::Never`] if the controller stops before.
    async fn deliver_deletion(
        &self,
        run_info: &Arc<RunInfo>,
        tombstone: Tombstone,
        starts: &mut Starts<'_>,
    ) -> Result<Ready, RunFailure> {
        let key = &run_info.key;
        let last = tombstone.last.downcast_ref::<Gone<K::Object>>().expect("it is of the reconciled kind");
        if !self.is_gone(key, last, starts).await? {
            self.keys.table().close_deletion(key, &tombstone);
            return Ok(Ready::AtOnce);
        }
        if starts.ready().await == Ready::Never {
            return Ok(Ready::Never);
        }
        starts.pay();
        let cx = self.context(run_info, None);
        let called = self.call(|| self.reconciler.deleted(last.deleted(), &cx));
        let Err(failure) = self.caught(run_info, called).await else {
            self.keys.table().close_deletion(key, &tombstone);
            return Ok(Ready::AtOnce);
        };
        let is_given_up = match failure.action {
            FailureAction::Terminal => {
                self.keys.table().close_deletion(key, &tombstone);
                true
            }
            // Nothing failed: it was computed from an old version, or nothing was sent.
            FailureAction::RetryUncounted | FailureAction::Overloaded(_) => false,
            FailureAction::Retry | FailureAction::RetryAfter(_) => {
                self.keys.table().fail_deletion(key, &tombstone, Instant::now())
            }
        };
        if !is_given_up {
            return Err(failure);
        }
        self.metrics.deletions_dropped.inc();
        tracing::error!(error = failure.report, "a deletion was not handled, and is given up");
        Ok(Ready::AtOnce)
    }

    /// Distinguishes a deletion from an object that only left the selection: asks the server.
    async fn is_gone(
        &self,
        key: &ObjectKey,
        last: &Gone<K::Object>,
        starts: &mut Starts<'_>,
    ) -> Result<bool, RunFailure> {
        if self.selection.is_everything() {
            return Ok(true);
        }
        starts.give_back();
        let found = self.base.writer.fetch(&self.target(key)).await?;
        let there = found.as_ref().and_then(|object| object["metadata"]["uid"].as_str());
        Ok(match (found.is_some(), last.uid()) {
            (false, _) => true,
            (true, Some(gone)) => there != Some(gone),
            (true, None) => false,
        })
    }

    // --- storms

    /// Charges a run to its key's budget, and reports a storm that begins.
    fn charge(
        &self,
        run_info: &RunInfo,
        done: RunDone,
        began_with: Option<&K::Object>,
        outcome: &Result<Action, RunFailure>,
        now: Instant,
    ) {
        let Some(cost) = self.cost(run_info, done, began_with, outcome) else { return };
        let begins = self.keys.table().charge(&run_info.key, cost, now);
        if begins {
            self.metrics.storms.inc();
            // The cache may be wrong: a server that was restored keeps no child of an owner that it does not have.
            self.base.writer.doubt_cache_of(self.target(&run_info.key));
            match cost {
                RunCost::Whole => tracing::warn!(
                    "a storm: the object is written in run after run, so its runs are slowed down; does someone else write the same \
                     fields?"
                ),
                RunCost::Tenth => tracing::warn!(
                    "a storm: the object changes in run after run, so its runs are slowed down; does the reconciler write it through \
                     a client of its own?"
                ),
            }
        }
    }

    /// Returns the charge of a run: conflicts are charged, and so are runs that wrote (or may have) and were not retries.
    fn cost(
        &self,
        run_info: &RunInfo,
        done: RunDone,
        began_with: Option<&K::Object>,
        outcome: &Result<Action, RunFailure>,
    ) -> Option<RunCost> {
        let key = &run_info.key;
        let moved = |began_with: &K::Object| {
            self.objects.version(key).as_deref() != began_with.meta().resource_version.as_deref()
        };
        match done.activity {
            _ if matches!(outcome, Err(failure) if failure.action == FailureAction::RetryUncounted) => {
                Some(RunCost::Whole)
            }
            _ if run_info.reason.is_retry() => None,
            RunActivity::Wrote => Some(RunCost::Whole),
            RunActivity::Changed if began_with.is_some_and(moved) => Some(match run_info.took_client() {
                true => RunCost::Whole,
                false => RunCost::Tenth,
            }),
            // What it may have written by the client can show after its end: a run for that change is charged.
            RunActivity::Changed | RunActivity::Nothing => {
                (run_info.took_client() && run_info.reason == Reason::Changed).then_some(RunCost::Tenth)
            }
        }
    }

    /// Holds back a key that has used up its budget; retries are slowed by their back-off.
    fn pace(&self, key: &ObjectKey, wait: Duration, now: Instant) {
        if !wait.is_zero() {
            self.metrics.paced.inc();
            self.keys.table().hold(key, HoldReason::Pace, now + wait, now);
        }
    }
}

/// What is to be done for a key.
enum DueWork<'a, K> {
    Nothing(Action),
    /// The finalizer is to be added first.
    Finalizer(Arc<K>, &'a str),
    Reconcile(Arc<K>),
    Cleanup(Arc<K>),
}

/// Whether an answer shows the object that a cache shows, at its version or a later one.
fn is_as_new(answer: &impl kube::Resource, cached: &impl kube::Resource) -> bool {
    let (answer, cached) = (answer.meta(), cached.meta());
    answer.uid == cached.uid && Version::of_meta(answer) >= Version::of_meta(cached)
}

fn has_finalizer(object: &impl kube::Resource, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|cached| cached == finalizer)
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

//! One run of a key, from the moment a worker gets it until the queue knows how it ended.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rand::Rng;
use tokio::time::Instant;
use tracing::{Span, field, level_filters::LevelFilter};

use super::{
    Action, Reason,
    action::NextRun,
    context::RunInfo,
    core::ControllerCore,
    failure::{FailureAction, RunFailure, ended},
    reads::RunMoments,
    trace::trace_id,
};
use crate::{
    keys::{HoldReason, RunActivity, RunCost, RunDone, Tombstone},
    metrics::Ended,
    object::ObjectKey,
    workqueue::Item,
    writes::request::Target,
};

/// A run of a key. If it is dropped before it ends, the key goes back into the queue.
pub(super) struct Run<'a> {
    core: &'a ControllerCore,
    pub(super) info: Arc<RunInfo>,
    item: Option<Item<ObjectKey>>,
    /// The oldest deletion of the key.
    pub(super) deletion: Option<Tombstone>,
    started: Instant,
}

impl<'a> Run<'a> {
    /// Starts the run. Returns also its span; `None` if the key runs in another replica: then it is forgotten here.
    pub(super) fn begin(core: &'a ControllerCore, item: Item<ObjectKey>) -> Option<(Self, Span)> {
        let started = item.handed_out().unwrap_or_else(Instant::now);
        let (key, attempt) = (item.key().clone(), item.attempt());
        let Some((reason, deletion)) = core.keys.table().begin(&key, attempt) else {
            item.forget();
            return None;
        };
        core.metrics.counts.active_workers.inc();
        let id = core.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let (took_client, moments) = (AtomicBool::default(), RunMoments::default());
        let mut info = RunInfo { key, attempt, reason, id, trace_id: None, took_client, moments };
        let mut span = Span::none();
        // Not if nobody looks: it would be made, entered and left for nothing.
        if LevelFilter::current() >= LevelFilter::INFO {
            span = tracing::info_span!(
                "reconcile",
                controller = %core.settings.name,
                kind = %core.base.kind,
                key = %info.key,
                attempt,
                reason = &*info.reason.text(),
                id,
                trace_id = field::Empty,
                otel.status_code = field::Empty,
            );
        }
        let span = if span.is_disabled() { Span::none() } else { span };
        info.trace_id = core.trace_id.as_ref().and_then(|find| trace_id(find, &span));
        Some((Self { core, info: Arc::new(info), item: Some(item), deletion, started }, span))
    }

    /// Judges the events that were deferred, then lets the queue know how the run ended. Returns how it is counted.
    ///
    /// `has_moved` tells whether the object has another version than when the run began.
    pub(super) fn finish(
        mut self,
        outcome: Result<Action, RunFailure>,
        has_moved: &dyn Fn(&ObjectKey) -> bool,
    ) -> Option<Ended> {
        let (core, item, now) = (self.core, self.item.take()?, Instant::now());
        let (ended, took) = (ended(&outcome), now.duration_since(self.started));
        let (info, key) = (&self.info, &self.info.key);
        if let Some(ended) = ended {
            core.metrics.ended(ended, took);
        }
        self.note_leftover();
        let mut table = core.keys.table();
        info.moments.finish(&mut table, key, info.id);
        let done = table.end(key);
        // Its slot leaves this replica: who takes it runs the key.
        let has_left = !table.slots.admits(key);
        if has_left {
            table.reads.forget(key);
            drop(table);
            info.moments.tell();
            let error = outcome.as_ref().err().map(|failure| &*failure.report);
            core.recent.note(&core.settings.name, info, (self.started, took), (ended, error), done.writes);
            item.forget();
            return ended;
        }
        if done.changed {
            table.add(key.clone(), Reason::Changed);
        }
        let cost = cost(info, done, &outcome, has_moved);
        let storm = cost.filter(|cost| table.charge(key, *cost, now));
        let recovered = match &outcome {
            Ok(Action { next: NextRun::NotReconciled, .. }) => None,
            Ok(_) => table.succeeded(key),
            Err(failure) => {
                let is_none =
                    matches!(failure.action, FailureAction::RetryUncounted | FailureAction::Overloaded(_));
                if !is_none {
                    table.failed(key, failure.as_last_error(info.attempt));
                }
                None
            }
        };
        let wait = table.budget_wait(key, now);
        drop(table);
        info.moments.tell();
        if let Some(cost) = storm {
            self.report_storm(key, cost);
        }
        let error = outcome.as_ref().err().map(|failure| &*failure.report);
        core.recent.note(&core.settings.name, info, (self.started, took), (ended, error), done.writes);
        if let Some(failures) = recovered {
            tracing::info!(failures, "reconciled again");
        }
        self.settle(item.ended_at(now), outcome, wait, now);
        ended
    }

    /// Reports a key that has used up its budget.
    fn report_storm(&self, key: &ObjectKey, cost: RunCost) {
        self.core.metrics.counts.storms.inc();
        // The cache may be wrong: a server that was restored keeps no child of an owner that it does not have.
        self.core.base.writer.doubt_cache_of(Target { kind: self.core.base.kind.clone(), key: key.clone() });
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

    /// Lets the queue know how the run ended. `wait` is what the budget asks for.
    fn settle(
        &self,
        item: Item<ObjectKey>,
        outcome: Result<Action, RunFailure>,
        wait: Duration,
        ended: Instant,
    ) {
        let Action { next, priority } = match outcome {
            Ok(action) => action,
            Err(failure) => return self.settle_failure(item, failure, wait, ended),
        };
        let item = match priority {
            Some(priority) => item.with_priority(priority),
            None => item,
        };
        match next {
            NextRun::AwaitChange => {
                self.pace(item.key(), wait, ended);
                item.forget();
            }
            NextRun::RequeueAfter { after, jitter } => {
                self.pace(item.key(), wait, ended);
                let jitter = up_to(jitter, &mut *self.core.jitter.lock());
                item.requeue_after(after.saturating_add(jitter));
            }
            NextRun::Backoff { at_least } => item.retry_at_least(at_least),
            // Its failures stay counted, and the state that can be read again runs it, whatever predicates say.
            NextRun::NotReconciled => item.done(),
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
        let keys = &self.core.keys;
        match action {
            FailureAction::RetryUncounted => {
                tracing::debug!(error, "computed from an old version");
                keys.table().expect_run(item.key(), Reason::Conflict);
                self.pace(item.key(), wait, ended);
                item.retry_uncounted();
            }
            FailureAction::Overloaded(asked) => {
                tracing::debug!(error, "held back: the server asks for quiet");
                keys.table().expect_run(item.key(), Reason::Overload);
                keys.queue.add_after(item.key().clone(), asked.left());
                item.done();
            }
            FailureAction::RetryAfter(asked) => {
                tracing::warn!(error, failures = item.attempt(), "reconcile failed: retrying");
                let (now, left) = (Instant::now(), asked.left());
                keys.table().hold(item.key(), HoldReason::RetryAfter, now + left, now);
                item.retry_at_least(left);
            }
            FailureAction::RetryAtLeast(delay) => {
                tracing::warn!(error, failures = item.attempt(), "reconcile failed: retrying");
                item.retry_at_least(delay);
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

    /// Notes what goes on although the run is over: before its key counts as idle, so that its slot does not move meanwhile.
    fn note_leftover(&self) {
        let Self { core, info, .. } = self;
        // Each context has a clone of the information.
        if let Some(leftovers) = core.leftovers.as_ref().filter(|_| Arc::strong_count(info) > 1) {
            let held: Arc<dyn Any + Send + Sync> = info.clone();
            let who = format!("{} {}", core.settings.name, info.key);
            // The keys of a cluster of a fleet are in the slot of the cluster: then all slots wait.
            let key = core.keys.table().slots.are_shared().then(|| info.key.clone());
            leftovers.add(who, key, Arc::downgrade(&held));
        }
    }

    /// Holds back a key that has used up its budget; retries are slowed by their back-off.
    fn pace(&self, key: &ObjectKey, wait: Duration, now: Instant) {
        if !wait.is_zero() {
            self.core.metrics.counts.paced.inc();
            self.core.keys.table().hold(key, HoldReason::Pace, now + wait, now);
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.core.metrics.counts.active_workers.dec();
        if let Some(item) = self.item.take() {
            self.note_leftover();
            let Self { core, info, .. } = self;
            let mut table = core.keys.table();
            table.end(item.key());
            table.reads.finish(item.key(), info.id, 0);
            drop(table);
            item.put_back();
        }
    }
}

/// Returns the charge of a run: conflicts are charged, and so are runs that wrote (or may have) and were not retries.
fn cost(
    run_info: &RunInfo,
    done: RunDone,
    outcome: &Result<Action, RunFailure>,
    has_moved: &dyn Fn(&ObjectKey) -> bool,
) -> Option<RunCost> {
    match done.activity {
        _ if matches!(outcome, Err(failure) if failure.action == FailureAction::RetryUncounted) => {
            Some(RunCost::Whole)
        }
        _ if run_info.reason.is_retry() => None,
        RunActivity::Wrote => Some(RunCost::Whole),
        RunActivity::Changed if has_moved(&run_info.key) => Some(match run_info.took_client() {
            true => RunCost::Whole,
            false => RunCost::Tenth,
        }),
        // What it may have written by the client can show after its end: a run for that change is charged.
        RunActivity::Changed | RunActivity::Nothing => {
            (run_info.took_client() && run_info.reason == Reason::Changed).then_some(RunCost::Tenth)
        }
    }
}

fn up_to(most: Duration, rng: &mut impl Rng) -> Duration {
    // A product that rounds up past the longest duration there is stays at that.
    Duration::try_from_secs_f64(most.as_secs_f64() * rng.random::<f64>()).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;
    use crate::controller::{Waits, tests::core};

    // C25
    #[tokio::test(start_paused = true)]
    async fn a_dropped_or_cancelled_run_is_put_back_and_counts_as_no_failure() {
        let core = core(Waits::default());
        core.open(None);
        let keys = &core.keys;
        keys.table().add(ObjectKey::new("shop", "a"), Reason::Changed);
        for _ in 0..3 {
            let item = keys.queue.get().await.unwrap();
            assert_eq!(item.attempt(), 1);
            let Some((run, _)) = Run::begin(&core, item) else { unreachable!() };
            let cancelled = async move {
                let _run = run;
                std::future::pending::<()>().await;
            };
            let cancelled = tokio::time::timeout(Duration::from_secs(1), cancelled);
            assert!(cancelled.await.is_err());
            assert_eq!(keys.queue.len(), 1, "it is back");
        }
    }

    #[test]
    fn jitter_stays_within_what_was_asked_for_even_the_longest() {
        let mut rng = SmallRng::seed_from_u64(7);
        for most in [Duration::ZERO, Duration::from_millis(3), Duration::MAX] {
            assert!((0..1_000).all(|_| up_to(most, &mut rng) <= most));
        }
    }
}

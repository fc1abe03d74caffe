//! One run: its guard, and what its failure means.

use std::{any::Any, error::Error};

use super::{Action, LastError, Reason, Reconciler, Terminal, action::NextRun};
use crate::{
    chain::one_line,
    clock::Moment,
    informer::Watched,
    keys::{Keys, RunDone},
    metrics::{ControllerMetrics, Ended},
    object::ObjectKey,
    workqueue::Item,
    writes::{RetryAfter, Stale, WriteError, find},
};

/// What a panic in a reconciler does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Panics {
    /// It counts as an error of that run: reported, and retried with growing delay.
    #[default]
    Contain,
    /// It ends the manager, and resumes in the task that awaits it.
    Propagate,
}

/// Why a run failed, and what follows.
#[derive(Debug)]
pub(crate) struct RunFailure {
    /// The error and its causes, in one line.
    pub(crate) report: String,
    pub(crate) action: FailureAction,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureAction {
    /// Run again with growing delay.
    Retry,
    /// No failure: computed from an old version. Run again after the first step, uncounted.
    RetryUncounted,
    /// Run again with growing delay, and not before the server wants to be asked.
    RetryAfter(RetryAfter),
    /// No failure: nothing was sent, since the server asks for quiet. Run again then, uncounted.
    Overloaded(RetryAfter),
    /// Wait for a change.
    Terminal,
}

impl FailureAction {
    /// Says what follows an error that is not terminal, by what it has in its chain.
    fn of(error: &(dyn Error + 'static)) -> Self {
        match find::<RetryAfter>(error) {
            _ if find::<Stale>(error).is_some() => Self::RetryUncounted,
            Some(asked) if asked.is_not_sent() => Self::Overloaded(*asked),
            Some(asked) => Self::RetryAfter(*asked),
            None => Self::Retry,
        }
    }
}

impl From<WriteError> for RunFailure {
    fn from(error: WriteError) -> Self {
        Self { report: one_line(&error), action: FailureAction::of(&error) }
    }
}

impl RunFailure {
    /// Judges what a reconciler returned.
    pub(crate) fn judge<K: Watched, R: Reconciler<K>>(error: R::Error) -> Self {
        let terminal = R::is_terminal(&error);
        let error: Box<dyn Error + Send + Sync> = error.into();
        let action = if terminal || Terminal::is_in(&*error) {
            FailureAction::Terminal
        } else {
            FailureAction::of(&*error)
        };
        Self { report: one_line(&*error), action }
    }

    /// Returns what is kept of it until the key succeeds.
    pub(crate) fn as_last_error(&self, attempt: u32) -> LastError {
        LastError { error: self.report.clone(), at: Moment::now(), attempt }
    }

    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "no message".to_owned());
        Self { report: format!("the reconciler panicked: {text}"), action: FailureAction::Retry }
    }
}

/// Counts a worker as active while it is held.
pub(super) struct Active<'a>(&'a ControllerMetrics);

impl<'a> Active<'a> {
    pub(super) fn begin(metrics: &'a ControllerMetrics) -> Self {
        metrics.active_workers.inc();
        Self(metrics)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active_workers.dec();
    }
}

/// Returns the result of a run; one computed from an old version is not a failure, one without an object is not counted.
pub(crate) fn ended(outcome: &Result<Action, RunFailure>) -> Option<Ended> {
    Some(match outcome.as_ref().map(|action| action.next) {
        Ok(NextRun::NotReconciled) => return None,
        Ok(NextRun::AwaitChange) => Ended::Success,
        Ok(NextRun::RequeueAfter { .. }) => Ended::RequeueAfter,
        Ok(NextRun::Backoff { .. }) => Ended::Requeue,
        Err(failure) => match failure.action {
            FailureAction::RetryUncounted | FailureAction::Overloaded(_) => Ended::Requeue,
            FailureAction::Retry | FailureAction::RetryAfter(_) => Ended::Error,
            FailureAction::Terminal => Ended::TerminalError,
        },
    })
}

/// A key in flight; without a verdict it goes back into the queue.
pub(crate) struct RunGuard<'a> {
    keys: &'a Keys,
    item: Option<Item<ObjectKey>>,
}

impl<'a> RunGuard<'a> {
    /// Starts the run. Returns also why it was asked for.
    pub(crate) fn begin(keys: &'a Keys, item: Item<ObjectKey>) -> (Self, Reason) {
        let reason = keys.table().begin(item.key(), item.attempt());
        (Self { keys, item: Some(item) }, reason)
    }

    /// Judges the events that were deferred, then lets the queue know how it went.
    pub(crate) fn finish(mut self, verdict: impl FnOnce(Item<ObjectKey>, RunDone)) {
        if let Some(item) = self.item.take() {
            let mut table = self.keys.table();
            let done = table.end(item.key());
            if done.changed {
                table.add(item.key().clone(), Reason::Changed);
            }
            drop(table);
            verdict(item, done);
        }
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.keys.table().end(item.key());
            item.put_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C25
    #[tokio::test(start_paused = true)]
    async fn a_dropped_or_cancelled_run_is_put_back_and_counts_as_no_failure() {
        let keys = Keys::alone();
        keys.table().add(ObjectKey::new("shop", "a"), Reason::Changed);
        for _ in 0..3 {
            let item = keys.queue.get().await.unwrap();
            assert_eq!(item.attempt(), 1);
            let (run, _) = RunGuard::begin(&keys, item);
            let cancelled = async move {
                let _run = run;
                std::future::pending::<()>().await;
            };
            let cancelled = tokio::time::timeout(std::time::Duration::from_secs(1), cancelled);
            assert!(cancelled.await.is_err());
            assert_eq!(keys.queue.len(), 1, "it is back");
        }
    }
}

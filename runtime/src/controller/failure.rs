//! What the failure of a run means.

use std::{any::Any, error::Error, time::Duration};

use super::{
    Action, LastError, Reconciler, Terminal,
    action::{NextRun, NotBefore},
};
use crate::{
    chain::one_line,
    clock::Moment,
    informer::Watched,
    metrics::Ended,
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
    /// Run again with growing delay, and not before this one has passed.
    RetryAtLeast(Duration),
    /// No failure: nothing was sent, since the server asks for quiet. Run again then, uncounted.
    Overloaded(RetryAfter),
    /// Wait for a change.
    Terminal,
}

impl FailureAction {
    /// Says what follows an error that is not terminal, by what it has in its chain.
    fn of(error: &(dyn Error + 'static)) -> Self {
        if let Some(NotBefore { delay, .. }) = find(error) {
            return Self::RetryAtLeast(*delay);
        }
        match find::<RetryAfter>(error) {
            _ if find::<Stale>(error).is_some() => Self::RetryUncounted,
            Some(asked) if asked.not_sent => Self::Overloaded(*asked),
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

/// Returns the result of a run; one computed from an old version is not a failure, one without an object is not counted.
pub(crate) fn ended(outcome: &Result<Action, RunFailure>) -> Option<Ended> {
    Some(match outcome.as_ref().map(|action| action.next) {
        Ok(NextRun::NotReconciled) => return None,
        Ok(NextRun::AwaitChange) => Ended::Success,
        Ok(NextRun::RequeueAfter { .. }) => Ended::RequeueAfter,
        Ok(NextRun::Backoff { .. }) => Ended::Requeue,
        Err(failure) => match failure.action {
            FailureAction::RetryUncounted | FailureAction::Overloaded(_) => Ended::Requeue,
            FailureAction::Retry | FailureAction::RetryAfter(_) | FailureAction::RetryAtLeast(_) => {
                Ended::Error
            }
            FailureAction::Terminal => Ended::TerminalError,
        },
    })
}

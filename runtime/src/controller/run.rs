//! One run: its guard, and what its failure means.

use std::{any::Any, error::Error};

use super::{Reason, Reconciler, Terminal, action::one_line, intake::Intake};
use crate::{
    informer::Watched,
    object::ObjectKey,
    workqueue::Item,
    writes::{Stale, WriteError, Writer, own_writes::RunEnd},
};

/// Says what a panic in a reconciler does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Panics {
    /// It counts as an error of that run: reported, and retried with growing delay.
    #[default]
    Contain,
    /// It ends the manager, and goes on in whoever awaits it.
    Propagate,
}

/// Why a run failed, and what follows.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The error and its causes, in one line.
    pub(crate) report: String,
    pub(crate) way: Way,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Run again with growing delay.
    Retry,
    /// No failure: computed from an old version. Run again after the first step, uncounted.
    AfterFirstStep,
    /// Wait for a change.
    Terminal,
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let way = if error.is_conflict() { Way::AfterFirstStep } else { Way::Retry };
        Self { report: one_line(&error), way }
    }
}

impl Failure {
    /// Judges what a reconciler returned.
    pub(crate) fn judge<K: Watched, R: Reconciler<K>>(error: R::Error) -> Self {
        let terminal = R::is_terminal(&error);
        let error: Box<dyn Error + Send + Sync> = error.into();
        let way = if terminal || Terminal::is_in(&*error) {
            Way::Terminal
        } else if Stale::is_in(&*error) {
            Way::AfterFirstStep
        } else {
            Way::Retry
        };
        Self { report: one_line(&*error), way }
    }

    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "no message".to_owned());
        Self { report: format!("the reconciler panicked: {text}"), way: Way::Retry }
    }
}

/// A key in flight; without a verdict it goes back into the queue.
pub(crate) struct Run<'a> {
    writer: &'a Writer,
    intake: &'a Intake,
    item: Option<Item<ObjectKey>>,
}

impl<'a> Run<'a> {
    pub(crate) fn begin(writer: &'a Writer, intake: &'a Intake, item: Item<ObjectKey>) -> Self {
        writer.begin(item.key());
        Self { writer, intake, item: Some(item) }
    }

    /// Judges the events that were held, then lets the queue know how it went.
    pub(crate) fn finish(mut self, verdict: impl FnOnce(Item<ObjectKey>)) {
        if let Some(item) = self.item.take() {
            if self.writer.end(item.key()) == RunEnd::Changed {
                self.intake.add(item.key().clone(), Reason::Changed);
            }
            verdict(item);
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.writer.end(item.key());
            item.put_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use prometheus_client::metrics::counter::Counter;

    use super::*;
    use crate::{
        workqueue::{ItemExponentialFailure, WorkQueue},
        writes::WaitForOwn,
    };

    fn writer(intake: &Arc<Intake>) -> Arc<Writer> {
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let client = kube::Client::new(nobody, "default");
        let (name, overdue) = ("test".to_owned(), Counter::default());
        Writer::new(client, name, Vec::new(), intake.clone(), WaitForOwn::Parked, overdue)
    }

    // C25
    #[tokio::test(start_paused = true)]
    async fn a_dropped_or_cancelled_run_is_put_back_and_counts_as_no_failure() {
        let queue = WorkQueue::new(ItemExponentialFailure::default());
        let intake = Arc::new(Intake::new(queue.clone(), []));
        intake.open(None, Vec::new);
        let writer = writer(&intake);
        intake.add(ObjectKey::new("shop", "a"), Reason::Changed);
        for _ in 0..3 {
            let item = queue.get().await.unwrap();
            assert_eq!(item.attempt(), 1);
            let run = Run::begin(&writer, &intake, item);
            let cancelled = async move {
                let _run = run;
                std::future::pending::<()>().await;
            };
            let cancelled = tokio::time::timeout(std::time::Duration::from_secs(1), cancelled);
            assert!(cancelled.await.is_err());
            assert_eq!(queue.len(), 1, "it is back");
        }
    }
}

//! What a worker does with a key: find out what it needs, run the reconciler, hand the verdict to the queue.

use std::{any::Any, error::Error, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use kube::Resource as _;

use super::{
    Action, Cleanup, Context, Reconciler, Terminal,
    action::{Next, one_line},
    enqueue::{Grave, Graves},
};
use crate::{
    informer::Watched,
    object::ObjectKey,
    store::{Lister, Lookup},
    workqueue::{Item, WorkQueue},
    writes::{
        Stale, WriteError, Writer, add_finalizer, own_writes::RunEnd, remove_finalizer, request::Target,
    },
};

/// How often a deletion may fail before it is given up.
const FAILURES_PER_DELETION: u32 = 5;

/// Says what a panic in a reconciler does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Panics {
    /// It counts as an error of that run: reported, and retried with growing delay.
    #[default]
    Contain,
    /// It ends the manager, and goes on in whoever awaits it.
    Propagate,
}

/// What all workers of a controller share.
pub(crate) struct Engine<K: Watched, R> {
    pub(crate) name: String,
    pub(crate) question: K::Question,
    pub(crate) reconciler: Arc<R>,
    pub(crate) objects: Lister<K::Object>,
    pub(crate) graves: Arc<Graves<K::Object>>,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) finalizer: Option<String>,
    pub(crate) panics: Panics,
}

/// Why a run failed, and what follows.
struct Failure {
    /// The error and its causes, in one line.
    report: String,
    way: Way,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
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

/// A key in flight; without a verdict it goes back into the queue.
struct Run<'a> {
    writer: &'a Writer,
    queue: &'a WorkQueue<ObjectKey>,
    item: Option<Item<ObjectKey>>,
}

impl<'a> Run<'a> {
    fn begin(writer: &'a Writer, queue: &'a WorkQueue<ObjectKey>, item: Item<ObjectKey>) -> Self {
        writer.begin(item.key());
        Self { writer, queue, item: Some(item) }
    }

    /// Judges the events that were held, then lets the queue know how it went.
    fn finish(mut self, verdict: impl FnOnce(Item<ObjectKey>)) {
        if let Some(item) = self.item.take() {
            if self.writer.end(item.key()) == RunEnd::Changed {
                self.queue.add(item.key().clone());
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

impl<K: Watched, R: Reconciler<K>> Engine<K, R> {
    /// Works until the queue is shut down.
    pub(crate) async fn work(self: Arc<Self>) {
        while let Some(item) = self.queue.get().await {
            let (key, attempt) = (item.key().clone(), item.attempt());
            let run = Run::begin(&self.writer, &self.queue, item);
            tracing::debug!(controller = %self.name, %key, attempt, "reconcile started");
            let outcome = self.run(&key, attempt).await;
            run.finish(|item| self.settle(item, outcome));
        }
    }

    async fn run(&self, key: &ObjectKey, attempt: u32) -> Result<Action, Failure> {
        while let Some(grave) = self.graves.next(key) {
            self.bury(key, attempt, grave).await?;
        }
        match self.objects.lookup(key) {
            Lookup::Absent => Ok(Action::await_change()),
            Lookup::Outdated { unreadable, .. } | Lookup::Unreadable(unreadable) => {
                tracing::warn!(controller = %self.name, %key, error = %unreadable.error, "not reconciled: unreadable");
                Ok(Action::await_change())
            }
            Lookup::Found(object) if object.meta().deletion_timestamp.is_some() => {
                self.clean_up(key, attempt, object).await
            }
            Lookup::Found(object) => self.reconcile(key, attempt, object).await,
        }
    }

    async fn reconcile(
        &self,
        key: &ObjectKey,
        attempt: u32,
        object: Arc<K::Object>,
    ) -> Result<Action, Failure> {
        let object = match &self.finalizer {
            Some(finalizer) if !holds(&*object, finalizer) => {
                let held = add_finalizer(&self.writer, &self.target(key), object.meta(), finalizer).await?;
                match held {
                    Some(held) => Arc::new(held),
                    None => return Ok(Action::await_change()),
                }
            }
            _ => object,
        };
        let cx = self.context(key, attempt, Some(object.clone()));
        self.contain(|| self.reconciler.reconcile(object, &cx)).await
    }

    async fn clean_up(
        &self,
        key: &ObjectKey,
        attempt: u32,
        object: Arc<K::Object>,
    ) -> Result<Action, Failure> {
        let Some(finalizer) = self.finalizer.as_ref().filter(|finalizer| holds(&*object, finalizer)) else {
            return Ok(Action::await_change());
        };
        let cx = self.context(key, attempt, Some(object.clone()));
        match self.contain(|| self.reconciler.cleanup(object.clone(), &cx)).await? {
            Cleanup::Pending(action) => Ok(action),
            Cleanup::Done => {
                remove_finalizer(&self.writer, &self.target(key), object.meta(), finalizer).await?;
                Ok(Action::await_change())
            }
        }
    }

    /// Tells the reconciler of a deletion; one that keeps failing is given up, so that it holds up nothing.
    async fn bury(&self, key: &ObjectKey, attempt: u32, mut grave: Grave<K::Object>) -> Result<(), Failure> {
        let cx = self.context(key, attempt, None);
        let told = self.contain(|| self.reconciler.deleted(grave.last.deleted(), &cx)).await;
        let Err(failure) = told else { return Ok(()) };
        grave.failures += 1;
        if failure.way == Way::Terminal || grave.failures >= FAILURES_PER_DELETION {
            let error = failure.report;
            tracing::error!(controller = %self.name, %key, error, "a deletion was not handled, and is given up");
            return Ok(());
        }
        self.graves.put_back(key, grave);
        Err(failure)
    }

    fn context(&self, key: &ObjectKey, attempt: u32, object: Option<Arc<K::Object>>) -> Context<K> {
        Context::new(self.question.clone(), key.clone(), object, attempt, self.writer.clone())
    }

    fn target(&self, key: &ObjectKey) -> Target {
        Target { kind: K::kind(&self.question), key: key.clone() }
    }

    /// Runs the user's code, all of it: its errors are classified and worded, its panics become errors.
    async fn contain<T, F>(&self, call: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, R::Error>>,
    {
        let judged = async { call().await.map_err(judge::<K, R>) };
        match self.panics {
            Panics::Propagate => judged.await,
            Panics::Contain => AssertUnwindSafe(judged).catch_unwind().await.unwrap_or_else(|panic| {
                let report = format!("the reconciler panicked: {}", panic_text(&*panic));
                Err(Failure { report, way: Way::Retry })
            }),
        }
    }

    fn settle(&self, item: Item<ObjectKey>, outcome: Result<Action, Failure>) {
        match outcome {
            Ok(Action(Next::AwaitChange)) => item.forget(),
            Ok(Action(Next::RequeueAfter { after, jitter })) => {
                item.requeue_after(after.saturating_add(random_up_to(jitter)));
            }
            Ok(Action(Next::Backoff { at_least })) => item.retry_at_least(at_least),
            Err(Failure { report: error, way }) => {
                let key = item.key().clone();
                match way {
                    Way::AfterFirstStep => {
                        tracing::debug!(controller = %self.name, %key, error, "computed from an old version");
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
}

fn judge<K: Watched, R: Reconciler<K>>(error: R::Error) -> Failure {
    let terminal = R::is_terminal(&error);
    let error: Box<dyn Error + Send + Sync> = error.into();
    let way = if terminal || Terminal::is_in(&*error) {
        Way::Terminal
    } else if Stale::is_in(&*error) {
        Way::AfterFirstStep
    } else {
        Way::Retry
    };
    Failure { report: one_line(&*error), way }
}

fn holds(object: &impl kube::Resource, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|held| held == finalizer)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn random_up_to(most: Duration) -> Duration {
    // A product that rounds up past the longest duration there is stays at that.
    Duration::try_from_secs_f64(most.as_secs_f64() * rand::random::<f64>()).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_what_was_asked_for_even_the_longest() {
        for most in [Duration::ZERO, Duration::from_millis(3), Duration::MAX] {
            assert!((0..1_000).all(|_| random_up_to(most) <= most));
        }
    }
}

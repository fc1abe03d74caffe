//! What a worker does with a key: find out what it needs, run the reconciler, tell the queue how it ended.

use std::{
    future::Future,
    marker::PhantomData,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::Resource as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::{
    Action, Cleanup, Context, Panics, Reconciler,
    context::RunInfo,
    core::ControllerCore,
    failure::{FailureAction, RunFailure},
    run::Run,
    settings::Terminating,
    sources::ReconciledObjects,
};
use crate::{
    informer::{Gone, Watched},
    keys::Tombstone,
    list_watch::{Identity, ItemForm, Unreadable},
    metrics::Ended,
    object::{Object, ObjectKey, Version},
    store::{CachedObject, Lookup},
    users_code::discard,
    workqueue::Token,
    writes::{Removed, WriteError, add_finalizer, remove_finalizer, request::Target},
};

/// When a key looks again whose object the server does not know, although a cache shows it: by then the cache has seen
/// of the deletion, or has been compared. The answer may have been another server's.
const UNTIL_SHOWN: Duration = Duration::from_secs(6);

/// What knows the reconciled type: it runs the reconciler.
pub(super) struct Worker<K: Watched, R> {
    pub(super) core: Arc<ControllerCore>,
    pub(super) reconciler: R,
    pub(super) objects: Arc<ReconciledObjects>,
    /// Whether an object may leave the caches although it is there.
    pub(super) selects_some: bool,
    pub(super) reconciled: PhantomData<fn() -> K>,
}

impl<K: Watched, R: Reconciler<K>> Worker<K, R> {
    /// Works until the queue is shut down, which comes after a stop.
    pub(super) async fn work(self: Arc<Self>, stop: CancellationToken) {
        while let Some((item, token)) = self.core.keys.next(&stop).await {
            let Some((mut run, span)) = Run::begin(&self.core, item) else { continue };
            let reconciled = async {
                tracing::debug!("reconcile started");
                let (deletion, mut began_with) = (run.deletion.take(), None);
                let outcome = {
                    let reconciled = pin!(self.run(&run.info, token, deletion, &mut began_with));
                    self.caught(&run.info, reconciled).await
                };
                let has_moved = |key: &ObjectKey| {
                    let now = || self.objects.version(key);
                    began_with.as_ref().is_some_and(|object| object.meta().resource_version != now())
                };
                let ended = run.finish(outcome, &has_moved);
                if matches!(ended, Some(Ended::Error | Ended::TerminalError)) {
                    // Tracers ask for it; the line that tells of the failure needs it not.
                    Span::current().record("otel.status_code", "ERROR");
                }
            };
            // Pinned, so that what is large is not moved.
            pin!(reconciled).instrument(span).await;
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
        deletion: Option<Tombstone>,
        began_with: &mut Option<Arc<K::Object>>,
    ) -> Result<Action, RunFailure> {
        let key = &run_info.key;
        let next_deletion = || self.core.keys.table().deletion(key);
        let (mut token, mut finalized, mut known) = (Some(token), None, Some(deletion));
        loop {
            // The first is known since the run began.
            while let Some(tombstone) = known.take().unwrap_or_else(next_deletion) {
                if Box::pin(self.deliver_deletion(run_info, tombstone, &mut token)).await?.is_none() {
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
                    // Others can start meanwhile.
                    token = None;
                    let target = self.target(key);
                    let add =
                        Box::pin(add_finalizer(&self.core.base.writer, &target, object.meta(), finalizer));
                    match add.await? {
                        Some(answer) => finalized = Some(Arc::new(answer)),
                        None => return Ok(Action::backoff_at_least(UNTIL_SHOWN)),
                    }
                    continue;
                }
                DueWork::Cleanup(object) => Ok(object),
                DueWork::Reconcile(object) => Err(object),
            };
            if token.is_none() {
                match self.claim(&mut token).await {
                    // A cache may have come into doubt meanwhile: the key waits for it in the queue.
                    Some(true) if self.core.keys.gate.doubt(Some(key)).is_some() => {
                        return Ok(Action::backoff_at_least(Duration::ZERO));
                    }
                    Some(true) => continue,
                    Some(false) => {}
                    None => return Ok(Action::not_reconciled()),
                }
            }
            if let Some(token) = token.take() {
                token.pay();
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

    /// Gets another token. Returns whether that took a wait; `None` if the controller stops.
    async fn claim(&self, token: &mut Option<Token<ObjectKey>>) -> Option<bool> {
        let (claimed, waited) = Box::pin(self.core.keys.queue.claim()).await?;
        *token = Some(claimed);
        Some(waited)
    }

    /// Decides what to do for a key, once its deletions have been handled.
    fn due(
        &self,
        key: &ObjectKey,
        began_with: &mut Option<Arc<K::Object>>,
        finalized: Option<&Arc<K::Object>>,
    ) -> DueWork<'_, K::Object> {
        let found = self.objects.lookup(key).typed::<K::Object>();
        if let Lookup::Found(object) = &found {
            *began_with = Some(object.clone());
            if self.finalizer().is_some() {
                self.keep_read(key);
            }
        }
        match found {
            Lookup::Absent => {
                if self.finalizer().is_some() {
                    self.core.keys.table().keep_read(key, None);
                }
                DueWork::Nothing(Action::await_change())
            }
            Lookup::Outdated { unreadable, kept } => self.not_reconciled(Some(kept), &unreadable),
            Lookup::Unreadable(unreadable) => self.not_reconciled(self.last_read(key), &unreadable),
            Lookup::Found(object) if object.meta().deletion_timestamp.is_some() => {
                match (self.cleanup_of(object.clone()), self.core.settings.terminating) {
                    (DueWork::Nothing(_), Terminating::Reconcile) => DueWork::Reconcile(object),
                    (due, _) => due,
                }
            }
            Lookup::Found(object) => {
                // The cache may not show yet what the answer did.
                let object =
                    finalized.filter(|answer| is_as_new(&***answer, &*object)).cloned().unwrap_or(object);
                match self.finalizer().filter(|finalizer| !has_finalizer(&*object, finalizer)) {
                    Some(finalizer) => DueWork::Finalizer(object, finalizer),
                    None => DueWork::Reconcile(object),
                }
            }
        }
    }

    /// Keeps what a compact cache holds of a key for its cleanup: that cache keeps no earlier state of what it can't read.
    fn keep_read(&self, key: &ObjectKey) {
        // It may have been replaced since it was read.
        let readable = |cached: &CachedObject| cached.form() == ItemForm::Bytes && cached.any().is_ok();
        if let Some(cached) = self.objects.cached(key).filter(readable) {
            self.core.keys.table().keep_read(key, Some(Arc::new(cached)));
        }
    }

    fn last_read(&self, key: &ObjectKey) -> Option<Arc<K::Object>> {
        let stored = self.core.keys.table().last_read(key)?;
        stored.downcast_ref::<CachedObject>()?.object_as().ok()
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
        match self.finalizer().is_some_and(|finalizer| has_finalizer(&*terminating, finalizer)) {
            true => DueWork::Cleanup(terminating),
            false => DueWork::Nothing(Action::await_change()),
        }
    }

    async fn clean_up(&self, run_info: &Arc<RunInfo>, object: Arc<K::Object>) -> Result<Action, RunFailure> {
        let cx = self.context(run_info, Some(object.clone()));
        match (self.call(|| self.reconciler.cleanup(object.clone(), &cx)).await?, self.finalizer()) {
            (Cleanup::Pending(action), _) => Ok(action),
            (Cleanup::Done, None) => Ok(Action::await_change()),
            (Cleanup::Done, Some(finalizer)) => {
                let target = self.target(&run_info.key);
                match remove_finalizer(&self.core.base.writer, &target, object.meta(), finalizer).await? {
                    Removed::Released => Ok(Action::await_change()),
                    Removed::NotFound => Ok(Action::backoff_at_least(UNTIL_SHOWN)),
                }
            }
        }
    }

    fn finalizer(&self) -> Option<&str> {
        self.core.settings.finalizer.as_deref()
    }

    fn context(&self, run_info: &Arc<RunInfo>, object: Option<Arc<K::Object>>) -> Context<K> {
        Context::new(self.core.base.clone(), run_info.clone(), object, self.core.reads.clone())
    }

    fn target(&self, key: &ObjectKey) -> Target {
        Target { kind: self.core.base.kind.clone(), key: key.clone() }
    }

    /// Runs the user's code within its deadline; its errors are classified and worded.
    async fn call<T, F>(&self, call: impl FnOnce() -> F) -> Result<T, RunFailure>
    where
        F: Future<Output = Result<T, R::Error>>,
    {
        let judged = async { call().await.map_err(RunFailure::judge::<K, R>) };
        let Some(deadline) = self.core.settings.deadline else { return judged.await };
        tokio::time::timeout(deadline, judged).await.unwrap_or_else(|_| {
            self.core.metrics.counts.timeouts.inc();
            let report = format!("the reconciler did not end within its deadline of {deadline:?}");
            Err(RunFailure { report, action: FailureAction::Retry })
        })
    }

    /// Contains the panics of a run, wherever in it they arise; one that is to propagate is recorded before.
    async fn caught<T>(
        &self,
        run_info: &Arc<RunInfo>,
        run: impl Future<Output = Result<T, RunFailure>>,
    ) -> Result<T, RunFailure> {
        let caught = AssertUnwindSafe(run).catch_unwind().await;
        caught.unwrap_or_else(|panic| {
            self.core.metrics.counts.panics.inc();
            let failure = RunFailure::panicked(&*panic);
            if self.core.settings.panics == Panics::Propagate {
                let error = failure.as_last_error(run_info.attempt);
                self.core.keys.table().failed(&run_info.key, error);
                resume_unwind(panic);
            }
            discard(panic);
            Err(failure)
        })
    }

    // --- deletions

    /// Calls the reconciler for a deletion. One that keeps failing is given up, so that it holds up nothing for good.
    ///
    /// Returns `None` if the controller stops before.
    async fn deliver_deletion(
        &self,
        run_info: &Arc<RunInfo>,
        tombstone: Tombstone,
        token: &mut Option<Token<ObjectKey>>,
    ) -> Result<Option<()>, RunFailure> {
        let key = &run_info.key;
        let last = tombstone.last.downcast_ref::<Gone>().expect("it is of the reconciled kind");
        match self.is_gone(key, last, token).await {
            Ok(true) => {}
            Ok(false) => {
                self.core.keys.table().close_deletion(key, &tombstone);
                return Ok(Some(()));
            }
            // Time does not mend that.
            Err(error @ WriteError::Forbidden { .. })
                if self.core.keys.table().fail_deletion(key, &tombstone, Instant::now()) =>
            {
                self.give_up_deletion(&error.into());
                return Ok(Some(()));
            }
            Err(error) => return Err(error.into()),
        }
        if token.is_none() && self.claim(token).await.is_none() {
            return Ok(None);
        }
        if let Some(token) = token.take() {
            token.pay();
        }
        let cx = self.context(run_info, None);
        let called = self.call(|| self.reconciler.deleted(last.deleted(), &cx));
        let Err(failure) = self.caught(run_info, called).await else {
            self.core.keys.table().close_deletion(key, &tombstone);
            return Ok(Some(()));
        };
        let is_given_up = match failure.action {
            FailureAction::Terminal => {
                self.core.keys.table().close_deletion(key, &tombstone);
                true
            }
            // Nothing failed: it was computed from an old version, or nothing was sent.
            FailureAction::RetryUncounted | FailureAction::Overloaded(_) => false,
            FailureAction::Retry | FailureAction::RetryAfter(_) | FailureAction::RetryAtLeast(_) => {
                self.core.keys.table().fail_deletion(key, &tombstone, Instant::now())
            }
        };
        if !is_given_up {
            return Err(failure);
        }
        self.give_up_deletion(&failure);
        Ok(Some(()))
    }

    fn give_up_deletion(&self, failure: &RunFailure) {
        self.core.metrics.counts.deletions_dropped.inc();
        tracing::error!(error = failure.report, "a deletion was not handled, and is given up");
    }

    /// Distinguishes a deletion from an object that only left the selection: asks the server.
    async fn is_gone(
        &self,
        key: &ObjectKey,
        last: &Gone,
        token: &mut Option<Token<ObjectKey>>,
    ) -> Result<bool, WriteError> {
        if !self.selects_some {
            return Ok(true);
        }
        *token = None;
        let found = self.core.base.writer.fetch(&self.target(key)).await?;
        let there = found.as_ref().and_then(|object| object["metadata"]["uid"].as_str());
        Ok(match (found.is_some(), last.uid()) {
            (false, _) => true,
            (true, Some(gone)) => there != Some(gone),
            (true, None) => false,
        })
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

/// Gives an earlier state the metadata of a later one, if that says the object is being deleted.
fn with_metadata_of<K: Object>(kept: &K, later: &Identity) -> Option<K> {
    let deletion: Timestamp = later.deletion_timestamp.as_deref()?.parse().ok()?;
    if kept.meta().uid != later.uid {
        return None;
    }
    let mut object = kept.clone();
    let meta = object.meta_mut();
    meta.resource_version.clone_from(&later.resource_version);
    meta.deletion_timestamp = Some(Time(deletion));
    meta.finalizers = Some(later.finalizers.clone());
    meta.owner_references = Some(later.owners.clone());
    Some(object)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    // C32
    #[test]
    fn only_a_readable_deletion_makes_an_outdated_state_one_to_clean_up() {
        let mut kept = ConfigMap::default();
        kept.metadata.name = Some("a".into());
        kept.metadata.uid = Some("1".into());
        let says = |deletion: Option<&str>| Identity {
            uid: Some("1".into()),
            resource_version: Some("9".into()),
            deletion_timestamp: deletion.map(str::to_owned),
            finalizers: vec!["example.dev/x".into()],
            ..Identity::default()
        };
        assert!(with_metadata_of(&kept, &says(None)).is_none());
        assert!(with_metadata_of(&kept, &says(Some("soon"))).is_none());
        let another = Identity { uid: Some("2".into()), ..says(Some("2026-01-02T03:04:05Z")) };
        assert!(with_metadata_of(&kept, &another).is_none());
        let made = with_metadata_of(&kept, &says(Some("2026-01-02T03:04:05Z"))).unwrap();
        assert!(made.metadata.deletion_timestamp.is_some());
        assert_eq!(made.metadata.resource_version.as_deref(), Some("9"));
        assert_eq!(made.metadata.finalizers.unwrap(), ["example.dev/x"]);
        assert_eq!(made.metadata.name.as_deref(), Some("a"), "the rest is as it was read");
    }
}

//! Runs a reconciler that was written for kube-rs, as the first step of a migration.

use std::{error::Error, sync::Arc};

use super::{
    Action, Context, Controller, Reconciler, Terminal,
    action::{NextRun, NotBefore},
};
use crate::informer::Watched;

/// A `reconcile` and an `error_policy` of kube-rs, with their context.
struct KubeRs<F, P, C> {
    reconcile: F,
    error_policy: P,
    context: Arc<C>,
}

impl<K: Watched<DynamicType = (), Object = K>> Controller<K, ()> {
    /// Runs a `reconcile` and an `error_policy` that were written for kube-rs, as the first step of a migration.
    ///
    /// Both stay as they are, except for one line: `use kube::runtime::controller::Action` becomes
    /// `use watchkeeper::Action`, which has `requeue` and `await_change` as well. As in kube-rs, objects that are being
    /// deleted are reconciled too, and what the function writes with its own client triggers it again.
    ///
    /// After an error, the policy decides:
    ///
    /// | The policy returns | The key runs again |
    /// |---|---|
    /// | `Action::requeue(d)` | not before `d`, and not before its back-off has passed |
    /// | `Action::await_change()` | when something changes |
    ///
    /// The back-off grows with each failure in a row, up to 1,000 s. `.backoff(ItemExponentialFailure::new(d, d))` keeps
    /// it constant. Not promised: the concurrency of kube-rs. One run is under way at a time unless
    /// [`workers`](Self::workers) allows more.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use watchkeeper::prelude::*;
    ///
    /// struct Ctx;
    ///
    /// async fn reconcile(map: Arc<ConfigMap>, _: Arc<Ctx>) -> Result<Action, kube::Error> {
    ///     println!("{}", map.name_any());
    ///     Ok(Action::requeue(Duration::from_secs(300)))
    /// }
    ///
    /// fn error_policy(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Ctx>) -> Action {
    ///     Action::requeue(Duration::from_secs(5))
    /// }
    ///
    /// let controller = Controller::from_kube_rs(reconcile, error_policy, Arc::new(Ctx));
    /// # let _ = controller;
    /// ```
    ///
    /// The book has more: [from kube-rs](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/coming-from/kube-rs.md).
    pub fn from_kube_rs<Running, E, C>(
        reconcile: impl Fn(Arc<K>, Arc<C>) -> Running + Send + Sync + 'static,
        error_policy: impl Fn(Arc<K>, &E, Arc<C>) -> Action + Send + Sync + 'static,
        context: Arc<C>,
    ) -> Controller<K, impl Reconciler<K>>
    where
        Running: Future<Output = Result<Action, E>> + Send,
        E: Error + Send + Sync + 'static,
        C: Send + Sync + 'static,
    {
        Controller::new(KubeRs { reconcile, error_policy, context }).with_terminating()
    }
}

impl<K, F, P, C, Running, E> Reconciler<K> for KubeRs<F, P, C>
where
    K: Watched<Object = K>,
    F: Fn(Arc<K>, Arc<C>) -> Running + Send + Sync + 'static,
    P: Fn(Arc<K>, &E, Arc<C>) -> Action + Send + Sync + 'static,
    C: Send + Sync + 'static,
    Running: Future<Output = Result<Action, E>> + Send,
    E: Error + Send + Sync + 'static,
{
    type Error = Box<dyn Error + Send + Sync>;

    async fn reconcile(&self, object: Arc<K>, _: &Context<K>) -> Result<Action, Self::Error> {
        let error = match (self.reconcile)(object.clone(), self.context.clone()).await {
            Ok(action) => return Ok(action),
            Err(error) => error,
        };
        let delay = match (self.error_policy)(object, &error, self.context.clone()).next {
            NextRun::RequeueAfter { after, .. } => after,
            NextRun::Backoff { at_least } => at_least,
            NextRun::AwaitChange | NextRun::NotReconciled => return Err(Terminal::new(error).into()),
        };
        Err(NotBefore { delay, error: error.into() }.into())
    }
}

//! Runs a reconciler that was written for kube-rs, as the first step of a migration.

use std::{error::Error, sync::Arc};

use super::{
    Action, Context, Reconciler, Terminal,
    action::{NextRun, NotBefore},
};
use crate::informer::Watched;

/// A `reconcile` and an `error_policy` of kube-rs, with their context.
pub(super) struct KubeRs<F, P, C> {
    pub(super) reconcile: F,
    pub(super) error_policy: P,
    pub(super) context: Arc<C>,
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

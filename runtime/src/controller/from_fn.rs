//! Closures as reconcilers, for small jobs.

use std::{error::Error, fmt, future::Future, sync::Arc};

use super::{Action, Context, Reconciler};
use crate::informer::Marker;

/// Reconciles with a function, a clone of it a run; made by [`Controller::from_fn`](super::Controller::from_fn).
pub struct FromFn<F>(pub(super) F);

impl<K, F, Running, E> Reconciler<K> for FromFn<F>
where
    K: Marker,
    // `FnOnce`, because `async` closures with captures implement only this trait: the future owns the captures.
    F: FnOnce(Arc<K::Seen>, Context<K>) -> Running + Clone + Send + Sync + 'static,
    Running: Future<Output = Result<Action, E>> + Send,
    E: Into<Box<dyn Error + Send + Sync>> + Send,
{
    type Error = E;

    fn reconcile(
        &self,
        object: Arc<K::Seen>,
        cx: &Context<K>,
    ) -> impl Future<Output = Result<Action, E>> + Send {
        self.0.clone()(object, cx.clone())
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn")
    }
}

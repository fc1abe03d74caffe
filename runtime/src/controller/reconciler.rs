//! The trait that users implement.

use std::{error::Error, future::Future, sync::Arc};

use super::{Action, Cleanup, Context};
use crate::informer::{Deleted, Marker};

/// Brings the world in line with one object.
///
/// Reconciling is level-triggered: you receive the current object, never the event. A run may happen without a visible
/// change, several changes may share a run, and two runs for one object never overlap. Work that must happen before an
/// object is deleted belongs in [`cleanup`](Self::cleanup), with `Controller::finalizer`.
///
/// The semantics are those of Kubernetes controllers (controller-runtime's `Reconciler`), with the outcomes of
/// [`Action`].
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// use watchkeeper::prelude::*;
///
/// /// Gives every namespace a config map.
/// struct Welcome;
///
/// impl Reconciler<Namespace> for Welcome {
///     type Error = watchkeeper::Error;
///
///     async fn reconcile(&self, namespace: Arc<Namespace>, cx: &Context<Namespace>) -> Result<Action, Self::Error> {
///         let mut map = ConfigMap::default();
///         map.metadata.name = Some("welcome".to_owned());
///         map.metadata.namespace = namespace.metadata.name.clone();
///         cx.apply(map).await?;
///         Ok(Action::await_change())
///     }
///
///     // Runs only with `Controller::finalizer`.
///     async fn cleanup(&self, _: Arc<Namespace>, _: &Context<Namespace>) -> Result<Cleanup, Self::Error> {
///         Ok(Cleanup::Done)
///     }
/// }
/// # let _ = Controller::new(Welcome).owns::<ConfigMap>();
/// ```
///
/// The book has more: [the way of a change](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/change.md).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not reconcile `{K}`",
    note = "implement `Reconciler<{K}> for {Self}`: `type Error` and `async fn reconcile(&self, ..)`"
)]
pub trait Reconciler<K: Marker>: Send + Sync + 'static {
    /// What a run can fail with: your own enum, `anyhow::Error` or [`watchkeeper::Error`](crate::Error).
    type Error: Into<Box<dyn Error + Send + Sync>> + Send;

    /// Runs for an object that is there and not being deleted.
    ///
    /// # Errors
    /// An error is reported, and the key runs again with growing delay; a terminal one waits for a change.
    fn reconcile(
        &self,
        object: Arc<K::Seen>,
        cx: &Context<K>,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// Runs for an object that is being deleted and holds the controller's finalizer, until it says done.
    ///
    /// Never called without `Controller::finalizer`.
    ///
    /// # Errors
    /// As for [`reconcile`](Self::reconcile); the finalizer stays.
    fn cleanup(
        &self,
        object: Arc<K::Seen>,
        cx: &Context<K>,
    ) -> impl Future<Output = Result<Cleanup, Self::Error>> + Send {
        let _ = (object, cx);
        async { Ok(Cleanup::Done) }
    }

    /// Runs when an object is gone, with what is known of it; by default it does nothing.
    ///
    /// Also runs when an object of the same name took its place: first this, then the new object. Best effort:
    /// deletions that happened while the process was down, or before the controller's caches had synced, are not
    /// delivered, and at most four wait for one key. A deletion that has failed five times or more is given up once five
    /// minutes have passed since the first failure. Conflicts do not count, nor do writes that were not sent because the
    /// server is overloaded or a cache is in doubt.
    ///
    /// # Errors
    /// An error is reported, and the call is tried again with growing delay. A terminal error gives the deletion up at
    /// once: it is logged and counted, and `deleted` does not run for it again.
    fn deleted(
        &self,
        last: Deleted<K::Seen>,
        cx: &Context<K>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (last, cx);
        async { Ok(()) }
    }

    /// Returns whether retrying does not repair an error: it is then reported, and the key waits for a change.
    ///
    /// An error that has [`Terminal`](super::Terminal) in its chain is terminal whatever this says. After a terminal error
    /// of [`deleted`](Self::deleted) the deletion is given up instead.
    fn is_terminal(error: &Self::Error) -> bool {
        let _ = error;
        false
    }
}

/// A reconciler that the program keeps a hold of.
impl<K: Marker, R: Reconciler<K>> Reconciler<K> for Arc<R> {
    type Error = R::Error;

    async fn reconcile(&self, object: Arc<K::Seen>, cx: &Context<K>) -> Result<Action, R::Error> {
        R::reconcile(self, object, cx).await
    }

    async fn cleanup(&self, object: Arc<K::Seen>, cx: &Context<K>) -> Result<Cleanup, R::Error> {
        R::cleanup(self, object, cx).await
    }

    async fn deleted(&self, last: Deleted<K::Seen>, cx: &Context<K>) -> Result<(), R::Error> {
        R::deleted(self, last, cx).await
    }

    fn is_terminal(error: &R::Error) -> bool {
        R::is_terminal(error)
    }
}

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

impl_debug!([F] FromFn<F>);

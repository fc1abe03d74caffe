//! What a term needs of a controller, whatever it reconciles.

use std::sync::{Arc, atomic::AtomicBool};

use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Reconciler, queue::ControllerQueue, waits::Waits, worker::ControllerCore};
use crate::{
    informer::Watched,
    metrics::ControllerMetrics,
    object::ObjectKey,
    writes::{Gate, Recorder, Writer},
};

/// A controller whose types are forgotten: what runs it is compiled once, in this crate, and not for each type.
pub(crate) trait Workforce: Send + Sync {
    fn name(&self) -> &Arc<str>;
    fn waits(&self) -> &Waits;
    fn queue(&self) -> &ControllerQueue;
    fn gate(&self) -> &Gate;
    fn metrics(&self) -> &ControllerMetrics;
    fn writer(&self) -> &Arc<Writer>;
    fn recorder(&self) -> &Recorder;
    /// Whether another replica works in its place.
    fn stands_by(&self) -> &AtomicBool;
    /// Works until the queue is shut down, which comes after a stop.
    fn worker(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()>;
    /// Lets in the keys of a namespace, or of all that have no caches of their own.
    fn open(&self, namespace: Option<&Arc<str>>);
    /// Forgets what is known of keys that nothing is to be known of any more.
    fn sweep(&self);
    /// Begins another term with an empty queue; what the rates have spent stays spent.
    fn begin_anew(&self);
}

impl<K: Watched, R: Reconciler<K>> Workforce for ControllerCore<K, R> {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn waits(&self) -> &Waits {
        &self.waits
    }

    fn queue(&self) -> &ControllerQueue {
        &self.queue
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn metrics(&self) -> &ControllerMetrics {
        &self.metrics
    }

    fn writer(&self) -> &Arc<Writer> {
        &self.base.writer
    }

    fn recorder(&self) -> &Recorder {
        &self.base.recorder
    }

    fn stands_by(&self) -> &AtomicBool {
        &self.stands_by
    }

    fn worker(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.work(stop))
    }

    fn open(&self, namespace: Option<&Arc<str>>) {
        self.queue.open(namespace, || self.objects.keys(namespace.map(|namespace| &**namespace)));
    }

    fn sweep(&self) {
        let now = Instant::now();
        self.history().budgets.sweep(now);
        self.queue.sweep(now, |key| self.objects.is_gone(key));
        self.last_read.sweep(|key| self.objects.is_there(key));
        // A predicate may have kept their deletion from running them.
        let gone = |key: &ObjectKey| self.objects.is_gone(key) && self.tombstones.next(key).is_none();
        let queue = &self.queue.inner;
        queue.awaiting_change().iter().filter(|key| gone(key)).for_each(|key| queue.forget(key));
        self.history().failures.retain(|key, _| !gone(key));
    }

    fn begin_anew(&self) {
        self.tombstones.clear();
        self.history().failures.clear();
        self.queue.reopen();
        self.base.writer.begin_term();
    }
}

//! What a term needs of a controller, whatever it reconciles.

use std::sync::{Arc, atomic::AtomicBool};

use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Inspected, Reconciler, waits::Waits, worker::ControllerCore};
use crate::{
    informer::Watched,
    keys::Keys,
    metrics::ControllerMetrics,
    writes::{Recorder, Writer},
};

/// A controller whose types are forgotten: what runs it is compiled once, in this crate, and not for each type.
pub(crate) trait Workforce: Inspected {
    fn name(&self) -> &Arc<str>;
    /// How many keys run at once.
    fn workers(&self) -> usize;
    fn waits(&self) -> &Arc<Waits>;
    fn keys(&self) -> &Keys;
    fn metrics(&self) -> &ControllerMetrics;
    fn writer(&self) -> &Arc<Writer>;
    fn recorder(&self) -> &Recorder;
    /// Whether another replica works in its place.
    fn stands_by(&self) -> &AtomicBool;
    /// Works until the queue is shut down, which comes after a stop.
    fn worker(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()>;
    /// Lets in the keys of a namespace, or of all that have no caches of their own.
    fn open(&self, namespace: Option<&Arc<str>>);
    /// Forgets what is over, and what belongs to objects that are gone.
    fn sweep(&self);
    /// Begins another term with an empty queue; what the rates have spent stays spent.
    fn begin_term(&self);
}

impl<K: Watched, R: Reconciler<K>> Workforce for ControllerCore<K, R> {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn workers(&self) -> usize {
        self.workers
    }

    fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    fn keys(&self) -> &Keys {
        &self.keys
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
        let cached = || self.objects.keys(namespace.map(|namespace| &**namespace));
        self.keys.table().open(namespace, cached);
    }

    fn sweep(&self) {
        self.keys.table().sweep(Instant::now(), |key| self.objects.is_gone(key));
    }

    fn begin_term(&self) {
        self.base.writer.begin_term();
    }
}

//! What fills a part of the cache: a reflector, and the sink that it writes to.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use super::{reliability::Reliability, resync::ResyncRequest, sync_state::Health};
use crate::{
    delta_fifo::{Extent, FifoSink},
    list_watch::{AnyItem, AnySource},
    object::{AnyObject, ObjectKey},
    reflector::{
        AnyStore, Difference, FetchReport, List, ReflectorConfig, ReflectorStore, Server, StoreChange, fetch,
        tell,
    },
    store::AnyLister,
    users_code::may_block,
};

type RunReflector = dyn FnOnce(Arc<AnyStore>, CancellationToken) -> BoxFuture<'static, ()> + Send;

/// Where a part of the cache comes from: an extent, and what fills it until it is cancelled.
pub(super) struct ReflectorTask {
    pub(super) extent: Extent,
    /// What it comes from.
    pub(super) server: Server,
    pub(super) source: Arc<dyn AnySource>,
    pub(super) run: Box<RunReflector>,
}

impl ReflectorTask {
    /// Feeds by listing and watching a source.
    pub(super) fn new(extent: Extent, source: impl AnySource + 'static, mut config: ReflectorConfig) -> Self {
        let on_error = config.on_error;
        config.on_error = Arc::new(move |error| may_block(|| tell(&on_error, error)));
        let (server, source): (_, Arc<dyn AnySource>) = (config.server.clone(), Arc::new(source));
        let read = source.clone();
        let run = move |sink, stop| fetch(read, sink, config, stop);
        Self { extent, server, source, run: Box::new(run) }
    }
}

/// Takes what a reflector reads: objects go to the queue, reports to the informer's health.
pub(super) struct InformerSink {
    pub(super) sink: FifoSink<dyn AnyObject>,
    pub(super) cache: AnyLister,
    pub(super) health: Arc<Health>,
    pub(super) reliability: Arc<Reliability>,
    pub(super) resync: Arc<ResyncRequest>,
}

impl InformerSink {
    /// Does what runs the transform, if there is one.
    fn transforming<T>(&self, call: impl FnOnce() -> T) -> T {
        match self.sink.transform() {
            Some(_) => may_block(call),
            None => call(),
        }
    }
}

impl ReflectorStore<dyn AnyObject> for InformerSink {
    fn replace(&self, list: List<dyn AnyObject>) {
        self.reliability.listed(self.sink.extent());
        self.transforming(|| self.sink.replace(list));
    }

    /// Compares with the cache, once that has taken all that was queued.
    fn unchanged(&self, item: &AnyItem) -> Option<ObjectKey> {
        // While the reflector lists it queues nothing else, so that what is cached stays until the list replaces it. What
        // a transform hid may come back meanwhile: that is marked until it does.
        if !self.sink.is_settled() {
            return None;
        }
        self.transforming(|| self.cache.repeated(item, self.sink.transform()))
    }

    /// Looks at versions alone: of two states at one version `unchanged` says more.
    fn differences(&self, listed: &[AnyItem]) -> Option<Vec<Difference>> {
        if !self.sink.is_settled() {
            return None;
        }
        Some(self.cache.differences(self.sink.extent(), listed, self.sink.transform().is_some()))
    }

    fn apply(&self, changes: Vec<StoreChange<dyn AnyObject>>) {
        self.transforming(|| self.sink.apply(changes));
    }

    fn resync(&self) {
        self.resync.ask(&self.cache, true);
        self.transforming(|| self.sink.resync());
    }

    fn report(&self, report: FetchReport) {
        let extent = self.sink.extent();
        match report {
            FetchReport::Healthy(_) => self.health.report(extent, &report),
            // Handlers of the user's are called.
            FetchReport::Failed(_) | FetchReport::Skipped(_) => {
                may_block(|| self.health.report(extent, &report));
            }
            FetchReport::WatchLost => {
                self.reliability.watch_lost(extent);
                self.sink.report(report);
            }
            FetchReport::WatchBack | FetchReport::Current { .. } => self.sink.report(report),
        }
    }

    fn wants_list(&self) -> BoxFuture<'_, ()> {
        self.reliability.wants_list(self.sink.extent()).boxed()
    }
}

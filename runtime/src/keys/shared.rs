//! The table of keys as it is shared: with its queue, its gate and its lock.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    budget::StormLimit, gate::Gate, record::HoldReason, sources::SourceId, table::KeyTable, why::Why,
};
use crate::{
    object::{ObjectKey, Version},
    reflector::{Doubt, Server},
    workqueue::{Item, ItemExponentialFailure, RateLimit, Token, WorkQueue},
};

/// The keys of one controller.
pub(crate) struct Keys {
    /// Schedules the keys. Only the table adds keys to it and holds them back.
    pub(crate) queue: WorkQueue<ObjectKey>,
    /// Keeps keys from running while caches that they read can't be relied on.
    pub(crate) gate: Gate,
    table: Mutex<KeyTable>,
}

impl Keys {
    /// Returns the versions that runs wrote, and that sources are still to show.
    pub(crate) fn written(&self) -> Vec<(SourceId, Version)> {
        self.table().waits().filter_map(|(_, wait)| wait.awaits()).collect()
    }

    /// Makes a table for a queue. The keys of each namespace wait for caches of their own.
    ///
    /// `shared` are the sources that feed the controller more than once; `dropped` counts deletions that are dropped.
    pub(crate) fn new(
        queue: WorkQueue<ObjectKey>,
        gate: Gate,
        namespaces: impl IntoIterator<Item = Arc<str>>,
        shared: Vec<SourceId>,
        storm_limit: StormLimit,
        dropped: Counter,
    ) -> Arc<Self> {
        let namespaces = namespaces.into_iter().collect();
        let table = KeyTable::new(queue.clone(), namespaces, shared, storm_limit, dropped);
        Arc::new(Self { queue, gate, table: Mutex::new(table) })
    }

    /// Makes a table that no controller works on, for contexts that are made by hand and for tests.
    pub(crate) fn alone() -> Arc<Self> {
        let queue = WorkQueue::new(ItemExponentialFailure::default());
        let limit = StormLimit::new(RateLimit::per_second(1).burst(10));
        let gate = Gate::new(Server::default(), Vec::new());
        let keys = Self::new(queue, gate, [], Vec::new(), limit, Counter::default());
        keys.table().open(None, Vec::new);
        keys
    }

    /// Locks the table.
    pub(crate) fn table(&self) -> MutexGuard<'_, KeyTable> {
        self.table.lock()
    }

    /// Waits for a key that may run, and for a token; `None` once the queue is shut down, which comes after a stop.
    pub(crate) async fn next(&self, stop: &CancellationToken) -> Option<(Item<ObjectKey>, Token<ObjectKey>)> {
        loop {
            // First until no cache is in doubt that all keys read. The queue says whether it was stopped.
            if self.gate.doubt(None).is_some() {
                let _ = stop.run_until_cancelled(self.gate.opened(None)).await;
            }
            let (item, token) = self.queue.get_unpaid().await?;
            let Some(doubt) = self.gate.doubt(Some(item.key())) else { return Some((item, token)) };
            drop(token);
            self.put_off(item, doubt);
        }
    }

    /// Gives back a key that must not run yet, because a cache that it reads is in doubt.
    pub(crate) fn put_off(&self, item: Item<ObjectKey>, doubt: Doubt) {
        let (mut table, key, now) = (self.table(), item.key().clone(), Instant::now());
        table.hold(&key, HoldReason::StaleCache, doubt.until, now);
        item.put_back();
        // The doubt may have ended meanwhile, before there was a hold to end.
        if self.gate.doubt(Some(&key)).is_none() {
            table.release(&key, HoldReason::StaleCache, now);
        }
    }

    /// Lets keys go on whose caches are in no doubt any more.
    pub(crate) fn release_stale(&self) {
        self.table().release_stale(|key| self.gate.doubt(Some(key)).is_none(), Instant::now());
    }

    /// Says what keeps a key from running; `None` if nothing asks for a run.
    pub(crate) fn why(&self, key: &ObjectKey) -> Option<Why> {
        let table = self.table();
        table.slots.elsewhere(key).or_else(|| table.why(key, &self.gate, Instant::now()))
    }

    /// Begins another term. Returns whether the server lost its history since the last one.
    pub(crate) fn begin_term(&self) -> bool {
        self.table().begin_term(self.gate.losses(), Instant::now())
    }
}

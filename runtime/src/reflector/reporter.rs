//! Tells everybody how fetching goes: the store, the error handler, the log and the metrics.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::info;

use super::{
    config::ReflectorConfig,
    fault::Fault,
    sink::{FetchReport, ReflectorStore},
    watch_error::{WatchError, WatchErrorHandler},
};
use crate::{
    list_watch::ListWatchError,
    metrics::{FetchMeter, Metrics},
};

/// Counts and reports for one reflector.
pub(super) struct Reporter<S> {
    pub(super) name: Cow<'static, str>,
    store: Arc<S>,
    handler: WatchErrorHandler,
    meter: FetchMeter,
    /// How many failures in a row.
    attempts: u32,
    /// How much the stream under way had skipped.
    skipped: u32,
    /// When the list under way began.
    listing: Option<Instant>,
}

impl<S> Reporter<S> {
    pub(super) fn new(store: Arc<S>, config: &ReflectorConfig) -> Self {
        let meter = config.metrics.as_ref().map(Metrics::fetch).map(|metrics| metrics.meter(&config.name));
        Self {
            name: config.name.clone(),
            store,
            handler: config.on_error.clone(),
            meter: meter.unwrap_or_default(),
            attempts: 0,
            skipped: 0,
            listing: None,
        }
    }

    /// Tells whether the last thing that happened was a failure.
    pub(super) fn is_failing(&self) -> bool {
        self.attempts > 0
    }

    pub(super) fn healthy<K>(&mut self)
    where
        S: ReflectorStore<K>,
    {
        if self.attempts > 0 {
            info!(kind = %self.name, "{} can be read again", self.name);
        }
        self.attempts = 0;
        self.store.report(FetchReport::Healthy);
    }

    pub(super) fn failed<K>(&mut self, error: ListWatchError, retry_in: Duration)
    where
        S: ReflectorStore<K>,
    {
        self.attempts = self.attempts.saturating_add(1);
        self.meter.failed(Fault::of(&error).label());
        let error = self.error(error, self.attempts, retry_in);
        self.store.report(FetchReport::Failed(error));
    }

    pub(super) fn skipped<K>(&mut self, what: String)
    where
        S: ReflectorStore<K>,
    {
        self.meter.failed("unexpected_event");
        self.skipped = self.skipped.saturating_add(1);
        let error = self.error(ListWatchError::Unexpected(what), self.skipped, Duration::ZERO);
        self.store.report(FetchReport::Skipped(error));
    }

    /// Notes that a page is asked for, or a streaming list opened.
    pub(super) fn listing(&mut self) {
        if self.listing.is_none() {
            self.listing = Some(Instant::now());
            self.meter.list_begun();
        }
    }

    /// Notes that the list under way came to nothing.
    pub(super) fn list_given_up(&mut self) {
        self.listing = None;
    }

    pub(super) fn listed(&mut self, items: usize) {
        if let Some(begun) = self.listing.take() {
            self.meter.listed(begun.elapsed(), items);
        }
    }

    pub(super) fn watch_opened(&mut self) {
        self.skipped = 0;
        self.meter.watch_opened();
    }

    pub(super) fn watch_ended(&self, opened: Instant, events: usize) {
        self.meter.watch_ended(opened.elapsed(), events);
    }

    pub(super) fn reached(&self, version: Option<&str>) {
        if let Some(version) = version.and_then(|version| version.parse().ok()) {
            self.meter.reached(version);
        }
    }

    fn error(&self, error: ListWatchError, attempts: u32, retry_in: Duration) -> WatchError {
        let error = WatchError::new(self.name.clone(), error, attempts, retry_in);
        self.handler.tell(&error);
        error
    }
}

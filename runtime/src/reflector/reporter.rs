//! Reports how fetching goes: to the store, the error handler, the log and the metrics.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::{debug, info};

use super::{
    config::ReflectorConfig,
    failure_log::{FailureLogEntry, LogLevel},
    fault::Fault,
    sink::{AnyStore, FetchReport},
    watch_error::{FetchPart, WatchError, WatchErrorHandler, tell},
};
use crate::{clock::readable, list_watch::ListWatchError, metrics::FetchMeter, users_code::contained};

/// Counts and reports for one reflector.
pub(super) struct Reporter {
    pub(super) name: Cow<'static, str>,
    store: Arc<AnyStore>,
    handler: WatchErrorHandler,
    pub(super) meter: FetchMeter,
    /// How many failures of each part in a row.
    attempts: [u32; 2],
    speaker: FailureLogEntry,
    /// How much the stream under way had skipped.
    skipped: u32,
    /// When the list under way began.
    pub(super) listing: Option<Instant>,
}

impl Reporter {
    pub(super) fn new(store: Arc<AnyStore>, config: &ReflectorConfig) -> Self {
        let meter = config.metrics.as_ref().map(|metrics| metrics.shared.fetch.meter(&config.name));
        Self {
            name: config.name.clone(),
            store,
            handler: config.on_error.clone(),
            meter: meter.unwrap_or_default(),
            attempts: [0; 2],
            speaker: config.log.join(config.name.clone()),
            skipped: 0,
            listing: None,
        }
    }

    /// Returns whether a part has failed, and has not succeeded since.
    pub(super) fn is_failing(&self, part: FetchPart) -> bool {
        self.attempts[part as usize] > 0
    }

    /// Notes a success, which is one of its own part alone.
    pub(super) fn healthy(&mut self, part: FetchPart) {
        let failed = std::mem::take(&mut self.attempts[part as usize]) > 0;
        if failed && self.attempts == [0; 2] {
            self.say_what_is_over();
        }
        self.report(FetchReport::Healthy(part));
    }

    pub(super) fn failed(&mut self, part: FetchPart, error: ListWatchError, retry_in: Duration) {
        let attempts = &mut self.attempts[part as usize];
        *attempts = attempts.saturating_add(1);
        let attempts = *attempts;
        let fault = Fault::of(&error);
        self.meter.failed(fault.label());
        let news = self.speaker.failed(Instant::now(), fault, attempts);
        let error = WatchError::new(self.name.clone(), part, error, attempts, retry_in);
        self.tell(FetchReport::Failed, WatchError { news, ..error });
    }

    fn say_what_is_over(&mut self) {
        let Some((lasted, kinds)) = self.speaker.healthy(Instant::now()) else { return };
        let (name, lasted) = (&self.name, readable(lasted));
        match kinds {
            1 => info!(kind = %name, "{name} can be read again, after {lasted}"),
            _ => info!(kinds, "all {kinds} kinds can be read again, after {lasted}"),
        }
    }

    /// Counts a failure that the next request, which follows at once, will report.
    pub(super) fn passed_over(&self, error: &ListWatchError) {
        self.meter.failed(Fault::of(error).label());
        debug!(kind = %self.name, %error, "a streaming list is refused: asking for a plain one");
    }

    /// Returns the store, which must not end the stage that it is fed by.
    pub(super) fn report(&self, report: FetchReport) {
        if contained(|| self.store.report(report)).is_none() {
            tracing::error!(kind = %self.name, "the store panicked in `report`; fetching goes on");
        }
    }

    pub(super) fn skipped(&mut self, what: String) {
        self.meter.failed("unexpected_event");
        self.skipped = self.skipped.saturating_add(1);
        let news = if self.skipped == 1 { LogLevel::Begins } else { LogLevel::Repeats };
        let error = ListWatchError::Unexpected(what);
        let error = WatchError::new(self.name.clone(), FetchPart::Watch, error, self.skipped, Duration::ZERO);
        self.tell(FetchReport::Skipped, WatchError { news, ..error });
    }

    /// Notes that a page is asked for, or a streaming list opened.
    pub(super) fn listing(&mut self) {
        if self.listing.is_none() {
            self.listing = Some(Instant::now());
            self.meter.counts.lists.inc();
        }
    }

    pub(super) fn listed(&mut self, items: usize) {
        if let Some(begun) = self.listing.take() {
            self.meter.listed(begun.elapsed(), items);
        }
    }

    pub(super) fn watch_opened(&mut self) {
        self.skipped = 0;
        self.meter.counts.watches.inc();
    }

    pub(super) fn reached(&self, version: Option<&str>) {
        if let Some(version) = version.and_then(|version| version.parse().ok()) {
            self.meter.counts.last_version.set(version);
        }
    }

    fn tell(&self, report: impl FnOnce(WatchError) -> FetchReport, error: WatchError) {
        tell(&self.handler, &error);
        self.report(report(error));
    }
}

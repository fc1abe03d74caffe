//! The caches of informers and the backlogs of their handlers: read at each scrape, and not counted at each change.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use crate::object::Kind;

/// An informer, as a scrape sees it.
pub(crate) trait CacheSource: Send + Sync {
    /// Returns the state of its cache and of its handlers.
    fn report(&self) -> CacheReport;
}

/// The state of the cache of an informer, and of its handlers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheReport {
    /// How many deltas wait to be applied.
    pub(crate) queued: usize,
    pub(crate) objects: usize,
    /// How many objects can't be read.
    pub(crate) unreadable: usize,
    /// The version that the cache shows at least.
    pub(crate) version: Option<u64>,
    pub(crate) handlers: usize,
    /// How many notifications wait for them.
    pub(crate) depth: usize,
    /// How long the oldest notification has waited.
    pub(crate) oldest: Duration,
}

impl CacheReport {
    fn add(&mut self, other: Self) {
        self.queued += other.queued;
        self.objects += other.objects;
        self.unreadable += other.unreadable;
        self.version = self.version.into_iter().chain(other.version).min();
        self.handlers += other.handlers;
        self.depth += other.depth;
        self.oldest = self.oldest.max(other.oldest);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct CacheLabels {
    name: String,
    group: String,
    version: String,
    resource: String,
}

/// An informer, and its labels.
type CacheEntry = (CacheLabels, Weak<dyn CacheSource>);

/// The informers that report. An informer that was dropped reports no longer.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheMetrics {
    sources: Arc<Mutex<Vec<CacheEntry>>>,
}

impl CacheMetrics {
    /// Reports an informer from now on. Others with the same labels are added up.
    pub(super) fn add(&self, name: String, kind: &Kind, source: Weak<dyn CacheSource>) {
        let (group, version) = (kind.group.to_string(), kind.version.to_string());
        let labels = CacheLabels { name, group, version, resource: kind.plural.to_string() };
        let mut sources = self.sources.lock();
        sources.retain(|(_, source)| source.strong_count() > 0);
        sources.push((labels, source));
    }
}

impl Collector for CacheMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sources = self.sources.lock().clone();
        let (mut caches, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (labels, source) in sources {
            let Some(report) = source.upgrade().map(|source| source.report()) else { continue };
            names.entry([("name", labels.name.clone())]).or_insert_with(CacheReport::default).add(report);
            caches.entry(labels).or_insert_with(CacheReport::default).add(report);
        }
        let shown = &mut encoder;
        gauges(shown, "informer_queued_items", "Deltas that wait to be applied", &caches, |cache| {
            cache.queued as u64
        })?;
        let help = "The version that the cache shows at least";
        gauges(shown, "informer_store_resource_version", help, &caches, |cache| {
            cache.version.unwrap_or_default()
        })?;
        gauges(shown, "watchkeeper_informer_objects", "Objects in the cache", &caches, |cache| {
            cache.objects as u64
        })?;
        let help = "Objects whose latest state could not be read";
        gauges(shown, "watchkeeper_informer_unreadable_objects", help, &caches, |cache| {
            cache.unreadable as u64
        })?;
        gauges(shown, "watchkeeper_informer_handlers", "Handlers of informers", &names, |cache| {
            cache.handlers as f64
        })?;
        let help = "Notifications that wait for handlers";
        gauges(shown, "watchkeeper_informer_handler_backlog", help, &names, |cache| cache.depth as f64)?;
        let help = "How long the oldest of them has waited";
        gauges(shown, "watchkeeper_informer_handler_backlog_age_seconds", help, &names, |cache| {
            cache.oldest.as_secs_f64()
        })
    }
}

/// Shows one number of each report.
fn gauges<L: EncodeLabelSet, N: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    reports: &BTreeMap<L, CacheReport>,
    read: fn(&CacheReport) -> N,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    reports
        .iter()
        .try_for_each(|(labels, report)| ConstGauge::new(read(report)).encode(family.encode_family(labels)?))
}

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
        gauges(&mut encoder, &OF_CACHES, &caches)?;
        gauges(&mut encoder, &OF_HANDLERS, &names)
    }
}

/// A metric: its name, what it says, and its number of a report.
type CacheGauge<N> = (&'static str, &'static str, fn(&CacheReport) -> N);

const OF_CACHES: [CacheGauge<u64>; 4] = [
    ("informer_queued_items", "Deltas that wait to be applied", |cache| cache.queued as u64),
    ("informer_store_resource_version", "The version that the cache shows at least", |cache| {
        cache.version.unwrap_or_default()
    }),
    ("watchkeeper_informer_objects", "Objects in the cache", |cache| cache.objects as u64),
    ("watchkeeper_informer_unreadable_objects", "Objects whose latest state could not be read", |cache| {
        cache.unreadable as u64
    }),
];

const OF_HANDLERS: [CacheGauge<f64>; 3] = [
    ("watchkeeper_informer_handlers", "Handlers of informers", |cache| cache.handlers as f64),
    ("watchkeeper_informer_handler_backlog", "Notifications that wait for handlers", |cache| {
        cache.depth as f64
    }),
    ("watchkeeper_informer_handler_backlog_age_seconds", "How long the oldest of them has waited", |cache| {
        cache.oldest.as_secs_f64()
    }),
];

/// Shows some numbers of each report.
fn gauges<L: EncodeLabelSet, N: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    gauges: &[CacheGauge<N>],
    reports: &BTreeMap<L, CacheReport>,
) -> fmt::Result {
    for (name, help, read) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, report) in reports {
            ConstGauge::new(read(report)).encode(family.encode_family(labels)?)?;
        }
    }
    Ok(())
}

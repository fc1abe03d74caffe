//! The metrics of reflectors and informers.
//!
//! The names are client-go's. Its summaries are histograms here, with the same `_sum` and `_count`. The label `name` is
//! the kind, such as `websites.web.example.dev`. All informers of one kind share it, whatever their selectors.

use std::{
    sync::{Weak, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use super::{
    caches::{CacheMetrics, CacheSource},
    registered::added,
};
use crate::object::Kind;

/// A watch that ends before this without an event counts as short.
const SHORT: Duration = Duration::from_secs(1);

type VersionGauge = Gauge<u64, AtomicU64>;
type Histograms = Family<KindLabels, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailureLabels {
    name: String,
    cause: String,
}

/// The metrics of reflectors and informers.
#[derive(Clone, Debug)]
pub(crate) struct FetchMetrics {
    lists: Family<KindLabels, Counter>,
    list_seconds: Histograms,
    list_items: Histograms,
    watches: Family<KindLabels, Counter>,
    short_watches: Family<KindLabels, Counter>,
    watch_seconds: Histograms,
    watch_items: Histograms,
    last_version: Family<KindLabels, VersionGauge>,
    failures: Family<FailureLabels, Counter>,
    epochs: Family<KindLabels, Counter>,
    handler_panics: Family<KindLabels, Counter>,
    caches: CacheMetrics,
}

impl FetchMetrics {
    pub(super) fn register(r: &mut Registry) -> Self {
        // 5 ms to 11 min, and 1 to 4 million.
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.005, 2.0, 18));
        let items: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 4.0, 12));
        let histograms = |r: &mut Registry, name, help, buckets| {
            let family = Histograms::new_with_constructor(buckets);
            r.register(name, help, family.clone());
            family
        };
        let metrics = Self {
            lists: added(r, "reflector_lists", "Lists that were begun"),
            list_seconds: histograms(r, "reflector_list_duration_seconds", "How long lists took", seconds),
            list_items: histograms(r, "reflector_items_per_list", "Items of a list", items),
            watches: added(r, "reflector_watches", "Watches that were opened"),
            short_watches: added(
                r,
                "reflector_short_watches",
                "Watches that ended within a second without an event",
            ),
            watch_seconds: histograms(
                r,
                "reflector_watch_duration_seconds",
                "How long watches lived",
                seconds,
            ),
            watch_items: histograms(r, "reflector_items_per_watch", "Events of a watch", items),
            last_version: added(r, "reflector_last_resource_version", "The last version that was seen"),
            failures: added(
                r,
                "watchkeeper_reflector_failures",
                "Lists, openings and streams that failed, by cause",
            ),
            epochs: added(
                r,
                "watchkeeper_reflector_epochs",
                "Lists that were started again because the server had lost its history",
            ),
            handler_panics: added(
                r,
                "watchkeeper_informer_panics",
                "Calls of handlers, mappings and predicates that panicked",
            ),
            caches: CacheMetrics::default(),
        };
        r.register_collector(Box::new(metrics.caches.clone()));
        metrics
    }

    /// Returns the metrics of a reflector with that name.
    pub(crate) fn meter(&self, name: &str) -> FetchMeter {
        let named = KindLabels { name: name.to_owned() };
        FetchMeter {
            lists: self.lists.get_or_create_owned(&named),
            list_seconds: self.list_seconds.get_or_create_owned(&named),
            list_items: self.list_items.get_or_create_owned(&named),
            watches: self.watches.get_or_create_owned(&named),
            short_watches: self.short_watches.get_or_create_owned(&named),
            watch_seconds: self.watch_seconds.get_or_create_owned(&named),
            watch_items: self.watch_items.get_or_create_owned(&named),
            last_version: self.last_version.get_or_create_owned(&named),
            epochs: self.epochs.get_or_create_owned(&named),
            failures: self.failures.clone(),
            name: named.name,
        }
    }

    /// Reads the state of an informer at each scrape.
    pub(crate) fn report_cache(&self, name: String, kind: &Kind, source: Weak<dyn CacheSource>) {
        self.caches.add(name, kind, source);
    }

    /// Returns the count of the panics of handlers, mappings and predicates, by the name of the informer.
    pub(crate) fn informer_panics(&self, name: &str) -> Counter {
        self.handler_panics.get_or_create_owned(&KindLabels { name: name.to_owned() })
    }
}

/// The metrics of one reflector. The default is not in any registry.
#[derive(Clone, Debug)]
pub(crate) struct FetchMeter {
    pub(crate) lists: Counter,
    list_seconds: Histogram,
    list_items: Histogram,
    pub(crate) watches: Counter,
    short_watches: Counter,
    watch_seconds: Histogram,
    watch_items: Histogram,
    pub(crate) last_version: VersionGauge,
    pub(crate) epochs: Counter,
    failures: Family<FailureLabels, Counter>,
    name: String,
}

impl Default for FetchMeter {
    fn default() -> Self {
        FetchMetrics::register(&mut Registry::default()).meter("")
    }
}

impl FetchMeter {
    pub(crate) fn listed(&self, taken: Duration, items: usize) {
        self.list_seconds.observe(taken.as_secs_f64());
        self.list_items.observe(items as f64);
    }

    pub(crate) fn watch_ended(&self, lived: Duration, events: usize) {
        self.watch_seconds.observe(lived.as_secs_f64());
        self.watch_items.observe(events as f64);
        if lived < SHORT && events == 0 {
            self.short_watches.inc();
        }
    }

    pub(crate) fn failed(&self, cause: &str) {
        let failed = FailureLabels { name: self.name.clone(), cause: cause.to_owned() };
        self.failures.get_or_create(&failed).inc();
    }
}

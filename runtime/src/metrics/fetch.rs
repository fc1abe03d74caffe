//! The metrics of reflectors and informers.
//!
//! The names are client-go's. Its summaries are histograms here, with the same `_sum` and `_count`. The label `name` is
//! the kind, such as `websites.web.example.dev`. All informers of one kind share it, whatever their selectors.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Weak, atomic::AtomicU64},
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

use parking_lot::Mutex;

use super::{
    caches::{CacheMetrics, CacheSource},
    registered::{added, family, labelled_metrics},
};
use crate::object::Kind;

/// A watch that ends before this without an event counts as short.
const SHORT: Duration = Duration::from_secs(1);

type VersionGauge = Gauge<u64, AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailureLabels {
    name: String,
    cause: String,
}

labelled_metrics! {
    /// What differs by the kind alone.
    FetchFamilies by KindLabels;
    /// What is counted of one reflector.
    FetchCounts {
        lists: Counter = "reflector_lists", "Lists that were begun";
        list_seconds: Histogram = "reflector_list_duration_seconds", "How long lists took", seconds;
        list_items: Histogram = "reflector_items_per_list", "Items of a list", items;
        watches: Counter = "reflector_watches", "Watches that were opened";
        short_watches: Counter = "reflector_short_watches",
            "Watches that ended within a second without an event";
        watch_seconds: Histogram = "reflector_watch_duration_seconds", "How long watches lived", seconds;
        watch_items: Histogram = "reflector_items_per_watch", "Events of a watch", items;
        last_version: VersionGauge = "reflector_last_resource_version", "The last version that was seen";
        epochs: Counter = "watchkeeper_reflector_epochs",
            "Lists that were started again because the server had lost its history";
    }
}

/// 5 ms to 11 min.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.005, 2.0, 18))
}

/// 1 to 4 million.
fn items() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 4.0, 12))
}

/// The metrics of reflectors and informers.
#[derive(Clone, Debug)]
pub(crate) struct FetchMetrics {
    by_kind: FetchFamilies,
    failures: Family<FailureLabels, Counter>,
    handler_panics: Family<KindLabels, Counter>,
    caches: CacheMetrics,
    named: Arc<Mutex<NamedCauses>>,
}

/// The names that are in scrapes, each with the causes of its failures.
type NamedCauses = BTreeMap<String, BTreeSet<String>>;

impl FetchMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let by_kind = FetchFamilies::register(registry);
        let help = "Lists, openings and streams that failed, by cause";
        let failures = added(registry, "watchkeeper_reflector_failures", help);
        let help = "Calls of handlers, mappings and predicates that panicked";
        let handler_panics = added(registry, "watchkeeper_informer_panics", help);
        let caches = CacheMetrics::default();
        registry.register_collector(Box::new(caches.clone()));
        Self { by_kind, failures, handler_panics, caches, named: Arc::default() }
    }

    /// Returns the metrics of a reflector with that name.
    pub(crate) fn meter(&self, name: &str) -> FetchMeter {
        let labels = KindLabels { name: name.to_owned() };
        self.named.lock().entry(name.to_owned()).or_default();
        let counts = self.by_kind.labelled(&labels);
        FetchMeter { counts, failures: self.failures.clone(), name: labels.name, named: self.named.clone() }
    }

    /// Takes the metrics of a cluster that has left out of scrapes.
    pub(crate) fn forget_cluster(&self, cluster: &str) {
        let of_cluster = format!("{cluster}/");
        let mut named = self.named.lock();
        let is_gone = |(name, _): &(String, BTreeSet<String>)| name.starts_with(&of_cluster);
        let (gone, kept) = mem::take(&mut *named).into_iter().partition::<NamedCauses, _>(is_gone);
        *named = kept;
        drop(named);
        for (name, causes) in gone {
            for cause in causes {
                self.failures.remove(&FailureLabels { name: name.clone(), cause });
            }
            let labels = KindLabels { name };
            self.handler_panics.remove(&labels);
            self.by_kind.forget(&labels);
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
    pub(crate) counts: FetchCounts,
    failures: Family<FailureLabels, Counter>,
    name: String,
    named: Arc<Mutex<NamedCauses>>,
}

impl Default for FetchMeter {
    fn default() -> Self {
        FetchMetrics::register(&mut Registry::default()).meter("")
    }
}

impl FetchMeter {
    pub(crate) fn listed(&self, taken: Duration, items: usize) {
        self.counts.list_seconds.observe(taken.as_secs_f64());
        self.counts.list_items.observe(items as f64);
    }

    pub(crate) fn watch_ended(&self, lived: Duration, events: usize) {
        self.counts.watch_seconds.observe(lived.as_secs_f64());
        self.counts.watch_items.observe(events as f64);
        if lived < SHORT && events == 0 {
            self.counts.short_watches.inc();
        }
    }

    pub(crate) fn failed(&self, cause: &str) {
        let failed = FailureLabels { name: self.name.clone(), cause: cause.to_owned() };
        // One that has left is not in scrapes any more.
        if let Some(causes) = self.named.lock().get_mut(&self.name) {
            causes.insert(cause.to_owned());
            self.failures.get_or_create(&failed).inc();
        }
    }
}

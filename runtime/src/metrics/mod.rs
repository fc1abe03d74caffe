//! Metrics of a process, for Prometheus.
//!
//! If client-go or controller-runtime has a metric, its name and labels are used here, so that existing dashboards and
//! alerts keep working. Registries are not global: each manager or factory has its own [`Metrics`].

mod caches;
mod durations;
mod election;
mod fetch;
mod process;
mod queue;
mod reconcile;
mod registered;
mod requests;
#[cfg(feature = "webhooks")]
mod webhooks;

pub(crate) use caches::{CacheReport, CacheSource};
pub(crate) use durations::Durations;
pub(crate) use election::{ElectionMeter, ElectionMetrics};
pub(crate) use fetch::{FetchMeter, FetchMetrics};
pub(crate) use queue::{QueueMetrics, QueueReport, QueueSource};
pub(crate) use reconcile::{ControllerMetrics, Ended, ReconcileMetrics};
pub(crate) use requests::RequestMetrics;
#[cfg(feature = "webhooks")]
pub(crate) use webhooks::{Decided, MigrationMeter, MigrationMetrics, WebhookMetrics};

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::{
    encoding::text::{encode_eof, encode_registry},
    registry::Registry,
};

use crate::users_code::contained;

/// The media type of the text that [`Metrics::encode`] returns.
#[doc(hidden)]
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Holds the metrics of one manager or factory. Clones share them.
///
/// The book has more: [metrics and traces](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/reference/metrics.md).
#[derive(Clone)]
pub struct Metrics {
    pub(crate) shared: Arc<MetricsShared>,
}

/// What clones share.
pub(crate) struct MetricsShared {
    /// The registry of the runtime, then one for each call of [`Metrics::register`].
    registries: Mutex<Vec<Arc<Registry>>>,
    pub(crate) fetch: FetchMetrics,
    pub(crate) queue: QueueMetrics,
    pub(crate) reconcile: ReconcileMetrics,
    pub(crate) requests: RequestMetrics,
    pub(crate) election: ElectionMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let fetch = FetchMetrics::register(&mut registry);
        let queue = QueueMetrics::default();
        registry.register_collector(Box::new(queue.clone()));
        let reconcile = ReconcileMetrics::register(&mut registry);
        let requests = RequestMetrics::register(&mut registry);
        let election = ElectionMetrics::register(&mut registry);
        process::register(&mut registry);
        let registries = Mutex::new(vec![Arc::new(registry)]);
        Self { shared: Arc::new(MetricsShared { registries, fetch, queue, reconcile, requests, election }) }
    }
}

impl Metrics {
    /// Creates an empty set of metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds metrics of the program, which [`encode`](Self::encode) writes after those of the runtime.
    ///
    /// Register a counter without the suffix `_total`, which is added. Names that begin with `watchkeeper_`, or that the
    /// book lists, are taken: a scrape with a duplicate name is invalid. A slow collector delays only the scrape that
    /// reads it. If a collector panics, the metrics that were registered in the same call are left out.
    ///
    /// ```
    /// use watchkeeper::{metrics::Metrics, prometheus_client::metrics::counter::Counter};
    ///
    /// let (metrics, refused) = (Metrics::new(), Counter::<u64>::default());
    /// metrics.register(|registry| registry.register("domains_refused", "Domains that were refused", refused.clone()));
    /// refused.inc();
    /// assert!(metrics.encode().contains("domains_refused_total 1\n"));
    /// ```
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        let mut registry = Registry::default();
        add(&mut registry);
        self.shared.registries.lock().push(Arc::new(registry));
    }

    /// Returns all metrics in the text format OpenMetrics 1.0, whose media type is [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let registries = self.shared.registries.lock().clone();
        registries.iter().for_each(|registry| append(&mut text, registry));
        // Writing to a string does not fail.
        let _ = encode_eof(&mut text);
        text
    }
}

impl_debug!(Metrics);

/// Appends the metrics of a registry. If an encoder fails, all of the registry is left out: half a line is invalid.
fn append(text: &mut String, registry: &Registry) {
    let before = text.len();
    let written = contained(|| encode_registry(text, registry));
    if !matches!(written, Some(Ok(()))) {
        text.truncate(before);
        tracing::error!("metrics are left out of a scrape: a collector panicked, or could not write");
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::counter::Counter};

    use super::*;

    #[derive(Debug)]
    struct Broken;

    impl Collector for Broken {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            use prometheus_client::metrics::MetricType;
            encoder.encode_descriptor("half", "Half of it", None, MetricType::Gauge)?;
            panic!("the backend is not there")
        }
    }

    // P3
    #[test]
    fn a_collector_that_panics_takes_only_its_own_registry_out_of_a_scrape() {
        let metrics = Metrics::new();
        metrics.register(|registry| registry.register_collector(Box::new(Broken)));
        metrics.register(|registry| registry.register("good", "Whole", Counter::<u64>::default()));
        let page = metrics.encode();
        assert!(page.contains("good_total 0\n") && !page.contains("half"), "{page}");
        assert!(page.ends_with("# EOF\n") && page.matches("# EOF").count() == 1, "{page}");
    }

    // P3
    #[test]
    fn a_collector_may_use_the_metrics_that_it_is_part_of() {
        #[derive(Debug)]
        struct Recursive(Metrics);
        impl Collector for Recursive {
            fn encode(&self, _: DescriptorEncoder<'_>) -> fmt::Result {
                self.0.register(|_| {});
                Ok(())
            }
        }
        let metrics = Metrics::new();
        metrics.register(|registry| registry.register_collector(Box::new(Recursive(metrics.clone()))));
        assert!(metrics.encode().ends_with("# EOF\n"));
    }
}

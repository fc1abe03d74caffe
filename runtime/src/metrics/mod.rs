//! Numbers that tell how a process is doing, for Prometheus.
//!
//! Names and labels are those of client-go and controller-runtime where they exist, so that dashboards and alerts
//! that people have keep working. There is no global registry: whoever runs informers, queues and controllers
//! holds a [`Metrics`], and two of them never mix.

mod backlog;
mod durations;
mod fetch;
mod queue;
mod reconcile;

pub(crate) use backlog::{BacklogReport, BacklogSource};
pub(crate) use durations::Durations;
pub(crate) use fetch::{CacheMeter, FetchMeter, FetchMetrics};
pub(crate) use queue::{QueueMetrics, QueueReport, QueueSource};
pub(crate) use reconcile::{ControllerMetrics, Ended, ReconcileMetrics};

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{encoding::text::encode, registry::Registry};

/// Holds the metrics of one manager or factory; clones are the same.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Mutex<Registry>,
    fetch: FetchMetrics,
    queue: QueueMetrics,
    reconcile: ReconcileMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let fetch = FetchMetrics::register(&mut registry);
        let queue = QueueMetrics::register(&mut registry);
        let reconcile = ReconcileMetrics::register(&mut registry);
        Self { shared: Arc::new(Shared { registry: Mutex::new(registry), fetch, queue, reconcile }) }
    }
}

impl Metrics {
    /// Creates an empty set of metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes all metrics in the text format that Prometheus scrapes (OpenMetrics).
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let registry = self.shared.registry.lock().unwrap_or_else(PoisonError::into_inner);
        match encode(&mut text, &registry) {
            Ok(()) => text,
            // Writing to a string does not fail; an encoder of ours that does loses its own lines.
            Err(fmt::Error) => text,
        }
    }

    pub(crate) fn fetch(&self) -> &FetchMetrics {
        &self.shared.fetch
    }

    pub(crate) fn queue(&self) -> &QueueMetrics {
        &self.shared.queue
    }

    pub(crate) fn reconcile(&self) -> &ReconcileMetrics {
        &self.shared.reconcile
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

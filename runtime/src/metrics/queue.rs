//! What work queues report.

use prometheus_client::registry::Registry;

/// The metrics of work queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueMetrics {}

impl QueueMetrics {
    pub(super) fn register(_registry: &mut Registry) -> Self {
        Self::default()
    }
}

//! What controllers report.

use prometheus_client::registry::Registry;

/// The metrics of controllers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReconcileMetrics {}

impl ReconcileMetrics {
    pub(super) fn register(_registry: &mut Registry) -> Self {
        Self::default()
    }
}

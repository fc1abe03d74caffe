//! What reflectors and informers report.

use prometheus_client::registry::Registry;

/// The metrics of reflectors and informers.
#[derive(Clone, Debug, Default)]
pub(crate) struct FetchMetrics {}

impl FetchMetrics {
    pub(super) fn register(_registry: &mut Registry) -> Self {
        Self::default()
    }
}

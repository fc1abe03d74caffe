//! Registers a metric where it is made.

use prometheus_client::registry::{Metric, Registry};

/// Registers a new metric, and returns it.
pub(super) fn added<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

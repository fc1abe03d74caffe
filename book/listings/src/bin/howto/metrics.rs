//! Metrics of the program's own.

use watchkeeper::{prelude::*, prometheus_client::metrics::counter::Counter};

/// Adds a counter to the manager's metrics.
fn counted(manager: Manager) -> (Manager, Counter<u64>) {
    let refused = Counter::<u64>::default();
    let shown = refused.clone();
    let manager = manager.registry(|registry| {
        registry.register("domains_refused", "Domains that were refused", shown);
    });
    (manager, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_metric_of_ones_own_is_in_the_scrape() {
        let (manager, refused) = counted(Manager::offline("home"));
        refused.inc();
        let text = manager.metrics().encode();
        assert!(text.contains("domains_refused_total 1"), "{text}");
    }
}

//! The metrics of leader elections, under the names of client-go.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::registered::added;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    name: String,
}

/// The metrics of elections.
#[derive(Clone, Debug)]
pub(crate) struct ElectionMetrics {
    leads: Family<LeaseLabels, Gauge>,
    slow_path: Family<LeaseLabels, Counter>,
}

/// The metrics of one candidate. The default is not in any registry.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElectionMeter {
    pub(crate) leads: Gauge,
    pub(crate) slow_path: Counter,
}

impl ElectionMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let help = "Whether this replica leads by the Lease of that name (1) or not (0)";
        let leads = added(registry, "leader_election_master_status", help);
        let help = "How often a leader had to read its Lease before it could renew it";
        Self { leads, slow_path: added(registry, "leader_election_slowpath", help) }
    }

    /// Returns the metrics of a candidate for a Lease. From then on they are in each scrape.
    pub(crate) fn of(&self, lease: &str) -> ElectionMeter {
        let of = LeaseLabels { name: lease.to_owned() };
        ElectionMeter {
            leads: self.leads.get_or_create_owned(&of),
            slow_path: self.slow_path.get_or_create_owned(&of),
        }
    }
}

//! What candidates report of their elections, under the names of client-go.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLease {
    name: String,
}

/// The metrics of elections.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElectionMetrics {
    leads: Family<OfLease, Gauge>,
    slow_path: Family<OfLease, Counter>,
}

/// What one candidate reports to; the default is read by nobody.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElectionMeter {
    leads: Gauge,
    slow_path: Counter,
}

impl ElectionMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Whether this replica leads by the Lease of that name (1) or not (0)";
        registry.register("leader_election_master_status", help, metrics.leads.clone());
        let help = "How often a leader had to read its Lease before it could renew it";
        registry.register("leader_election_slowpath", help, metrics.slow_path.clone());
        metrics
    }

    /// Returns what a candidate for a Lease reports to; from then on it shows.
    pub(crate) fn of(&self, lease: &str) -> ElectionMeter {
        let of = OfLease { name: lease.to_owned() };
        ElectionMeter {
            leads: self.leads.get_or_create_owned(&of),
            slow_path: self.slow_path.get_or_create_owned(&of),
        }
    }
}

impl ElectionMeter {
    pub(crate) fn leads(&self) {
        self.leads.set(1);
    }

    pub(crate) fn leads_no_more(&self) {
        self.leads.set(0);
    }

    pub(crate) fn took_the_slow_path(&self) {
        self.slow_path.inc();
    }
}

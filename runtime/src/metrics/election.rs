//! The metrics of leader elections, under the names of client-go.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::registered::{family, labelled_metrics};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    name: String,
}

labelled_metrics! {
    /// The metrics of elections.
    ElectionMetrics by LeaseLabels;
    /// The metrics of one candidate. The default is not in any registry.
    #[derive(Default)]
    ElectionMeter {
        leads: Gauge = "leader_election_master_status",
            "Whether this replica leads by the Lease of that name (1) or not (0)";
        slots: Gauge = "watchkeeper_shards_slots",
            "On how many slots this replica works, if replicas share the work";
        slow_path: Counter = "leader_election_slowpath",
            "How often a leader had to read its Lease before it could renew it";
    }
}

impl ElectionMetrics {
    /// Returns the metrics of a candidate for a Lease. From then on they are in each scrape.
    pub(crate) fn of(&self, lease: &str) -> ElectionMeter {
        self.labelled(&LeaseLabels { name: lease.to_owned() })
    }
}

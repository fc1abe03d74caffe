//! Other clusters, as a manager's users ask for them.

use std::sync::Arc;

use super::{Cluster, Manager, Rules, client::observed};

impl Manager {
    /// Adds another cluster to read from: what its objects say is watched there, what follows is written here.
    ///
    /// What controllers [watch there](crate::controller::Watch::in_cluster) and the program reads there has caches of its own,
    /// which start and stop with the manager and ask through this client; configuration and metrics are the manager's.
    /// Messages, readiness, metrics and the debug page name what is read there as `hub/configmaps`. The name is 1 to 63 of
    /// a-z, 0-9, '-' and '.'. Writes go to the manager's own cluster alone, and so does the election. To write there, use the client
    /// that you passed; it is not gated by leadership.
    ///
    /// While that cluster is out of reach, controllers that read from it go on with what they have; one that never had
    /// anything waits. Other controllers know nothing of it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::prelude::*;
    /// # fn read_there(manager: Manager, client: kube::Client) {
    /// let hub = manager.cluster("hub", client);
    /// let settings = hub.informer::<ConfigMap>().namespace("settings").lister();
    /// # }
    /// ```
    pub fn cluster(&self, name: impl Into<String>, client: kube::Client) -> Cluster {
        let name: Arc<str> = name.into().into();
        let client = observed(client, &self.metrics, &self.dry_run);
        let factory = self.own.factory().of_cluster(Arc::clone(&name), client);
        let cluster = Cluster::new(name, factory);
        self.clusters.add(&cluster);
        cluster
    }

    /// Returns the least that the program must be allowed to do in another cluster: to read what it reads there.
    ///
    /// For what was asked for so far, as [`rules`](Self::rules), which says what must be allowed in the manager's own.
    pub fn rules_in(&self, cluster: &Cluster) -> Rules {
        let mut rules = Rules::named(self.role_name());
        rules.add_reads(cluster);
        rules
    }
}

//! The same operator as several replicas; one of them works.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use watchkeeper::{LeaderElection, prelude::*};

use crate::{Website, Websites};

/// Builds a manager that may run in any number of replicas.
pub(crate) fn replica(client: Client, name: &str) -> Manager {
    Manager::new(client)
        .leader_election(LeaderElection::new("websites").namespace("shop").identity(name))
        .controller(Controller::<Website, _>::new(Websites).owns::<Deployment>())
        .leader_task("sweep", |stopping| async move {
            // Work that only the leader may do, until the program stops.
            stopping.wait().await;
            Ok::<_, watchkeeper::Error>(())
        })
}

#[cfg(test)]
mod tests {
    use watchkeeper::leader_election::LeaderState;
    use watchkeeper_apiserver::ApiServer;

    use super::*;
    use crate::WebsiteSpec;

    #[tokio::test(start_paused = true)]
    async fn another_replica_takes_over_from_one_that_stops() {
        let server =
            ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let first = replica(server.client(), "first");
        let mut leadership = first.leadership().unwrap();
        let first = first.spawn();
        while leadership.changed().await != LeaderState::Leads {}

        let second = replica(server.client(), "second").spawn();
        first.stop().await.unwrap();

        let spec = WebsiteSpec { domain: "hello.example".into(), replicas: 2 };
        server.create(&Website::new("hello", spec)).await;
        server.eventually::<Deployment>("shop/hello", |found| found.is_some()).await;
        second.stop().await.unwrap();
    }
}

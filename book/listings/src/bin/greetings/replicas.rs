//! The same operator as several replicas; one of them works.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use watchkeeper::{LeaderElection, prelude::*};

use crate::{Greeting, Greetings};

/// Builds a manager that may run in any number of replicas.
pub(crate) fn replica(client: Client, name: &str) -> Manager {
    Manager::new(client)
        .leader_election(
            LeaderElection::new("greetings").namespace("home").identity(name),
        )
        .controller(Controller::<Greeting, _>::new(Greetings).owns::<ConfigMap>())
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
    use crate::GreetingSpec;

    #[tokio::test(start_paused = true)]
    async fn another_replica_takes_over_from_one_that_stops() {
        let server =
            ApiServer::in_memory().crd::<Greeting>().namespace("home").start().await;
        let first = replica(server.client(), "first");
        let mut leadership = first.leadership().unwrap();
        let first = first.spawn();
        while leadership.changed().await != LeaderState::Leads {}

        let second = replica(server.client(), "second").spawn();
        first.stop().await.unwrap();

        let spec = GreetingSpec { who: "Ada".into(), language: "en".into() };
        server.create(&Greeting::new("ada", spec)).await;
        server.eventually::<ConfigMap>("home/ada-card", |card| card.is_some()).await;
        second.stop().await.unwrap();
    }
}

//! The same operator with probes, metrics and a debug page.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use watchkeeper::{manager::Http, prelude::*};

use crate::{Greeting, Greetings};

/// Builds a manager that tells how it is doing.
pub(crate) fn served(client: Client, http: impl Into<Http>) -> Manager {
    Manager::new(client)
        .http(http)
        .readiness_check("paper", || {
            if paper_is_left() { Ok(()) } else { Err("the printer is out of paper") }
        })
        .controller(Controller::<Greeting, _>::new(Greetings).owns::<ConfigMap>())
}

fn paper_is_left() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::{ApiServer, Fault};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_missing_right_is_named_until_it_is_given() {
        let server =
            ApiServer::in_memory().crd::<Greeting>().namespace("home").start().await;
        server.faults().on_any("configmaps").always().then(Fault::Status(403));
        let running = served(server.client(), Http::off()).spawn();
        tokio::time::sleep(Duration::from_secs(10)).await;

        let inspector = running.inspector();
        let ready = inspector.readiness();
        assert!(!ready.is_ok());
        assert!(
            ready.to_string().contains("allow `list` and `watch` of configmaps"),
            "{ready}"
        );
        assert!(inspector.health().is_ok(), "a new process would not help");

        server.faults().clear();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(inspector.readiness().is_ok(), "{}", inspector.readiness());
        let reports = inspector.find("home/ada");
        assert_eq!(reports.len(), 1, "{reports}");
    }
}

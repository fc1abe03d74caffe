//! The same operator with probes, metrics and a debug page.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use watchkeeper::{manager::Http, prelude::*};

use crate::{Website, Websites};

/// Builds a manager that says how it is doing.
pub(crate) fn served(client: Client, http: impl Into<Http>) -> Manager {
    Manager::new(client)
        .http(http)
        .readiness_check("disk", || {
            if disk_is_mounted() { Ok(()) } else { Err("the disk is not mounted") }
        })
        .controller(Controller::<Website, _>::new(Websites).owns::<Deployment>())
}

fn disk_is_mounted() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::{ApiServer, Fault};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_missing_permission_is_named_until_it_is_given() {
        let server =
            ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        server.faults().on_any("deployments").always().then(Fault::Status(403));
        let running = served(server.client(), Http::off()).spawn();
        tokio::time::sleep(Duration::from_secs(10)).await;

        let inspector = running.inspector();
        let ready = inspector.readiness();
        assert!(!ready.is_ok());
        assert!(
            ready.to_string().contains("allow `list` and `watch` of deployments"),
            "{ready}"
        );
        assert!(inspector.health().is_ok(), "a new process would not help");

        server.faults().clear();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(inspector.readiness().is_ok(), "{}", inspector.readiness());
        let reports = inspector.find("shop/hello");
        assert_eq!(reports.len(), 1, "{reports}");
    }
}

//! Keeps one Deployment for every Website.

#[cfg(test)]
#[path = "operator/clusters.rs"]
mod clusters;
#[cfg(test)]
#[path = "operator/debug.rs"]
mod debug;
#[cfg(test)]
#[path = "operator/health.rs"]
mod health;
#[cfg(test)]
#[path = "operator/replicas.rs"]
mod replicas;
#[cfg(test)]
#[path = "tried/operator.rs"]
mod tried;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use tracing_subscriber::EnvFilter;
use watchkeeper::prelude::*;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Website", namespaced)]
#[kube(status = "WebsiteStatus")]
struct WebsiteSpec {
    #[informer(index)] // WebsiteLister::by_domain("a.example")
    domain: String,
    replicas: i32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct WebsiteStatus {
    #[serde(default)]
    ready: i32,
}

struct Websites;

impl Reconciler<Website> for Websites {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        site: Arc<Website>,
        cx: &Context<Website>,
    ) -> Result<Action, Self::Error> {
        // Server-side apply, owned by the site. Nothing is sent if nothing changes.
        let deployment = cx.apply(deployment_for(&site)).await?;
        let ready = deployment
            .status
            .and_then(|status| status.ready_replicas)
            .unwrap_or_default();
        cx.patch_status(&site, WebsiteStatus { ready }).await?;
        // Never early, and never past the rate limit.
        Ok(Action::requeue_after(Duration::from_secs(300)))
    }
}

fn deployment_for(site: &Website) -> Deployment {
    let labels = BTreeMap::from([("site".to_owned(), site.name_any())]);
    let container = Container {
        name: "web".to_owned(),
        image: Some("nginx:1".to_owned()),
        ..Container::default()
    };
    Deployment {
        metadata: ObjectMeta { name: Some(site.name_any()), ..ObjectMeta::default() },
        spec: Some(DeploymentSpec {
            replicas: Some(site.spec.replicas),
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    // RUST_LOG says otherwise: RUST_LOG=watchkeeper=debug
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).init();

    let rate = RateLimit::per_second(50).burst(100);
    let controller =
        Controller::new(Websites).owns::<Deployment>().workers(8).rate_limit(rate);
    let manager = Manager::infer().await?.controller(controller);
    manager.install_crd::<Website>().await?;
    manager.run().await
}

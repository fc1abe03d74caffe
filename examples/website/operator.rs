//! The operator itself: the kind, the reconciler, the manager that runs it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::Client;
use watchkeeper::prelude::*;

use super::journal::Journal;

/// The finalizer that keeps a site until its domain is released.
pub(crate) const FINALIZER: &str = "web.example.dev/domain";
/// How many reconciles may start: over any window of `w` seconds, at most `BURST + RATE × w`.
pub(crate) const RATE: u32 = 50;
/// The limits on starts.
pub(crate) const BURST: u32 = 100;
/// How long a site that is right is left alone.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A website: one Deployment a site.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteSpec {
    /// The domain of the site: `WebsiteLister::by_domain` finds it.
    #[informer(index)]
    pub domain: String,
    /// The topics of the site: each is an index value of `WebsiteLister::by_tag`.
    #[serde(default)]
    #[informer(index = "by_tag")]
    pub tags: Vec<String>,
    /// How many pods serve it.
    pub replicas: i32,
}

/// The state of the site's Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteStatus {
    /// Pods there are.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that serve.
    #[serde(default)]
    pub ready_replicas: i32,
}

impl From<&Deployment> for WebsiteStatus {
    fn from(deployment: &Deployment) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        Self {
            replicas: status.replicas.unwrap_or_default(),
            ready_replicas: status.ready_replicas.unwrap_or_default(),
        }
    }
}

/// Keeps websites right.
struct Websites {
    journal: Arc<Journal>,
}

impl Reconciler<Website> for Websites {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.journal.started(cx.key());
        let deployment = cx.apply(deployment_for(&site)).await?;
        cx.patch_status(&site, WebsiteStatus::from(&deployment)).await?;
        self.journal.kept(&site, &deployment);
        self.journal.promised(cx.key(), LOOK_AGAIN);
        Ok(Action::requeue_after(LOOK_AGAIN))
    }

    async fn cleanup(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, Self::Error> {
        self.journal.started(cx.key());
        self.journal.released(&site.spec.domain);
        Ok(Cleanup::Done)
    }
}

/// Builds the Deployment for a site.
fn deployment_for(site: &Website) -> Deployment {
    let labels = BTreeMap::from([("site".to_owned(), site.name_any())]);
    let container = Container {
        name: "web".to_owned(),
        image: Some("registry.example.dev/web:1".to_owned()),
        ..Container::default()
    };
    Deployment {
        metadata: ObjectMeta { name: site.metadata.name.clone(), ..ObjectMeta::default() },
        spec: Some(DeploymentSpec {
            replicas: Some(site.spec.replicas),
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// The operator: the manager of one controller.
pub(crate) fn operator(client: Client, journal: Arc<Journal>) -> Manager {
    Manager::new(client).controller(
        Controller::new(Websites { journal })
            .owns::<Deployment>()
            .finalizer(FINALIZER)
            .workers(8)
            .rate_limit(RateLimit::per_second(RATE).burst(BURST)),
    )
}

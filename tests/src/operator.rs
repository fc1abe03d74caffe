//! A small operator: one Deployment a website, its status reported.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use watchkeeper::prelude::*;

use crate::Record;

/// A website: one Deployment a site.
#[derive(CustomResource, Informer, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[serde(rename_all = "camelCase")]
pub struct WebsiteSpec {
    /// Where it is served.
    #[informer(index)]
    pub domain: String,
    /// What it is about.
    #[serde(default)]
    #[informer(index = "by_tag")]
    pub tags: Vec<String>,
    /// Pods wanted.
    pub replicas: i32,
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteStatus {
    /// Pods there are.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that serve.
    #[serde(default)]
    pub ready_replicas: i32,
}

/// Makes a website of two replicas, without a namespace.
pub fn website(name: &str) -> Website {
    let spec = WebsiteSpec { domain: format!("{name}.example"), tags: Vec::new(), replicas: 2 };
    Website::new(name, spec)
}

/// Says which Deployment a site wants.
pub fn deployment_for(site: &Website) -> Deployment {
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

/// Keeps each website's Deployment and status right.
#[derive(Clone, Debug, Default)]
pub struct Keeper {
    /// What it did.
    pub record: Record,
}

impl Reconciler<Website> for Keeper {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        let deployment = cx.apply(deployment_for(&site)).await?;
        let has = deployment.status.unwrap_or_default();
        let status = WebsiteStatus {
            replicas: has.replicas.unwrap_or_default(),
            ready_replicas: has.ready_replicas.unwrap_or_default(),
        };
        cx.patch_status(&site, status).await?;
        Ok(Action::await_change())
    }
}

/// Writes nothing: only records who runs.
#[derive(Clone, Debug, Default)]
pub struct Looker {
    /// Who ran.
    pub record: Record,
}

impl Reconciler<Website> for Looker {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        Ok(Action::await_change())
    }
}

/// Makes the reference by which a site controls a child; a site that was never created has an empty UID.
pub fn owned_by(site: &Website) -> OwnerReference {
    OwnerReference {
        api_version: "web.example.dev/v1".into(),
        kind: "Website".into(),
        name: site.name_any(),
        uid: site.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

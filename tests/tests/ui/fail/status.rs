//! Statuses of another kind, types that are not a status, and kinds without a status.

use std::convert::Infallible;

use k8s_openapi::api::apps::v1::DeploymentStatus;
use watchkeeper::prelude::*;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
struct WebsiteSpec {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct WebsiteStatus {}

struct Websites;

impl Reconciler<Website> for Websites {
    type Error = Infallible;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Infallible> {
        let _ = cx.patch_status(&site, WebsiteStatus {}).await;
        let _ = cx.patch_status(&site, DeploymentStatus::default()).await; //~ `DeploymentStatus::default()` mismatched types
        let _ = cx.patch_status(&site, site.as_ref().clone()).await; //~ `site.as_ref().clone()` mismatched types
        let _ = cx.patch_status_as(&site, DeploymentStatus::default()).await;
        Ok(Action::await_change())
    }
}

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Plain", namespaced)]
struct PlainSpec {}

async fn without_a_status(plain: &Plain, cx: &Context<Plain>) {
    let _ = cx.patch_status(plain, WebsiteStatus {}).await;
    //~^ `cx` use `patch_status_as` //~^ `_` `#[kube(.., status = "MyStatus")]` //~^ `_` name it next to the kind
    let _ = cx.patch_status_as(plain, WebsiteStatus {}).await;
}

fn main() {}

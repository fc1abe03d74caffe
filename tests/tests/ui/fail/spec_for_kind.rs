//! An operator that names the spec where the kind is meant.

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::prelude::*;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
struct WebsiteSpec {
    domain: String,
}

struct Websites;

impl Reconciler<WebsiteSpec> for Websites {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        site: Arc<WebsiteSpec>,
        cx: &Context<WebsiteSpec>,
    ) -> Result<Action, Self::Error> {
        cx.apply(child(&site)).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(
        &self,
        site: Arc<WebsiteSpec>,
        cx: &Context<WebsiteSpec>,
    ) -> Result<Cleanup, Self::Error> {
        tracing::info!(key = %cx.key(), domain = site.domain);
        Ok(Cleanup::Done)
    }
}

fn child(site: &WebsiteSpec) -> ConfigMap {
    let mut child = ConfigMap::default();
    child.metadata.name = Some(site.domain.clone());
    child
}

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    let controller = Controller::new(Websites).owns::<ConfigMap>().workers(2);
    //~^ `Controller::new(Websites)` `WebsiteSpec` can't be watched: derive `Informer` next to `CustomResource`, and name the kind, not its spec
    Manager::infer().await?.controller(controller).run().await
}

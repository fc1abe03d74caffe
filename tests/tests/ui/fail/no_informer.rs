//! An operator whose kind does not derive `Informer`.

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::prelude::*;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
struct WebsiteSpec {
    domain: String,
}

struct Websites;

impl Reconciler<Website> for Websites {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        cx.apply(child(&site)).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, Self::Error> {
        tracing::info!(key = %cx.key(), domain = site.spec.domain);
        Ok(Cleanup::Done)
    }
}

fn child(site: &Website) -> ConfigMap {
    let mut child = ConfigMap::default();
    child.metadata.name = Some(site.name_any());
    child
}

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    let controller = Controller::new(Websites).owns::<ConfigMap>().workers(2);
    //~^ `Controller::new(Websites)` `Website` can't be watched: derive `Informer` next to `CustomResource`, and name the kind, not its spec
    Manager::infer().await?.controller(controller).run().await
}

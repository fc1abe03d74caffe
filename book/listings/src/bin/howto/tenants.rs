//! An operator for some namespaces, and for some objects.

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::prelude::*;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "shops.example.dev", version = "v1", kind = "Shop", namespaced)]
struct ShopSpec {
    owner: String,
}

struct Shops;

impl Reconciler<Shop> for Shops {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        shop: Arc<Shop>,
        cx: &Context<Shop>,
    ) -> Result<Action, Self::Error> {
        let mut sign = ConfigMap::default();
        sign.metadata.name = Some(format!("{}-sign", shop.name_any()));
        sign.data = Some([("owner".to_owned(), shop.spec.owner.clone())].into());
        cx.apply(sign).await?;
        Ok(Action::await_change())
    }
}

fn controller() -> Result<Controller<Shop, Shops>, Box<dyn std::error::Error>> {
    Ok(Controller::new(Shops)
        .namespace("north")
        .namespace("south")
        .label_selector("tier in (gold, silver)")?
        .owns::<ConfigMap>())
}

/// Runs a controller in each namespace of a tenant.
fn of_tenants(manager: Manager) -> Result<Manager, Box<dyn std::error::Error>> {
    let make = || Controller::new(Shops).owns::<ConfigMap>();
    Ok(manager.controller_in_namespaces("tenant in (gold, silver)", make)?)
}

fn fair() -> Controller<Shop, Shops> {
    let limit = RateLimit::per_second(50).burst(50);
    Controller::new(Shops).workers(8).rate_limit(limit).fair_by_namespace()
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    fn shop(namespace: &str, tier: &str) -> Shop {
        let mut shop = Shop::new("a", ShopSpec { owner: "Ada".into() });
        shop.metadata.namespace = Some(namespace.into());
        shop.metadata.labels = Some([("tier".to_owned(), tier.to_owned())].into());
        shop
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_outside_is_left_alone() {
        let server = ApiServer::in_memory().crd::<Shop>();
        let server = server.namespace("north").namespace("south").namespace("west");
        let server = server.start().await;
        let controller = controller().expect("the selector parses");
        let _running = Manager::new(server.client()).controller(controller).spawn();

        server.create(&shop("north", "gold")).await;
        server.create(&shop("south", "tin")).await;
        server.create(&shop("west", "gold")).await;
        server.eventually::<ConfigMap>("north/a-sign", |sign| sign.is_some()).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let signs = kube::Api::<ConfigMap>::all(server.client());
        let signs = signs.list(&Default::default()).await.expect("a list").items;
        assert_eq!(signs.len(), 1, "{signs:?}");
    }

    #[tokio::test]
    async fn each_namespace_has_its_role() {
        let controller = controller().expect("the selector parses");
        let rules = Manager::offline("operators").controller(controller).rules();
        assert!(rules.cluster_role().is_none());
        assert_eq!(rules.roles().len(), 2);
    }

    #[tokio::test]
    async fn tenants_that_come_and_go_need_a_cluster_role() {
        let manager =
            of_tenants(Manager::offline("operators")).expect("the selector parses");
        assert!(
            manager.controller(fair().named("fair")).rules().cluster_role().is_some()
        );
    }
}

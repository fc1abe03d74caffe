//! Makes a proxy's configuration for each site, of its routes and its certificate.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use watchkeeper::prelude::*;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "proxy.example.dev", version = "v1", kind = "Site", namespaced)]
struct SiteSpec {
    /// The secret with the certificate.
    tls: String,
}

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "proxy.example.dev", version = "v1", kind = "Route", namespaced)]
struct RouteSpec {
    #[informer(index)]
    site: String,
    path: String,
}

struct Proxies;

impl Reconciler<Site> for Proxies {
    type Error = watchkeeper::WriteError;

    async fn reconcile(
        &self,
        site: Arc<Site>,
        cx: &Context<Site>,
    ) -> Result<Action, Self::Error> {
        let namespace = site.namespace().unwrap_or_default();
        // The run repeats when the secret comes, goes, or has another certificate.
        let tls = cx
            .lister::<Secret>()
            .pick(&ObjectKey::new(&*namespace, &*site.spec.tls), |secret| {
                secret.data.as_ref().and_then(|data| data.get("tls.crt")).cloned()
            });
        // … and when a route comes to this site, leaves it, or changes.
        let routes = cx.lister::<Route>().namespace(namespace).by_site(site.name());

        let mut paths: Vec<_> =
            routes.iter().map(|route| route.spec.path.as_str()).collect();
        paths.sort_unstable();
        let text = format!(
            "paths: {}\nencrypted: {}\n",
            paths.join(" "),
            tls.flatten().is_some()
        );
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("{}-proxy", site.name()));
        map.data = Some([("proxy.conf".to_owned(), text)].into());
        cx.apply(map).await?;
        Ok(Action::await_change())
    }
}

fn controller() -> Controller<Site, Proxies> {
    Controller::new(Proxies).owns::<ConfigMap>().reads::<Secret>().reads::<Route>()
}

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    Manager::infer().await?.controller(controller()).run().await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use watchkeeper::store::Indexer;
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    fn secret(crt: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some("cert".into());
        secret.metadata.namespace = Some("shop".into());
        secret.data = Some([("tls.crt".to_owned(), ByteString(crt.into()))].into());
        secret
    }

    #[tokio::test(start_paused = true)]
    async fn a_configuration_follows_everything_that_it_is_made_of() {
        let server = ApiServer::in_memory()
            .crd::<Site>()
            .crd::<Route>()
            .namespace("shop")
            .start()
            .await;
        let running = Manager::new(server.client()).controller(controller()).spawn();
        let shows = async |text: &'static str| {
            let is_so = move |map: Option<&ConfigMap>| {
                let data = map.and_then(|map| map.data.as_ref());
                data.is_some_and(|data| data["proxy.conf"].replace('\n', "; ") == text)
            };
            server.eventually::<ConfigMap>("shop/a-proxy", is_so).await;
        };
        server.create(&Site::new("a", SiteSpec { tls: "cert".into() })).await;
        shows("paths: ; encrypted: false; ").await;
        server.create(&secret("PEM")).await;
        shows("paths: ; encrypted: true; ").await;
        server
            .create(&Route::new(
                "r",
                RouteSpec { site: "a".into(), path: "/news".into() },
            ))
            .await;
        shows("paths: /news; encrypted: true; ").await;
        server.delete::<Route>("shop/r").await;
        shows("paths: ; encrypted: true; ").await;
        running.stop().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_manager_it_reads_the_tests_own_caches() {
        let server = ApiServer::in_memory()
            .crd::<Site>()
            .crd::<Route>()
            .namespace("shop")
            .start()
            .await;
        let site = server.create(&Site::new("a", SiteSpec { tls: "cert".into() })).await;
        let (secrets, routes) =
            (Indexer::new(), Indexer::with_indexes(Route::indexes()).unwrap());
        secrets.upsert(Arc::new(secret("PEM")));
        let cx = Context::without_manager(server.client(), &site)
            .with_lister::<Secret>(secrets.lister())
            .with_lister::<Route>(routes.lister());
        let action = Proxies.reconcile(Arc::new(site), &cx).await.unwrap();
        assert_eq!(action, Action::await_change());
        let map: ConfigMap = cx.get(&ObjectKey::new("shop", "a-proxy")).await.unwrap();
        assert_eq!(map.data.unwrap()["proxy.conf"], "paths: \nencrypted: true\n");
    }
}

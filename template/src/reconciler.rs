//! What makes the cluster, and the domains, as a Website says.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use watchkeeper::prelude::*;

use crate::{
    domains::Domains,
    website::{Website, WebsiteStatus},
};

/// Builds the controller; the program and the tests run the same.
pub fn controller(domains: Arc<Domains>) -> Controller<Website, Websites> {
    Controller::new(Websites { domains })
        .owns::<Deployment>()
        .finalizer("web.example.dev/domain")
        .workers(8)
        .rate_limit(RateLimit::per_second(50).burst(100))
}

/// Reconciles websites.
pub struct Websites {
    domains: Arc<Domains>,
}

impl Reconciler<Website> for Websites {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.domains.reserve(cx.key(), &site.spec.domain);
        let deployment = cx.apply(deployment_for(&site)).await?;
        let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default();
        cx.patch_status(&site, WebsiteStatus { ready }).await?;
        Ok(Action::await_change())
    }

    // Runs when a site is deleted; the site stays until this returns `Done`, because of the finalizer.
    async fn cleanup(&self, _: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, Self::Error> {
        self.domains.release(cx.key());
        Ok(Cleanup::Done)
    }
}

fn deployment_for(site: &Website) -> Deployment {
    let labels = BTreeMap::from([("site".to_owned(), site.name_any())]);
    let container =
        Container { name: "web".to_owned(), image: Some("nginx:1".to_owned()), ..Container::default() };
    Deployment {
        metadata: ObjectMeta { name: Some(site.name_any()), ..ObjectMeta::default() },
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use watchkeeper::Running;
    use watchkeeper_apiserver::{ApiServer, Fault, InMemory, Verb};

    use super::*;
    use crate::website::WebsiteSpec;

    /// Starts an API server in this process, and the operator on it.
    async fn start(domains: &Arc<Domains>) -> (ApiServer<InMemory>, Running) {
        let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let running = Manager::new(server.client()).controller(controller(domains.clone())).spawn();
        let spec = WebsiteSpec { domain: "a.example".to_owned(), replicas: 2 };
        server.create(&Website::new("a", spec)).await;
        (server, running)
    }

    fn replicas(deployment: Option<&Deployment>) -> Option<i32> {
        deployment?.spec.as_ref()?.replicas
    }

    #[tokio::test(start_paused = true)]
    async fn a_site_gets_its_deployment_and_its_domain() {
        let domains = Arc::new(Domains::default());
        let (server, _running) = start(&domains).await;
        server.eventually("shop/a", |deployment| replicas(deployment) == Some(2)).await;
        assert_eq!(domains.of("shop/a").as_deref(), Some("a.example"));

        server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 3 } })).await;
        server.eventually("shop/a", |deployment| replicas(deployment) == Some(3)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_deployment_that_is_deleted_while_the_watch_is_down_comes_back() {
        let (server, _running) = start(&Arc::default()).await;
        server.eventually("shop/a", |deployment| replicas(deployment) == Some(2)).await;

        server.faults().on(Verb::Watch, "deployments").once().then(Fault::Cut);
        server.delete::<Deployment>("shop/a").await;
        server.eventually("shop/a", |deployment| replicas(deployment) == Some(2)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_site_releases_its_domain() {
        let domains = Arc::new(Domains::default());
        let (server, _running) = start(&domains).await;
        server.eventually("shop/a", |deployment| replicas(deployment) == Some(2)).await;

        server.delete::<Website>("shop/a").await;
        server.eventually::<Website>("shop/a", |site| site.is_none()).await;
        assert_eq!(domains.of("shop/a"), None);
    }
}

//! Keeps a Deployment for every Website.

mod children;
mod website;

use std::process::ExitCode;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use watchkeeper::prelude::*;

use children::{deployment_for, service_for};
use website::Website;

/// Keeps one Deployment for every website.
struct Websites;

impl Reconciler<Website> for Websites {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        site: Arc<Website>,
        cx: &Context<Website>,
    ) -> Result<Action, Self::Error> {
        let mut service = cx.apply(service_for(&site));
        if site.annotations().contains_key("web.example.dev/adopt") {
            service = service.adopt();
        }
        service.await?;
        let deployment = cx.apply(deployment_for(&site)).await?;

        let mut status = site.status.clone().unwrap_or_default();
        let ready = deployment.status.and_then(|status| status.ready_replicas);
        status.ready = ready.unwrap_or_default();
        let condition = readiness(&site, status.ready);
        let was_ready = status.conditions.is_true("Ready");
        status.conditions.set(condition.of(&site));
        if status.conditions.is_true("Ready") && !was_ready {
            cx.event(Event::normal("Serving", "every pod is ready"));
        }
        cx.patch_status(&site, status).await?;
        Ok(Action::await_change())
    }
}

/// Says whether a site is ready, and if not, what it waits for.
fn readiness(site: &Website, ready: i32) -> Condition {
    let wanted = site.spec.replicas;
    if ready >= wanted {
        Condition::ready("Serving", "every pod is ready")
    } else {
        Condition::not_ready(
            "Waiting",
            format!("{ready} of {wanted} pods are ready"),
        )
    }
}

fn main() -> ExitCode {
    watchkeeper::cli(("websites", env!("CARGO_PKG_VERSION")), |manager| {
        manager.kind::<Website>().controller(controller())
    })
}

fn controller() -> Controller<Website, Websites> {
    Controller::new(Websites)
        .owns::<Deployment>()
        .owns::<Service>()
        .records_events()
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::{ApiServer, Fault, Verb};

    use super::*;
    use crate::website::WebsiteSpec;

    fn replicas(deployment: Option<&Deployment>) -> Option<i32> {
        deployment?.spec.as_ref()?.replicas
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_deployment_comes_back() {
        let server =
            ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let _running =
            Manager::new(server.client()).controller(controller()).spawn();

        let spec = WebsiteSpec { domain: "hello.example".into(), replicas: 2 };
        server.create(&Website::new("hello", spec)).await;
        server.eventually("shop/hello", |found| replicas(found) == Some(2)).await;

        server.faults().on(Verb::Watch, "deployments").once().then(Fault::Cut);
        server.delete::<Deployment>("shop/hello").await;
        server.eventually("shop/hello", |found| replicas(found) == Some(2)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_domain_cannot_change() {
        let server =
            ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let spec = WebsiteSpec { domain: "hello.example".into(), replicas: 2 };
        let mut site = server.create(&Website::new("hello", spec)).await;

        site.spec.domain = "other.example".into();
        let sites = kube::Api::<Website>::namespaced(server.client(), "shop");
        let refused =
            sites.replace("hello", &Default::default(), &site).await.unwrap_err();
        assert!(
            refused.to_string().contains("the domain can't change"),
            "{refused}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_process_finishes_what_the_last_one_began() {
        let server =
            ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let status =
            server.faults().on(Verb::Patch, "websites").subresource("status");
        let broken = status.always().then(Fault::Status(500));
        let first = Manager::new(server.client()).controller(controller()).spawn();
        let spec = WebsiteSpec { domain: "hello.example".into(), replicas: 2 };
        server.create(&Website::new("hello", spec)).await;
        server.eventually("shop/hello", |found| replicas(found) == Some(2)).await;
        first.stop().await.unwrap();
        broken.disarm();

        let _second =
            Manager::new(server.client()).controller(controller()).spawn();
        let has_status = |site: &Website| site.status.is_some();
        server.eventually("shop/hello", |site| site.is_some_and(has_status)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_of_others_is_taken_over_only_if_the_site_says_so() {
        let server =
            ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let _running =
            Manager::new(server.client()).controller(controller()).spawn();
        let mut theirs = Service::default();
        theirs.metadata.name = Some("hello".into());
        theirs.spec = service_for(&Website::new("other", spec())).spec;
        server.create(&theirs).await;
        server.create(&Website::new("hello", spec())).await;

        let owned = |found: Option<&Service>| {
            found.is_some_and(|it| !it.owner_references().is_empty())
        };
        server.kit().never("shop/hello", Duration::from_secs(60), owned).await;

        let adopt = serde_json::json!({"web.example.dev/adopt": "yes"});
        let adopt = serde_json::json!({"metadata": {"annotations": adopt}});
        server.patch_merge::<Website>("shop/hello", adopt).await;
        server.eventually("shop/hello", owned).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_site_is_ready_once_its_pods_are() {
        let server =
            ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let _running =
            Manager::new(server.client()).controller(controller()).spawn();
        server.create(&Website::new("hello", spec())).await;
        server
            .eventually("shop/hello", |site| says(site, "0 of 2 pods are ready"))
            .await;

        let pods = serde_json::json!({"replicas": 2, "readyReplicas": 2});
        server.patch_status::<Deployment>("shop/hello", pods).await;
        server
            .eventually("shop/hello", |site| says(site, "every pod is ready"))
            .await;
    }

    fn says(site: Option<&Website>, message: &str) -> bool {
        let status = site.and_then(|site| site.status.as_ref());
        let ready = status.and_then(|status| status.conditions.get("Ready"));
        ready.is_some_and(|ready| ready.message == message)
    }

    fn spec() -> WebsiteSpec {
        WebsiteSpec { domain: "hello.example".into(), replicas: 2 }
    }
}

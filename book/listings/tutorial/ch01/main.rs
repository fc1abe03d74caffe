//! Keeps a Deployment for every Website.

mod website;

use std::{collections::BTreeMap, process::ExitCode};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use watchkeeper::prelude::*;

use website::{Website, WebsiteStatus};

/// Keeps one Deployment for every website.
struct Websites;

impl Reconciler<Website> for Websites {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        site: Arc<Website>,
        cx: &Context<Website>,
    ) -> Result<Action, Self::Error> {
        let deployment = cx.apply(deployment_for(&site)).await?;
        let ready = deployment.status.and_then(|status| status.ready_replicas);
        let status = WebsiteStatus { ready: ready.unwrap_or_default() };
        cx.patch_status(&site, status).await?;
        Ok(Action::await_change())
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
        metadata: ObjectMeta {
            name: Some(site.name_any()),
            ..ObjectMeta::default()
        },
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
                spec: Some(PodSpec {
                    containers: vec![container],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn main() -> ExitCode {
    watchkeeper::cli(("websites", env!("CARGO_PKG_VERSION")), |manager| {
        manager.kind::<Website>().controller(controller())
    })
}

fn controller() -> Controller<Website, Websites> {
    Controller::new(Websites).owns::<Deployment>()
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
}

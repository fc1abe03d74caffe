//! The project's own operators hold whatever happens.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;
use watchkeeper::{prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::trials::{Deed, Trials, Trouble, Visit};
use watchkeeper_tests::{Keeper, Website, WebsiteStatus, deployment_for, website};

/// A manager that draws what is random from a seed, so that a trial is the same each time.
fn manager(client: kube::Client) -> Manager {
    Manager::with_config(client, ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() })
}

/// A child whose owner references somebody takes away is somebody else's from then on: only `.adopt()` takes it back.
fn leaves_owners_alone(trouble: Trouble) -> bool {
    !matches!(trouble, Trouble::Stranger(Deed::Orphans, ..))
}

async fn a_site_comes_changes_and_goes(visit: Visit) {
    visit.create(&website("a")).await;
    visit.edit::<Website>("a", |site| site.spec.replicas = 3).await;
    visit.patch_status::<Deployment>("a", json!({ "replicas": 3, "readyReplicas": 1 })).await;
    visit.create(&website("b")).await;
    visit.delete::<Website>("a").await;
}

#[test]
fn a_site_ends_right_whatever_happens() {
    Trials::of(|client| {
        manager(client).controller(Controller::new(Keeper::default()).owns::<Deployment>()).run()
    })
    .crd::<Website>()
    .namespace("shop")
    .visitor(a_site_comes_changes_and_goes)
    .only(leaves_owners_alone)
    .pairs(40)
    .check();
}

/// Keeps a site's Deployment, and releases its domain at its end.
struct Releases;

impl Reconciler<Website> for Releases {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let deployment = cx.apply(deployment_for(&site)).await?;
        let has = deployment.status.unwrap_or_default();
        let status = WebsiteStatus {
            replicas: has.replicas.unwrap_or_default(),
            ready_replicas: has.ready_replicas.unwrap_or_default(),
        };
        cx.patch_status(&site, status).await?;
        Ok(Action::requeue_after(Duration::from_secs(5)))
    }

    async fn cleanup(&self, _: Arc<Website>, _: &Context<Website>) -> Result<Cleanup, Self::Error> {
        Ok(Cleanup::Done)
    }
}

#[test]
fn a_site_with_a_finalizer_ends_right_whatever_happens() {
    Trials::of(|client| {
        let controller = Controller::new(Releases).owns::<Deployment>().finalizer("web.example.dev/domain");
        manager(client).controller(controller.rate_limit(RateLimit::per_second(50).burst(100))).run()
    })
    .crd::<Website>()
    .namespace("shop")
    .visitor(a_site_comes_changes_and_goes)
    .only(leaves_owners_alone)
    .pairs(20)
    .check();
}

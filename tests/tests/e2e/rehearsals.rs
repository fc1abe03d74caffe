//! A rehearsal of the next version, next to the version that runs.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Api, ResourceExt as _, api::ListParams};
use tokio::time::Instant;
use watchkeeper::prelude::*;
use watchkeeper_tests::{Keeper, Website, backend::Stage, deployment_for, website};

use crate::harness::tests;

tests! {
    Shared: a_rehearsal_says_what_the_next_version_would_change_and_writes_nothing;
}

/// Makes a Deployment with a label and another image, and a map.
struct NextVersion;

impl Reconciler<Website> for NextVersion {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let mut deployment = deployment_for(&site);
        let pod = deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
        pod.unwrap().containers[0].image = Some("registry.example.dev/web:2".to_owned());
        cx.apply(deployment).await?;
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("{}-page", site.name_any()));
        cx.apply(map).await?;
        Ok(Action::await_change())
    }
}

async fn versions(stage: &Stage) -> Vec<(String, String)> {
    let version = |name: String, version: Option<String>| (name, version.unwrap_or_default());
    let (client, namespace) = (stage.client.clone(), &stage.namespace);
    let sites = Api::<Website>::namespaced(client.clone(), namespace);
    let children = Api::<Deployment>::namespaced(client, namespace);
    let sites = sites.list(&ListParams::default()).await.unwrap().items.into_iter();
    let children = children.list(&ListParams::default()).await.unwrap().items.into_iter();
    let sites = sites.map(|site| version(site.name_any(), site.resource_version()));
    sites.chain(children.map(|child| version(child.name_any(), child.resource_version()))).collect()
}

// W30
/// With 10 sites; `REHEARSED=1000` sets how many.
async fn a_rehearsal_says_what_the_next_version_would_change_and_writes_nothing(stage: Stage) {
    let kit = stage.kit();
    let sites = std::env::var("REHEARSED").map_or(10, |sites| sites.parse::<usize>().unwrap());
    let running = stage.run(Controller::new(Keeper::default()).owns::<Deployment>().workers(8));
    for number in 0..sites {
        kit.create(&website(&format!("s{number:04}"))).await;
    }
    let last = format!("s{:04}", sites - 1);
    kit.eventually::<Website>(&last, |site| site.is_some_and(|site| site.status.is_some())).await;
    let controller = |reconciler| {
        Controller::new(reconciler)
            .namespace(&*stage.namespace)
            .owns::<Deployment>()
            .owns::<ConfigMap>()
            .workers(8)
    };
    let own = stage.manager().controller(
        Controller::new(Keeper::default()).namespace(&*stage.namespace).owns::<Deployment>().workers(8),
    );
    let rehearsal = own.rehearse(Duration::from_secs(300)).await.unwrap();
    assert!(
        rehearsal.is_whole() && !rehearsal.would_write(),
        "the same version changes nothing: {rehearsal}"
    );
    let before = versions(&stage).await;
    let began = Instant::now();
    let manager = stage.manager().controller(controller(NextVersion));
    let rehearsal = manager.rehearse(Duration::from_secs(300)).await.unwrap();
    let report = rehearsal.to_string();
    tracing::info!("{sites} sites, {:?}:\n{report}", began.elapsed());
    if std::env::var_os("REHEARSED").is_some() {
        eprintln!("{sites} sites, {:?}:\n{report}", began.elapsed());
    }
    assert_eq!(versions(&stage).await, before, "something was written");
    assert!(kit.get::<ConfigMap>("s0000-page").await.is_none());
    assert!(rehearsal.is_whole() && rehearsal.would_write(), "{report}");
    for part in [
        format!("would create {sites} configmaps: "),
        format!("would change {sites} deployments.apps: "),
        format!("~ spec.template.spec.containers[0].image ({sites})"),
        format!("set until now by websites.web.example.dev ({sites})"),
        "    ~ spec.template.spec.containers[0].image: \"registry.example.dev/web:1\" -> \"registry.example.dev/web:2\""
            .to_owned(),
    ] {
        assert!(report.contains(&part), "{part} is not in: {report}");
    }
    running.stop().await.unwrap();
}

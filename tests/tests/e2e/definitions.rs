//! Custom resources that come, go and come back under a running operator.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ConfigMap},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::core::ObjectMeta;
use watchkeeper::prelude::*;
use watchkeeper_tests::{
    Keeper,
    backend::{Heard, Stage},
    website,
};

use crate::harness::tests;

tests! {
    Shared: a_definition_may_come_after_the_operator,
        a_definition_may_go_and_come_back_under_the_operator,
        what_was_installed_can_be_read_at_once,
        a_definition_that_goes_takes_objects_with_finalizers_along_once_they_are_cleaned_up;
}

/// Comes late.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "late.example.dev", version = "v1", kind = "Gadget", namespaced)]
struct GadgetSpec {
    size: i32,
}

/// Goes early.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "gone.example.dev", version = "v1", kind = "Widget", namespaced)]
struct WidgetSpec {
    size: i32,
}

/// Is read as soon as it is installed.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "fresh.example.dev", version = "v1", kind = "Doodad", namespaced)]
struct DoodadSpec {
    size: i32,
}

/// Goes early, and is cleaned up.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "held.example.dev", version = "v1", kind = "Gizmo", namespaced)]
struct GizmoSpec {
    size: i32,
}

/// Keeps a ConfigMap for each object of whatever kind.
struct Mapper;

fn map(name: Option<&String>) -> ConfigMap {
    let metadata = ObjectMeta { name: name.cloned(), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("made".to_owned(), "yes".to_owned())].into()), ..ConfigMap::default() }
}

impl Reconciler<Gadget> for Mapper {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, gadget: Arc<Gadget>, cx: &Context<Gadget>) -> Result<Action, Self::Error> {
        cx.apply(map(gadget.metadata.name.as_ref())).await?;
        Ok(Action::await_change())
    }
}

impl Reconciler<Widget> for Mapper {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, widget: Arc<Widget>, cx: &Context<Widget>) -> Result<Action, Self::Error> {
        cx.apply(map(widget.metadata.name.as_ref())).await?;
        Ok(Action::await_change())
    }
}

impl Reconciler<Gizmo> for Mapper {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, gizmo: Arc<Gizmo>, cx: &Context<Gizmo>) -> Result<Action, Self::Error> {
        cx.apply(map(gizmo.metadata.name.as_ref())).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(&self, gizmo: Arc<Gizmo>, _: &Context<Gizmo>) -> Result<Cleanup, Self::Error> {
        tracing::info!(target: "watchkeeper::e2e", "cleaned up {}", gizmo.name_any());
        Ok(Cleanup::Done)
    }
}

async fn a_definition_may_come_after_the_operator(stage: Stage) {
    let kit = stage.kit();
    let _running = stage.run(Controller::<Gadget, _>::new(Mapper).owns::<ConfigMap>());
    stage.log.says(&["gadgets.late.example.dev is not served: install its CRD"]).await;
    stage.install::<Gadget>().await;
    kit.create(&Gadget::new("a", GadgetSpec { size: 1 })).await;
    kit.eventually::<ConfigMap>("a", |map| map.is_some()).await;
    stage.log.says(&["gadgets.late.example.dev can be read again"]).await;
}

async fn a_definition_may_go_and_come_back_under_the_operator(stage: Stage) {
    let kit = stage.kit();
    stage.install::<Widget>().await;
    let keeper = Keeper::default();
    let manager = stage
        .manager()
        .controller(Controller::<Widget, _>::new(Mapper).namespace(&*stage.namespace).owns::<ConfigMap>())
        .controller(Controller::new(keeper.clone()).namespace(&*stage.namespace).owns::<Deployment>());
    let running = manager.spawn();
    let factory = stage.factory();
    let heard = Heard::by(factory.informer::<Widget>().namespace(&*stage.namespace));
    factory.start();
    kit.create(&Widget::new("a", WidgetSpec { size: 1 })).await;
    kit.eventually::<ConfigMap>("a", |map| map.is_some()).await;

    kit.delete::<CustomResourceDefinition>("widgets.gone.example.dev").await;
    kit.eventually::<CustomResourceDefinition>("widgets.gone.example.dev", |crd| crd.is_none()).await;
    kit.create(&website("b")).await;
    kit.eventually::<Deployment>("b", |d| d.is_some()).await;
    stage.log.says(&["widgets.gone.example.dev is not served: install its CRD"]).await;
    assert_eq!(heard.lines().last().map(String::as_str), Some("- a (told)"), "{:?}", heard.lines());

    stage.install::<Widget>().await;
    kit.create(&Widget::new("c", WidgetSpec { size: 2 })).await;
    kit.eventually::<ConfigMap>("c", |map| map.is_some()).await;
    let panics = stage.log.lines_with(&["panic"]);
    assert!(panics.is_empty(), "{panics:?}");
    running.stop().await.unwrap();
}

// W7
async fn a_definition_that_goes_takes_objects_with_finalizers_along_once_they_are_cleaned_up(stage: Stage) {
    let kit = stage.kit();
    stage.install::<Gizmo>().await;
    let controller = Controller::<Gizmo, _>::new(Mapper).owns::<ConfigMap>().finalizer("held.example.dev/it");
    let _running = stage.run(controller);
    for name in ["a", "b"] {
        kit.create(&Gizmo::new(name, GizmoSpec { size: 1 })).await;
        kit.eventually::<ConfigMap>(name, |map| map.is_some()).await;
    }
    kit.delete::<CustomResourceDefinition>("gizmos.held.example.dev").await;
    kit.eventually::<CustomResourceDefinition>("gizmos.held.example.dev", |crd| crd.is_none()).await;
    for name in ["a", "b"] {
        stage.log.says(&[&format!("cleaned up {name}")]).await;
    }
}

async fn what_was_installed_can_be_read_at_once(stage: Stage) {
    stage.install::<Doodad>().await;
    let factory = stage.factory();
    let heard = Heard::by(factory.informer::<Doodad>().namespace(&*stage.namespace));
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    let failures = stage.log.lines_with(&["doodads.fresh.example.dev can't be read"]);
    assert!(failures.is_empty(), "{failures:?}");
    stage.kit().create(&Doodad::new("a", DoodadSpec { size: 1 })).await;
    heard.comes_to(&["+ a (watch)"]).await;
}

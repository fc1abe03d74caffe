//! Owned children: who wakes for them, and what is never taken over.

use std::sync::Mutex;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_tests::{Looker, Record, Website, backend::Stage, deployment_for, owned_by, website};

use crate::harness::tests;

tests! {
    Shared: a_child_that_changes_owners_wakes_the_old_one_and_the_new_one,
        a_strangers_object_is_not_taken_over,
        adopting_takes_over_what_nobody_controls,
        a_child_of_an_earlier_owner_of_the_same_name_is_replaced_once_it_is_collected,
        children_of_the_parents_own_kind_are_reconciled_each,
        a_second_apply_of_the_same_run_is_based_on_the_first_answer;
}

fn names_after(record: &Record, seen: usize) -> Vec<String> {
    let mut names: Vec<_> = record.starts()[seen..].iter().map(|start| start.key.name().to_owned()).collect();
    names.sort();
    names
}

// C16
async fn a_child_that_changes_owners_wakes_the_old_one_and_the_new_one(stage: Stage) {
    let kit = stage.kit();
    let (a, b) = (kit.create(&website("a")).await, kit.create(&website("b")).await);
    let record = Record::default();
    let _running = stage.run(Controller::new(Looker { record: record.clone() }).owns::<ConfigMap>());
    record.reaches(2).await;
    let metadata = ObjectMeta {
        name: Some("child".into()),
        owner_references: Some(vec![owned_by(&a)]),
        ..Default::default()
    };
    kit.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    record.reaches(3).await;
    kit.patch_merge::<ConfigMap>("child", json!({ "metadata": { "ownerReferences": [owned_by(&b)] } })).await;
    record.reaches(5).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(names_after(&record, 2), ["a", "a", "b"]);
}

/// Applies a Deployment a site, and keeps what came of it.
struct Maker {
    errors: Arc<Mutex<Vec<String>>>,
    record: Record,
    adopts: bool,
}

impl Reconciler<Website> for Maker {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let apply = cx.apply(deployment_for(&site));
        let applied = if self.adopts { apply.adopt().await } else { apply.await };
        if let Err(error) = applied {
            self.errors.lock().unwrap().push(error.to_string());
            self.record.start(cx);
            return Err(error.into());
        }
        Ok(Action::await_change())
    }
}

fn maker(adopts: bool) -> (Maker, Arc<Mutex<Vec<String>>>, Record) {
    let (errors, record) = (Arc::default(), Record::default());
    (Maker { errors: Arc::clone(&errors), record: record.clone(), adopts }, errors, record)
}

fn strangers_deployment() -> Deployment {
    let mut deployment = deployment_for(&website("a"));
    deployment.spec.as_mut().unwrap().replicas = Some(77);
    deployment
}

fn controlled_with(deployment: Option<&Deployment>, replicas: i32) -> bool {
    deployment.is_some_and(|deployment| {
        deployment.owner_references().iter().any(|owner| owner.controller == Some(true))
            && deployment.spec.as_ref().unwrap().replicas == Some(replicas)
    })
}

// C26
async fn a_strangers_object_is_not_taken_over(stage: Stage) {
    let kit = stage.kit();
    kit.create(&strangers_deployment()).await;
    let (seeing, seen, record) = maker(false);
    let (blind, unseen, blind_record) = maker(false);
    let manager = stage
        .manager()
        .controller(Controller::new(seeing).namespace(&*stage.namespace).owns::<Deployment>())
        .controller(Controller::new(blind).namespace(&*stage.namespace).named("blind"));
    let _running = manager.spawn();
    kit.create(&website("a")).await;
    record.reaches(1).await;
    blind_record.reaches(1).await;
    let found = kit.get::<Deployment>("a").await.unwrap();
    assert_eq!(found.spec.as_ref().unwrap().replicas, Some(77));
    assert!(found.owner_references().is_empty());
    for errors in [&seen, &unseen] {
        let error = errors.lock().unwrap()[0].clone();
        assert!(error.contains("Deployment") && error.contains("nobody"), "{error}");
    }
}

// C26
async fn adopting_takes_over_what_nobody_controls(stage: Stage) {
    let kit = stage.kit();
    kit.create(&strangers_deployment()).await;
    let (maker, ..) = maker(true);
    let _running = stage.run(Controller::new(maker).owns::<Deployment>());
    kit.create(&website("a")).await;
    kit.eventually::<Deployment>("a", |d| controlled_with(d, 2)).await;
}

async fn a_child_of_an_earlier_owner_of_the_same_name_is_replaced_once_it_is_collected(stage: Stage) {
    let kit = stage.kit();
    let (maker, ..) = maker(false);
    let _running = stage.run(Controller::new(maker).owns::<Deployment>());
    kit.create(&website("a")).await;
    let first = kit.eventually::<Deployment>("a", |d| controlled_with(d, 2)).await.unwrap();
    kit.delete::<Website>("a").await;
    let second = kit.create(&website("a")).await;
    let replaced = |d: Option<&Deployment>| {
        d.is_some_and(|d| d.uid() != first.uid() && d.owner_references()[0].uid == second.uid().unwrap())
    };
    kit.eventually::<Deployment>("a", replaced).await;
}

/// A parent of its own kind: every site whose name is short makes a longer one.
struct Family {
    record: Record,
}

impl Reconciler<Website> for Family {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        let name = site.name_any();
        if name.len() < 3 {
            cx.apply(website(&format!("{name}x"))).await?;
        }
        Ok(Action::await_change())
    }
}

// C28
async fn children_of_the_parents_own_kind_are_reconciled_each(stage: Stage) {
    let kit = stage.kit();
    let record = Record::default();
    let _running = stage.run(Controller::new(Family { record: record.clone() }).owns::<Website>());
    kit.create(&website("a")).await;
    kit.eventually::<Website>("axx", |site| site.is_some()).await;
    record.reaches(3).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(names_after(&record, 0), ["a", "ax", "axx"], "own children wake no parent");
    kit.delete::<Website>("a").await;
    kit.eventually_list::<Website>(&stage.namespace, |sites| sites.is_empty()).await;
}

/// Applies the same child twice in a run.
struct Twice {
    record: Record,
}

impl Reconciler<Website> for Twice {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.record.start(cx);
        let mut child = deployment_for(&site);
        cx.apply(child.clone()).await?;
        child.spec.as_mut().expect("it has one").replicas = Some(9);
        cx.apply(child).await?;
        Ok(Action::await_change())
    }
}

async fn a_second_apply_of_the_same_run_is_based_on_the_first_answer(stage: Stage) {
    let kit = stage.kit();
    let record = Record::default();
    let _running = stage.run(Controller::new(Twice { record: record.clone() }).owns::<Deployment>());
    kit.create(&website("a")).await;
    kit.eventually::<Deployment>("a", |d| controlled_with(d, 9)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(record.len(), 1, "both writes are own");
}

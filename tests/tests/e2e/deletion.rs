//! Finalizers: ours, and those of others.

use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_tests::{Keeper, Website, backend::Stage, website};

use crate::harness::tests;

tests! {
    Shared: a_foreign_finalizer_stays_untouched_and_keeps_the_object,
        an_object_that_was_dying_already_gets_no_finalizer;
}

const OURS: &str = "web.example.dev/domain";
const THEIRS: &str = "example.dev/theirs";

fn has(site: Option<&Website>, finalizers: &[&str]) -> bool {
    site.is_some_and(|site| site.finalizers() == finalizers)
}

// W7 C23
async fn a_foreign_finalizer_stays_untouched_and_keeps_the_object(stage: Stage) {
    let kit = stage.kit();
    let keeper = Keeper::default();
    let _running = stage.run(Controller::new(keeper.clone()).finalizer(OURS));
    let mut site = website("a");
    site.metadata.finalizers = Some(vec![THEIRS.to_owned()]);
    kit.create(&site).await;
    kit.eventually::<Website>("a", |site| has(site, &[THEIRS, OURS])).await;
    keeper.record.reaches(1).await;
    kit.delete::<Website>("a").await;
    kit.eventually::<Website>("a", |site| has(site, &[THEIRS])).await;
    let runs = keeper.record.len();
    kit.patch_merge::<Website>("a", json!({ "metadata": { "labels": { "still": "here" } } })).await;
    kit.never::<Website>("a", Duration::from_secs(1), |site| !has(site, &[THEIRS])).await;
    assert_eq!(keeper.record.len(), runs, "a dying object is not reconciled");
    kit.patch_merge::<Website>("a", json!({ "metadata": { "finalizers": null } })).await;
    kit.eventually::<Website>("a", |site| site.is_none()).await;
}

// C23
async fn an_object_that_was_dying_already_gets_no_finalizer(stage: Stage) {
    let kit = stage.kit();
    let mut site = website("a");
    site.metadata.finalizers = Some(vec![THEIRS.to_owned()]);
    kit.create(&site).await;
    kit.delete::<Website>("a").await;
    let keeper = Keeper::default();
    let _running = stage.run(Controller::new(keeper.clone()).finalizer(OURS));
    kit.create(&website("b")).await;
    keeper.record.reaches(1).await;
    kit.never::<Website>("a", Duration::from_secs(1), |site| !has(site, &[THEIRS])).await;
    assert!(keeper.record.starts().iter().all(|start| start.key.name() == "b"));
}

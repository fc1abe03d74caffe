//! What happens while nobody watches is found out afterwards.

use k8s_openapi::api::apps::v1::Deployment;
use watchkeeper::{controller::Why, prelude::*};
use watchkeeper_tests::{
    Keeper, Website,
    backend::{Heard, Stage},
    website,
};

use crate::harness::tests;

tests! {
    Shared: a_short_cut_loses_nothing_and_lists_nothing;
    Own: a_child_that_vanished_unseen_leaves_a_tombstone_and_is_healed,
        an_operator_survives_restarts_of_its_server,
        informers_of_every_sort_catch_up_after_a_restart_without_history;
}

// R25
async fn a_short_cut_loses_nothing_and_lists_nothing(stage: Stage) {
    let kit = stage.kit();
    let factory = stage.factory();
    let heard = Heard::by(factory.informer::<Website>().namespace(&*stage.namespace));
    kit.create(&website("a")).await;
    factory.start();
    heard.comes_to(&["+ a (initial list)"]).await;
    stage.cuts.cut("websites");
    kit.delete::<Website>("a").await;
    kit.create(&website("b")).await;
    stage.log.says(&["websites.web.example.dev", "unreachable"]).await;
    stage.cuts.heal("websites");
    heard.comes_to(&["+ a (initial list)", "- a (told)", "+ b (watch)"]).await;
    assert_eq!(stage.log.lines_with(&["websites.web.example.dev", "listed"]).len(), 1);
}

// C21 R15
async fn a_child_that_vanished_unseen_leaves_a_tombstone_and_is_healed(stage: Stage) {
    let kit = stage.kit();
    let keeper = Keeper::default();
    let running = stage.run(Controller::new(keeper.clone()).owns::<Deployment>());
    let factory = stage.factory();
    let heard = Heard::by(factory.informer::<Deployment>().namespace(&*stage.namespace));
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    kit.create(&website("a")).await;
    let made = kit.eventually::<Deployment>("a", |d| d.is_some()).await.unwrap();
    heard.comes_to(&["+ a (watch)"]).await;
    at_rest(&running, &ObjectKey::new(&*stage.namespace, "a")).await;

    // Sites stay cut throughout: their relist would wake the operator too.
    stage.cuts.cut("websites");
    stage.cuts.cut("deployments");
    kit.delete::<Deployment>("a").await;
    for n in 0..3 {
        stage.add_namespace(&format!("{}-{n}", stage.namespace)).await;
    }
    stage.server.compact().await;
    stage.server.restart().await;
    kit.never::<Deployment>("a", Duration::from_millis(500), |d| d.is_some()).await;
    stage.cuts.heal("deployments");

    kit.eventually::<Deployment>("a", |d| d.is_some_and(|d| d.uid() != made.uid())).await;
    heard.comes_to(&["+ a (watch)", "- a (inferred)", "+ a (watch)"]).await;
    stage.cuts.heal("websites");
    let expired = stage.log.lines_with(&["deployments.apps", "410"]);
    assert!(!expired.is_empty(), "the version was not too old: nothing was tested");
}

/// Waits until a site's operator has seen what it wrote; cut off before, it would wait for that in an outage.
async fn at_rest(running: &watchkeeper::Running, site: &ObjectKey) {
    let rests = async {
        while running.why::<Website>(site).iter().any(|report| report.why != Why::AwaitsChange) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(30), rests).await.is_ok(),
        "{:?}",
        running.why::<Website>(site)
    );
}

// R44
async fn an_operator_survives_restarts_of_its_server(stage: Stage) {
    let kit = stage.kit();
    let keeper = Keeper::default();
    let _running = stage.run(Controller::new(keeper.clone()).owns::<Deployment>());
    for name in ["a", "b"] {
        kit.create(&website(name)).await;
        kit.eventually::<Deployment>(name, |d| d.is_some()).await;
        stage.server.restart().await;
        let made = kit.get::<Deployment>(name).await.unwrap();
        kit.delete::<Deployment>(name).await;
        kit.eventually::<Deployment>(name, |d| d.is_some_and(|d| d.uid() != made.uid())).await;
    }
    let mut runs = keeper.record.len();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        if runs == keeper.record.len() {
            return;
        }
        runs = keeper.record.len();
    }
    panic!("does not come to rest: {:?}", keeper.record.starts());
}

async fn informers_of_every_sort_catch_up_after_a_restart_without_history(stage: Stage) {
    let kit = stage.kit();
    for name in ["a", "b", "c"] {
        kit.create(&website(name)).await;
    }
    let factory = stage.factory();
    let ask = || factory.informer::<Website>().namespace(&*stage.namespace);
    let all = [
        Heard::by(ask()),
        Heard::by(ask().page_size(2)),
        Heard::by(ask().any_version()),
        Heard::by(ask().field_selector("metadata.name!=none").unwrap()),
    ];
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    let there = ["+ a (initial list)", "+ b (initial list)", "+ c (initial list)"];
    for heard in &all {
        heard.comes_to_any_order_of(&there).await;
    }
    stage.cuts.cut("websites");
    kit.delete::<Website>("b").await;
    kit.create(&website("d")).await;
    stage.server.compact().await;
    stage.server.restart().await;
    stage.cuts.heal("websites");
    let wanted = [&there[..], &["- b (inferred)", "+ d (watch)"]].concat();
    for heard in &all {
        heard.comes_to_any_order_of(&wanted).await;
    }
}

//! The example `cronjob`: both servers refuse each of its mistakes in the same words.

use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{prelude::*, webhook::Webhooks};
use watchkeeper_tests::backend::Stage;

use crate::harness::tests;

#[path = "../../../examples/cronjob/controller.rs"]
mod controller;
#[path = "../../../examples/cronjob/mistakes.rs"]
mod mistakes;
#[path = "../../../examples/cronjob/rules.rs"]
mod rules;
#[path = "../../../examples/cronjob/schedule.rs"]
mod schedule;
#[path = "../../../examples/cronjob/v1.rs"]
mod v1;
#[path = "../../../examples/cronjob/v2.rs"]
mod v2;

use controller::operator;
use mistakes::{GOOD, lines, mistakes, object, printed, shown};

tests! {
    Own: every_mistake_is_refused_in_the_same_words;
}

async fn every_mistake_is_refused_in_the_same_words(stage: Stage) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let webhooks = Webhooks::new(format!("127.0.0.1:{port}")).url(format!("https://127.0.0.1:{port}"));
    let running = operator(stage.manager(), webhooks).spawn();
    // Once this is refused by the operator, its webhooks are called.
    let wrong = &mistakes()[0].1;
    let begun = Instant::now();
    while !printed(&stage.client, &stage.namespace, wrong).await.contains("it needs five") {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            printed(&stage.client, &stage.namespace, wrong).await
        );
        sleep(Duration::from_millis(200)).await;
    }
    let good: v1::CronJob = serde_json::from_value(object("v1", GOOD, json!({}))).unwrap();
    stage.kit().create(&good).await;
    for (title, object) in mistakes() {
        let said = printed(&stage.client, &stage.namespace, &object).await;
        assert_eq!(lines(&said), lines(&shown(title)), "{title}");
    }
    running.stop().await.unwrap();
}

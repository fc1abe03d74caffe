//! Planted differences: the replayer must find each.

use serde_json::{Value, json};
use watchkeeper_apiserver::ApiServer;

use crate::format;
use crate::run::replay;

/// Replays a scenario whose recording was altered; gives the differences found.
async fn altered(name: &str, alter: impl FnOnce(&mut Vec<Value>)) -> Vec<String> {
    let mut document: Value = serde_json::from_str(&format::text(name).unwrap()).unwrap();
    let Value::Array(steps) = &mut document["steps"] else { panic!("{name} has no steps") };
    alter(steps);
    let scenario = format::parse(&document.to_string()).unwrap();
    let server = ApiServer::in_memory().start().await;
    let client = server.anonymous_client();
    replay(&server, client, &scenario).await
}

/// Finds the first step that a condition holds for.
fn find(steps: &mut [Value], holds: impl Fn(&Value) -> bool) -> &mut Value {
    steps.iter_mut().find(|step| holds(step)).expect("the recording has such a step")
}

#[track_caller]
fn assert_found(differences: &[String], part: &str) {
    assert!(
        differences.iter().any(|difference| difference.contains(part)),
        "{part:?} is not in {differences:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unaltered_recording_shows_no_difference() {
    for name in ["001-get", "007-paging", "106-watch-list", "112-watch-labels"] {
        assert_eq!(altered(name, |_| {}).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn another_message_is_found() {
    let differences = altered("001-get", |steps| {
        let step = find(steps, |step| step["response"]["status"] == 404);
        step["response"]["body"]["message"] = json!("configmaps \"b\" is not found");
    });
    assert_found(&differences.await, "body.message: got \"configmaps \\\"b\\\" not found\"");
}

#[tokio::test(start_paused = true)]
async fn a_missing_added_on_entering_a_selector_is_found() {
    // The object that entered the selector is now kept out of it: no ADDED comes.
    let differences = altered("112-watch-labels", |steps| {
        let entering =
            |step: &Value| step["request"]["body"]["metadata"]["labels"]["on"] == "1" && is_patch(step);
        find(steps, entering)["request"]["body"]["metadata"]["labels"]["on"] = json!("0");
    });
    assert_found(&differences.await, "events w: event 0.type: got \"DELETED\", want \"ADDED\"");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_does_not_grow_is_found() {
    // The write now changes nothing, so the version stays.
    let differences = altered("106-watch-list", |steps| {
        find(steps, is_patch)["request"]["body"] = json!({});
    });
    assert_found(&differences.await, "body.metadata.resourceVersion: {rv:4} = ");
}

#[tokio::test(start_paused = true)]
async fn a_page_from_another_version_is_found() {
    // Without the token's version, the second page comes from the latest one.
    let differences = altered("007-paging", |steps| {
        let second = |step: &Value| step["request"]["path"].to_string().contains("limit=2&continue=");
        find(steps, second)["request"]["path"] = json!("/api/v1/namespaces/{ns}/configmaps?limit=2");
    });
    assert_found(&differences.await, "body.metadata.resourceVersion: {at:1} was ");
}

#[tokio::test(start_paused = true)]
async fn a_mark_before_the_last_initial_event_is_found() {
    // The watch now opens before the second object is there: its mark comes after the first.
    let differences = altered("106-watch-list", |steps| {
        let watch = steps.iter().position(|step| step["do"] == "watch").expect("it watches");
        steps.swap(watch - 2, watch - 1);
        steps.swap(watch - 1, watch);
    });
    assert_found(&differences.await, "events w: event 1.type: got \"BOOKMARK\", want \"ADDED\"");
}

fn is_patch(step: &Value) -> bool {
    step["request"]["method"] == "PATCH"
}

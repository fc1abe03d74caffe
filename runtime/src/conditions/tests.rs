//! Tests of conditions and their transition times.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::time::advance;

use super::*;

fn since(conditions: &Conditions, type_: &str) -> Timestamp {
    conditions.get(type_).expect("it is set").last_transition_time.0
}

// W14
#[tokio::test(start_paused = true)]
async fn the_transition_time_moves_only_when_the_status_flips() {
    let mut conditions = Conditions::default();
    conditions.set(Condition::not_ready("Waiting", "1 of 3"));
    let first = since(&conditions, "Ready");
    advance(Duration::from_secs(60)).await;
    conditions.set(Condition::not_ready("StillWaiting", "2 of 3"));
    assert_eq!(since(&conditions, "Ready"), first);
    assert_eq!((&*conditions[0].reason, &*conditions[0].message), ("StillWaiting", "2 of 3"));
    conditions.set(Condition::ready("AllReady", "3 of 3"));
    assert_eq!(since(&conditions, "Ready").duration_since(first).as_secs(), 60);
    advance(Duration::from_secs(60)).await;
    conditions.set(Condition::unknown("Lost", "nobody answers"));
    assert_eq!(since(&conditions, "Ready").duration_since(first).as_secs(), 120);
    assert!(!conditions.is_true("Ready") && !conditions.is_false("Ready"));
}

// W14
#[test]
fn other_conditions_stay_as_they_are_and_in_their_order() {
    let theirs = json!({
        "type": "example.dev/Audited", "status": "True", "reason": "Ok", "message": "", "observedGeneration": 3,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let mut conditions: Conditions = serde_json::from_value(json!([theirs])).unwrap();
    conditions.set(Condition::new("Available", 2 > 1, "Serving", "two serve"));
    conditions.set(Condition::new("Available", 0 > 1, "Down", "none serves"));
    let written = serde_json::to_value(&conditions).unwrap();
    assert_eq!(written[0], theirs);
    assert_eq!((&written[1]["status"], conditions.len()), (&json!("False"), 2));
    conditions.remove("Available");
    conditions.remove("Available");
    assert_eq!(serde_json::to_value(&conditions).unwrap(), json!([theirs]));
}

#[test]
fn the_observed_generation_is_the_objects() {
    let mut object = ConfigMap::default();
    object.metadata.generation = Some(7);
    let mut conditions = Conditions::default();
    conditions.set(Condition::ready("Done", "").of(&object));
    assert_eq!(conditions[0].observed_generation, Some(7));
    conditions.set(Condition::ready("Done", ""));
    assert_eq!(conditions[0].observed_generation, None);
}

#[test]
fn what_is_written_reads_the_same_and_null_is_empty() {
    let mut conditions = Conditions::default();
    conditions
        .set_at(Condition::ready("Done", "é".repeat(20_000)), "2026-01-02T03:04:05.678Z".parse().unwrap());
    let written = serde_json::to_value(&conditions).unwrap();
    assert_eq!(written[0]["lastTransitionTime"], "2026-01-02T03:04:05Z");
    assert!(written[0]["message"].as_str().unwrap().len() <= LONGEST_MESSAGE, "longer ones are refused");
    assert_eq!(serde_json::from_value::<Conditions>(written).unwrap(), conditions);
    assert!(serde_json::from_value::<Conditions>(json!(null)).unwrap().is_empty());
}

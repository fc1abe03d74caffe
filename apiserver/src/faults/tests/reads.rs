//! Claims about lists that break and replicas that lag.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::whole::{MAPS, ask, config_map, maps, server, watched};
use super::*;
use crate::ApiServer;

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

async fn with_maps(names: &[&str]) -> ApiServer {
    let server = server().await;
    for name in names {
        server.create(&config_map(name)).await;
    }
    server
}

#[tokio::test(start_paused = true)]
async fn a_token_expires_in_the_middle_of_a_list() {
    let server = with_maps(&["a", "b", "c"]).await;
    let page = format!("{MAPS}?limit=1");
    let token = |list: &Value| list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    server.faults().on(Verb::List, "configmaps").once().then(Fault::ExpiredToken);
    let first = ask(&server, &page).await.unwrap();
    let next = format!("{page}&continue={}", token(&first));
    let refused = async |uri: &str| match ask(&server, uri).await.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.metadata.and_then(|m| m.continue_)),
        other => panic!("{other}"),
    };
    let (code, on) = refused(&next).await;
    assert_eq!(code, 410);
    let rest = ask(&server, &format!("{MAPS}?continue={}", on.unwrap())).await.unwrap();
    assert!(!names(&rest).contains(&names(&first)[0]) && names(&rest).len() >= 2, "{rest}");
    server.faults().on(Verb::List, "configmaps").once().then(Fault::ExpiredTokenForGood);
    let (code, on) = refused(&next).await;
    assert_eq!((code, on.filter(|token| !token.is_empty())), (410, None));
}

#[tokio::test(start_paused = true)]
async fn a_list_without_end_gives_empty_pages_for_ever() {
    let server = with_maps(&["a"]).await;
    server.faults().on(Verb::List, "configmaps").then(Fault::EndlessList);
    let first = ask(&server, &format!("{MAPS}?limit=500")).await.unwrap();
    assert!(names(&first).contains(&"a"));
    let mut token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        let page = ask(&server, &format!("{MAPS}?limit=500&continue={token}")).await.unwrap();
        assert_eq!(
            (names(&page).len(), &page["metadata"]["resourceVersion"]),
            (0, &first["metadata"]["resourceVersion"])
        );
        token = page["metadata"]["continue"].as_str().unwrap().to_owned();
        assert!(!token.is_empty());
    }
    assert_eq!(server.faults().log().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_list_is_broken_and_the_others_are_not() {
    let server = with_maps(&["a", "b"]).await;
    let uri = format!("{MAPS}?labelSelector=!x");
    server.faults().on(Verb::List, "configmaps").once().then(Fault::Garble(Garble::Object).at_event(1));
    let list = ask(&server, &uri).await.unwrap();
    assert_eq!(list["items"][0]["metadata"]["labels"], "no map");
    assert!(list["items"][1]["metadata"]["labels"].is_null());
    server.faults().on(Verb::List, "configmaps").once().then(Fault::Garble(Garble::Identity).at_event(2));
    assert_eq!(ask(&server, &uri).await.unwrap()["items"][1]["metadata"], 7);
    server.faults().on(Verb::List, "configmaps").once().then(Fault::Garble(Garble::Json).at_event(2));
    assert!(matches!(ask(&server, &uri).await, Err(kube::Error::SerdeError(_))));
    assert_eq!(server.faults().log().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_replica_some_versions_behind_shows_the_past_to_those_who_take_it() {
    let server = with_maps(&["a", "b"]).await;
    let then = server.resource_version();
    server.create(&config_map("c")).await;
    server.faults().on_reads("configmaps").then(Fault::Stale(Lag::Versions(1)));
    let old = ask(&server, &format!("{MAPS}?resourceVersion=0")).await.unwrap();
    assert_eq!(old["metadata"]["resourceVersion"], then.to_string());
    assert!(names(&old).contains(&"b") && !names(&old).contains(&"c"));
    let new = ask(&server, MAPS).await.unwrap();
    assert!(names(&new).contains(&"c"), "a consistent read is consistent");
    assert_eq!(code(ask(&server, &format!("{MAPS}/c?resourceVersion=0")).await), 404);
    assert!(maps(&server).get("c").await.is_ok());
    server.faults().clear();
    server.faults().on_reads("configmaps").then(Fault::Stale(Lag::Versions(1)).even_consistent());
    assert!(!names(&ask(&server, MAPS).await.unwrap()).contains(&"c"));
    assert_eq!(code(ask(&server, &format!("{MAPS}/c")).await), 404);
}

fn code(answer: kube::Result<Value>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_not_older_than_what_a_replica_has_waits_for_it() {
    let server = with_maps(&["a"]).await;
    let now = server.resource_version();
    let newest = format!("{MAPS}?resourceVersion={now}&resourceVersionMatch=NotOlderThan");
    server.faults().on_reads("configmaps").times(1).then(Fault::Stale(Lag::Time(Duration::from_secs(2))));
    let start = Instant::now();
    assert!(names(&ask(&server, &newest).await.unwrap()).contains(&"a"));
    assert_eq!(start.elapsed().as_secs(), 2);
    let frozen = server.freeze_reads("configmaps");
    server.create(&config_map("b")).await;
    let newer = format!("{MAPS}?resourceVersion={}", server.resource_version());
    let refused = ask(&server, &newer).await.unwrap_err().to_string();
    assert!(
        refused.contains(&format!("Too large resource version: {}, current: {now}", now + 1)),
        "{refused}"
    );
    frozen.disarm();
    assert_eq!(code(ask(&server, &newer).await), 200);
}

#[tokio::test(start_paused = true)]
async fn a_stale_watch_tells_late_and_begins_with_the_past() {
    let server = with_maps(&["a"]).await;
    server.faults().on_reads("configmaps").then(Fault::Stale(Lag::Time(Duration::from_secs(10))));
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.create(&config_map("b")).await;
    let now = server.resource_version();
    let selector = "fieldSelector=metadata.name!=kube-root-ca.crt";
    let from_any = format!("{MAPS}?watch=1&resourceVersion=0&{selector}");
    let from_now = format!("{MAPS}?watch=1&resourceVersion={now}&allowWatchBookmarks=1&{selector}");
    let soon = watched(server.client(), from_any.clone(), Duration::from_secs(9)).await;
    assert_eq!(soon, ["ADDED a"]);
    let late = tokio::spawn(watched(server.client(), from_any, Duration::from_secs(11)));
    let silent = tokio::spawn(watched(server.client(), from_now, Duration::from_secs(11)));
    assert_eq!(late.await.unwrap(), ["ADDED a", "ADDED b"]);
    assert_eq!(silent.await.unwrap(), [""; 0], "{now} is not new to its client");
}

#[tokio::test(start_paused = true)]
async fn an_open_watch_lags_and_catches_up() {
    let server = with_maps(&[]).await;
    let from = server.resource_version();
    let uri = format!("{MAPS}?watch=1&resourceVersion={from}");
    let reading = |time| tokio::spawn(watched(server.client(), uri.clone(), Duration::from_secs(time)));
    let (short, long) = (reading(10), reading(100));
    server.watches("configmaps").wait_for(2).await;
    let lagging = server.faults().on_reads("configmaps").then(Fault::Stale(Lag::Versions(2)));
    for name in ["a", "b", "c"] {
        server.create(&config_map(name)).await;
    }
    assert_eq!(short.await.unwrap(), ["ADDED a"]);
    lagging.disarm();
    assert_eq!(long.await.unwrap(), ["ADDED a", "ADDED b", "ADDED c"]);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_lag_each_other_answer_in_turn() {
    let server = with_maps(&["a", "b", "c"]).await;
    let replicas = Fault::Replicas([Lag::Versions(0), Lag::Versions(2), Lag::Versions(1)]);
    server.faults().on_reads("configmaps").resource_version("0").then(replicas);
    let mut seen = Vec::new();
    for _ in 0..6 {
        assert!(names(&ask(&server, MAPS).await.unwrap()).contains(&"c"));
        let list = ask(&server, &format!("{MAPS}?resourceVersion=0")).await.unwrap();
        seen.push(names(&list).iter().filter(|name| **name != "kube-root-ca.crt").count());
    }
    assert_eq!(seen, [3, 1, 2, 3, 1, 2]);
    assert!(server.faults().log()[1].script.ends_with(".nth(2).then(Fault::Stale(Lag::Versions(2)));"));
}

#[test]
fn a_rule_fires_at_every_so_many_th_match() {
    let faults = Faults::default();
    faults.on(Verb::List, "pods").every(3).then(Fault::Status(503));
    let fired: Vec<u64> =
        (1..=9).filter(|_| matches!(faults.judge(&list_of("pods"), "", || 1), Verdict::Reply(_))).collect();
    assert_eq!(fired, [3, 6, 9]);
}

#[tokio::test(start_paused = true)]
async fn what_only_colours_an_answer_adds_up() {
    let server = with_maps(&["a", "b"]).await;
    let from = server.resource_version() - 2;
    server.faults().on(Verb::Watch, "configmaps").then(Fault::Duplicate);
    server.faults().on(Verb::Watch, "configmaps").then(Fault::Skip(Events::Changes).at_event(1));
    server.faults().on(Verb::Watch, "configmaps").then(Fault::Cut.after_events(2).at_byte(0));
    server.create(&config_map("c")).await;
    let uri = format!("{MAPS}?watch=1&resourceVersion={from}");
    let seen = watched(server.client(), uri, Duration::from_secs(1)).await;
    assert_eq!(seen, ["ADDED a", "ADDED b", "broken"]);
}

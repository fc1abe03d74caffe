//! Claims about faults of a whole server, in memory but for resets.

use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::Value;

use super::*;
use crate::ApiServer;

pub(super) const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

pub(super) fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}})).unwrap()
}

pub(super) async fn server() -> ApiServer {
    ApiServer::in_memory().namespace("shop").start().await
}

pub(super) fn maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(server.client(), "shop")
}

pub(super) async fn ask(server: &ApiServer, uri: &str) -> kube::Result<Value> {
    server.client().request(http::Request::get(uri).body(Vec::new()).unwrap()).await
}

/// Reads a watch for some time; returns type, name and version of each line, and `broken` if it is.
pub(super) async fn watched(client: kube::Client, uri: String, time: Duration) -> Vec<String> {
    let request = http::Request::get(uri).body(Vec::new()).unwrap();
    let mut lines = Box::pin(client.request_stream(request).await.unwrap().lines());
    let end = tokio::time::Instant::now() + time;
    let mut seen = Vec::new();
    while let Ok(Some(line)) = tokio::time::timeout_at(end, lines.next()).await {
        let Ok(line) = line else {
            seen.push("broken".to_owned());
            break;
        };
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            seen.push(line);
            continue;
        };
        let (kind, metadata) = (event["type"].as_str().unwrap_or("none"), &event["object"]["metadata"]);
        let name = metadata["name"].as_str().unwrap_or_default();
        let mark = metadata["annotations"]["k8s.io/initial-events-end"].as_str();
        seen.push(format!("{kind} {name}{}", mark.unwrap_or_default()));
    }
    seen
}

const STREAMED: &str = "watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name=a";

#[tokio::test(start_paused = true)]
async fn the_mark_that_ends_a_streamed_list_is_spoilt_or_withheld() {
    let server = server().await;
    server.create(&config_map("a")).await;
    for (fault, wanted) in [
        (Action::from(Fault::EndMark(Mark::False)), vec!["ADDED a", "BOOKMARK false"]),
        (Fault::EndMark(Mark::Absent).into(), vec!["ADDED a", "BOOKMARK "]),
        (Fault::Skip(Events::InitialEnd).into(), vec!["ADDED a"]),
        (Fault::Status(500).text().into(), vec![]),
    ] {
        let refused = matches!(fault.0, super::super::action::Effect::Reply(_));
        let armed = server.faults().on(Verb::Watch, "configmaps").once().then(fault);
        let uri = format!("{MAPS}?{STREAMED}");
        if refused {
            let request = http::Request::get(uri).body(Vec::new()).unwrap();
            let refused = server.client().request_stream(request).await.err().unwrap();
            assert!(refused.to_string().contains("500"), "{refused}");
        } else {
            assert_eq!(watched(server.client(), uri, Duration::from_secs(1)).await, wanted);
        }
        assert_eq!(armed.fired(), 1);
    }
}

// R17
#[tokio::test(start_paused = true)]
async fn a_version_too_large_is_said_in_every_form_there_was() {
    let server = server().await;
    let faults = server.faults();
    let said = async |reply: StatusReply| {
        faults.on(Verb::List, "configmaps").once().then(reply);
        match ask(&server, &format!("{MAPS}?resourceVersion=99")).await.unwrap_err() {
            kube::Error::Api(status) => *status,
            other => panic!("{other}"),
        }
    };
    let current = server.resource_version();
    let words = format!("Too large resource version: 99, current: {current}");
    let status = said(Fault::TooLarge(TooLarge::CauseReason)).await;
    assert_eq!((status.code, status.reason.as_str()), (504, "Timeout"));
    assert_eq!(status.details.unwrap().causes[0].reason, "ResourceVersionTooLarge");
    let status = said(Fault::TooLarge(TooLarge::CauseMessage)).await;
    assert!(!status.message.contains("Too large"));
    let causes = status.details.unwrap().causes;
    assert_eq!((causes[0].reason.as_str(), causes[0].message.as_str()), ("", "Too large resource version"));
    let status = said(Fault::TooLarge(TooLarge::Message)).await;
    assert!(status.message.ends_with(&words) && status.details.is_none(), "{status:?}");
    let status = said(Fault::TooLarge(TooLarge::Message).code(429).retry_after(1)).await;
    assert_eq!((status.code, status.reason.as_str()), (429, "Timeout"));
    let status = said(Fault::TooLarge(TooLarge::Message).text()).await;
    assert!(status.message.contains(&words), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_partition_holds_everything_until_it_heals() {
    let server = server().await;
    let from = server.resource_version();
    let uri = format!("{MAPS}?watch=1&resourceVersion={from}");
    let reading = tokio::spawn(watched(server.client(), uri, Duration::from_secs(100)));
    server.watches("configmaps").wait_for(1).await;
    server.partition();
    server.create(&config_map("a")).await;
    let client = server.client();
    let asking = tokio::spawn(async move { client.apiserver_version().await });
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!asking.is_finished() && !reading.is_finished());
    server.heal();
    asking.await.unwrap().unwrap();
    assert_eq!(reading.await.unwrap(), ["ADDED a"]);
}

#[tokio::test]
async fn a_reset_over_tcp_is_one() {
    let server = ApiServer::http().namespace("shop").start().await.unwrap();
    let from = server.resource_version();
    let request = http::Request::get(format!("{MAPS}?watch=1&resourceVersion={from}"));
    let mut lines =
        Box::pin(server.client().request_stream(request.body(Vec::new()).unwrap()).await.unwrap().lines());
    server.watches("configmaps").wait_for(1).await;
    server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Reset);
    let error = lines.next().await.unwrap().unwrap_err();
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    let mut kinds = Vec::new();
    while let Some(error) = cause {
        kinds.extend(error.downcast_ref::<std::io::Error>().map(std::io::Error::kind));
        cause = match error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref()) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    assert!(kinds.contains(&std::io::ErrorKind::ConnectionReset), "{kinds:?} {error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reset_in_memory_says_so() {
    let server = server().await;
    server.faults().on(Verb::List, "configmaps").then(Fault::Reset);
    let error = ask(&server, MAPS).await.unwrap_err();
    assert!(format!("{error:?}").contains("Reset"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_in_the_script() {
    let server = server().await;
    let version = server.resource_version();
    server.restart(crate::Restart::At(version));
    assert_eq!(
        server.faults().script(),
        format!("server.restart(Restart::At({version})); // everything at version {version}\n")
    );
}

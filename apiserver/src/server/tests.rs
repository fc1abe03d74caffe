//! Claims about the server as a whole, in memory and over HTTP.

use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{ApiServer, Fault, Restart, StartError, Verb};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

fn maps(client: kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

fn get(uri: &str) -> http::Request<Vec<u8>> {
    http::Request::get(uri).body(Vec::new()).unwrap()
}

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";

/// Reads a watch to its end; gives its lines and whether it ended cleanly.
async fn read_all(client: &kube::Client, uri: &str) -> (Vec<String>, bool) {
    let mut lines = Box::pin(client.request_stream(get(uri)).await.unwrap().lines());
    let mut seen = Vec::new();
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => seen.push(line),
            Err(_) => return (seen, false),
        }
    }
    (seen, true)
}

/// Reads a watch until this many objects were added, or to its end; returns their number.
async fn read_added(client: &kube::Client, uri: &str, wanted: usize) -> usize {
    let mut lines = Box::pin(client.request_stream(get(uri)).await.unwrap().lines());
    let mut added = 0;
    while added < wanted {
        let Some(line) = lines.next().await else { break };
        added += usize::from(line.unwrap().contains("\"ADDED\""));
    }
    added
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_watching_pass_at_once() {
    let server = ApiServer::in_memory().start().await;
    let start = Instant::now();
    let (lines, clean) = read_all(&server.client(), &format!("{WATCH}&timeoutSeconds=600")).await;
    assert!(clean);
    assert!(
        lines.iter().all(|line| line.contains("kube-root-ca.crt") || line.contains("BOOKMARK")),
        "{lines:?}"
    );
    assert_eq!(start.elapsed().as_secs(), 600);
}

#[tokio::test(start_paused = true)]
async fn tokens_tell_users_apart() {
    let server = ApiServer::in_memory().start().await;
    let viewer = maps(server.client_as("viewer"));
    let refused = viewer.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(code(&refused), Some(403));
    server.allow("viewer", Verb::List, "configmaps");
    viewer.list(&ListParams::default()).await.unwrap();
    assert_eq!(server.requests().count(Verb::List, "configmaps"), 2);
    let records = server.requests().list();
    assert_eq!((records[0].user.as_str(), records[0].status), ("viewer", Some(403)));
}

#[tokio::test(start_paused = true)]
async fn half_of_the_lists_fail_and_no_retry_hides_it() {
    let server = ApiServer::in_memory().start().await;
    let api = maps(server.client());
    let armed =
        server.faults().on(Verb::List, "configmaps").probability(0.5).seed(1).then(Fault::Status(503));
    let start = Instant::now();
    let mut failed = 0;
    for _ in 0..40 {
        failed += u64::from(api.list(&ListParams::default()).await.is_err());
    }
    assert_eq!(failed, armed.fired());
    assert!((10..=30).contains(&failed), "{failed}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_cut_at_an_event_loses_that_event_alone() {
    let server = ApiServer::in_memory().start().await;
    let client = server.client();
    let uri = format!("{WATCH}&resourceVersion={}", server.resource_version());
    server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut.after_events(1).at_byte(9));
    let kit = server.kit().clone();
    let reading = tokio::spawn(async move { read_all(&client, &uri).await });
    for name in ["a", "b", "c"] {
        kit.create(&config_map(name)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (lines, clean) = reading.await.unwrap();
    assert!(!clean);
    let whole: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0]["object"]["metadata"]["name"], "a");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_done() {
    let server = ApiServer::in_memory().start().await;
    server.faults().on_any_write().once().then(Fault::CommitThenDrop);
    let api = maps(server.client());
    let lost = api.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    assert_eq!(code(&lost), None);
    assert!(server.get::<ConfigMap>("a").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_restart_breaks_streams_and_keeps_what_it_is_told() {
    let server = ApiServer::in_memory().start().await;
    server.create(&config_map("a")).await;
    let version = server.resource_version();
    let client = server.client();
    let reading = tokio::spawn(async move { read_all(&client, WATCH).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.restart(Restart::Keep);
    assert!(!reading.await.unwrap().1);
    assert!(server.get::<ConfigMap>("a").await.is_some());
    assert_eq!(server.resource_version(), version);
    server.restart(Restart::ForgetHistory);
    let (lines, _) = read_all(&server.client(), &format!("{WATCH}&resourceVersion=1&timeoutSeconds=5")).await;
    assert!(lines[0].contains("\"code\":410"), "{lines:?}");
    server.restart(Restart::Empty);
    assert!(server.get::<ConfigMap>("a").await.is_none());
    assert!(server.resource_version() < version);
}

// wire 105
#[tokio::test(start_paused = true)]
async fn an_older_state_is_restored_and_a_watch_from_the_lost_future_is_silent() {
    let server = ApiServer::in_memory().bookmark_period(Duration::from_secs(1)).start().await;
    server.create(&config_map("a")).await;
    let then = server.resource_version();
    server.delete::<ConfigMap>("a").await;
    let lost = server.create(&config_map("b")).await.metadata;
    let client = server.client();
    let reading = tokio::spawn(async move { read_all(&client, WATCH).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.restart(Restart::At(then));
    assert!(!reading.await.unwrap().1);
    assert_eq!(server.resource_version(), then);
    assert!(server.get::<ConfigMap>("a").await.is_some() && server.get::<ConfigMap>("b").await.is_none());
    let from = lost.resource_version.unwrap();
    let uri = format!("{WATCH}&resourceVersion={from}&allowWatchBookmarks=1&timeoutSeconds=30");
    let client = server.client();
    let reading = tokio::spawn(async move { read_all(&client, &uri).await });
    tokio::time::sleep(Duration::from_secs(20)).await;
    let names = ["c", "d", "e"];
    for name in names {
        server.create(&config_map(name)).await;
    }
    let (lines, _) = reading.await.unwrap();
    assert!(lines[0].contains("\"name\":\"e\""), "nothing of what {from} had already: {lines:?}");
    let again = server.get::<ConfigMap>("d").await.unwrap().metadata;
    assert_eq!(again.resource_version, Some(from), "versions are given out a second time");
    assert_ne!(again.uid, lost.uid);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "no version before")]
async fn a_forgotten_state_is_not_restored() {
    let server = ApiServer::in_memory().start().await;
    let then = server.resource_version();
    server.create(&config_map("a")).await;
    server.compact();
    server.restart(Restart::At(then));
}

#[tokio::test(start_paused = true)]
async fn a_restored_state_has_the_definitions_of_its_time() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let before = server.resource_version();
    let crd = serde_json::to_value(<Website as kube::CustomResourceExt>::crd()).unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(crd.to_string().into_bytes()).unwrap();
    server.client().request::<Value>(request).await.unwrap();
    server.settle().await;
    server.create(&website("a")).await;
    let with = server.resource_version();
    server.create(&website("b")).await;
    server.restart(Restart::At(with));
    assert_eq!(server.list::<Website>("*").await.len(), 1);
    server.restart(Restart::At(before));
    let websites = Api::<Website>::namespaced(server.client(), "shop");
    assert_eq!(code(&websites.list(&ListParams::default()).await.unwrap_err()), Some(404), "no such kind");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_answers_after_the_healing() {
    let server = ApiServer::in_memory().start().await;
    server.faults().on(Verb::List, "configmaps").then(Fault::Silence);
    let api = maps(server.client());
    let params = ListParams::default();
    let listing = api.list(&params);
    tokio::pin!(listing);
    assert!(tokio::time::timeout(Duration::from_secs(3600), &mut listing).await.is_err());
    server.faults().clear();
    listing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_answers_nobody() {
    let server = ApiServer::in_memory().start().await;
    let client = server.client();
    let reading = tokio::spawn({
        let client = client.clone();
        async move { read_all(&client, WATCH).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(server);
    assert!(!reading.await.unwrap().1);
    assert!(client.request::<Value>(get("/version")).await.is_err());
}

#[tokio::test]
async fn over_http_a_client_lists_watches_and_is_cut() {
    let server = ApiServer::http().start().await.unwrap();
    let client = server.client();
    maps(client.clone()).create(&PostParams::default(), &config_map("a")).await.unwrap();
    let version: Value = client.request(get("/version")).await.unwrap();
    assert_eq!(version["gitVersion"], "v1.36.3");
    server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut.after_events(1).at_byte(9));
    let kit = server.kit().clone();
    let uri = format!("{WATCH}&resourceVersion={}", server.resource_version());
    let reading = tokio::spawn(async move { read_all(&client, &uri).await });
    while server.faults().open_streams() == 0 {
        tokio::task::yield_now().await;
    }
    for name in ["b", "c"] {
        kit.create(&config_map(name)).await;
    }
    let (lines, clean) = reading.await.unwrap();
    assert!(!clean, "{lines:?}");
    assert!(lines[0].contains("\"name\":\"b\""), "{lines:?}");
    assert_eq!(lines.get(1).map(|line| line.len()).unwrap_or(9), 9, "{lines:?}");
}

#[tokio::test]
async fn a_wrong_token_is_unauthorized_and_none_is_anonymous() {
    let server = ApiServer::http().start().await.unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(server.kubeconfig(), &Default::default()).await.unwrap();
    config.auth_info = serde_json::from_value(json!({ "token": "wrong" })).unwrap();
    let wrong = kube::Client::try_from(config.clone()).unwrap();
    let refused = wrong.request::<Value>(get("/version")).await.unwrap_err();
    assert_eq!(code(&refused), Some(401));
    config.auth_info = Default::default();
    let anonymous = kube::Client::try_from(config).unwrap();
    anonymous.request::<Value>(get("/version")).await.unwrap();
    let refused = anonymous.request::<Value>(get("/api/v1/configmaps")).await.unwrap_err();
    assert_eq!(code(&refused), Some(403));
}

#[tokio::test]
async fn a_busy_port_is_named_with_a_remedy() {
    let server = ApiServer::http().start().await.unwrap();
    let port: u16 = server.url().rsplit(':').next().unwrap().parse().unwrap();
    let error = ApiServer::http().port(port).start().await.unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }));
    let text = error.to_string();
    assert!(text.contains(&format!("127.0.0.1:{port}")) && text.contains("choose another port"), "{text}");
    server.stop().await;
    ApiServer::http().port(port).start().await.unwrap();
}

#[tokio::test]
async fn it_listens_on_loopback_alone() {
    let error = ApiServer::http().listen("0.0.0.0:0".parse().unwrap()).start().await.unwrap_err();
    assert!(matches!(error, StartError::NotLoopback { .. }), "{error}");
}

#[tokio::test]
async fn dropping_a_server_breaks_its_streams_and_frees_its_port() {
    let server = ApiServer::http().start().await.unwrap();
    let client = server.client();
    let address = server.url().trim_start_matches("https://").to_owned();
    let reading = tokio::spawn(async move { read_all(&client, WATCH).await });
    while server.faults().open_streams() == 0 {
        tokio::task::yield_now().await;
    }
    drop(server);
    assert!(!reading.await.unwrap().1);
    while tokio::net::TcpStream::connect(&address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_control_port_compacts_arms_and_lists() {
    let server = ApiServer::http().control("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let url = server.control_url().unwrap();
    let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let send = async |method: &str, path: &str, body: &str| -> String {
        let body = kube::client::Body::from(body.as_bytes().to_vec());
        let request = http::Request::builder().method(method).uri(path).body(body).unwrap();
        let (parts, body) = client.send(request).await.unwrap().into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        format!("{} {}", parts.status.as_u16(), String::from_utf8_lossy(&bytes))
    };
    assert!(send("POST", "/compact", "").await.starts_with("200"));
    assert!(send("POST", "/compact?revision=1", "").await.contains("\"resourceVersion\":\"1\""));
    assert!(send("POST", "/compact?revision=x", "").await.starts_with("400"));
    assert!(send("POST", "/restart?mode=keep", "").await.starts_with("200"));
    assert!(send("POST", "/restart?mode=at&resourceVersion=0", "").await.contains("is remembered"));
    assert!(send("POST", "/restart?mode=at", "").await.starts_with("400"));
    assert!(send("POST", "/partition", "").await.starts_with("200"));
    let cut_off = server.client();
    let asking = tokio::spawn(async move { cut_off.apiserver_version().await });
    while server.requests().total() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!asking.is_finished());
    assert!(send("POST", "/heal", "").await.starts_with("200"));
    asking.await.unwrap().unwrap();
    let rule =
        r#"{"verb": "list", "resource": "configmaps", "times": 1, "fault": {"status": {"code": 500}}}"#;
    assert!(send("POST", "/faults", rule).await.contains("\"armed\":1"));
    assert!(send("POST", "/faults", "{}").await.starts_with("400"));
    let refused = maps(server.client()).list(&ListParams::default()).await.unwrap_err();
    assert_eq!(code(&refused), Some(500));
    assert!(send("GET", "/requests", "").await.contains("\"list configmaps\":1"));
    assert!(send("GET", "/faults", "").await.contains("Fault::Status(500)"));
    assert!(send("PUT", "/faults", "").await.starts_with("405"));
    assert!(send("GET", "/nope", "").await.starts_with("404"));
}

#[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
struct WebsiteSpec {
    domain: String,
    replicas: i32,
}

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WebsiteStatus {
    ready_replicas: i32,
}

fn website(name: &str) -> Website {
    Website::new(name, WebsiteSpec { domain: format!("{name}.example"), replicas: 1 })
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_served_when_start_returns() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let made = server.create(&website("a")).await;
    assert_eq!(made.metadata.generation, Some(1));
    let changed = server.patch_status::<Website>("a", json!({ "readyReplicas": 2 })).await;
    assert_eq!(changed.status.map(|status| status.ready_replicas), Some(2));
    assert_eq!(changed.metadata.generation, Some(1));
    let mut edited = server.get::<Website>("shop/a").await.unwrap();
    edited.spec.replicas = 3;
    assert_eq!(server.update(&edited).await.metadata.generation, Some(2));
    assert!(server.delete::<Website>("shop/a").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_empty_restart_forgets_definitions_until_they_are_installed_again() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    server.create(&website("a")).await;
    server.restart(Restart::Empty);
    let missing = Api::<Website>::namespaced(server.client(), "shop").get("a").await.unwrap_err();
    assert_eq!(code(&missing), Some(404));
    server.install().await.unwrap();
    assert!(server.list::<Website>("*").await.is_empty());
    server.create(&website("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_cut_resumes_without_loss() {
    let server = ApiServer::in_memory().start().await;
    let version = server.resource_version();
    server.faults().on(Verb::Watch, "configmaps").times(3).then(Fault::Cut.after_events(2));
    for index in 0..9 {
        server.create(&config_map(&format!("m{index}"))).await;
    }
    let (mut from, mut seen) = (version, Vec::new());
    while seen.len() < 9 {
        let uri = format!("{WATCH}&resourceVersion={from}&timeoutSeconds=1");
        for line in read_all(&server.client(), &uri).await.0 {
            let event: Value = serde_json::from_str(&line).unwrap();
            from = event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            seen.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    let expected: Vec<String> = (0..9).map(|index| format!("m{index}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(server.requests().count(Verb::Watch, "configmaps"), 4);
    assert_eq!(server.faults().log().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_over_http_see_every_write() {
    let server = ApiServer::http().start().await.unwrap();
    let uri = format!("{WATCH}&resourceVersion={}", server.resource_version());
    let watchers: Vec<_> = (0..8)
        .map(|_| {
            let (client, uri) = (server.client(), uri.clone());
            tokio::spawn(async move { read_added(&client, &uri, 100).await })
        })
        .collect();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let api = maps(server.client());
            tokio::spawn(async move {
                for index in 0..25 {
                    let map = config_map(&format!("m{writer}-{index}"));
                    api.create(&PostParams::default(), &map).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), 100);
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_start_from_a_prepared_one_are_alike_and_apart() {
    let prepared = ApiServer::in_memory().namespace("shop").prepare().await;
    let (one, other) = (prepared.start(), prepared.start());
    assert_eq!(one.resource_version(), other.resource_version());
    let map = |name: &str| -> ConfigMap {
        serde_json::from_value(serde_json::json!({ "metadata": { "name": name } })).unwrap()
    };
    let (made, again) = (one.create(&map("a")).await, other.create(&map("b")).await);
    assert_eq!(made.metadata.namespace.as_deref(), Some("shop"));
    assert_eq!(made.metadata.uid, again.metadata.uid, "the random generator starts again");
    assert_eq!(made.metadata.resource_version, again.metadata.resource_version);
    assert!(one.get::<ConfigMap>("b").await.is_none() && other.get::<ConfigMap>("a").await.is_none());
    let third = prepared.start();
    assert!(third.list::<ConfigMap>("shop").await.is_empty());
    third.delete::<k8s_openapi::api::core::v1::Namespace>("shop").await;
    third.settle().await;
    assert!(prepared.start().get::<k8s_openapi::api::core::v1::Namespace>("shop").await.is_some());
}

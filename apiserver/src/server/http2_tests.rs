//! Claims about the server over HTTP/2.

use std::sync::Arc;

use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt, future::join_all};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::{Body, ConfigExt as _};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tower::{BoxError, ServiceBuilder, service_fn};

use crate::{ApiServer, Fault, OverHttp, Restart, Verb};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0";

/// One connection that speaks HTTP/2.
#[derive(Clone)]
struct Connection {
    sender: SendRequest<Body>,
    authority: String,
}

impl Connection {
    async fn open(server: &ApiServer<OverHttp>) -> Self {
        let config = config(server).await;
        let mut tls = config.rustls_client_config().expect("certificates");
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let authority = config.cluster_url.authority().expect("an address").to_string();
        let tcp = TcpStream::connect(&authority).await.expect("connected");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.expect("TLS");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        Self { sender, authority }
    }

    async fn send(mut self, request: Request<Body>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    async fn get(&self, path: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::get(format!("https://{}{path}", self.authority));
        let request = request.header("authorization", "Bearer admin-token");
        self.clone().send(request.body(Body::empty()).expect("a request")).await
    }
}

async fn config(server: &ApiServer<OverHttp>) -> Config {
    Config::from_custom_kubeconfig(server.kubeconfig(), &KubeConfigOptions::default())
        .await
        .expect("a config")
}

/// A kube client that sends all requests over one connection.
async fn client(server: &ApiServer<OverHttp>, connection: Connection) -> Client {
    let config = config(server).await;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().expect("a token"))
        .map_err(BoxError::from)
        .service(service_fn(move |request| connection.clone().send(request)));
    Client::new(service, "default")
}

fn map(name: &str, size: usize) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"text": "x".repeat(size)}}))
        .expect("one")
}

async fn create(maps: &Api<ConfigMap>, names: std::ops::Range<usize>, size: usize) {
    for at in names {
        maps.create(&PostParams::default(), &map(&format!("m{at}"), size)).await.expect("created");
    }
}

async fn lines(client: &Client, uri: &str) -> impl futures::Stream<Item = std::io::Result<String>> + use<> {
    let request = Request::get(uri).body(Vec::new()).expect("a request");
    Box::pin(client.request_stream(request).await.expect("a stream").lines())
}

// A17
#[tokio::test]
async fn a_kube_client_writes_lists_and_watches_over_one_connection() {
    let server = ApiServer::http().start().await.expect("started");
    let client = client(&server, Connection::open(&server).await).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&maps, 0..3, 10).await;
    assert_eq!(maps.list(&ListParams::default()).await.expect("listed").items.len(), 3);
    let short = format!("{WATCH}&timeoutSeconds=1");
    let watches = join_all((0..20).map(|_| lines(&client, &short))).await;
    maps.delete("m0", &DeleteParams::default()).await.expect("deleted");
    assert!(maps.get("m0").await.expect_err("gone").to_string().contains("not found"));
    // They end without an error when their time is over.
    let seen = join_all(watches.into_iter().map(TryStreamExt::try_collect::<Vec<String>>)).await;
    for lines in seen {
        let lines = lines.expect("a clean end");
        let types = lines.iter().map(|line| line.split('"').nth(3).expect("a type"));
        assert_eq!(types.collect::<Vec<_>>(), ["ADDED", "ADDED", "ADDED", "DELETED"]);
    }
}

// A17
#[tokio::test]
async fn a_stream_that_nobody_reads_holds_up_no_other() {
    let server = ApiServer::http().start().await.expect("started");
    let connection = Connection::open(&server).await;
    let _unread = connection.get(WATCH).await.expect("a stream");
    let client = client(&server, connection).await;
    let mut read = lines(&client, WATCH).await;
    // More than all buffers of a stream hold.
    create(&Api::default_namespaced(client), 0..60, 50_000).await;
    for at in 0..60 {
        let line = read.next().await.expect("no end").expect("no error");
        assert!(line.contains(&format!("\"name\":\"m{at}\"")), "{at}");
    }
}

// A17
#[tokio::test]
async fn a_connection_has_a_hundred_streams_at_most_and_another_has_its_own() {
    let server = ApiServer::http().start().await.expect("started");
    let (connection, other) = (Connection::open(&server).await, Connection::open(&server).await);
    // The settings come with the first answer.
    connection.get(MAPS).await.expect("answered").collect().await.expect("a list");
    let mut open = join_all((0..100).map(|_| connection.get(WATCH))).await;
    assert!(open.iter().all(Result::is_ok));
    let mut next = Box::pin(connection.get(MAPS));
    for _ in 0..50 {
        assert!(futures::poll!(&mut next).is_pending());
        other.get(MAPS).await.expect("answered").collect().await.expect("a list");
    }
    assert_eq!(server.requests().count(Verb::List, "configmaps"), 51);
    open.pop();
    assert_eq!(next.await.expect("answered").status(), 200);
}

// A17
#[tokio::test]
async fn what_a_rule_breaks_is_one_stream_and_a_restart_breaks_all() {
    let server = ApiServer::http().start().await.expect("started");
    let client = client(&server, Connection::open(&server).await).await;
    let mut kept = lines(&client, WATCH).await;
    server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut.after_events(1));
    let mut cut = lines(&client, WATCH).await;
    create(&Api::default_namespaced(client.clone()), 0..2, 10).await;
    let first = [kept.next().await, cut.next().await].map(|line| line.expect("no end").expect("no error"));
    assert!(first.iter().all(|line| line.contains("\"m0\"")));
    let ends = [kept.next().await, cut.next().await].map(|line| line.is_some_and(|line| line.is_ok()));
    assert!(ends == [true, false] || ends == [false, true], "{ends:?}");
    let mut whole = lines(&client, &WATCH.replace("&resourceVersion=0", "")).await;
    assert!(whole.next().await.expect("no end").is_ok() && whole.next().await.expect("no end").is_ok());
    server.restart(Restart::Keep);
    assert!(whole.next().await.is_none_or(|line| line.is_err()));
    assert!(client.list_core_api_versions().await.is_err(), "the connection is gone");
}

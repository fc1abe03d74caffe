//! The client over loopback: through proxies, compressed, with its time-outs, and with errors that say where.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Uri};
use kube::{Client, Config};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

use super::{client, observed};
use crate::metrics::Metrics;

/// `{"kind":"PodList", …, "items":[]}`, zipped.
const ZIPPED: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\xca\xce\xcc\x4b\x51\xb2\x52\x0a\xc8\x4f\xf1\xc9\x2c\x2e\x51\xd2\x51\x4a\x2c\xc8\x0c\x4b\x2d\x2a\xce\xcc\xcf\x03\x0a\x97\x19\x02\x45\x72\x53\x4b\x12\x53\x12\x4b\x12\x95\xac\xaa\x95\x8a\x52\x8b\xf3\x4b\x8b\x92\x53\x11\x4a\xcc\x95\x6a\x75\x94\x32\x4b\x52\x73\x8b\x95\xac\xa2\x63\x6b\x01\xe8\x8a\xa0\x0e\x52\x00\x00\x00";
const PLAIN: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;
const WATCH: &str = "/api/v1/pods?watch=true";
const LIST: &str = "/api/v1/pods";

fn seen(client: Client, metrics: &Metrics) -> Client {
    observed(client, metrics, &Arc::default(), &Arc::default(), true)
}

/// The first lines of what came in, one text a request.
type Heard = Arc<Mutex<Vec<String>>>;

async fn head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.unwrap_or(0) > 0 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A server that answers every request alike, and closes; and where it listens.
async fn server(answer: Vec<u8>) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heard) = (listener.local_addr().unwrap().to_string(), Heard::default());
    let hears = heard.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let request = head(&mut stream).await;
            hears.lock().unwrap().push(request);
            if !answer.is_empty() {
                let _ = stream.write_all(&answer).await;
                continue;
            }
            tokio::spawn(async move { drop((stream.read(&mut [0]).await, stream)) });
        }
    });
    (address, heard)
}

/// A proxy that connects to whatever CONNECT names.
async fn proxy() -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heard) = (listener.local_addr().unwrap().to_string(), Heard::default());
    let hears = heard.clone();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let hears = hears.clone();
            tokio::spawn(async move {
                let request = head(&mut near).await;
                let to = request.split(' ').nth(1).unwrap_or_default().to_owned();
                hears.lock().unwrap().push(request);
                let mut far = TcpStream::connect(to).await.unwrap();
                near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (address, heard)
}

fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn config(server: &str) -> Config {
    Config::new(format!("http://{server}").parse::<Uri>().unwrap())
}

async fn get(client: &Client, path: &str) -> Result<String, kube::Error> {
    client.request_text(Request::get(path).body(Vec::new()).unwrap()).await
}

#[tokio::test]
async fn lists_and_watches_go_through_a_proxy_with_its_credentials() {
    let (server, asked) = server(answer("", PLAIN.as_bytes())).await;
    let (proxy, tunnels) = proxy().await;
    let mut config = config(&server);
    config.proxy_url = Some(format!("http://me:p%40ss@{proxy}").parse().unwrap());
    let client = client(config).unwrap();
    for path in [LIST, WATCH] {
        assert_eq!(get(&client, path).await.unwrap(), PLAIN, "{path}");
    }
    let (asked, tunnels) = (asked.lock().unwrap().clone(), tunnels.lock().unwrap().clone());
    assert_eq!((asked.len(), tunnels.len()), (2, 2), "{asked:?} {tunnels:?}");
    for tunnel in tunnels {
        assert!(tunnel.starts_with(&format!("CONNECT {server} ")), "{tunnel}");
        // me:p@ss
        assert!(tunnel.to_lowercase().contains("proxy-authorization: basic bwu6cebzcw=="), "{tunnel}");
    }
}

#[tokio::test]
async fn lists_travel_zipped_and_watches_do_not() {
    let (server, asked) = server(answer("content-encoding: gzip\r\n", ZIPPED)).await;
    let client = client(config(&server)).unwrap();
    assert_eq!(get(&client, LIST).await.unwrap(), PLAIN);
    let _ = get(&client, WATCH).await;
    let asked = asked.lock().unwrap().clone();
    assert!(asked[0].to_lowercase().contains("accept-encoding: gzip"), "{asked:?}");
    assert!(!asked[1].to_lowercase().contains("accept-encoding: gzip"), "{asked:?}");
}

#[tokio::test]
async fn compression_can_be_left_out() {
    let (server, asked) = server(answer("", PLAIN.as_bytes())).await;
    let mut config = config(&server);
    config.disable_compression = true;
    assert_eq!(get(&client(config).unwrap(), LIST).await.unwrap(), PLAIN);
    assert!(!asked.lock().unwrap()[0].to_lowercase().contains("accept-encoding"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_read_timeout_ends_requests_that_are_not_answered() {
    let (server, _asked) = server(Vec::new()).await;
    let mut config = config(&server);
    config.connect_timeout = None;
    config.read_timeout = Some(Duration::from_secs(9));
    let client = client(config).unwrap();
    for path in [LIST, WATCH] {
        let asked = tokio::time::timeout(Duration::from_secs(3600), get(&client, path)).await;
        assert!(asked.expect("it ends by its time-out").is_err(), "{path}");
    }
}

#[tokio::test]
async fn a_server_that_can_not_be_reached_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let client = client(config(&closed)).unwrap();
    for path in [LIST, WATCH] {
        let error = get(&client, path).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("no answer from http://{closed}")), "{text}");
    }
}

/// Keeps the names of spans, each behind that of the span it is in.
#[derive(Clone, Default)]
struct Nested(Arc<Mutex<Vec<String>>>);

impl<S> tracing_subscriber::Layer<S> for Nested
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fn on_new_span(
        &self,
        _: &tracing::span::Attributes<'_>,
        id: &tracing::span::Id,
        cx: tracing_subscriber::layer::Context<'_, S>,
    ) {
        let scope = cx.span_scope(id).into_iter().flat_map(|scope| scope.from_root());
        self.0.lock().unwrap().push(scope.map(|span| span.name()).collect::<Vec<_>>().join(" > "));
    }
}

// C39
#[tokio::test]
async fn a_request_stands_in_the_span_that_sends_it_whatever_layers_it_passes() {
    let (server, _asked) = server(answer("", PLAIN.as_bytes())).await;
    let metrics = Metrics::new();
    let client = seen(seen(client(config(&server)).unwrap(), &metrics), &metrics);
    let nested = Nested::default();
    let _hears = tracing::subscriber::set_default(tracing_subscriber::registry().with(nested.clone()));
    // So that no other thread's answer counts, whether anybody cares.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    for path in [LIST, WATCH] {
        get(&client, path).instrument(tracing::info_span!("reconcile")).await.unwrap();
    }
    assert_eq!(*nested.0.lock().unwrap(), ["reconcile", "reconcile > HTTP", "reconcile", "reconcile > HTTP"]);
}

// P3
#[tokio::test]
async fn requests_are_counted_with_their_host_answered_or_not() {
    let (server, _asked) = server(answer("", PLAIN.as_bytes())).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let metrics = Metrics::new();
    for (host, path) in [(&server, LIST), (&server, WATCH), (&closed, LIST), (&closed, WATCH)] {
        let client = seen(client(config(host)).unwrap(), &metrics);
        let _ = get(&client, path).await;
    }
    let page = metrics.encode();
    for (code, host) in [("200", server), ("<error>", closed)] {
        let line = format!(r#"rest_client_requests_total{{code="{code}",host="{host}",method="GET"}} 2"#);
        assert!(page.lines().any(|one| one == line), "{line}\n{page}");
    }
}

// P3
#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_waits_for_any_more_is_counted_once() {
    let hangs = tower::service_fn(|_: Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
    });
    let metrics = Metrics::new();
    let client = seen(Client::new(hangs, "default"), &metrics);
    let sent = tokio::time::timeout(Duration::from_secs(1), get(&client, LIST)).await;
    assert!(sent.is_err());
    let line = r#"rest_client_requests_total{code="<error>",host="unknown",method="GET"} 1"#;
    assert!(metrics.encode().lines().any(|one| one == line), "{}", metrics.encode());
}

/// A key and its certificate, made for this test: nobody accepts them.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgs079K7aSCdPLqucf\n\
    d2JgJZfKaucidwEF4Rso2qXFpZOhRANCAASgTjgFow90nMnXSzrPR/d933exEbwP\n\
    dASa8htzZD6fviXwiMqq+1r9xYy4XjClyxd3SjYP3oC/arloCed/g5xh\n\
    -----END PRIVATE KEY-----\n";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBezCCASGgAwIBAgIUPW023V7v94jHgstjzUSYJLRTwUowCgYIKoZIzj0EAwIw\n\
    EzERMA8GA1UEAwwIc29tZWJvZHkwHhcNMjYxMTIyMTMzOTU4WhcNMzYxMTE5MTMz\n\
    OTU4WjATMREwDwYDVQQDDAhzb21lYm9keTBZMBMGByqGSM49AgEGCCqGSM49AwEH\n\
    A0IABKBOOAWjD3ScyddLOs9H933fd7ERvA90BJryG3NkPp++JfCIyqr7Wv3FjLhe\n\
    MKXLF3dKNg/egL9quWgJ53+DnGGjUzBRMB0GA1UdDgQWBBTYWqz3eW/zWoCbW+aM\n\
    nWma9lI3njAfBgNVHSMEGDAWgBTYWqz3eW/zWoCbW+aMnWma9lI3njAPBgNVHRMB\n\
    Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCOjMlKdHIBaEFMuI8jUzsfd9gf\n\
    EoGPbLB88twcJBDjqgIgamMGxMf38yIO5jvYyxIVUPJGwyyOTU9/eCb2pTxwyoU=\n\
    -----END CERTIFICATE-----\n";

/// A configuration whose credentials come from a plugin that prints this status.
fn with_plugin(status: &serde_json::Value) -> Config {
    let credentials = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    let mut config = config("127.0.0.1:1");
    let plugin = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh", "args": ["-c", format!("printf %s '{credentials}'")], "interactiveMode": "Never",
    });
    config.auth_info.exec = Some(serde_json::from_value(plugin).unwrap());
    config
}

#[tokio::test]
async fn a_client_says_until_when_the_certificate_of_a_plugin_holds() {
    let status = serde_json::json!({
        "clientKeyData": KEY, "clientCertificateData": CERTIFICATE, "expirationTimestamp": "2031-05-06T07:08:09Z",
    });
    let certified = client(with_plugin(&status)).unwrap();
    assert_eq!(
        certified.valid_until().map(|until| until.to_string()).as_deref(),
        Some("2031-05-06T07:08:09Z")
    );
    let token = serde_json::json!({ "token": "t", "expirationTimestamp": "2031-05-06T07:08:09Z" });
    assert_eq!(*client(with_plugin(&token)).unwrap().valid_until(), None, "a token is asked for again");
}

#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
#[tokio::test]
async fn a_plain_server_is_asked_without_a_look_at_certificates() {
    let (address, _) = server(answer("", b"{}")).await;
    let mut config = config(&address);
    config.root_cert = Some(vec![b"rubbish".to_vec()]);
    let plain = client(config.clone()).unwrap();
    assert_eq!(get(&plain, "/version").await.unwrap(), "{}");
    config.cluster_url = "https://localhost".parse().unwrap();
    assert!(client(config).is_err());
}

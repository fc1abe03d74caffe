//! The same requests to the embedded server and to a real kube-apiserver: both say the same.
//!
//! The real one runs where `WATCHKEEPER_KUBE_APISERVER` names the folder of its binaries (`tests/kube-apiserver/build`
//! makes them); without it one line says so, and what it said when this was written is compared alone.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use watchkeeper_apiserver::ApiServer;

use super::{certificates, serve};

const BINARIES: &str = "WATCHKEEPER_KUBE_APISERVER";

/// Ends a command when the input ends, and waits for that.
const MINDER: &str = r#"trap : INT TERM HUP; "$@" 2>/dev/null & minded=$!; exec >/dev/null; read -r _; kill "$minded"; wait "$minded""#;

/// A real kube-apiserver.
pub(super) struct Real(Child);

impl Real {
    /// Starts a kube-apiserver; gives a client of it.
    pub(super) async fn start() -> Option<(Self, kube::Client)> {
        let binaries = PathBuf::from(std::env::var_os(BINARIES)?);
        let mut command = Command::new("sh");
        command.args(["-c", MINDER, "minder"]).arg(binaries.join("kube-apiserver"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let server = Self(child);
        let path =
            lines.map(Result::unwrap).find_map(|line| line.strip_prefix("KUBECONFIG=").map(PathBuf::from));
        let kubeconfig = Kubeconfig::read_from(path.unwrap()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.unwrap();
        config.default_retry = false;
        Some((server, kube::Client::try_from(config).unwrap()))
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/sites";
const V2: &str = "/apis/example.com/v2/namespaces/default/sites";
pub(super) const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Sends a request; gives the code and the body.
pub(super) async fn ask(
    client: &kube::Client,
    method: &str,
    path: &str,
    media: &str,
    body: &Value,
) -> (u16, Value) {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let response = client.send(request.body(kube::client::Body::from(body)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn definition(client_config: Value) -> Value {
    let version = |name: &str, storage: bool, spec: Value| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
            }}},
        })
    };
    let text = json!({"type": "string"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "sites", "kind": "Site"},
            "versions": [
                version("v1", true, json!({"host": text, "port": text})),
                version("v2", false, json!({"address": text})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": client_config, "conversionReviewVersions": ["v1"],
            }},
        },
    })
}

fn site(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Site", "metadata": {"name": name}, "spec": spec})
}

/// Writes down an answer: a refusal's words, or what an object holds.
pub(super) fn told(what: &str, (code, answer): (u16, Value), port: u16) -> String {
    let said = match answer["kind"].as_str() {
        Some("Status") => {
            let reason = answer["reason"].as_str().unwrap_or("-");
            format!("{reason}: {}", answer["message"].as_str().unwrap_or_default())
        }
        Some("SiteList") => {
            answer["items"].as_array().into_iter().flatten().map(shown).collect::<Vec<_>>().join(" ")
        }
        _ => shown(&answer),
    };
    // A real server also says which authority it has tried.
    let said = said.split(" (possibly because of ").next().unwrap_or_default().replace('\n', " / ");
    format!("{what}: {code} {}\n", said.replace(&format!(":{port}/"), ":PORT/"))
}

fn shown(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let metadata = &object["metadata"];
    let status = if object["status"].is_null() { String::new() } else { format!(" {}", object["status"]) };
    format!(
        "{version} {} {}{status} {} {}",
        metadata["name"], object["spec"], metadata["generation"], metadata["annotations"]
    )
}

/// Has objects converted, by a webhook that works and by others; gives what came.
async fn converse(client: &kube::Client, port: u16, authority: &str) -> String {
    const JSON: &str = "application/json";
    let config =
        |path: &str| json!({"url": format!("https://localhost:{port}{path}"), "caBundle": authority});
    let mut told_all = String::new();
    let mut none = definition(config("/convert"));
    none["spec"]["conversion"]["webhook"] = json!({"conversionReviewVersions": ["v3"]});
    told_all += &told("no client", ask(client, "POST", CRDS, JSON, &none).await, port);
    none["spec"]["conversion"] = json!({"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}});
    told_all += &told("no webhook", ask(client, "POST", CRDS, JSON, &none).await, port);
    none["spec"]["conversion"] = json!({"strategy": "Other"});
    told_all += &told("other strategy", ask(client, "POST", CRDS, JSON, &none).await, port);
    assert_eq!(ask(client, "POST", CRDS, JSON, &definition(config("/convert"))).await.0, 201);
    for path in [V1, V2] {
        let mut code = 0;
        for _ in 0..100 {
            code = ask(client, "GET", path, JSON, &Value::Null).await.0;
            if code == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(code, 200, "{path} is served");
    }
    let a = |path: &str, rest: &str| format!("{path}/a{rest}");
    let address = |address: &str| site("v2", "a", json!({"address": address}));
    let steps: [(&str, &str, String, &str, Value); 13] = [
        ("create in v2", "POST", V2.to_owned(), JSON, address("web:80")),
        ("get in v1", "GET", a(V1, ""), JSON, Value::Null),
        ("get in v2", "GET", a(V2, ""), JSON, Value::Null),
        ("create in v1", "POST", V1.to_owned(), JSON, site("v1", "b", json!({"host": "db", "port": "5432"}))),
        ("list in v2", "GET", V2.to_owned(), JSON, Value::Null),
        ("patch in v2", "PATCH", a(V2, ""), MERGE, json!({"spec": {"address": "web:81"}})),
        ("apply in v2", "PATCH", a(V2, "?fieldManager=me&force=true"), APPLY, address("web:82")),
        ("status in v2", "PATCH", a(V2, "/status"), MERGE, json!({"status": {"ready": true}})),
        ("get in v1", "GET", a(V1, ""), JSON, Value::Null),
        (
            "dry run in v2",
            "POST",
            format!("{V2}?dryRun=All"),
            JSON,
            site("v2", "c", json!({"address": "x:1"})),
        ),
        ("the same name", "POST", V2.to_owned(), JSON, address("web:80")),
        ("unchanged", "PATCH", a(V2, ""), MERGE, json!({"spec": {"address": "web:82"}})),
        (
            "finalizer in v2",
            "PATCH",
            a(V2, ""),
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/f"]}}),
        ),
    ];
    for (what, method, path, media, body) in steps {
        told_all += &told(what, ask(client, method, &path, media, &body).await, port);
    }
    for broken in [
        "/convert-fails",
        "/convert-none",
        "/convert-renames",
        "/convert-relabels",
        "/broken",
        "/nothing",
        "/junk",
    ] {
        let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": config(broken)}}}});
        let (code, _) = ask(client, "PATCH", &format!("{CRDS}/sites.example.com"), MERGE, &patch).await;
        assert_eq!(code, 200);
        // A real server takes the change up a moment later.
        let mut answer = (0, Value::Null);
        for _ in 0..100 {
            answer = ask(
                client,
                "POST",
                &format!("{V2}?dryRun=All"),
                JSON,
                &site("v2", "d", json!({"address": "x:1"})),
            )
            .await;
            if answer.0 != 201 && told("", answer.clone(), port).contains(reason_of(broken)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        told_all += &told(&format!("create, {broken}"), answer, port);
    }
    told_all += &told("get in v1, broken", ask(client, "GET", &a(V1, ""), JSON, &Value::Null).await, port);
    told_all += &told("get in v2, broken", ask(client, "GET", &a(V2, ""), JSON, &Value::Null).await, port);
    told_all
}

/// A part of what a broken webhook makes a server say.
fn reason_of(path: &str) -> &'static str {
    match path {
        "/convert-fails" => "no idea",
        "/convert-none" => "expected 1",
        "/convert-renames" => "same name",
        "/convert-relabels" => "metadata.labels",
        "/broken" => "out of order",
        "/nothing" => "could not find",
        _ => "json parse error",
    }
}

/// Writes down what a real server said, where a file is named for it.
pub(super) fn write_down(real: &str) {
    if let Some(path) = std::env::var_os("WATCHKEEPER_WRITE_DOWN") {
        std::fs::write(path, real).unwrap();
    }
}

/// Compares what came line by line.
pub(super) fn compare(came: &str, written: &str, server: &str) {
    let pairs = came.lines().zip(written.lines()).filter(|(came, written)| came != written);
    let differ: String =
        pairs.map(|(came, written)| format!("came:    {came}\nwritten: {written}\n")).collect();
    assert!(differ.is_empty(), "on {server}:\n{differ}");
    assert_eq!(came.lines().count(), written.lines().count(), "on {server}:\n{came}");
}

// A12 A13
#[tokio::test(flavor = "multi_thread")]
async fn conversion_is_as_on_a_real_server() {
    let (authority, acceptor) = certificates();
    let address = serve(acceptor).await;
    let server = ApiServer::http().start().await.unwrap();
    let came = converse(&server.client(), address.port(), &authority).await;
    if let Some((_real, client)) = Real::start().await {
        let real = converse(&client, address.port(), &authority).await;
        write_down(&real);
        compare(&real, include_str!("conversion.txt"), "kube-apiserver");
    } else {
        eprintln!("not compared with a real kube-apiserver: {BINARIES} names no folder");
    }
    compare(&came, include_str!("conversion.txt"), "the embedded server");
}

//! Requests to a server: plain ones, whose answers are read completely and not decoded.

use anyhow::Context as _;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use serde_json::{Value, json};
use watchkeeper::kube::{Client, client::Body};

use crate::job::Mode;

/// The path of ConfigMaps.
pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The path of the custom objects.
pub(super) const SITES: &str = "/apis/bench.example.dev/v1/namespaces/default/sites";

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How long a value of a config map is, so that the object is a kilobyte.
const VALUE: usize = 120;

/// One kind of object, and how it is sent.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) path: &'static str,
    mode: Mode,
}

impl Kind {
    /// Chooses the objects of a way of working.
    pub(super) fn of(mode: Mode) -> Self {
        let path = if matches!(mode, Mode::Custom | Mode::Rules) { SITES } else { CONFIG_MAPS };
        Self { path, mode }
    }

    fn body(self, at: usize) -> Vec<u8> {
        match self.mode {
            Mode::Protobuf => config_map_in_protobuf(at),
            Mode::Custom | Mode::Rules => site(at).to_string().into_bytes(),
            _ => config_map(at).to_string().into_bytes(),
        }
    }

    fn media(self) -> &'static str {
        if self.mode == Mode::Protobuf { PROTOBUF } else { "application/json" }
    }

    /// Creates an object; gives the answer.
    pub(super) async fn create(self, client: &Client, at: usize) -> anyhow::Result<Bytes> {
        self.create_in(client, self.path, at).await
    }

    /// Creates an object in the collection of a path.
    pub(super) async fn create_in(self, client: &Client, path: &str, at: usize) -> anyhow::Result<Bytes> {
        let request = Request::post(path).header("content-type", self.media()).header("accept", self.media());
        whole(client, request.body(Body::from(self.body(at)))?).await
    }

    /// Reads an object.
    pub(super) async fn get(self, client: &Client, at: usize) -> anyhow::Result<Bytes> {
        let request = Request::get(format!("{}/{}", self.path, name(at))).header("accept", self.media());
        whole(client, request.body(Body::empty())?).await
    }
}

/// Does something a number of times, some of them at once.
pub(crate) async fn many<F, Fut>(times: usize, at_once: usize, one: F) -> anyhow::Result<()>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = anyhow::Result<Bytes>>,
{
    let mut done = stream::iter(0..times).map(one).buffer_unordered(at_once);
    while let Some(answer) = done.next().await {
        answer?;
    }
    Ok(())
}

/// Reads an answer whole.
pub(crate) async fn whole(client: &Client, request: Request<Body>) -> anyhow::Result<Bytes> {
    let response = open(client, request).await?;
    response.into_body().collect_bytes().await.context("the answer broke off")
}

/// Sends a request; an unsuccessful answer is an error.
pub(super) async fn open(client: &Client, request: Request<Body>) -> anyhow::Result<Response<Body>> {
    let response = client.send(request).await?;
    anyhow::ensure!(response.status().is_success(), "{}", response.status());
    Ok(response)
}

/// Names an object.
pub(super) fn name(at: usize) -> String {
    format!("object-{at:07}")
}

fn config_map(at: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name(at), "labels": {"app": "bench", "shard": format!("s{:02}", at % 100)}},
        "data": {"first": value(at), "second": value(at + 1), "third": value(at + 2)},
    })
}

fn site(at: usize) -> Value {
    json!({
        "apiVersion": "bench.example.dev/v1", "kind": "Site",
        "metadata": {"name": name(at), "labels": {"app": "bench", "shard": format!("s{:02}", at % 100)}},
        "spec": {"least": at % 3, "most": 5, "data": {"first": value(at), "second": value(at + 1), "third": value(at + 2)}},
    })
}

fn value(at: usize) -> String {
    format!("{at:0width$}", width = VALUE)
}

/// Defines the custom objects, with or without rules.
pub(super) fn definition(mode: Mode) -> Value {
    let rules = json!([
        {"rule": "self.least <= self.most", "message": "least is above most"},
        {"rule": "self.data.all(key, key.size() < 20)"},
        {"rule": "self.most == oldSelf.most || self.most > 0"},
    ]);
    let mut spec = json!({"type": "object", "properties": {
        "least": {"type": "integer"}, "most": {"type": "integer"},
        "data": {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "string", "maxLength": 200}},
    }});
    if mode == Mode::Rules {
        spec["x-kubernetes-validations"] = rules;
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.bench.example.dev"},
        "spec": {
            "group": "bench.example.dev", "scope": "Namespaced",
            "names": {"plural": "sites", "singular": "site", "kind": "Site", "listKind": "SiteList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": spec}},
            }}],
        },
    })
}

/// Writes the same config map as Go clients send it.
fn config_map_in_protobuf(at: usize) -> Vec<u8> {
    let pair = |key: &str, value: &str| [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
    let shard = format!("s{:02}", at % 100);
    let metadata =
        [field(1, name(at).as_bytes()), field(11, &pair("app", "bench")), field(11, &pair("shard", &shard))];
    let data = [("first", at), ("second", at + 1), ("third", at + 2)];
    let data = data.map(|(key, at)| field(2, &pair(key, &value(at)))).concat();
    let object = [field(1, &metadata.concat()), data].concat();
    let of_type = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    [b"k8s\0".to_vec(), field(1, &of_type), field(2, &object)].concat()
}

/// Writes a field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

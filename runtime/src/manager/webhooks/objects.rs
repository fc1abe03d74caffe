//! The few objects that certificates are kept in and published to, as raw JSON.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::writes::is_of_webhook;

/// The field manager of configurations and policies.
pub(super) const OF_CONFIGURATIONS: &str = "watchkeeper";
/// The first and the longest wait after a failed request.
pub(super) const WAITS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];
/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The field manager that writes `caBundle`, and nothing else.
const OF_BUNDLES: &str = "watchkeeper-ca";

/// Reads and writes single objects by their paths.
#[derive(Clone)]
pub(super) struct RawObjects(Client);

impl RawObjects {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Reads an object; `None` if it does not exist.
    pub(super) async fn read(&self, path: &str) -> Result<Option<Value>, kube::Error> {
        match self.request(Request::get(path).body(Vec::new()).expect("names make a path")).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Writes an object as it was read, or creates it in a collection; `false` if somebody else was faster.
    pub(super) async fn write(&self, path: &str, object: &Value) -> Result<bool, kube::Error> {
        let exists = object["metadata"]["resourceVersion"].is_string();
        let collection = path.rsplit_once('/').map_or(path, |(collection, _)| collection);
        let request = if exists { Request::put(path) } else { Request::post(collection) };
        let request =
            request.header("Content-Type", "application/json").body(object.to_string().into_bytes());
        self.unless_changed(request.expect("names make a path")).await
    }

    /// Writes an object as it was read; `false` if somebody else has written or deleted it.
    pub(super) async fn rewrite(&self, path: &str, object: &Value) -> Result<bool, kube::Error> {
        let request = Request::put(path).header("Content-Type", "application/json");
        let request = request.body(object.to_string().into_bytes()).expect("names make a path");
        match self.unless_changed(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            answer => answer,
        }
    }

    /// Deletes an object, if it is there.
    pub(super) async fn delete(&self, path: &str) -> Result<(), kube::Error> {
        let request = Request::delete(path).body(Vec::new()).expect("names make a path");
        match self.request(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Applies a part of an object as it was read; `false` if somebody else was faster.
    pub(super) async fn apply(&self, path: &str, part: &Value, manager: &str) -> Result<bool, kube::Error> {
        let request = Request::patch(format!("{path}?fieldManager={manager}&force=true"))
            .header("Content-Type", "application/apply-patch+yaml")
            .body(part.to_string().into_bytes());
        self.unless_changed(request.expect("names make a path")).await
    }

    /// Merges a part into an object as it was read; `false` if somebody else was faster.
    pub(super) async fn merge(&self, path: &str, part: &Value, manager: &str) -> Result<bool, kube::Error> {
        let request = Request::patch(format!("{path}?fieldManager={manager}"))
            .header("Content-Type", "application/merge-patch+json")
            .body(part.to_string().into_bytes());
        self.unless_changed(request.expect("names make a path")).await
    }

    async fn unless_changed(&self, request: Request<Vec<u8>>) -> Result<bool, kube::Error> {
        match self.request(request).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 && !is_of_webhook(&status) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn request(&self, request: Request<Vec<u8>>) -> Result<Value, kube::Error> {
        let answer = timeout(DEADLINE, self.0.request(request)).await;
        answer.unwrap_or_else(|_| Err(kube::Error::Service(format!("no answer within {DEADLINE:?}").into())))
    }
}

/// An object that says whom an API server trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BundleHolder {
    /// The path of a webhook configuration.
    Configuration(String),
    /// The path of a definition, and whom the API server is to call for its conversions.
    Definition(String, Called),
}

/// Whom an API server calls: a URL, or the namespace and the name of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Called([Value; 3]);

impl Called {
    pub(super) fn of(client_config: &Value) -> Self {
        let service = &client_config["service"];
        Self([&client_config["url"], &service["namespace"], &service["name"]].map(Value::clone))
    }

    /// Returns whether a definition has its objects converted there.
    pub(super) fn converts(&self, definition: &Value) -> bool {
        let conversion = &definition["spec"]["conversion"];
        conversion["strategy"] == "Webhook" && Self::of(&conversion["webhook"]["clientConfig"]) == *self
    }
}

impl BundleHolder {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Configuration(path) | Self::Definition(path, _) => path,
        }
    }

    /// Returns whether the object trusts this bundle, in base64, everywhere, and nothing else.
    pub(super) fn has(&self, object: &Value, bundle: &Value) -> bool {
        match self {
            Self::Configuration(_) => {
                let webhooks = object["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
                webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == *bundle)
            }
            // While another program converts, the API server must go on to trust that one.
            Self::Definition(_, called) => {
                !called.converts(object)
                    || object["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == *bundle
            }
        }
    }

    /// Writes a bundle into the object, unless it has changed since it was read.
    pub(super) async fn publish(
        &self,
        objects: &RawObjects,
        object: &Value,
        bundle: &Value,
    ) -> Result<bool, kube::Error> {
        let mut part = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": {"name": object["metadata"]["name"], "resourceVersion": object["metadata"]["resourceVersion"]},
        });
        match self {
            Self::Configuration(_) => {
                let webhooks = object["webhooks"].as_array().into_iter().flatten();
                let of =
                    |webhook: &Value| json!({"name": webhook["name"], "clientConfig": {"caBundle": bundle}});
                part["webhooks"] = webhooks.map(of).collect();
            }
            Self::Definition(..) => {
                part["spec"] = json!({"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}});
            }
        }
        objects.apply(self.path(), &part, OF_BUNDLES).await
    }
}

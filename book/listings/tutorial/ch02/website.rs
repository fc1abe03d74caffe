//! The custom resource.

use kube::KubeSchema;
use watchkeeper::prelude::*;

/// A website, served by a Deployment of the same name.
#[derive(
    CustomResource, Informer, Clone, Debug, Serialize, Deserialize, KubeSchema,
)]
#[kube(
    group = "web.example.dev",
    version = "v1",
    kind = "Website",
    shortname = "site",
    namespaced,
    status = "WebsiteStatus",
    printcolumn(name = "Domain", type_ = "string", json_path = ".spec.domain"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.ready")
)]
pub struct WebsiteSpec {
    /// Where the site is served. It can't change.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = ("self == oldSelf", "the domain can't change"))]
    pub domain: String,
    /// How many pods serve it.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
}

fn one() -> i32 {
    1
}

/// How a website is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WebsiteStatus {
    /// How many pods are ready.
    #[serde(default)]
    pub ready: i32,
}

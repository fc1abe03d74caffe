//! The custom resource.

use watchkeeper::prelude::*;

/// A website, served by a Deployment of the same name.
#[derive(
    CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "web.example.dev",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus"
)]
pub struct WebsiteSpec {
    /// Where the site is served.
    pub domain: String,
    /// How many pods serve it.
    pub replicas: i32,
}

/// How a website is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WebsiteStatus {
    /// How many pods are ready.
    #[serde(default)]
    pub ready: i32,
}

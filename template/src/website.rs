//! The custom resource.

use watchkeeper::prelude::*;

/// A website, served by a Deployment of the same name.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "web.example.dev",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    printcolumn = r#"{"name": "Domain", "type": "string", "jsonPath": ".spec.domain"}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.ready"}"#
)]
pub struct WebsiteSpec {
    /// The domain that the site is served at; `WebsiteLister::by_domain` finds it.
    #[informer(index)]
    #[schemars(length(min = 1))]
    pub domain: String,
    /// The number of pods that serve it.
    #[schemars(range(min = 0))]
    pub replicas: i32,
}

/// The observed state of a website.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WebsiteStatus {
    /// The number of pods that are ready.
    #[serde(default)]
    pub ready: i32,
}

//! The custom resource, in two versions.

use kube::KubeSchema;
use watchkeeper::prelude::*;

/// A website, served by a Deployment of the same name.
#[derive(
    CustomResource, Informer, Clone, Debug, Serialize, Deserialize, KubeSchema,
)]
#[kube(
    group = "web.example.dev",
    version = "v2",
    kind = "Website",
    shortname = "site",
    namespaced,
    status = "WebsiteStatus",
    printcolumn(name = "Domain", type_ = "string", json_path = ".spec.domain"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    )
)]
#[informer(versions(v1::Website))]
pub struct WebsiteSpec {
    /// Where the site is served. It can't change.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = ("self == oldSelf", "the domain can't change"))]
    pub domain: String,
    /// How many pods serve it.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// How the site is encrypted; without this it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// How a site is encrypted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// The Secret with the site's certificate, as `tls.crt` and `tls.key`.
    pub secret_name: String,
    /// The oldest version of TLS that is spoken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<String>,
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
    /// What is true of it: `Ready`.
    #[serde(default)]
    pub conditions: Conditions,
}

/// The kind as it was first.
pub mod v1 {
    use super::*;

    /// A website, served by a Deployment of the same name.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
    #[kube(
        group = "web.example.dev",
        version = "v1",
        kind = "Website",
        shortname = "site",
        namespaced,
        status = "WebsiteStatus"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct WebsiteSpec {
        /// Where the site is served. It can't change.
        #[schemars(length(min = 1, max = 253))]
        #[x_kube(validation = ("self == oldSelf", "the domain can't change"))]
        pub domain: String,
        /// How many pods serve it.
        #[serde(default = "one")]
        #[schemars(range(min = 0, max = 100))]
        pub replicas: i32,
        /// The Secret with the site's certificate, as `tls.crt` and `tls.key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls_secret: Option<String>,
    }

    impl From<Website> for super::Website {
        fn from(Website { metadata, spec, status }: Website) -> Self {
            let tls = spec
                .tls_secret
                .map(|secret_name| Tls { secret_name, oldest: None });
            let WebsiteSpec { domain, replicas, .. } = spec;
            Self {
                metadata,
                spec: super::WebsiteSpec { domain, replicas, tls },
                status,
            }
        }
    }

    impl From<super::Website> for Website {
        fn from(super::Website { metadata, spec, status }: super::Website) -> Self {
            let super::WebsiteSpec { domain, replicas, tls } = spec;
            let tls_secret = tls.map(|tls| tls.secret_name);
            Self {
                metadata,
                spec: WebsiteSpec { domain, replicas, tls_secret },
                status,
            }
        }
    }
}

//! Kinds of every scope and spelling, and what the derive says of them.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::{
    Informer,
    informer::Watched,
    object::{Kind, Scope},
};

fn kind<W: Watched<DynamicType = ()>>() -> Kind {
    W::kind_of(&())
}

/// A website, with a status.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteSpec {
    #[informer(index)]
    #[serde(rename = "hostName")]
    domain_name: String,
}

/// What a website says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WebsiteStatus {
    replicas: i32,
}

/// A zone belongs to the cluster; here the derives come in the other order.
#[derive(Informer, CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1beta1", kind = "Zone", plural = "zonen")]
pub(crate) struct ZoneSpec {
    #[informer(index = "by_region")]
    at: String,
}

/// A root type with another name, and fields next to the metadata.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "web.example.dev",
    version = "v1",
    kind = "Certificate",
    root = "Cert",
    namespaced = true,
    no_spec
)]
#[kube(shortname = "crt", printcolumn(name = "Host", type_ = "string", json_path = ".host"))]
#[kube(crates(kube_core = "::kube::core"), derive = "PartialEq")]
#[derive(PartialEq)]
pub(crate) struct CertificateSpec {
    #[informer(index)]
    host: String,
}

// M1
#[test]
fn a_namespaced_kind_with_a_status_is_watched() {
    let kind = kind::<Website>();
    assert_eq!(
        (kind.api_version(), &*kind.kind, &*kind.plural),
        ("web.example.dev/v1".into(), "Website", "websites")
    );
    assert_eq!(kind.scope, Scope::Namespaced);
    let mut site = Website::new("a", WebsiteSpec { domain_name: "a.example".into() });
    site.status = Some(WebsiteStatus { replicas: 1 });
    assert_eq!(Website::indexes()[0].name(), "by_domain_name");
}

// M1
#[test]
fn a_cluster_scoped_kind_without_a_status_is_watched() {
    let kind = kind::<Zone>();
    assert_eq!((kind.api_version(), &*kind.plural), ("web.example.dev/v1beta1".into(), "zonen"));
    assert_eq!(kind.scope, Scope::Cluster);
    assert_eq!(Zone::indexes()[0].name(), "by_region");
}

// M1
#[test]
fn a_renamed_root_without_a_spec_is_watched() {
    let kind = kind::<Cert>();
    assert_eq!((&*kind.kind, kind.scope), ("Certificate", Scope::Namespaced));
    let names = |_: Option<(CertInformer, CertLister, CertListerInNamespace)>| {};
    names(None);
}

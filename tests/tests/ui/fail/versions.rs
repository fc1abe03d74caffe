//! Versions convert in both directions, and are listed as types.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
#[informer(versions(old::Website))] //~ `old::Website` `Website` can't be converted into `old::Website`
struct WebsiteSpec {
    domain: String,
}

mod old {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.dev", version = "v1beta1", kind = "Website", namespaced)]
    pub(crate) struct WebsiteSpec {
        domain: String,
    }

    impl From<Website> for super::Website {
        fn from(old: Website) -> Self {
            Self { metadata: old.metadata, spec: super::WebsiteSpec { domain: old.spec.domain } }
        }
    }
}

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Zone")]
#[informer(versions = "v1beta1")] //~ `versions` `versions` takes the other versions' types: write `versions(v1beta1::Website, v1alpha1::Website)`
struct ZoneSpec {
    domain: String,
}

fn main() {}

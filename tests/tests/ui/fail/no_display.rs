//! A type without Display is not an index value. Nor is an alias, which the derive cannot resolve.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
struct WebsiteSpec {
    #[informer(index)]
    phase: Option<Phase>, //~ `Phase` `Phase` can't be an index value
    #[informer(index)]
    tags: Tags, //~ `Tags` write out the type, such as `Vec<String>`
}

type Tags = Vec<String>;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
enum Phase {
    Pending,
}

fn the_rest_is_generated(sites: &WebsiteLister) {
    sites.by_phase(&Phase::Pending);
}

fn main() {}

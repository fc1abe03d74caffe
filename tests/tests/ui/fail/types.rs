//! Types that can't be index values.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
struct WebsiteSpec {
    #[informer(index)]
    weight: f64, //~ `f64` a float can't be an index value: index text, an integer, `bool`, a type with `Display`, or an `Option`, `Vec` or set of these
    #[informer(index)]
    weights: Option<Vec<f32>>, //~ `f32` a float can't be an index value: index text, an integer, `bool`, a type with `Display`, or an `Option`, `Vec` or set of these
    #[informer(index)]
    labels: BTreeMap<String, String>, //~ `BTreeMap<String, String>` a map can't be an index value: index text, an integer, `bool`, a type with `Display`, or an `Option`, `Vec` or set of these
    #[informer(index)]
    pair: (String, i32), //~ `(String, i32)` this type can't be an index value: index text, an integer, `bool`, a type with `Display`, or an `Option`, `Vec` or set of these
    #[informer(index)]
    domain: String,
}

fn the_rest_is_generated(sites: &WebsiteLister) {
    sites.by_domain("a.example");
    sites.by_weight(0.5);
    sites.namespace("shop").by_labels("x");
}

fn main() {}

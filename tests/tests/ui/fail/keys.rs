//! Keys that `informer` does not know, or knows elsewhere.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
#[informer(indexed)] //~ `indexed` `informer` knows no `indexed`: on a struct it takes `compact` or `crate = path`
#[informer(index)] //~ `index` an index belongs to a field: write `#[informer(index)]` above the field
#[informer] //~ `informer` `informer` takes its keys in parentheses
struct WebsiteSpec {
    #[informer(idnex)] //~ `idnex` `index = "name"`, a struct `compact` or `crate = path`
    domain: String,
    #[informer(crate = watchkeeper)] //~ `crate` `crate` belongs to the struct
    owner: String,
    #[informer(index, index = "by_kind")] //~ `index` a field has one index: keep one
    sort: String,
}

fn main() {}

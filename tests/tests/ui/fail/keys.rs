//! Keys that `informer` does not know, or knows elsewhere.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
#[informer(indexed)] //~ `indexed` `informer` knows no `indexed`: on a struct it takes `compact`, `versions(..)` or `crate = path`
#[informer(index)] //~ `index` an index belongs to a field: write `#[informer(index)]` above the field
#[informer] //~ `informer` `informer` takes its keys in parentheses
struct WebsiteSpec {
    #[informer(idnex)]
    //~^ `idnex` a field takes `index`, `index = "name"` or `path = field`, a struct `compact`, `versions(..)` or `crate = path`
    domain: String,
    #[informer(crate = watchkeeper)] //~ `crate` `crate` belongs to the struct
    owner: String,
    #[informer(index, index = "by_kind")] //~ `index` a field has one index: keep one
    sort: String,
    #[informer(path = name)]
    //~^ `path` a path says what an index is of: write `index = "by_name", path = name`
    alone: Reference,
    #[informer(index = "by_call", path = name())] //~ `name()` a path names fields: write `path = name`
    call: Reference,
    #[informer(index = "by_text", path = name)] //~ `index` a path leads into a struct
    text: String,
    #[informer(index = "by_number", path = number)] //~ `number` `i32` is not text, so a path can't end at it
    number: Reference,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Reference {
    name: String,
    number: i32,
}

fn main() {}

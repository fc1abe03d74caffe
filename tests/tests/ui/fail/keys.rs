//! Keys that `informer` does not know, or knows elsewhere.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
#[informer(indexed)]
//~^ `indexed` `informer` knows no `indexed`: on a struct it takes `compact`, `versions(..)` or `crate = path`, on a field `index`, `index = "name"` or `path = field`
#[informer(index)] //~ `index` an index belongs to a field: write `#[informer(index)]` above the field whose value is looked up
#[informer] //~ `informer` `informer` takes its keys in parentheses: write `#[informer(index)]` above a field
struct WebsiteSpec {
    #[informer(idnex)]
    //~^ `idnex` `informer` knows no `idnex`: a field takes `index`, `index = "name"` or `path = field`, a struct `compact`, `versions(..)` or `crate = path`
    domain: String,
    #[informer(crate = watchkeeper)]
    //~^ `crate` `crate` belongs to the struct: write `#[informer(crate = path)]` above it
    owner: String,
    #[informer(index, index = "by_kind")] //~ `index` a field has one index: keep one `index`
    sort: String,
    #[informer(path = name)]
    //~^ `path` a path says what an index is of: write `index = "by_name", path = name`
    alone: Reference,
    #[informer(index = "by_call", path = name())]
    //~^ `name()` a path names fields: write `path = name`, `path = secret.name`, or `path = secret?.name` to look into an `Option` or a `Vec`
    call: Reference,
    #[informer(index = "by_text", path = name)]
    //~^ `index` a path leads into a struct, and the values of this field are index values themselves: remove `path`
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

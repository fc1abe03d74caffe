//! Names that a look-up can't have.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)]
struct WebsiteSpec {
    #[informer(index)]
    domain: String,
    #[informer(index = "by_domain")] //~ `"by_domain"` `by_domain` already looks up the field `domain`: give
    again: String,
    #[informer(index = "")] //~ `""` an index needs a name: write
    empty: String,
    #[informer(index = "by-dash")] //~ `"by-dash"` `by-dash` can't name a method
    dash: String,
    #[informer(index = by_ident)] //~ `by_ident` an index is named by a string: write
    ident: String,
    #[informer(index("by_paren"))] //~ `(` an index is named by a string: write
    paren: String,
    #[informer(index = "list")] //~ `"list"` a look-up `list` would hide what every lister has
    hides: String,
    #[informer(index)]
    //~^ `index` a look-up `by_index` would hide what every lister has: name it, `index = "by_index_value"`
    index: String,
}

fn the_rest_is_generated(sites: &WebsiteLister) {
    sites.by_domain("a.example");
}

fn main() {}

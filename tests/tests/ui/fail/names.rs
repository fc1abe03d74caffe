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
    #[informer(index = "by_domain")]
    //~^ `"by_domain"` `by_domain` already looks up the field `domain`: give this index another name, `index = "..."`
    again: String,
    #[informer(index = "")]
    //~^ `""` an index needs a name: write `index = "by_name"`, or `index` for `by_empty`
    empty: String,
    #[informer(index = "by-dash")]
    //~^ `"by-dash"` `by-dash` can't name a method: a look-up's name is an identifier, such as `by_dash`
    dash: String,
    #[informer(index = by_ident)]
    //~^ `by_ident` an index is named by a string: write `index = "by_name"`, or `index` for `by_<field>`
    ident: String,
    #[informer(index("by_paren"))]
    //~^ `(` an index is named by a string: write `index = "by_name"`, or `index` for `by_<field>`
    paren: String,
    #[informer(index = "list")]
    //~^ `"list"` a look-up `list` would hide what every lister has: name it, `index = "by_list"`
    hides: String,
    #[informer(index)]
    //~^ `index` a look-up `by_index` would hide what every lister has: name it, `index = "by_index_value"`
    index: String,
}

fn the_rest_is_generated(sites: &WebsiteLister) {
    sites.by_domain("a.example");
}

fn main() {}

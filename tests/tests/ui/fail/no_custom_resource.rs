//! The derive alone: nothing generates the root type.

use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(Informer, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced)] //~ `"Website"` cannot find type `Website` in this scope
struct WebsiteSpec {
    #[informer(index)]
    domain: String,
}

fn main() {}

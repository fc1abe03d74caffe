//! What is generated is as visible as the struct, and quiet when it is not used.
#![deny(warnings, missing_docs, missing_debug_implementations, unreachable_pub)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::{Informer, informer::Watched};

mod inner {
    use super::*;

    /// As visible as `pub(crate)` says, with a field and a type that are less so.
    #[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "web.example.dev", version = "v1", kind = "Shared", namespaced)]
    pub(crate) struct SharedSpec {
        #[informer(index)]
        tone: Tone,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    enum Tone {
        Loud,
    }

    impl std::fmt::Display for Tone {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match self {
                Self::Loud => f.write_str("loud"),
            }
        }
    }

    #[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "web.example.dev", version = "v1", kind = "Secretive", namespaced)]
    struct SecretiveSpec {
        #[informer(index)]
        owner: String,
    }

    // M5
    #[test]
    fn a_private_struct_has_a_private_lister() {
        fn look_up(lister: &SecretiveLister) -> usize {
            lister.by_owner("me").len()
        }
        let _: fn(&SecretiveLister) -> usize = look_up;
        assert_eq!(Secretive::indexes().len(), 1);
    }
}

// M5
#[test]
fn what_the_crate_sees_of_the_struct_it_sees_of_the_lister() {
    let names = |_: Option<(inner::SharedInformer, inner::SharedLister, inner::SharedListerInNamespace)>| {};
    names(None);
    assert_eq!(inner::Shared::indexes()[0].name(), "by_tone");
}

// M5
#[test]
fn a_struct_inside_a_function_is_fine() {
    #[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "web.example.dev", version = "v1", kind = "Local")]
    struct LocalSpec {
        #[informer(index)]
        owner: String,
    }
    assert_eq!(Local::indexes()[0].name(), "by_owner");
}

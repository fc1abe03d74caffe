//! Structs, and what is none: each has no place for an index, or no one type to watch.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Generic")]
struct GenericSpec<T = String> {
    //~^ `<T = String>` generic struct, since a watch decodes one concrete type: remove
    #[informer(index)]
    owner: String,
    inner: T,
}

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Choice")]
enum ChoiceSpec {
    //~^ `enum` and this is an enum: make it a field of such a struct
    One { name: String },
}

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Wrapper")]
struct WrapperSpec(String); //~ `(String)` and this is a tuple struct: make it a field of such a struct

#[derive(Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Orphan {
    //~^ `Orphan` on a root type with a field `metadata`: add `CustomResource` to the derives
    #[informer(index)]
    owner: String,
}

fn the_rest_is_generated(generic: &GenericLister, choice: &ChoiceLister, wrapper: &WrapperInformer) {
    generic.by_owner("me");
    choice.list();
    let _ = wrapper;
}

fn main() {}

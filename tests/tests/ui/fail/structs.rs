//! Structs, and what is none: each has no place for an index, or no one type to watch.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Generic")]
struct GenericSpec<T = String> {
    //~^ `<T = String>` `Informer` can't be derived for a generic struct, since a watch decodes one concrete type: remove the parameters, or leave the derive out and watch `External<Root>`
    #[informer(index)]
    owner: String,
    inner: T,
}

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Choice")]
enum ChoiceSpec {
    //~^ `enum` `Informer` needs a struct with named fields, and this is an enum: make it a field of such a struct, or leave the derive out and watch `External<Root>`
    One { name: String },
}

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Wrapper")]
struct WrapperSpec(String); //~ `(String)` `Informer` needs a struct with named fields, and this is a tuple struct: make it a field of such a struct, or leave the derive out and watch `External<Root>`

#[derive(Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Orphan {
    //~^ `Orphan` `Informer` stands on the spec of a custom resource, or on a root type with a field `metadata`: add `CustomResource` to the derives and `#[kube(group = .., version = .., kind = ..)]` below them
    #[informer(index)]
    owner: String,
}

fn the_rest_is_generated(generic: &GenericLister, choice: &ChoiceLister, wrapper: &WrapperInformer) {
    generic.by_owner("me");
    choice.list();
    let _ = wrapper;
}

fn main() {}

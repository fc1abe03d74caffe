//! A hand-written root that does not implement `kube::Resource`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use watchkeeper::Informer;

#[derive(Informer, Clone, Debug, Serialize, Deserialize)]
//~^ `Informer` `Settings` does not have a kind //~^ `_` `Settings` is not a kind of object //~^ `_` the trait bound `Settings: watchkeeper::prelude::Resource` is not satisfied
struct Settings {
    metadata: ObjectMeta,
    #[informer(index)]
    owner: String,
}

fn main() {}

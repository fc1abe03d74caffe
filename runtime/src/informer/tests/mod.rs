//! Tests of informers, over feeds and clients that the tests play; most run once on each stored form.

mod typed;
#[expect(clippy::duplicate_mod, reason = "the same suite on the other form")]
mod compact;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::list_watch::{AnyItem, FetchedItem};

impl From<FetchedItem<ConfigMap>> for AnyItem {
    fn from(item: FetchedItem<ConfigMap>) -> Self {
        item.erased()
    }
}

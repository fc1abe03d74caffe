//! What the writer and the readers of a store share.

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::{decoded::DecodedObjects, snapshot::Snapshot, spare::Spare};

/// What writer and readers share: the published snapshot, and word that it changed.
pub(super) struct Shared<K> {
    pub(super) published: ArcSwap<Snapshot<K>>,
    pub(super) moved: watch::Sender<()>,
    pub(super) decoded: Arc<DecodedObjects<K>>,
    pub(super) writing: Mutex<Spare<K>>,
}

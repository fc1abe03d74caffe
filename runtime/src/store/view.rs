//! One moment of the store, walked through while others write.

use std::sync::Arc;

use super::{cached_object::CachedObject, cow_map::Walk, snapshot::Snapshot};

/// Keeps what a store held when it was taken; taking one costs a reference.
pub(crate) struct StoreView<K>(Arc<Snapshot<K>>);

/// How far a walk through a moment has come.
#[derive(Default)]
pub(crate) struct Steps(Walk);

impl<K> StoreView<K> {
    pub(super) fn of(snapshot: Arc<Snapshot<K>>) -> Self {
        Self(snapshot)
    }

    /// Counts the objects.
    pub(crate) fn len(&self) -> usize {
        self.0.objects.len()
    }

    /// Goes on to the next object.
    pub(crate) fn next(&self, steps: &mut Steps) -> Option<&CachedObject<K>> {
        self.0.objects.walk(&mut steps.0).map(|stored| &stored.held)
    }
}

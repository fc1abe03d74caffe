//! A look into running controllers, for debug pages and tests.

use std::{
    any::TypeId,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    controller::{Inspected, KeyReport},
    informer::Watched,
    object::ObjectKey,
};

/// Answers why an object is not being reconciled; clones look at the same manager.
///
/// Made before the start, it knows controllers once they run. It keeps what it has seen of them after a stop.
#[derive(Clone, Default)]
pub struct Inspector {
    controllers: Arc<Mutex<Vec<Arc<dyn Inspected>>>>,
}

impl Inspector {
    /// Tells how each controller of a kind stands to a key; none, where the kind is not reconciled.
    ///
    /// A snapshot: it may be outdated when it is read.
    pub fn why<K: Watched>(&self, key: &ObjectKey) -> Vec<KeyReport> {
        let of_kind = |controller: &&Arc<dyn Inspected>| controller.reconciles() == TypeId::of::<K>();
        self.controllers().iter().filter(of_kind).map(|controller| controller.report(key)).collect()
    }

    /// Names what runs, in one line; `None` if nothing does.
    pub(super) fn in_flight(&self) -> Option<String> {
        let running: Vec<_> = self.controllers().iter().filter_map(|of| of.in_flight()).collect();
        (!running.is_empty()).then(|| running.join(", "))
    }

    pub(super) fn add(&self, controller: Arc<dyn Inspected>) {
        self.controllers().push(controller);
    }

    fn controllers(&self) -> MutexGuard<'_, Vec<Arc<dyn Inspected>>> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector").field("controllers", &self.controllers().len()).finish()
    }
}

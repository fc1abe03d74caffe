//! A look into running controllers, for debug pages and tests.

use std::{
    any::TypeId,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{
    controller::{Inspected, KeyReport, KeyReports, Why},
    informer::Watched,
    object::ObjectKey,
};

/// Why an object is not being reconciled; clones look at the same manager.
///
/// Made before the start, it knows controllers once they run. It keeps none of them, nor their caches, alive: of one that
/// has ended it says that.
#[derive(Clone, Default)]
pub struct Inspector {
    controllers: Arc<Mutex<Vec<Known>>>,
}

/// A controller that was started, and what is left of it.
struct Known {
    name: Arc<str>,
    reconciles: TypeId,
    controller: Weak<dyn Inspected>,
}

impl Known {
    fn report(&self, key: &ObjectKey) -> KeyReport {
        match self.controller.upgrade() {
            Some(controller) => controller.report(key),
            None => KeyReport {
                key: key.clone(),
                controller: self.name.clone(),
                why: Why::Stopped,
                reason: None,
                last_error: None,
            },
        }
    }
}

impl Inspector {
    /// Returns how each controller of a kind stands to a key; none, where the kind is not reconciled.
    ///
    /// A snapshot: it may be outdated when it is read.
    pub fn why<K: Watched>(&self, key: &ObjectKey) -> KeyReports {
        let of_kind = |known: &&Known| known.reconciles == TypeId::of::<K>();
        let reports = self.controllers().iter().filter(of_kind).map(|known| known.report(key)).collect();
        KeyReports::new(reports)
    }

    /// Names what runs, in one line; `None` if nothing does.
    pub(super) fn in_flight(&self) -> Option<String> {
        let known = self.controllers();
        let controllers = known.iter().filter_map(|known| known.controller.upgrade());
        let running: Vec<_> = controllers.filter_map(|controller| controller.in_flight()).collect();
        (!running.is_empty()).then(|| running.join(", "))
    }

    pub(super) fn add(&self, name: Arc<str>, controller: &Arc<dyn Inspected>) {
        let (reconciles, controller) = (controller.reconciles(), Arc::downgrade(controller));
        self.controllers().push(Known { name, reconciles, controller });
    }

    fn controllers(&self) -> MutexGuard<'_, Vec<Known>> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector").field("controllers", &self.controllers().len()).finish()
    }
}

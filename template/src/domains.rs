//! The domains that sites use: put the client of a real service here.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use watchkeeper::prelude::*;

/// Something outside the cluster that a site uses, and that nobody cleans up unless the operator does.
#[derive(Debug, Default)]
pub struct Domains(Mutex<BTreeMap<ObjectKey, String>>);

impl Domains {
    /// Reserves a domain for a site, in place of the one that it had. Idempotent, as a reconciler must be.
    pub fn reserve(&self, site: &ObjectKey, domain: &str) {
        self.lock().insert(site.clone(), domain.to_owned());
    }

    /// Releases the domain of a site, if it has one.
    pub fn release(&self, site: &ObjectKey) {
        self.lock().remove(site);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Domains {
    /// The domain of a site.
    pub fn of(&self, site: &str) -> Option<String> {
        self.lock().get(&site.parse::<ObjectKey>().expect("namespace/name")).cloned()
    }
}

//! Finds where a cache shows something else than a list of the same version.

use std::collections::HashSet;

use super::lister::Lister;
use crate::{
    delta_fifo::Extent,
    list_watch::Item,
    object::{Object, ObjectKey},
    reflector::Difference,
};

/// What it means that the cache does not show an object that was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It should.
    IsDifferent,
    /// A transform may have dropped it.
    MayBeDropped,
}

impl<K: Object> Lister<K> {
    /// Compares what is cached of an extent with a list of it, by versions.
    pub(crate) fn differences(
        &self,
        extent: &Extent,
        listed: &[Item<K>],
        missing: Missing,
    ) -> Vec<Difference> {
        let keys: HashSet<ObjectKey> = listed.iter().filter_map(Item::key).collect();
        let mut found: Vec<_> = listed.iter().filter_map(|item| self.difference(item, missing)).collect();
        // What has no name may be any of those that seem to be too many.
        if listed.iter().all(|item| item.key().is_some()) {
            let shown = self.snapshot().keys(extent).into_iter().filter(|key| !keys.contains(key));
            found.extend(shown.map(|key| {
                let shown = self.version_shown(&key).flatten();
                Difference { key, listed: None, shown: Some(shown.unwrap_or_default()) }
            }));
        }
        found
    }

    fn difference(&self, item: &Item<K>, missing: Missing) -> Option<Difference> {
        let key = item.key()?;
        let listed = item.resource_version().unwrap_or_default().to_owned();
        let shown = match self.version_shown(&key) {
            None if missing == Missing::MayBeDropped => return None,
            None => None,
            // A transform may take the version off.
            Some(None) => return None,
            Some(Some(shown)) if shown == listed => return None,
            Some(shown) => shown,
        };
        Some(Difference { key, listed: Some(listed), shown })
    }

    /// Returns the version at which an object is cached or marked as unreadable; `None` if it is neither.
    fn version_shown(&self, key: &ObjectKey) -> Option<Option<String>> {
        let snapshot = self.snapshot();
        if let Some(unreadable) = snapshot.mark(key) {
            return Some(unreadable.identity.resource_version.clone());
        }
        let held = snapshot.get(key.namespace(), key.name())?;
        Some(held.resource_version().map(str::to_owned))
    }
}

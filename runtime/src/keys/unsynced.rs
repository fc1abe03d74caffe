//! Keys that were named before their caches have synced, by the caches that they wait for.

use std::sync::Arc;

use crate::object::ObjectKey;

/// The most keys that are kept by name. If there are more, all that is cached runs once the caches have synced.
pub(super) const MOST_UNSYNCED: usize = 100_000;

/// The namespaces that have not synced.
#[derive(Debug)]
pub(super) struct UnsyncedKeys(Vec<UnsyncedNamespace>);

/// The keys of a namespace, or of all that have no caches of their own.
#[derive(Debug)]
pub(super) struct UnsyncedNamespace {
    /// `None`: all others.
    namespace: Option<Arc<str>>,
    /// In the order in which they were named. A key that was forgotten and named again is in it twice.
    pub(super) keys: Vec<ObjectKey>,
    /// How many of them something other than a first list named: a first list holds no more than the cache.
    named: usize,
    /// Whether more were named than are kept: all that is cached runs instead.
    pub(super) is_excess: bool,
}

impl UnsyncedKeys {
    /// Returns a group for each namespace, and one for all others.
    pub(super) fn all(namespaces: &[Arc<str>]) -> Self {
        let all = namespaces.iter().cloned().map(Some).chain([None]);
        let group = |namespace| UnsyncedNamespace { namespace, keys: Vec::new(), named: 0, is_excess: false };
        Self(all.map(group).collect())
    }

    /// Finds where a key waits: with its namespace, or with all others, which sync before.
    pub(super) fn of(&mut self, key: &ObjectKey) -> Option<&mut UnsyncedNamespace> {
        let namespace = key.namespace();
        let own = namespace.and_then(|_| self.position(namespace)).or_else(|| self.position(None))?;
        self.0.get_mut(own)
    }

    /// Removes a namespace that has synced.
    pub(super) fn remove(&mut self, namespace: Option<&str>) -> Option<UnsyncedNamespace> {
        self.position(namespace).map(|at| self.0.remove(at))
    }

    fn position(&self, namespace: Option<&str>) -> Option<usize> {
        self.0.iter().position(|group| group.namespace.as_deref() == namespace)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets keys. `is_gone` is asked for each.
    pub(super) fn forget(&mut self, mut is_gone: impl FnMut(&ObjectKey) -> bool) {
        self.0.iter_mut().for_each(|group| group.keys.retain(|key| !is_gone(key)));
    }
}

impl UnsyncedNamespace {
    /// Adds a key that is not in it. Returns the keys that are given up if there are too many.
    pub(super) fn add(&mut self, key: ObjectKey, is_listed: bool) -> Vec<ObjectKey> {
        self.keys.push(key);
        self.named += usize::from(!is_listed);
        self.is_excess = self.named > MOST_UNSYNCED;
        if self.is_excess { std::mem::take(&mut self.keys) } else { Vec::new() }
    }
}

//! From changes of caches to keys in the queue, as each change is applied.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{
    informer::{Change, Gone, Observer, Progress, Via},
    object::{Kind, Object, ObjectKey, Scope, Version},
    store::Held,
    workqueue::WorkQueue,
    writes::{
        Writer,
        own_writes::{SourceId, Verdict},
    },
};

/// Where all feeds of a controller meet: own writes are told apart here, and keys enqueued.
#[derive(Clone, Debug)]
pub(crate) struct Hub {
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) writer: Arc<Writer>,
    /// The reconciled kind.
    pub(crate) kind: Kind,
}

impl Hub {
    /// Takes a change at a version; only a watch event can be a key's own.
    fn changed(&self, source: SourceId, via: Via, version: Option<Version>, key: ObjectKey) {
        let verdict = match via {
            Via::Watch => self.writer.event(source, version, &key),
            Via::Replace | Via::Replay => self.writer.stranger(&key),
        };
        if verdict == Verdict::Wake {
            self.queue.add(key);
        }
    }

    /// Takes a change that is nobody's own: a deletion.
    fn gone(&self, key: ObjectKey) {
        if self.writer.stranger(&key) == Verdict::Wake {
            self.queue.add(key);
        }
    }

    /// Returns the key of the controller among some owners, if it is of the reconciled kind.
    fn owner(&self, namespace: Option<&str>, owners: &[OwnerReference]) -> Option<ObjectKey> {
        let controls = |owner: &&OwnerReference| {
            owner.controller == Some(true) && self.kind.is_named_by(&owner.api_version, &owner.kind)
        };
        let owner = owners.iter().find(controls)?;
        let namespace = match self.kind.scope {
            Scope::Namespaced => namespace.unwrap_or_default(),
            Scope::Cluster => "",
        };
        Some(ObjectKey::new(namespace, &owner.name))
    }

    fn owner_of(&self, object: &Held<impl Object>) -> Option<ObjectKey> {
        self.owner(object.key().namespace(), &object.owners())
    }
}

/// Most deletions that wait for one key; the oldest is dropped, and counted.
const GRAVES_PER_KEY: usize = 4;

/// A deletion that the reconciler has yet to hear of.
#[derive(Debug)]
pub(crate) struct Grave<K> {
    pub(crate) last: Gone<K>,
    /// How often the reconciler failed on it.
    pub(crate) failures: u32,
}

/// Deletions of reconciled objects, by key, oldest first.
#[derive(Debug)]
pub(crate) struct Graves<K> {
    by_key: Mutex<HashMap<ObjectKey, VecDeque<Grave<K>>>>,
}

impl<K> Default for Graves<K> {
    fn default() -> Self {
        Self { by_key: Mutex::default() }
    }
}

impl<K> Graves<K> {
    fn dig(&self, key: &ObjectKey, last: Gone<K>) {
        let mut graves = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = graves.entry(key.clone()).or_default();
        if waiting.len() >= GRAVES_PER_KEY {
            waiting.pop_front();
            report_dropped(key);
        }
        waiting.push_back(Grave { last, failures: 0 });
    }

    pub(crate) fn next(&self, key: &ObjectKey) -> Option<Grave<K>> {
        let mut graves = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = graves.get_mut(key)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            graves.remove(key);
        }
        next
    }

    pub(crate) fn put_back(&self, key: &ObjectKey, grave: Grave<K>) {
        let mut graves = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = graves.entry(key.clone()).or_default();
        match waiting.len() < GRAVES_PER_KEY {
            true => waiting.push_front(grave),
            false => report_dropped(key),
        }
    }
}

fn report_dropped(key: &ObjectKey) {
    tracing::warn!(%key, "more than {GRAVES_PER_KEY} deletions wait for one key: the oldest is dropped");
}

/// Enqueues the reconciled objects themselves.
#[derive(Debug)]
pub(crate) struct Itself<K> {
    pub(crate) hub: Hub,
    pub(crate) source: SourceId,
    pub(crate) graves: Arc<Graves<K>>,
}

impl<K: Object> Observer<K> for Itself<K> {
    fn changed(&self, change: &Change<K>) {
        let hub = &self.hub;
        match change {
            Change::Added { object, via, .. } | Change::Updated { new: object, via, .. } => {
                hub.changed(self.source, *via, object.version(), object.key().clone());
            }
            Change::Unchanged { object } => hub.queue.touch(object.key().clone()),
            Change::Deleted { gone, .. } => {
                self.graves.dig(gone.key(), gone.clone());
                hub.gone(gone.key().clone());
            }
            // Reported by the informer, and not reconciled: there is nothing to run.
            Change::Unreadable { .. } => {}
        }
    }

    fn progressed(&self, progress: Progress) {
        self.hub.writer.progressed(self.source, progress);
    }
}

/// Enqueues the controlling owners of objects of another kind.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) hub: Hub,
    pub(crate) source: SourceId,
}

impl<C: Object> Observer<C> for Owned {
    fn changed(&self, change: &Change<C>) {
        let hub = &self.hub;
        match change {
            Change::Added { object, via, .. } => {
                if let Some(owner) = hub.owner_of(object) {
                    hub.changed(self.source, *via, object.version(), owner);
                }
            }
            Change::Updated { old, new, via } => {
                let version = new.version();
                let (before, after) = (hub.owner_of(old), hub.owner_of(new));
                if before != after
                    && let Some(owner) = before
                {
                    hub.changed(self.source, *via, version, owner);
                }
                if let Some(owner) = after {
                    hub.changed(self.source, *via, version, owner);
                }
            }
            Change::Unchanged { object } => {
                if let Some(owner) = hub.owner_of(object) {
                    hub.queue.touch(owner);
                }
            }
            Change::Deleted { gone, .. } => {
                if let Some(owner) = hub.owner(gone.key().namespace(), &gone.owners()) {
                    hub.gone(owner);
                }
            }
            Change::Unreadable { unreadable, kept, .. } => {
                let identity = &unreadable.identity;
                let namespace = identity.key.as_ref().and_then(ObjectKey::namespace);
                let now = hub.owner(namespace, &identity.owners);
                let before =
                    kept.as_ref().and_then(|kept| hub.owner_of(kept)).filter(|b| Some(b) != now.as_ref());
                now.into_iter().chain(before).for_each(|owner| hub.gone(owner));
            }
        }
    }

    fn progressed(&self, progress: Progress) {
        self.hub.writer.progressed(self.source, progress);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    // C15
    #[test]
    fn at_most_four_deletions_wait_for_a_key_however_often_one_fails() {
        let (graves, key) = (Graves::<ConfigMap>::default(), ObjectKey::new("shop", "a"));
        let dig = |at: usize| {
            let (key, uid) = (key.clone(), Some(at.to_string()));
            graves.dig(&key.clone(), Gone::Undecoded { key, uid, owners: Vec::new() });
        };
        (0..4).for_each(dig);
        for at in 4..20 {
            let failing = graves.next(&key).unwrap();
            dig(at);
            graves.put_back(&key, failing);
        }
        let left = std::iter::from_fn(|| graves.next(&key));
        let left: Vec<_> = left.map(|grave| grave.last.uid().unwrap().to_owned()).collect();
        assert_eq!(left, ["16", "17", "18", "19"]);
    }
}

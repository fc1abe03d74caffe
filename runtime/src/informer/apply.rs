//! Applies deltas to the store and works out what that changed: the only place that compares old with new.

use std::{collections::HashSet, sync::Arc};

use foldhash::fast::RandomState;

use super::change::{AddOrigin, CacheChange, Gone, Progress, ProgressVia, Via};
use crate::{
    delta_fifo::{Delta, Extent},
    list_watch::{AnyItem, Identity, Unreadable},
    object::{AnyObject, Kind, ObjectKey, Version},
    reflector::{Epoch, FetchReport, List},
    store::{CachedObject, WriteBatch},
};

/// What a batch of deltas did.
#[derive(Default)]
pub(super) struct AppliedDeltas {
    pub(super) changes: Vec<CacheChange>,
    pub(super) progress: Progress,
    /// The highest version of an object among them.
    pub(super) newest: Option<Version>,
    /// Items that could not even be named.
    pub(super) nameless: Vec<(Extent, Arc<Unreadable>)>,
    /// The extent that was replaced as a whole, if the batch was a replace.
    pub(super) replaced: Option<Extent>,
    /// Events that were skipped although the cache has been shown all up to their versions.
    pub(super) fallen: Vec<Fallen>,
    /// What reflectors reported.
    pub(super) reports: Vec<(Extent, FetchReport)>,
    /// Whether a resync begins behind them.
    pub(super) resync: bool,
}

/// An event that was skipped: its version is lower than one that came before it.
///
/// The server lost its history, or its versions do not grow.
#[derive(Debug)]
pub(super) struct Fallen {
    pub(super) extent: Extent,
    pub(super) key: ObjectKey,
    pub(super) version: Version,
    pub(super) cached: Version,
}

impl AppliedDeltas {
    /// Returns whether something can't be read, or contradicts the cache.
    pub(super) fn found_errors(&self) -> bool {
        self.unreadable().next().is_some() || !self.fallen.is_empty()
    }

    /// Shows the objects that were found to be unreadable.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = &Arc<Unreadable>> {
        let named = self.changes.iter().filter_map(|change| match change {
            CacheChange::Unreadable { unreadable, .. } => Some(unreadable),
            _ => None,
        });
        named.chain(self.nameless.iter().map(|(_, unreadable)| unreadable))
    }
}

/// Applies deltas in order.
///
/// A watch event that shows an older version than the cached one of the same object is skipped: nobody sees time
/// go backwards. Where it is not explained by a list that was ahead of the watch, it is noted as fallen. A list is
/// followed whatever its versions: it is the truth.
pub(super) fn apply(
    batch: &mut WriteBatch,
    entries: Vec<(Extent, Delta<dyn AnyObject>)>,
    kind: &Kind,
    origin: AddOrigin,
) -> AppliedDeltas {
    let applied = AppliedDeltas { changes: Vec::with_capacity(entries.len()), ..AppliedDeltas::default() };
    let mut applier = Applier { batch, kind, origin, via: Via::Watch, epoch: Epoch::Same, applied };
    for (extent, delta) in entries {
        match delta {
            Delta::Upserted(item) => {
                let version = item.version();
                applier.applied.newest = applier.applied.newest.max(version);
                applier.upsert(&extent, item);
                applier.batch.reach(&extent, version);
            }
            Delta::Deleted(item) => {
                let version = item.version();
                applier.applied.newest = applier.applied.newest.max(version);
                applier.delete(&extent, item, version);
                applier.batch.reach(&extent, version);
            }
            Delta::Replaced(List { items, unchanged, resource_version, epoch }) => {
                (applier.via, applier.epoch) = (Via::Replace, epoch);
                let newest = items.iter().filter_map(AnyItem::version).max();
                applier.applied.newest = applier.applied.newest.max(newest);
                applier.replace(&extent, items, unchanged);
                applier.batch.set_version(&extent, resource_version.parse().ok());
                applier.applied.progress.via = match epoch {
                    Epoch::Same => ProgressVia::Replace,
                    Epoch::New => ProgressVia::NewEpoch,
                };
                applier.applied.replaced = Some(extent);
                (applier.via, applier.epoch) = (Via::Watch, Epoch::Same);
            }
            Delta::Reached(resource_version) => applier.batch.reach(&extent, resource_version.parse().ok()),
            Delta::Reported(report) => applier.applied.reports.push((extent, report)),
            Delta::Sync => applier.applied.resync = true,
        }
    }
    let Applier { batch, mut applied, .. } = applier;
    applied.progress.version = batch.resource_version();
    batch.note_event();
    applied
}

struct Applier<'b> {
    batch: &'b mut WriteBatch,
    kind: &'b Kind,
    origin: AddOrigin,
    via: Via,
    /// Whether versions mean what they meant before.
    epoch: Epoch,
    applied: AppliedDeltas,
}

impl Applier<'_> {
    fn upsert(&mut self, extent: &Extent, item: AnyItem) -> Option<ObjectKey> {
        let object = match self.batch.hold(item) {
            Ok(object) => object,
            Err(unreadable) => return self.upsert_unreadable(extent, unreadable),
        };
        #[cfg(test)]
        crate::counted::count(1);
        let key = object.key().clone();
        if self.is_stale(extent, &key, object.version()) {
            tracing::debug!(kind = %self.kind, object = %key, "older than what is cached; skipped");
            return Some(key);
        }
        let mark = self.batch.clear_unreadable(&key);
        let via = self.via;
        let object = object.or_cached(self.batch.get(&key));
        match self.batch.put(object.clone()) {
            Some(old) if same_uid(old.uid(), object.uid()) => {
                // A server that lost its history may have given the same version to another state, and a state that did
                // not decode may be followed by other content that does.
                let same = self.epoch == Epoch::Same
                    && same_version(&old, &object)
                    && (old.unreadable().is_none() || old.is_same(&object));
                match (same && mark.is_none(), via) {
                    // I8: an object that a list only confirms is not a change, or each relist would run every key of a kind.
                    (true, Via::Replace) => {}
                    (true, _) => self.applied.changes.push(CacheChange::Unchanged { object }),
                    (false, _) => self.applied.changes.push(CacheChange::Updated { old, new: object, via }),
                }
            }
            old => {
                self.succeed(&key, old, mark, object.uid());
                let origin = self.origin;
                self.applied.changes.push(CacheChange::Added { object, origin, via });
            }
        }
        Some(key)
    }

    fn upsert_unreadable(&mut self, extent: &Extent, unreadable: Box<Unreadable>) -> Option<ObjectKey> {
        let Some(key) = unreadable.identity.key.clone() else {
            self.applied.nameless.push((extent.clone(), Arc::from(unreadable)));
            return None;
        };
        let Identity { uid, .. } = &unreadable.identity;
        if self.is_stale(extent, &key, marked_version(&unreadable.identity)) {
            return Some(key);
        }
        let mark = self.batch.unreadable(&key).cloned();
        if mark.as_ref().is_some_and(|mark| mark.identity.uid == *uid && same_state(mark, &unreadable)) {
            return Some(key);
        }
        let kept = self.batch.get(&key).cloned();
        let kept = match kept {
            Some(kept) if same_uid(kept.uid(), uid.as_deref()) => Some(kept),
            kept => {
                self.succeed(&key, kept, mark, uid.as_deref());
                self.batch.delete(&key);
                None
            }
        };
        let unreadable: Arc<Unreadable> = Arc::from(unreadable);
        self.batch.mark_unreadable(&key, unreadable.clone());
        let via = self.via;
        self.applied.changes.push(CacheChange::Unreadable { unreadable, kept, via });
        Some(key)
    }

    /// Adds the deletion of the object that had the name before, if that was another one.
    fn succeed(
        &mut self,
        key: &ObjectKey,
        old: Option<CachedObject>,
        mark: Option<Arc<Unreadable>>,
        uid: Option<&str>,
    ) {
        let gone = match (old, mark) {
            (Some(old), _) => Gone::Inferred(old),
            (None, Some(mark)) if !same_uid(mark.identity.uid.as_deref(), uid) => {
                undecoded(key, &mark.identity)
            }
            (None, _) => return,
        };
        let via = self.via;
        self.applied.changes.push(CacheChange::Deleted { gone: gone.into(), version: None, via });
    }

    fn delete(&mut self, extent: &Extent, item: AnyItem, version: Option<Version>) {
        let last = self.batch.hold(item);
        let identity = match &last {
            Ok(object) => (Some(object.key().clone()), object.uid().map(str::to_owned)),
            Err(unreadable) => (unreadable.identity.key.clone(), unreadable.identity.uid.clone()),
        };
        let (Some(key), uid) = identity else {
            self.applied
                .nameless
                .extend(last.err().map(|unreadable| (extent.clone(), Arc::from(unreadable))));
            return;
        };
        let cached = self.cached_identity(&key);
        let told = version.is_some() && version <= self.batch.version(extent);
        match cached {
            // What a list was ahead of: the one that bears the name now came later.
            Some((_, held)) if version.is_some() && version < held => {
                return self.note_if_fallen(extent, &key, version, held);
            }
            None if told => return, // a duplicate: this deletion was shown before
            Some((held, held_version)) if !same_uid(held, uid.as_deref()) => {
                if told {
                    // It ended before the one that bears the name now began.
                    return self.note_if_fallen(extent, &key, version, held_version);
                }
                self.forget(&key, Via::Watch);
            }
            _ => {}
        }
        let cached = self.batch.delete(&key);
        self.batch.clear_unreadable(&key);
        let gone = match (last, cached) {
            (Ok(object), _) => Gone::Final(object),
            (Err(_), Some(cached)) => Gone::Inferred(cached),
            (Err(unreadable), None) => undecoded(&key, &unreadable.identity),
        };
        self.applied.changes.push(CacheChange::Deleted { gone: gone.into(), version, via: Via::Watch });
    }

    /// Follows a list: shows what it holds, and infers that the rest of the extent is gone.
    fn replace(&mut self, extent: &Extent, items: Vec<AnyItem>, unchanged: Vec<ObjectKey>) {
        let before = self.batch.keys(extent);
        let mut listed: HashSet<ObjectKey, RandomState> =
            HashSet::with_capacity_and_hasher(items.len() + unchanged.len(), RandomState::default());
        let mut named = true;
        unchanged.iter().for_each(|key| self.confirm(key));
        listed.extend(unchanged);
        self.applied.changes.reserve(items.len());
        for item in items {
            match self.upsert(extent, item) {
                Some(key) => drop(listed.insert(key)),
                None => named = false,
            }
        }
        if !named {
            tracing::warn!(kind = %self.kind, %extent, "a list holds objects without a name; no deletion inferred");
            return;
        }
        for key in before.iter().filter(|key| !listed.contains(key)) {
            self.forget(key, Via::Replace);
        }
    }

    /// Follows a list that showed an object as it is cached.
    fn confirm(&mut self, key: &ObjectKey) {
        let Some(object) = self.batch.get(key).cloned() else { return };
        if self.epoch == Epoch::New || !same_version(&object, &object) {
            let (old, via) = (object.clone(), self.via);
            self.applied.changes.push(CacheChange::Updated { old, new: object, via });
        }
    }

    /// Takes out what is cached under a key, and infers its deletion.
    fn forget(&mut self, key: &ObjectKey, via: Via) {
        #[cfg(test)]
        crate::counted::count(1);
        let (cached, mark) = (self.batch.delete(key), self.batch.clear_unreadable(key));
        let gone = match (cached, mark) {
            (Some(cached), _) => Gone::Inferred(cached),
            (None, Some(mark)) => undecoded(key, &mark.identity),
            (None, None) => return,
        };
        self.applied.changes.push(CacheChange::Deleted { gone: gone.into(), version: None, via });
    }

    /// Returns whether a watch event is behind what is known of the same object or of its successor.
    fn is_stale(&mut self, extent: &Extent, key: &ObjectKey, version: Option<Version>) -> bool {
        if self.via != Via::Watch || version.is_none() {
            return false;
        }
        let held = self.cached_identity(key).and_then(|(_, held)| held);
        if version >= held {
            return false;
        }
        self.note_if_fallen(extent, key, version, held);
        true
    }

    /// Notes an event that is skipped, unless it only shows what a list was ahead of: pages may be of several versions.
    fn note_if_fallen(
        &mut self,
        extent: &Extent,
        key: &ObjectKey,
        version: Option<Version>,
        cached: Option<Version>,
    ) {
        let (Some(version), Some(cached)) = (version, cached) else { return };
        if version < cached && self.batch.version(extent).is_none_or(|reached| version <= reached) {
            self.applied.fallen.push(Fallen { extent: extent.clone(), key: key.clone(), version, cached });
        }
    }

    /// Reads UID and version of what is cached under a key; of the mark, if there is one.
    fn cached_identity(&self, key: &ObjectKey) -> Option<(Option<&str>, Option<Version>)> {
        match self.batch.unreadable(key) {
            Some(mark) => Some((mark.identity.uid.as_deref(), marked_version(&mark.identity))),
            None => self.batch.get(key).map(|held| (held.uid(), held.version())),
        }
    }
}

fn undecoded(key: &ObjectKey, identity: &Identity) -> Gone {
    Gone::Undecoded { key: key.clone(), uid: identity.uid.clone(), owners: identity.owners.clone() }
}

fn marked_version(identity: &Identity) -> Option<Version> {
    identity.resource_version.as_deref()?.parse().ok()
}

/// Returns whether two UIDs may be one object's; one that is not known contradicts nothing.
fn same_uid(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// Returns whether two states have one version; an empty version is like no other.
fn same_version(old: &CachedObject, new: &CachedObject) -> bool {
    let version = old.resource_version().filter(|version| !version.is_empty());
    version.is_some() && version == new.resource_version()
}

fn same_state(mark: &Unreadable, unreadable: &Unreadable) -> bool {
    let version = &mark.identity.resource_version;
    version.is_some() && *version == unreadable.identity.resource_version
}

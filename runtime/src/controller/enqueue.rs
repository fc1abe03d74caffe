//! From changes of caches to keys in the queue, as each change is applied.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

use super::{Reason, patience::Patience, predicate::ChangeFilter, watch::Enqueues};
use crate::{
    informer::{AddOrigin, CacheChange, Gone, Observer, Progress, Via},
    keys::{FeedId, KeyTable, Keys, RunActivity, SourceId},
    object::{Kind, ObjectKey, Scope, Version},
    store::CachedObject,
    users_code::discard,
    writes::Writer,
};

/// Where all sources of a controller meet: own writes are recognised here, and keys enqueued.
#[derive(Clone)]
pub(crate) struct Enqueuer {
    pub(crate) keys: Arc<Keys>,
    pub(crate) writer: Arc<Writer>,
    /// The reconciled kind.
    pub(crate) kind: Kind,
}

impl Enqueuer {
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
}

/// Returns what a write of a key may have made: only a watch event of a source of this cluster can be that.
pub(super) fn written(
    source: Option<SourceId>,
    via: Via,
    version: Option<Version>,
) -> Option<(SourceId, Version)> {
    source.zip(version).filter(|_| via == Via::Watch)
}

/// Returns why keys are enqueued for a change: a first list is less urgent than a change.
fn reason(change_of: Reason, origin: AddOrigin, via: Via) -> Reason {
    match (origin, via) {
        (AddOrigin::InitialList, _) | (_, Via::Replay) => Reason::InitialList,
        _ => change_of,
    }
}

fn deletion_of(object: &CachedObject) -> Option<Time> {
    object.metadata().ok()?.deletion_timestamp.clone()
}

/// Enqueues the reconciled objects themselves.
pub(crate) struct EnqueueObject {
    enqueuer: Enqueuer,
    source: SourceId,
    feed: FeedId,
    predicate: Option<ChangeFilter>,
    /// The finalizer that every object has to have.
    finalizer: Option<Arc<str>>,
    patience: Patience,
}

impl EnqueueObject {
    pub(crate) fn new(
        enqueuer: &Enqueuer,
        source: SourceId,
        predicate: Option<ChangeFilter>,
        finalizer: Option<Arc<str>>,
    ) -> Self {
        let feed = enqueuer.keys.table().feeds.add_feed();
        let (enqueuer, patience) = (enqueuer.clone(), Patience::default());
        Self { enqueuer, source, feed, predicate, finalizer, patience }
    }

    /// Whether a change is worth a run: neither cleanup nor what cleanup depends on can be filtered away.
    fn is_worth_a_run(&self, predicate: &ChangeFilter, change: &CacheChange) -> bool {
        let terminating = match change {
            CacheChange::Added { object, .. } => deletion_of(object).is_some(),
            CacheChange::Updated { old, new, .. } => deletion_of(old) != deletion_of(new),
            _ => false,
        };
        // The predicate comes last: it may panic.
        terminating
            || self.loses_finalizer(change)
            || self.patience.watch(&self.enqueuer.kind, || predicate(change))
    }

    /// Whether a change takes the controller's finalizer off an object that stays: only a run puts it back, and without it
    /// the object would go without its cleanup.
    ///
    /// An object that never had it is the predicate's to judge: it may be none of the controller's.
    fn loses_finalizer(&self, change: &CacheChange) -> bool {
        let (Some(finalizer), CacheChange::Updated { old, new, .. }) = (&self.finalizer, change) else {
            return false;
        };
        let has = |object: &CachedObject| object.finalizers().iter().any(|held| **held == **finalizer);
        has(old) && !has(new) && deletion_of(new).is_none()
    }
}

/// Notes a change that enqueues no key, for a run that may have made it.
fn note_passed_over(table: &mut KeyTable, change: &CacheChange) {
    change.key().into_iter().for_each(|key| table.note(key, RunActivity::Changed));
}

impl Observer for EnqueueObject {
    fn may_block(&self) -> bool {
        self.predicate.is_some()
    }

    fn changed(&self, change: &CacheChange) {
        if let CacheChange::Deleted { gone, .. } = change {
            self.enqueuer.writer.gone(self.source, gone.key());
        }
        let mut table = self.enqueuer.keys.table();
        let was_unreadable = table.observe(self.feed, Some(self.source), change);
        // What was owed while the object could not be read passes every predicate.
        if let Some(predicate) = self.predicate.as_ref().filter(|_| !was_unreadable) {
            drop(table);
            let is_worth_a_run = self.is_worth_a_run(predicate, change);
            table = self.enqueuer.keys.table();
            if !is_worth_a_run {
                return note_passed_over(&mut table, change);
            }
        }
        let source = Some(self.source);
        // Not even the key's own write passes if the object was unreadable: earlier runs were put off.
        let version_of = |object: &CachedObject| object.version().filter(|_| !was_unreadable);
        match change {
            CacheChange::Added { object, via, origin } => {
                let reason = reason(Reason::Changed, *origin, *via);
                table.take(object.key().clone(), written(source, *via, version_of(object)), reason);
            }
            CacheChange::Updated { new, via, .. } => {
                table.take(new.key().clone(), written(source, *via, version_of(new)), Reason::Changed);
            }
            CacheChange::Unchanged { object } => table.touch(object.key().clone()),
            // One that never ran, as on a stand-by: its end concerns no run.
            CacheChange::Deleted { gone, .. } if table.forget_unsynced(gone.key()) => {}
            CacheChange::Deleted { gone, .. } => {
                table.add_deletion(gone.key(), Arc::new((**gone).clone()));
                table.take(gone.key().clone(), None, Reason::Deleted);
            }
            // The informer reports it. It is not reconciled, but it is cleaned up if it is being deleted.
            CacheChange::Unreadable { unreadable, via, .. } => {
                let identity = &unreadable.identity;
                match &identity.key {
                    Some(key) if identity.deletion_timestamp.is_some() => {
                        let version = identity.resource_version.as_deref().and_then(|v| v.parse().ok());
                        table.take(key.clone(), written(source, *via, version), Reason::Changed);
                    }
                    _ => note_passed_over(&mut table, change),
                }
            }
        }
    }

    fn progressed(&self, progress: Progress) {
        self.enqueuer.writer.progressed(self.source, progress);
    }
}

/// Enqueues the keys that objects of another kind concern: their owners, or what the user's function finds.
pub(crate) struct EnqueueRelated {
    enqueuer: Enqueuer,
    /// `None`: another cluster. No change there is a key's own write, although names and versions may be equal.
    source: Option<SourceId>,
    feed: FeedId,
    /// The kind of these objects.
    kind: Arc<str>,
    enqueues: Enqueues,
    predicate: Option<ChangeFilter>,
    patience: Patience,
}

/// The first panic of the user's code in one change, which goes on once the keys that were found are enqueued.
type Panic = Option<Box<dyn Any + Send>>;

impl EnqueueRelated {
    pub(crate) fn new(
        enqueuer: &Enqueuer,
        source: Option<SourceId>,
        kind: Arc<str>,
        enqueues: Enqueues,
        predicate: Option<ChangeFilter>,
    ) -> Self {
        let feed = enqueuer.keys.table().feeds.add_feed();
        let (enqueuer, patience) = (enqueuer.clone(), Patience::default());
        Self { enqueuer, source, feed, kind, enqueues, predicate, patience }
    }

    fn wake(&self, via: Via, version: Option<Version>, reason: Reason, keys: Vec<ObjectKey>) {
        let (mut table, written) = (self.enqueuer.keys.table(), written(self.source, via, version));
        for key in keys {
            table.take(key, written, reason.clone());
        }
    }

    /// Tells whether a predicate keeps a change from enqueuing. What can't be read passes, as does what can be again:
    /// of a compact object that costs a decode to find out.
    fn refuses(&self, predicate: &ChangeFilter, change: &CacheChange, was_unreadable: bool) -> bool {
        let is_readable = || match (change, &self.enqueues) {
            (CacheChange::Updated { new, .. }, Enqueues::Mapped(_)) => new.any().is_ok(),
            _ => true,
        };
        let passes = || self.patience.watch(&self.kind, || predicate(change));
        !was_unreadable && !passes() && is_readable()
    }

    /// Finds the keys that a state concerns; `None` if that can't be told: it can't be read, or the user's code panics.
    fn related(&self, object: &CachedObject, panic: &mut Panic) -> Option<Vec<ObjectKey>> {
        let Enqueues::Mapped(mapping) = &self.enqueues else {
            return Some(self.owner(object.key().namespace(), &object.owners()));
        };
        let called = catch_unwind(AssertUnwindSafe(|| self.patience.watch(&self.kind, || mapping(object))));
        called.unwrap_or_else(|payload| {
            match panic {
                Some(_) => discard(payload),
                None => *panic = Some(payload),
            }
            None
        })
    }

    /// Finds the keys of an object by its owners alone: one that never decoded can't be mapped.
    fn owner(&self, namespace: Option<&str>, owners: &[OwnerReference]) -> Vec<ObjectKey> {
        match self.enqueues {
            Enqueues::Owner => self.enqueuer.owner(namespace, owners).into_iter().collect(),
            Enqueues::Mapped(_) | Enqueues::Nothing => Vec::new(),
        }
    }

    /// Finds the keys that an object concerns, or concerned when that could last be told.
    fn keys_of(
        &self,
        object: &CachedObject,
        earlier: Option<&CachedObject>,
        panic: &mut Panic,
    ) -> Vec<ObjectKey> {
        let now = self.related(object, panic);
        let before = earlier.and_then(|object| self.related(object, panic)).unwrap_or_default();
        let feeds = &mut self.enqueuer.keys.table().feeds;
        match now {
            Some(now) => merged([now, before, feeds.take_related(self.feed, object.key())]),
            None => feeds.keep_related(self.feed, object.key(), before),
        }
    }

    fn keys_of_the_gone(&self, gone: &Gone, panic: &mut Panic) -> Vec<ObjectKey> {
        let last = gone.cached().and_then(|last| self.related(last, panic));
        let last = last.unwrap_or_else(|| self.owner(gone.key().namespace(), &gone.owners()));
        merged([last, self.enqueuer.keys.table().feeds.take_related(self.feed, gone.key())])
    }
}

/// Joins the keys of several states, each once, in order.
fn merged<const STATES: usize>(keys: [Vec<ObjectKey>; STATES]) -> Vec<ObjectKey> {
    // Mostly all states concern the same key, or none.
    let mut filled = keys.iter().filter(|keys| !keys.is_empty());
    let first = filled.next();
    if first.is_none_or(|first| first.len() == 1 && filled.all(|other| other == first)) {
        return keys.into_iter().find(|keys| !keys.is_empty()).unwrap_or_default();
    }
    let each_once: IndexSet<ObjectKey, RandomState> = keys.into_iter().flatten().collect();
    each_once.into_iter().collect()
}

impl Observer for EnqueueRelated {
    fn may_block(&self) -> bool {
        matches!(self.enqueues, Enqueues::Mapped(_)) || self.predicate.is_some()
    }

    fn changed(&self, change: &CacheChange) {
        if let (Some(source), CacheChange::Deleted { gone, .. }) = (self.source, change) {
            self.enqueuer.writer.gone(source, gone.key());
        }
        let was_unreadable = self.enqueuer.keys.table().observe(self.feed, self.source, change);
        if self.predicate.as_ref().is_some_and(|predicate| self.refuses(predicate, change, was_unreadable)) {
            return;
        }
        let (why, mut panic) = (Reason::Related(self.kind.clone()), None);
        match change {
            CacheChange::Added { object, via, origin } => {
                let keys = self.keys_of(object, None, &mut panic);
                self.wake(*via, object.version(), reason(why, *origin, *via), keys);
            }
            CacheChange::Updated { old, new, via } => {
                let keys = self.keys_of(new, Some(old), &mut panic);
                self.wake(*via, new.version(), why, keys);
            }
            CacheChange::Unchanged { object } => {
                let keys = self.related(object, &mut panic).unwrap_or_default();
                let mut table = self.enqueuer.keys.table();
                keys.into_iter().for_each(|key| table.touch(key));
            }
            CacheChange::Deleted { gone, via, .. } => {
                self.wake(*via, None, why, self.keys_of_the_gone(gone, &mut panic));
            }
            CacheChange::Unreadable { unreadable, kept, via } => {
                let identity = &unreadable.identity;
                let namespace = identity.key.as_ref().and_then(ObjectKey::namespace);
                let now = self.owner(namespace, &identity.owners);
                let kept = kept.as_ref().and_then(|kept| self.related(kept, &mut panic));
                self.wake(*via, None, why, merged([now, kept.unwrap_or_default()]));
            }
        }
        // The informer counts it, and says so.
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn progressed(&self, progress: Progress) {
        if let Some(source) = self.source {
            self.enqueuer.writer.progressed(source, progress);
        }
    }
}

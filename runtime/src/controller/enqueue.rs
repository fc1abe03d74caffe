//! From changes of caches to keys in the queue, as each change is applied.

use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

use super::{
    Reason,
    dedup::EventDedup,
    patience::Patience,
    predicate::Predicate,
    queue::ControllerQueue,
    tombstones::Tombstones,
    unreadable::{Previous, UnreadableObjects},
};
use crate::{
    informer::{AddOrigin, Change, Gone, Observer, Progress, Via},
    object::{Kind, Object, ObjectKey, Scope, Version},
    store::CachedObject,
    users_code::discard,
    writes::{Writer, record::Verdict, source::SourceId},
};

/// Where all sources of a controller meet: own writes are recognised here, and keys enqueued.
#[derive(Clone, Debug)]
pub(crate) struct Enqueuer {
    pub(crate) queue: Arc<ControllerQueue>,
    pub(crate) writer: Arc<Writer>,
    /// The reconciled kind.
    pub(crate) kind: Kind,
    pub(crate) dedup: Arc<EventDedup>,
}

/// One change, as it concerns the keys that it may enqueue.
#[derive(Clone, Debug)]
struct Trigger {
    /// `None`: another cluster, where no key writes.
    source: Option<SourceId>,
    via: Via,
    /// `None`: it can't be the key's own, such as a deletion.
    version: Option<Version>,
    reason: Reason,
}

impl Enqueuer {
    /// Enqueues a key for a change, unless it is the key's own; only a watch event can be that.
    fn take(&self, trigger: &Trigger, key: ObjectKey) {
        let verdict = match (trigger.via, trigger.source, trigger.version) {
            (Via::Watch, Some(source), Some(version)) => match self.dedup.is_first(source, version, &key) {
                true => self.writer.event(source, Some(version), &key),
                false => return,
            },
            _ => self.writer.foreign_change(&key),
        };
        if verdict == Verdict::Enqueue {
            self.queue.add(key, trigger.reason.clone());
        }
    }

    /// Reports a change to the record of writes, whatever it enqueues.
    fn tell_writes<C>(&self, source: SourceId, change: &Change<C>) {
        if let Some(object) = change.key() {
            self.writer.changed(source, object);
        }
        if let Change::Deleted { gone, .. } = change {
            self.writer.gone(source, gone.key());
        }
    }

    fn progressed(&self, source: SourceId, progress: Progress) {
        self.dedup.progressed(source, progress.via);
        self.writer.progressed(source, progress);
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

    fn owner_of(&self, object: &CachedObject<impl Object>) -> Option<ObjectKey> {
        self.owner(object.key().namespace(), &object.owners())
    }
}

/// Returns why keys are enqueued for a change: a first list is less urgent than a change.
fn reason(change_of: Reason, origin: AddOrigin, via: Via) -> Reason {
    match (origin, via) {
        (AddOrigin::InitialList, _) | (_, Via::Replay) => Reason::InitialList,
        _ => change_of,
    }
}

fn deletion_of(object: &CachedObject<impl Object>) -> Option<Time> {
    object.metadata().ok()?.deletion_timestamp.clone()
}

/// Enqueues the reconciled objects themselves.
#[derive(Debug)]
pub(crate) struct EnqueueObject<K> {
    pub(crate) enqueuer: Enqueuer,
    pub(crate) source: SourceId,
    pub(crate) tombstones: Arc<Tombstones<K>>,
    pub(crate) predicate: Option<Predicate<K>>,
    /// The finalizer that every object has to have.
    pub(crate) finalizer: Option<Arc<str>>,
    pub(crate) unreadable_objects: UnreadableObjects,
    pub(crate) patience: Patience,
}

impl<K: Object> EnqueueObject<K> {
    /// Whether a change is worth a run: neither cleanup nor what cleanup depends on can be filtered away, nor what was owed
    /// while it could not be read.
    fn is_worth_a_run(&self, change: &Change<K>, previous: Previous) -> bool {
        let Some(predicate) = self.predicate.as_ref().filter(|_| previous == Previous::Readable) else {
            return true;
        };
        let terminating = match change {
            Change::Added { object, .. } => deletion_of(object).is_some(),
            Change::Updated { old, new, .. } => deletion_of(old) != deletion_of(new),
            _ => false,
        };
        // The predicate comes last: it may panic.
        terminating
            || self.loses_finalizer(change)
            || self.patience.watch(&self.enqueuer.kind, || predicate.lets_pass(change))
    }

    /// Whether a change takes the controller's finalizer off an object that stays: only a run puts it back, and without it
    /// the object would go without its cleanup.
    ///
    /// An object that never had it is the predicate's to judge: it may be none of the controller's.
    fn loses_finalizer(&self, change: &Change<K>) -> bool {
        let (Some(finalizer), Change::Updated { old, new, .. }) = (&self.finalizer, change) else {
            return false;
        };
        let has = |object: &CachedObject<K>| object.finalizers().iter().any(|held| **held == **finalizer);
        has(old) && !has(new) && deletion_of(new).is_none()
    }
}

impl<K: Object> Observer<K> for EnqueueObject<K> {
    fn may_block(&self) -> bool {
        self.predicate.is_some()
    }

    fn changed(&self, change: &Change<K>) {
        self.enqueuer.tell_writes(self.source, change);
        let previous = self.unreadable_objects.note(change);
        if !self.is_worth_a_run(change, previous) {
            return change.key().into_iter().for_each(|key| self.enqueuer.writer.passed_over(key));
        }
        let (enqueuer, source) = (&self.enqueuer, self.source);
        // Not even the key's own write passes then: earlier runs were put off.
        let version_of =
            |object: &CachedObject<K>| object.version().filter(|_| previous == Previous::Readable);
        match change {
            Change::Added { object, via, origin } => {
                let (version, reason) = (version_of(object), reason(Reason::Changed, *origin, *via));
                enqueuer.take(
                    &Trigger { source: Some(source), via: *via, version, reason },
                    object.key().clone(),
                );
            }
            Change::Updated { new, via, .. } => {
                let trigger = Trigger {
                    source: Some(source),
                    via: *via,
                    version: version_of(new),
                    reason: Reason::Changed,
                };
                enqueuer.take(&trigger, new.key().clone());
            }
            Change::Unchanged { object } => enqueuer.queue.touch(object.key().clone()),
            Change::Deleted { gone, via, .. } => {
                let key = gone.key();
                // It never ran, as on a stand-by: its end concerns no run.
                if enqueuer.queue.forget_unsynced(key) {
                    return;
                }
                self.tombstones.add(key, (**gone).clone());
                let trigger =
                    Trigger { source: Some(source), via: *via, version: None, reason: Reason::Deleted };
                enqueuer.take(&trigger, key.clone());
            }
            // Reported by the informer, and not reconciled; but what is to be cleaned up is.
            Change::Unreadable { unreadable, via, .. } => {
                let identity = &unreadable.identity;
                let key = identity.key.clone().filter(|_| identity.deletion_timestamp.is_some());
                if key.is_none() {
                    identity.key.iter().for_each(|key| enqueuer.writer.passed_over(key));
                }
                if let Some(key) = key {
                    let version = identity.resource_version.as_deref().and_then(|v| v.parse().ok());
                    enqueuer.take(
                        &Trigger { source: Some(source), via: *via, version, reason: Reason::Changed },
                        key,
                    );
                }
            }
        }
    }

    fn progressed(&self, progress: Progress) {
        self.enqueuer.progressed(self.source, progress);
    }
}

/// Finds the keys that an object of another kind concerns.
pub(crate) trait Relation<C>: Send + Sync + 'static {
    /// Whether it calls the user's code, which may panic, be slow, or block.
    const CALLS_USER: bool;

    /// Finds those of an object, decoding of it what that takes; `None` where that can't be read.
    fn of(&self, enqueuer: &Enqueuer, object: &CachedObject<C>) -> Option<Vec<ObjectKey>>;

    /// Tells whether `of` finds what an object concerns.
    fn can_read(&self, _object: &CachedObject<C>) -> bool {
        true
    }

    /// Finds those of an object of which there are its owners alone.
    fn of_owners(
        &self,
        enqueuer: &Enqueuer,
        namespace: Option<&str>,
        owners: &[OwnerReference],
    ) -> Vec<ObjectKey>;
}

/// The owner that controls it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ownership;

impl<C: Object> Relation<C> for Ownership {
    const CALLS_USER: bool = false;

    fn of(&self, enqueuer: &Enqueuer, object: &CachedObject<C>) -> Option<Vec<ObjectKey>> {
        Some(enqueuer.owner_of(object).into_iter().collect())
    }

    fn of_owners(
        &self,
        enqueuer: &Enqueuer,
        namespace: Option<&str>,
        owners: &[OwnerReference],
    ) -> Vec<ObjectKey> {
        enqueuer.owner(namespace, owners).into_iter().collect()
    }
}

/// What the user's function finds.
pub(crate) struct Mapping<F>(pub(crate) F);

impl<C: Object, F: Fn(&C) -> Vec<ObjectKey> + Send + Sync + 'static> Relation<C> for Mapping<F> {
    const CALLS_USER: bool = true;

    fn of(&self, _: &Enqueuer, object: &CachedObject<C>) -> Option<Vec<ObjectKey>> {
        object.object().ok().map(|object| (self.0)(&object))
    }

    fn can_read(&self, object: &CachedObject<C>) -> bool {
        object.object().is_ok()
    }

    /// An object that never decoded can't be mapped.
    fn of_owners(&self, _: &Enqueuer, _: Option<&str>, _: &[OwnerReference]) -> Vec<ObjectKey> {
        Vec::new()
    }
}

/// Enqueues the keys that objects of another kind concern.
pub(crate) struct EnqueueRelated<C, R> {
    pub(crate) enqueuer: Enqueuer,
    /// `None`: another cluster. What changes there is nobody's own write, although names and versions may be equal.
    pub(crate) source: Option<SourceId>,
    /// The kind of these objects.
    pub(crate) kind: Arc<str>,
    pub(crate) relation: Arc<R>,
    pub(crate) predicate: Option<Predicate<C>>,
    pub(crate) unreadable_objects: UnreadableObjects,
    /// What objects concerned before they could not be read or mapped.
    pub(crate) last_related: LastRelated,
    pub(crate) patience: Patience,
}

/// The first panic of the user's code in one change, which goes on once the keys that were found are enqueued.
type Panic = Option<Box<dyn Any + Send>>;

impl<C: Object, R: Relation<C>> EnqueueRelated<C, R> {
    fn wake(&self, via: Via, version: Option<Version>, reason: Reason, keys: Vec<ObjectKey>) {
        let trigger = Trigger { source: self.source, via, version, reason };
        keys.into_iter().for_each(|key| self.enqueuer.take(&trigger, key));
    }

    /// Tells whether a predicate keeps a change from enqueuing. What can't be read passes, as does what can be again:
    /// of a compact object that costs a decode to find out.
    fn refuses(&self, predicate: &Predicate<C>, change: &Change<C>, previous: Previous) -> bool {
        let is_readable = || match change {
            Change::Updated { new, .. } => self.relation.can_read(new),
            _ => true,
        };
        let passes = || self.patience.watch(&self.kind, || predicate.lets_pass(change));
        previous == Previous::Readable && !passes() && is_readable()
    }

    /// Finds the keys that a state concerns; `None` if that can't be told: it can't be read, or the user's code panics.
    fn related(&self, object: &CachedObject<C>, panic: &mut Panic) -> Option<Vec<ObjectKey>> {
        let of = || self.relation.of(&self.enqueuer, object);
        if !R::CALLS_USER {
            return of();
        }
        let called = catch_unwind(AssertUnwindSafe(|| self.patience.watch(&self.kind, of)));
        called.unwrap_or_else(|payload| {
            match panic {
                Some(_) => discard(payload),
                None => *panic = Some(payload),
            }
            None
        })
    }

    /// Finds the keys that an object concerns, or concerned when that could last be told.
    fn keys_of(
        &self,
        object: &CachedObject<C>,
        earlier: Option<&CachedObject<C>>,
        panic: &mut Panic,
    ) -> Vec<ObjectKey> {
        let now = self.related(object, panic);
        let before = earlier.and_then(|object| self.related(object, panic)).unwrap_or_default();
        match now {
            Some(now) => merged([now, before, self.last_related.take(object.key())]),
            None => self.last_related.keep(object.key(), before),
        }
    }

    fn keys_of_the_gone(&self, gone: &Gone<C>, panic: &mut Panic) -> Vec<ObjectKey> {
        let last = gone.cached().and_then(|last| self.related(last, panic));
        let last = last.unwrap_or_else(|| {
            self.relation.of_owners(&self.enqueuer, gone.key().namespace(), &gone.owners())
        });
        merged([last, self.last_related.take(gone.key())])
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

/// What objects concerned that can't be read or mapped any more: their deletion concerns the same.
///
/// A typed cache keeps the last state that could be read; a compact one does not.
#[derive(Debug, Default)]
pub(crate) struct LastRelated(Mutex<HashMap<ObjectKey, Vec<ObjectKey>>>);

impl LastRelated {
    /// Remembers what a state concerned that an unreadable one follows; returns all that is remembered.
    pub(super) fn keep(&self, object: &ObjectKey, keys: Vec<ObjectKey>) -> Vec<ObjectKey> {
        let mut known = self.known();
        let before = known.remove(object).unwrap_or_default();
        let keys = merged([keys, before]);
        if !keys.is_empty() {
            known.insert(object.clone(), keys.clone());
        }
        keys
    }

    pub(super) fn take(&self, object: &ObjectKey) -> Vec<ObjectKey> {
        let mut known = self.known();
        if known.is_empty() { Vec::new() } else { known.remove(object).unwrap_or_default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ObjectKey, Vec<ObjectKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Object, R: Relation<C>> Observer<C> for EnqueueRelated<C, R> {
    fn may_block(&self) -> bool {
        R::CALLS_USER || self.predicate.is_some()
    }

    fn changed(&self, change: &Change<C>) {
        if let Some(source) = self.source {
            self.enqueuer.tell_writes(source, change);
        }
        let previous = self.unreadable_objects.note(change);
        if self.predicate.as_ref().is_some_and(|predicate| self.refuses(predicate, change, previous)) {
            return;
        }
        let (enqueuer, why, mut panic) = (&self.enqueuer, Reason::Related(self.kind.clone()), None);
        match change {
            Change::Added { object, via, origin } => {
                let keys = self.keys_of(object, None, &mut panic);
                self.wake(*via, object.version(), reason(why, *origin, *via), keys);
            }
            Change::Updated { old, new, via } => {
                let keys = self.keys_of(new, Some(old), &mut panic);
                self.wake(*via, new.version(), why, keys);
            }
            Change::Unchanged { object } => {
                let keys = self.related(object, &mut panic).unwrap_or_default();
                keys.into_iter().for_each(|key| enqueuer.queue.touch(key));
            }
            Change::Deleted { gone, via, .. } => {
                self.wake(*via, None, why, self.keys_of_the_gone(gone, &mut panic));
            }
            Change::Unreadable { unreadable, kept, via } => {
                let identity = &unreadable.identity;
                let namespace = identity.key.as_ref().and_then(ObjectKey::namespace);
                let now = self.relation.of_owners(enqueuer, namespace, &identity.owners);
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
            self.enqueuer.progressed(source, progress);
        }
    }
}

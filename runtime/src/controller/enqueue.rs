//! From changes of caches to keys in the queue, as each change is applied.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

use super::{Reason, patience::Patience, predicate::Predicate};
use crate::{
    informer::{AddOrigin, Change, Gone, Observer, Progress, Via},
    keys::{FeedId, Keys, RunActivity, SourceId},
    object::{Kind, Object, ObjectKey, Scope, Version},
    store::CachedObject,
    users_code::discard,
    writes::Writer,
};

/// Where all sources of a controller meet: own writes are recognised here, and keys enqueued.
#[derive(Clone, Debug)]
pub(crate) struct Enqueuer {
    pub(crate) keys: Arc<Keys>,
    pub(crate) writer: Arc<Writer>,
    /// The reconciled kind.
    pub(crate) kind: Kind,
}

/// One change, as it concerns the keys that it may enqueue.
#[derive(Clone, Debug)]
struct Trigger {
    /// The source and the version, if the change can be a key's own write; a deletion can't.
    written: Option<(SourceId, Version)>,
    reason: Reason,
}

impl Trigger {
    /// A change that a source of this cluster shows. Only a watch event can be a key's own write.
    fn new(source: Option<SourceId>, via: Via, version: Option<Version>, reason: Reason) -> Self {
        Self { written: source.zip(version).filter(|_| via == Via::Watch), reason }
    }
}

impl Enqueuer {
    /// Enqueues keys for a change, unless it is their own.
    fn take(&self, trigger: &Trigger, keys: impl IntoIterator<Item = ObjectKey>) {
        let mut table = self.keys.table();
        keys.into_iter().for_each(|key| table.take(key, trigger.written, trigger.reason.clone()));
    }

    /// Takes in a change, whatever it enqueues. Returns whether it is the first readable state after an unreadable one.
    fn observe<C: Object>(&self, feed: FeedId, source: Option<SourceId>, change: &Change<C>) -> bool {
        if let (Some(source), Change::Deleted { gone, .. }) = (source, change) {
            self.writer.gone(source, gone.key());
        }
        self.keys.table().observe(feed, source, change)
    }

    /// Notes a change that enqueues no key, for a run that may have made it.
    fn passed_over(&self, key: Option<&ObjectKey>) {
        key.into_iter().for_each(|key| self.keys.table().note(key, RunActivity::Changed));
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
    enqueuer: Enqueuer,
    source: SourceId,
    feed: FeedId,
    predicate: Option<Predicate<K>>,
    /// The finalizer that every object has to have.
    finalizer: Option<Arc<str>>,
    patience: Patience,
}

impl<K: Object> EnqueueObject<K> {
    pub(crate) fn new(
        enqueuer: &Enqueuer,
        source: SourceId,
        predicate: Option<Predicate<K>>,
        finalizer: Option<Arc<str>>,
    ) -> Self {
        let feed = enqueuer.keys.table().feeds.add_feed();
        let (enqueuer, patience) = (enqueuer.clone(), Patience::default());
        Self { enqueuer, source, feed, predicate, finalizer, patience }
    }

    /// Whether a change is worth a run: neither cleanup nor what cleanup depends on can be filtered away, nor what was owed
    /// while it could not be read.
    fn is_worth_a_run(&self, change: &Change<K>, was_unreadable: bool) -> bool {
        let Some(predicate) = self.predicate.as_ref().filter(|_| !was_unreadable) else {
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
        let enqueuer = &self.enqueuer;
        let was_unreadable = enqueuer.observe(self.feed, Some(self.source), change);
        if !self.is_worth_a_run(change, was_unreadable) {
            return enqueuer.passed_over(change.key());
        }
        let trigger = |via, version, reason| Trigger::new(Some(self.source), via, version, reason);
        // Not even the key's own write passes then: earlier runs were put off.
        let version_of = |object: &CachedObject<K>| object.version().filter(|_| !was_unreadable);
        match change {
            Change::Added { object, via, origin } => {
                let reason = reason(Reason::Changed, *origin, *via);
                enqueuer.take(&trigger(*via, version_of(object), reason), [object.key().clone()]);
            }
            Change::Updated { new, via, .. } => {
                enqueuer.take(&trigger(*via, version_of(new), Reason::Changed), [new.key().clone()]);
            }
            Change::Unchanged { object } => enqueuer.keys.table().touch(object.key().clone()),
            Change::Deleted { gone, .. } => {
                let (key, mut table) = (gone.key(), enqueuer.keys.table());
                // It never ran, as on a stand-by: its end concerns no run.
                if !table.forget_unsynced(key) {
                    table.add_deletion(key, Arc::new((**gone).clone()));
                    table.take(key.clone(), None, Reason::Deleted);
                }
            }
            // The informer reports it. It is not reconciled, but it is cleaned up if it is being deleted.
            Change::Unreadable { unreadable, via, .. } => {
                let identity = &unreadable.identity;
                match identity.key.clone().filter(|_| identity.deletion_timestamp.is_some()) {
                    None => enqueuer.passed_over(identity.key.as_ref()),
                    Some(key) => {
                        let version = identity.resource_version.as_deref().and_then(|v| v.parse().ok());
                        enqueuer.take(&trigger(*via, version, Reason::Changed), [key]);
                    }
                }
            }
        }
    }

    fn progressed(&self, progress: Progress) {
        self.enqueuer.writer.progressed(self.source, progress);
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

    /// Finds the keys of an object by its owners alone.
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
    enqueuer: Enqueuer,
    /// `None`: another cluster. No change there is a key's own write, although names and versions may be equal.
    source: Option<SourceId>,
    feed: FeedId,
    /// The kind of these objects.
    kind: Arc<str>,
    relation: Arc<R>,
    predicate: Option<Predicate<C>>,
    patience: Patience,
}

/// The first panic of the user's code in one change, which goes on once the keys that were found are enqueued.
type Panic = Option<Box<dyn Any + Send>>;

impl<C: Object, R: Relation<C>> EnqueueRelated<C, R> {
    pub(crate) fn new(
        enqueuer: &Enqueuer,
        source: Option<SourceId>,
        kind: Arc<str>,
        relation: Arc<R>,
        predicate: Option<Predicate<C>>,
    ) -> Self {
        let feed = enqueuer.keys.table().feeds.add_feed();
        let (enqueuer, patience) = (enqueuer.clone(), Patience::default());
        Self { enqueuer, source, feed, kind, relation, predicate, patience }
    }

    fn wake(&self, via: Via, version: Option<Version>, reason: Reason, keys: Vec<ObjectKey>) {
        self.enqueuer.take(&Trigger::new(self.source, via, version, reason), keys);
    }

    /// Tells whether a predicate keeps a change from enqueuing. What can't be read passes, as does what can be again:
    /// of a compact object that costs a decode to find out.
    fn refuses(&self, predicate: &Predicate<C>, change: &Change<C>, was_unreadable: bool) -> bool {
        let is_readable = || match change {
            Change::Updated { new, .. } => self.relation.can_read(new),
            _ => true,
        };
        let passes = || self.patience.watch(&self.kind, || predicate.lets_pass(change));
        !was_unreadable && !passes() && is_readable()
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
        let feeds = &mut self.enqueuer.keys.table().feeds;
        match now {
            Some(now) => merged([now, before, feeds.take_related(self.feed, object.key())]),
            None => feeds.keep_related(self.feed, object.key(), before),
        }
    }

    fn keys_of_the_gone(&self, gone: &Gone<C>, panic: &mut Panic) -> Vec<ObjectKey> {
        let last = gone.cached().and_then(|last| self.related(last, panic));
        let last = last.unwrap_or_else(|| {
            self.relation.of_owners(&self.enqueuer, gone.key().namespace(), &gone.owners())
        });
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

impl<C: Object, R: Relation<C>> Observer<C> for EnqueueRelated<C, R> {
    fn may_block(&self) -> bool {
        R::CALLS_USER || self.predicate.is_some()
    }

    fn changed(&self, change: &Change<C>) {
        let was_unreadable = self.enqueuer.observe(self.feed, self.source, change);
        if self.predicate.as_ref().is_some_and(|predicate| self.refuses(predicate, change, was_unreadable)) {
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
                let mut table = enqueuer.keys.table();
                keys.into_iter().for_each(|key| table.touch(key));
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
            self.enqueuer.writer.progressed(source, progress);
        }
    }
}

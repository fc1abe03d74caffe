//! What runs read of caches: each read is noted, and a change of what was read enqueues the key.

use std::{
    any::TypeId,
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use super::{
    Reason,
    enqueue::{Enqueuer, written},
    watch::{Narrowing, Place},
};
use crate::{
    informer::{AddOrigin, AnyInformer, CacheChange, Observer, Progress, Via},
    keys::{FeedId, Keys, ReadChange, ReadKind, ReadState, SourceId, WokenKeys},
    object::{AnyObject, Kind, ObjectKey, Version},
    store::{
        AnyLister, CachedObject, PickCheck, ReadAspect, ReadPart, ReadSet, ReadTracker, TrackedSnapshot,
    },
    users_code::contained,
};

/// A cache that runs may read, since the controller declares that it reads it.
pub(crate) struct ReadCacheEntry {
    /// The marker type that it was declared with.
    pub(super) marker: TypeId,
    pub(super) kind: Kind,
    pub(super) narrowing: Narrowing,
    /// The cluster's name; `None`: the manager's own.
    pub(super) cluster: Option<Arc<str>>,
    /// The namespace of the controller that it is for.
    pub(super) place: Place,
    pub(super) lister: AnyLister,
    pub(super) shared: Arc<ReadFeed>,
}

/// A cache of objects that the reconciled ones own.
pub(crate) struct OwnedCache {
    pub(super) marker: TypeId,
    /// The namespace of the controller that it is for.
    pub(super) place: Place,
    pub(super) informer: AnyInformer,
}

/// The caches that runs may read.
#[derive(Default)]
pub(crate) struct ReadCaches {
    pub(super) reads: Vec<ReadCacheEntry>,
    pub(super) owned: Vec<OwnedCache>,
}

/// What the observer of a cache and the runs that read it share.
pub(super) struct ReadFeed {
    pub(super) kind: ReadKind,
    /// `None`: another cluster.
    pub(super) source: Option<SourceId>,
    /// The kind's name.
    pub(super) name: Arc<str>,
    /// Whether any run has asked for the lister.
    is_read: AtomicBool,
    /// Whether it was said that a run reads too many things one by one.
    is_told: AtomicBool,
}

impl ReadFeed {
    pub(super) fn new(kind: ReadKind, source: Option<SourceId>, name: Arc<str>) -> Self {
        Self { kind, source, name, is_read: AtomicBool::default(), is_told: AtomicBool::default() }
    }
}

/// The moments that a run reads: each cache shows one, from the first read on.
#[derive(Default)]
pub(super) struct RunMoments(Mutex<Vec<(ReadKind, Arc<TrackedSnapshot>)>>);

impl RunMoments {
    /// Returns a lister of a cache at the run's moment, whose reads are noted.
    pub(super) fn lister(
        &self,
        entry: &ReadCacheEntry,
        keys: &Arc<Keys>,
        run: (&ObjectKey, u64),
    ) -> AnyLister {
        let feed = &entry.shared;
        let mut moments = self.0.lock();
        if let Some((_, moment)) = moments.iter().find(|(kind, _)| *kind == feed.kind) {
            return entry.lister.clone().at(moment.clone());
        }
        // Before the moment is taken: what changes after it is noted, or seen by the reader itself.
        feed.is_read.store(true, Ordering::SeqCst);
        let tracker = RunTracker { keys: keys.clone(), key: run.0.clone(), run: run.1, feed: feed.clone() };
        let moment = Arc::new(entry.lister.moment(Box::new(tracker)));
        moments.push((feed.kind, moment.clone()));
        entry.lister.clone().at(moment)
    }
}

/// Notes the reads of a run of one cache.
struct RunTracker {
    keys: Arc<Keys>,
    key: ObjectKey,
    run: u64,
    feed: Arc<ReadFeed>,
}

impl ReadTracker for RunTracker {
    fn note(&self, part: ReadPart, aspect: ReadAspect) {
        let key = &self.key;
        let whole = self.keys.table().reads.note(key, self.run, self.feed.kind, part, aspect);
        if let Some(whole) = whole
            && !self.feed.is_told.swap(true, Ordering::Relaxed)
        {
            let kind = &self.feed.name;
            tracing::info!(
                %key, %kind, depends_on = %whole,
                "a run reads more than 256 things of one kind one by one, and depends on more than it read; an index would do"
            );
        }
    }

    fn changed(&self, versions: Vec<Option<Version>>) {
        let Self { feed, key, run, .. } = self;
        let object = feed.name.clone();
        let mut table = self.keys.table();
        for version in versions {
            let written = feed.source.zip(version);
            // The run wrote it after its moment. The event may have come already, and is not awaited any more.
            if written.is_some_and(|(source, version)| table.was_answered(key, source, version)) {
                continue;
            }
            let reason = Reason::Read { object: object.clone(), run: *run };
            table.take(key.clone(), written, reason);
        }
    }
}

/// Enqueues the keys whose runs read what changes.
pub(crate) struct EnqueueReaders {
    enqueuer: Enqueuer,
    shared: Arc<ReadFeed>,
    feed: FeedId,
    lister: AnyLister,
}

impl EnqueueReaders {
    pub(super) fn new(enqueuer: &Enqueuer, shared: Arc<ReadFeed>, lister: AnyLister) -> Self {
        let feed = enqueuer.keys.table().feeds.add_feed();
        Self { enqueuer: enqueuer.clone(), shared, feed, lister }
    }

    /// Works out what readers must know of a state of an object.
    fn state<'o>(&self, wanted: &[Arc<str>], object: &'o CachedObject) -> ReadState<'o> {
        let labels = match object.metadata() {
            Ok(Cow::Borrowed(meta)) => meta.labels.as_ref().map(Cow::Borrowed).unwrap_or_default(),
            Ok(Cow::Owned(meta)) => Cow::Owned(meta.labels.unwrap_or_default()),
            Err(_) => Cow::default(),
        };
        let values = wanted.iter().map(|index| self.lister.index_values(index, object)).collect();
        ReadState { labels, values }
    }

    /// Enqueues the readers of an object that changes from one state to another.
    fn wake(
        &self,
        key: &ObjectKey,
        [before, after]: [Option<&CachedObject>; 2],
        is_doubtful: bool,
        (via, version): (Via, Option<Version>),
    ) {
        let wanted = self.enqueuer.keys.table().reads.wanted(self.shared.kind);
        let [before, now] = [before, after].map(|object| object.map(|object| self.state(&wanted, object)));
        let change = ReadChange { key, before, after: now, is_doubtful };
        let mut table = self.enqueuer.keys.table();
        let WokenKeys { mut keys, picks } = table.reads.woken(self.shared.kind, &wanted, &change);
        if !picks.is_empty() {
            // The user's code does not run under the lock.
            drop(table);
            let picked = picks.into_iter().filter(|(_, _, check)| is_picked_otherwise(check, after));
            keys.extend(picked.map(|(key, run, _)| (key, run)));
            table = self.enqueuer.keys.table();
        }
        if keys.is_empty() {
            return;
        }
        let object: Arc<str> = format!("{}:{key}", self.shared.name).into();
        let written = written(self.shared.source, via, version.filter(|_| !is_doubtful));
        for (reader, run) in keys {
            table.take(reader, written, Reason::Read { object: object.clone(), run });
        }
    }
}

/// Asks whether something else is picked of an object now. Where that can't be told it is.
fn is_picked_otherwise(check: &PickCheck, after: Option<&CachedObject>) -> bool {
    let object: Option<Arc<dyn AnyObject>> = match after.map(CachedObject::any) {
        Some(Ok(object)) => Some(object),
        Some(Err(_)) => return true,
        None => None,
    };
    contained(|| check(object.as_deref())).unwrap_or(true)
}

impl Observer for EnqueueReaders {
    fn may_block(&self) -> bool {
        self.shared.is_read.load(Ordering::Relaxed)
    }

    fn changed(&self, change: &CacheChange) {
        let source = self.shared.source;
        if let (Some(source), CacheChange::Deleted { gone, .. }) = (source, change) {
            self.enqueuer.writer.gone(source, gone.key());
        }
        let was_unreadable = self.enqueuer.keys.table().observe(self.feed, source, change);
        if !self.shared.is_read.load(Ordering::SeqCst) {
            return;
        }
        match change {
            // What a first list holds was read by nobody, or counts as a change like any other.
            CacheChange::Added { object, via, origin } => {
                let via = if *origin == AddOrigin::InitialList { Via::Replace } else { *via };
                self.wake(object.key(), [None, Some(object)], was_unreadable, (via, object.version()));
            }
            CacheChange::Updated { old, new, via } => {
                self.wake(new.key(), [Some(old), Some(new)], was_unreadable, (*via, new.version()));
            }
            CacheChange::Unchanged { .. } => {}
            CacheChange::Deleted { gone, via, .. } => {
                self.wake(gone.key(), [gone.cached(), None], was_unreadable, (*via, None));
            }
            CacheChange::Unreadable { unreadable, kept, via } => {
                if let Some(key) = &unreadable.identity.key {
                    let kept = kept.as_ref();
                    self.wake(key, [kept, kept], true, (*via, None));
                }
            }
        }
    }

    fn progressed(&self, progress: Progress) {
        if let Some(source) = self.shared.source {
            self.enqueuer.writer.progressed(source, progress);
        }
    }
}

impl ReadCaches {
    /// Names what is read.
    pub(super) fn shown(&self, kind: ReadKind, part: &ReadPart) -> String {
        let entry = self.reads.iter().find(|entry| entry.shared.kind == kind);
        let name = entry.map(|entry| &*entry.shared.name).unwrap_or_default();
        match part {
            ReadPart::Object(key) => format!("{name} {key}"),
            ReadPart::Set(ReadSet::Everything) => format!("all {name}"),
            ReadPart::Set(set) => format!("{name} with {set}"),
        }
    }
}

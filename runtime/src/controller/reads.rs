//! What runs read of caches: each read is noted, and a change of what was read enqueues the key.

use std::{
    any::TypeId,
    borrow::Cow,
    fmt,
    hash::BuildHasher,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::{
    Reason,
    enqueue::{Enqueuer, written},
    watch::{Narrowing, Place},
};
use crate::{
    informer::{AddOrigin, AnyInformer, CacheChange, Observer, Progress, Via},
    keys::{FeedId, KeyTable, Keys, ReadChange, ReadKind, ReadState, RunningReader, SourceId, WokenKeys},
    object::{AnyObject, Kind, ObjectKey, Version},
    store::{AnyLister, CachedObject, PickCheck, ReadAspect, ReadPart, ReadSet, ReadTracker},
    users_code::contained,
};

/// A cache that runs may read, since the controller declares that it reads it.
pub(crate) struct ReadCacheEntry {
    /// The marker type that it was declared with.
    pub(super) marker: TypeId,
    pub(super) kind: Kind,
    pub(super) narrowing: Narrowing,
    /// The name of the other cluster that it is watched in; `None`: the controller's own.
    pub(super) elsewhere: Option<Arc<str>>,
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
    /// Makes digests of reads.
    hashing: RandomState,
}

impl ReadFeed {
    pub(super) fn new(kind: ReadKind, source: Option<SourceId>, name: Arc<str>) -> Self {
        let (is_read, is_told) = (AtomicBool::default(), AtomicBool::default());
        Self { kind, source, name, is_read, is_told, hashing: RandomState::default() }
    }
}

/// How many reads by name a run keeps to itself.
const MOST_KEPT: usize = 64;

/// The moments that a run reads: each cache shows one, from the first read on.
#[derive(Default)]
pub(crate) struct RunMoments(Mutex<MomentsOfRun>);

#[derive(Default)]
struct MomentsOfRun {
    all: Vec<RunMoment>,
    /// The run has ended; what it left behind may go on to read.
    is_over: bool,
}

/// The moment of a cache that a run reads.
struct RunMoment {
    lister: AnyLister,
    tracker: Arc<RunTracker>,
}

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
        if let Some(moment) = moments.all.iter().find(|moment| moment.tracker.feed.kind == feed.kind) {
            return moment.lister.clone();
        }
        // Before the moment is taken: what changes after it is noted, or seen by the reader itself.
        feed.is_read.store(true, Ordering::SeqCst);
        let kept = (!moments.is_over).then(KeptReads::default);
        let (reader, kept) = (RunningReader::new(run.0.clone(), run.1), Mutex::new(kept));
        let tracker = Arc::new(RunTracker {
            keys: keys.clone(),
            reader,
            feed: feed.clone(),
            kept,
            whole: OnceLock::new(),
        });
        let moment = Arc::new(entry.lister.moment(tracker.clone()));
        let lister = entry.lister.clone().at(moment);
        moments.all.push(RunMoment { lister: lister.clone(), tracker });
        lister
    }

    /// Says once what the run depends on as a whole.
    pub(super) fn tell(&self) {
        self.0.lock().all.iter().for_each(|moment| moment.tracker.tell());
    }

    /// Ends the reads of a run, and notes those that it has kept to itself. Whatever reads for it from now on is noted at
    /// once.
    pub(super) fn finish(&self, table: &mut KeyTable, key: &ObjectKey, run: u64) {
        let mut moments = self.0.lock();
        moments.is_over = true;
        let moments = &moments.all;
        let kept: Vec<_> =
            moments.iter().map(|moment| moment.tracker.kept.lock().take().unwrap_or_default()).collect();
        let all = || moments.iter().zip(&kept);
        let digest = kept.iter().fold(0, |sum: u64, kept| sum.wrapping_add(kept.digest));
        if !table.reads.repeat(key, run, digest) {
            let is_all = !table.reads.has_noted(key);
            all().for_each(|(moment, kept)| moment.tracker.note_kept(table, kept));
            table.reads.finish(key, run, if is_all { digest } else { 0 });
        }
        for (RunMoment { lister, tracker }, kept) in all() {
            for (part, aspect) in &kept.reads {
                tracker.changed_in(table, lister.changes(part, aspect));
            }
        }
    }
}

/// Shows no content.
impl fmt::Debug for RunMoments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunMoments").field(&self.0.lock().all.len()).finish()
    }
}

/// Notes the reads of a run of one cache.
///
/// What a run reads by name it mostly keeps to itself until it ends, which saves a lock a read. Its moment does not change,
/// so that is the same as reading it at the end.
struct RunTracker {
    keys: Arc<Keys>,
    reader: RunningReader,
    feed: Arc<ReadFeed>,
    /// The reads that are not noted yet; `None`: the run has ended.
    kept: Mutex<Option<KeptReads>>,
    /// What the run depends on as a whole, since it reads too many things one by one.
    whole: OnceLock<ReadSet>,
}

/// What a run has read by name, in its order.
#[derive(Default)]
struct KeptReads {
    reads: Vec<(ReadPart, ReadAspect)>,
    digest: u64,
}

impl RunTracker {
    fn note_kept(&self, table: &mut KeyTable, kept: &KeptReads) {
        kept.reads.iter().for_each(|(part, aspect)| self.note_in(table, part, aspect));
    }

    fn note_in(&self, table: &mut KeyTable, part: &ReadPart, aspect: &ReadAspect) {
        let whole = table.reads.note(&self.reader, self.feed.kind, part.clone(), aspect.clone());
        whole.into_iter().for_each(|whole| drop(self.whole.set(whole)));
    }

    /// Says once what is read as a whole.
    fn tell(&self) {
        if let Some(whole) = self.whole.get()
            && !self.feed.is_told.swap(true, Ordering::Relaxed)
        {
            let (key, kind) = (self.reader.key(), &self.feed.name);
            tracing::info!(
                %key, %kind, depends_on = %whole,
                "a run reads more than 256 things of one kind one by one, and depends on more than it read; an index would do"
            );
        }
    }

    fn changed_in(&self, table: &mut KeyTable, versions: Vec<Option<Version>>) {
        let (feed, key, run) = (&self.feed, self.reader.key(), self.reader.run());
        for version in versions {
            let written = feed.source.zip(version);
            // The run wrote it after its moment. The event may have come already, and is not awaited any more.
            if written.is_some_and(|(source, version)| table.was_answered(key, source, version)) {
                continue;
            }
            table.take(key.clone(), written, Reason::Read { object: feed.name.clone(), run });
        }
    }

    /// Keeps a read by name until the run ends, if it can. The user's code in a pick must not run under a lock.
    fn keep(&self, part: &ReadPart, aspect: &ReadAspect) -> bool {
        let (ReadPart::Object(key), ReadAspect::Content | ReadAspect::Members) = (part, aspect) else {
            return false;
        };
        let mut kept = self.kept.lock();
        let Some(kept) = kept.as_mut().filter(|kept| kept.reads.len() < MOST_KEPT) else { return false };
        let hash = self.feed.hashing.hash_one((key, matches!(aspect, ReadAspect::Members)));
        kept.digest = kept.digest.wrapping_add(hash);
        kept.reads.push((part.clone(), aspect.clone()));
        true
    }
}

impl ReadTracker for RunTracker {
    fn note(&self, part: &ReadPart, aspect: &ReadAspect) -> bool {
        if self.keep(part, aspect) {
            return false;
        }
        self.note_in(&mut self.keys.table(), part, aspect);
        self.tell();
        true
    }

    fn changed(&self, versions: Vec<Option<Version>>) {
        self.changed_in(&mut self.keys.table(), versions);
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

//! What all writes of one controller share: the client, the caches to compare with, and what is remembered of writes.
//!
//! A write is refused if it may be computed from a state that its server lost. Its answer is held against the caches. A
//! task follows up: it gives up waits that are overdue, asks after writes whose reply was lost, and whether caches are
//! right.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::Instrument;

use super::{
    WriteError,
    applied::{AppliedMemory, AppliedRecord, Digest, Digests},
    caches::{CacheView, CachedMeta, CachedTarget, Shown},
    child::decode,
    contradictions::{Answered, Contradicted, Contradictions, OpenContradiction, ShownBefore, contradiction},
    overload::Sender,
    owner::{Owner, OwnerRole},
    request::{ApiResponse, ApiVerb, Path, Request, RequestBody, Target},
    rights::Rights,
    warnings::WriteWarnings,
};
use crate::{
    informer::{Comparison, Progress, ProgressVia},
    keys::{
        Expectation, KeyTable, Keys, LastAnswer, OverdueWrite, RunActivity, SourceId, StatusSeen, object_id,
    },
    object::{Object, ObjectKey, Scope, Version},
    reflector::DoubtCause,
};

/// How long a write waits for caches that are in doubt before it is refused and its key runs again later.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon a question is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often the server is asked at most whether caches are right: a storm that outlasts an outage begins again.
const ASKED_WHETHER_CURRENT: u32 = 60;

/// What is known of a target before it is written.
#[derive(Debug)]
pub(crate) enum KnownTarget {
    Absent,
    Present(CachedMeta),
}

/// How a write proved what it was computed from.
#[derive(Debug)]
pub(crate) enum Proof {
    /// It carried this version.
    Carried(String),
    /// It proved nothing but, at most, the UID.
    None,
}

/// Whether keys wait for their own writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitForOwn {
    /// A key that wrote waits until its caches show it.
    #[default]
    UntilCached,
    /// It runs again whatever its caches show: what tests compare with.
    Never,
}

/// A write that may or may not have happened, since its reply was lost.
#[derive(Debug)]
struct LostWrite {
    key: ObjectKey,
    target: Target,
}

/// What the follow-up task asks the server.
#[derive(Debug)]
enum FollowUpQuestion {
    /// What became of a write.
    After(LostWrite),
    /// Whether caches show what the server has.
    IsCurrent(Target),
}

/// What is remembered of written objects. What is known of keys is in their table.
#[derive(Debug, Default)]
struct WriteMemory {
    applied: AppliedMemory,
    contradictions: Contradictions,
    /// When the follow-up task looks next; `None` while no key waits and no answer contradicts a cache.
    alarm: Option<Instant>,
    warnings: WriteWarnings,
    questions: Vec<FollowUpQuestion>,
}

/// Who writes: what logs call it, and what the server does.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) controller: Arc<str>,
    pub(crate) field_manager: Arc<str>,
    /// The permissions that it declares.
    pub(crate) declared: Rights,
}

/// What a controller's writes count.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    /// Waits that ended at their deadline.
    pub(crate) overdue: Counter,
    /// Caches that listed again because an answer contradicted them.
    pub(crate) contradicted: Counter,
}

/// Shared by all runs of one controller.
pub(crate) struct Writer {
    sender: Sender,
    author: Author,
    caches: Vec<CacheView>,
    keys: Arc<Keys>,
    wait: WaitForOwn,
    digests: Digests,
    /// Locked before the table of keys, if both are.
    memory: Mutex<WriteMemory>,
    /// The follow-up task has something new to do.
    follow_up_due: Notify,
    /// Held while it asks whether a cache is right.
    comparing: tokio::sync::Mutex<()>,
    counters: Counters,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("author", &self.author).finish_non_exhaustive()
    }
}

/// A write whose reply is awaited. It counts as lost if this is dropped, also by a caller that gave up waiting.
struct InFlightWrite<'a> {
    writer: &'a Writer,
    lost: Option<LostWrite>,
}

impl<'a> InFlightWrite<'a> {
    fn new(writer: &'a Writer, key: &ObjectKey, target: &Target, path: Path) -> Self {
        let mut target = target.clone();
        if path == Path::Collection {
            // The name is the server's choice, or was not taken: the collection is asked for.
            target.key = ObjectKey::new(target.key.namespace().unwrap_or_default(), "");
        }
        Self { writer, lost: Some(LostWrite { key: key.clone(), target }) }
    }

    fn settled(mut self) {
        self.lost = None;
    }
}

impl Drop for InFlightWrite<'_> {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            self.writer.lost(lost);
        }
    }
}

// What follows is boxed where generic code calls it: it is compiled here once, and not in each crate that awaits it for a
// type of its own.
impl Writer {
    pub(crate) fn new(
        sender: Sender,
        author: Author,
        caches: Vec<CacheView>,
        keys: Arc<Keys>,
        wait: WaitForOwn,
        counters: Counters,
    ) -> Arc<Self> {
        Arc::new(Self {
            sender,
            author,
            caches,
            keys,
            wait,
            digests: Digests::default(),
            memory: Mutex::default(),
            follow_up_due: Notify::new(),
            comparing: tokio::sync::Mutex::default(),
            counters,
        })
    }

    pub(crate) fn client(&self) -> &kube::Client {
        self.sender.client()
    }

    /// Returns the query pairs of every write: who writes.
    pub(crate) fn query(&self) -> String {
        format!("fieldManager={}", self.author.field_manager)
    }

    fn memory(&self) -> MutexGuard<'_, WriteMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- caches

    /// Returns whether any cache shows a target, or will.
    fn is_cached(&self, target: &Target) -> bool {
        self.caches_of(target).next().is_some()
    }

    /// Returns every cache that shows a target: a kind may be watched in several forms.
    fn caches_of(&self, target: &Target) -> impl Iterator<Item = &CacheView> {
        self.caches.iter().filter(|cache| cache.covers(target))
    }

    fn cache_of(&self, source: SourceId) -> Option<&CacheView> {
        self.caches.iter().find(|cache| cache.source == source)
    }

    /// Returns the sources of the caches that show a target, each once.
    fn sources_of(&self, target: &Target) -> Vec<SourceId> {
        let mut sources: Vec<_> = self.caches_of(target).map(|cache| cache.source).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Returns the source whose cache shows a target, whatever it selects, before one that may not.
    fn source_that_shows(&self, target: &Target) -> Option<SourceId> {
        let preferred = self.caches_of(target).min_by_key(|cache| !cache.selects.is_everything());
        preferred.map(|cache| cache.source)
    }

    /// Returns a target as the caches show it that hold whole objects.
    pub(super) fn shown(&self, target: &Target) -> impl Iterator<Item = Shown> {
        self.caches_of(target).filter_map(|cache| cache.show.as_ref()?(&target.key))
    }

    /// Forgets what was applied to an object that is gone from a cache.
    pub(crate) fn gone(&self, source: SourceId, object: &ObjectKey) {
        if let Some(cache) = self.cache_of(source) {
            self.memory().applied.forget(&cache.kind, object);
        }
    }

    /// Takes a cache's progress, and enqueues or releases the keys that waited for it.
    pub(crate) fn progressed(&self, source: SourceId, progress: Progress) {
        if progress.via == ProgressVia::NewEpoch
            && let Some(cache) = self.cache_of(source)
        {
            self.memory().applied.forget_kind(&cache.kind);
        }
        self.keys.table().progressed(source, progress, &self.caches, Instant::now());
    }

    /// Begins another term. If the server lost its history meanwhile, all is forgotten that was written before.
    pub(crate) fn begin_term(&self) {
        if self.keys.begin_term() {
            *self.memory() = WriteMemory::default();
        }
    }

    // --- what is remembered of an object

    /// Returns the key's last answer about a target, unless a cache has caught up with it.
    pub(crate) fn last_answer(&self, key: &ObjectKey, target: &Target) -> Option<LastAnswer> {
        self.keys.table().answer(key, &object_id(&target.kind, &target.key)).cloned()
    }

    pub(crate) fn forget_answer(&self, key: &ObjectKey, target: &Target) {
        self.keys.table().forget_answer(key, &object_id(&target.kind, &target.key));
    }

    pub(super) fn digest(&self, value: &Value) -> Digest {
        self.digests.of(value)
    }

    pub(super) fn applied(&self, target: &Target) -> Option<AppliedRecord> {
        self.memory().applied.get(&target.kind, &target.key).cloned()
    }

    /// Remembers what was applied to an object that a cache shows: the cache says when the object is gone.
    pub(super) fn keep_applied(&self, target: &Target, applied: AppliedRecord) {
        if self.is_cached(target) {
            self.memory().applied.keep(&target.kind, &target.key, applied);
        }
    }

    pub(super) fn forget_applied(&self, target: &Target) {
        self.memory().applied.forget(&target.kind, &target.key);
    }

    /// Warns once for each kind that is applied and that no cache shows.
    ///
    /// A controller has caches; a context that was made by hand has none.
    pub(super) fn warn_unwatched(&self, target: &Target, ownership: OwnerRole) {
        if !self.caches.is_empty() && !self.is_cached(target) {
            self.memory().warnings.unwatched(target, ownership);
        }
    }

    /// Logs once what is done and was not declared: a role made of what is declared does not allow it.
    fn log_undeclared(&self, request: &Request<'_>) {
        if let Some(lacking) = self.author.declared.lacks(request) {
            self.memory().warnings.undeclared(&request.target.kind, lacking);
        }
    }

    /// Returns what is known of a target without asking the server; `None`: nothing.
    pub(crate) fn known(&self, key: &ObjectKey, target: &Target) -> Option<KnownTarget> {
        let answer = self.last_answer(key, target);
        let seen = answer.as_ref().is_some_and(|answer| answer.seen);
        let answer = answer.map(|LastAnswer { uid, resource_version, owners, .. }| CachedMeta {
            uid,
            resource_version,
            owners,
            finalizers: Vec::new(),
        });
        let cached =
            self.caches_of(target).map(|cache| (cache.look_up)(&target.key)).reduce(CachedTarget::or);
        let Some(cached) = cached else { return answer.map(KnownTarget::Present) };
        match (cached, answer) {
            (CachedTarget::Present(cached), Some(answer)) => {
                Some(KnownTarget::Present(cached.or_newer(answer)))
            }
            (CachedTarget::Present(cached), None) => Some(KnownTarget::Present(cached)),
            (CachedTarget::Absent, Some(_)) if seen => Some(KnownTarget::Absent),
            (_, Some(answer)) => Some(KnownTarget::Present(answer)),
            (CachedTarget::Absent, None) => Some(KnownTarget::Absent),
            (CachedTarget::Unknown | CachedTarget::Unselected, None) => None,
        }
    }

    /// Learns from an answer: its version is the key's own if that is proved, and is waited for.
    pub(crate) fn learn(
        &self,
        key: &ObjectKey,
        target: &Target,
        answer: &ApiResponse,
        proof: &Proof,
        status: Option<StatusSeen>,
    ) {
        let meta = &answer.object["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        let (uid, resource_version) = (text("uid"), text("resourceVersion"));
        let own = match proof {
            _ if answer.code == StatusCode::CREATED => true,
            // An empty version proves nothing: the server took the write whatever was there.
            Proof::Carried(carried) => !carried.is_empty() && *carried != resource_version,
            Proof::None => false,
        };
        let owners = serde_json::from_value(meta["ownerReferences"].clone()).unwrap_or_default();
        let source = self.source_that_shows(target);
        let version = resource_version.parse::<Version>().ok();
        let (mut table, now) = (self.keys.table(), Instant::now());
        // After its run, only what a cache will show is needed: nothing else ends the memory of it.
        if table.is_running(key) || (source.is_some() && version.is_some()) {
            let answer = LastAnswer { uid, resource_version, owners, status, source, seen: false };
            table.keep_answer(key, object_id(&target.kind, &target.key), answer);
        }
        let Some(version) = version else { return };
        let labels = serde_json::from_value(meta["labels"].clone()).unwrap_or_default();
        self.expect(&mut table, key, target, &Expectation::Reached(version), now, |cache| {
            cache.will_show(target, &labels)
        });
        if own {
            self.sources_of(target).into_iter().for_each(|source| table.wrote(key, source, version));
        }
        drop(table);
        self.set_alarm(now);
    }

    /// Lets a key wait until every cache that shows the target shows this of it.
    pub(crate) fn wait_for(&self, key: &ObjectKey, target: &Target, expectation: &Expectation) {
        // What was created without a name is not in any cache, and may be selected by all.
        let shown =
            |cache: &CacheView| target.key.name().is_empty() || cache.will_show(target, &BTreeMap::default());
        let now = Instant::now();
        self.expect(&mut self.keys.table(), key, target, expectation, now, shown);
        self.set_alarm(now);
    }

    fn expect(
        &self,
        table: &mut KeyTable,
        key: &ObjectKey,
        target: &Target,
        expectation: &Expectation,
        now: Instant,
        shown: impl Fn(&CacheView) -> bool,
    ) {
        if self.wait == WaitForOwn::Never {
            return;
        }
        let mut sources: Vec<_> =
            self.caches_of(target).filter(|cache| shown(cache)).map(|cache| cache.source).collect();
        sources.dedup();
        for source in sources {
            table.expect(key, (source, &target.key), expectation.clone(), &self.caches, now);
        }
    }

    // --- requests

    /// Sends a write of a key; if its reply is lost, the key waits for what became of it.
    pub(crate) fn write<'a>(
        &'a self,
        key: &'a ObjectKey,
        request: Request<'a>,
    ) -> BoxFuture<'a, Result<ApiResponse, WriteError>> {
        Box::pin(async move {
            self.log_undeclared(&request);
            self.check_caches(key, request.target).await?;
            self.sender.check(&request)?;
            let pending = InFlightWrite::new(self, key, request.target, request.path);
            let (target, path) = (request.target, request.path);
            let before = self.before(target);
            let answer = self.sender.send(request).await;
            match &answer {
                Err(error) if error.leaves_in_doubt() => drop(pending),
                _ => pending.settled(),
            }
            match &answer {
                Ok(_) => self.keys.table().note(key, RunActivity::Wrote),
                // For a status, or a collection, 404 says less.
                Err(error) if error.is_not_found() && path == Path::Object => {
                    self.compare(target, before, &Answered::Absent);
                }
                Err(_) => {}
            }
            answer
        })
    }

    /// Asks the server for a target; `None` where there is none.
    pub(crate) fn fetch<'a>(
        &'a self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<Value>, WriteError>> {
        Box::pin(async move {
            match self.get(target).await {
                Ok(object) => Ok(Some(object)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Asks the server for a target, and holds its answer against the caches.
    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Value, WriteError>> {
        Box::pin(async move {
            let before = self.before(target);
            let found = self.read(target, Path::Object, "").await;
            let answered = match &found {
                Ok(found) => Answered::Present {
                    uid: found["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
                    version: version_of(found),
                },
                Err(error) if error.is_not_found() => Answered::Absent,
                Err(_) => return found,
            };
            self.compare(target, before, &answered);
            found
        })
    }

    /// Asks the server for an object.
    pub(crate) async fn get_as<C: Object>(&self, target: &Target) -> Result<C, WriteError> {
        if target.kind.scope == Scope::Namespaced && target.key.namespace().is_none() {
            return Err(WriteError::Unnamed { object: Box::new(target.clone()), missing: "the namespace" });
        }
        decode("get", target, self.get(target).await?)
    }

    /// Asks the server for the latest state, whatever caches it has.
    pub(super) async fn read(&self, target: &Target, path: Path, query: &str) -> Result<Value, WriteError> {
        let request = Request {
            operation: "get",
            verb: if path == Path::Collection { ApiVerb::List } else { ApiVerb::Get },
            target,
            path,
            query: query.to_owned(),
            content: RequestBody::None,
        };
        self.log_undeclared(&request);
        self.sender.check(&request)?;
        self.sender.send(request).await.map(|answer| answer.object)
    }

    // --- whether caches can be relied on

    /// Refuses a write that may be computed from a state which its server lost.
    ///
    /// The caches that the key reads are waited for, for a moment: most are back soon, and show no other history.
    pub(super) async fn check_caches(&self, key: &ObjectKey, target: &Target) -> Result<(), WriteError> {
        if self.keys.gate.doubt(key).is_some() {
            // Whether it is open then is asked next.
            let _ = timeout(PATIENCE, self.keys.gate.opened_for(key)).await;
        }
        if let Some(doubt) = self.keys.gate.doubt(key) {
            let why = match doubt.cause {
                DoubtCause::HistoryLost => {
                    "the server lost its history, and caches are compared with what is left"
                }
                DoubtCause::WatchCut => "the server is unreachable, and may come back with another history",
            };
            return Err(WriteError::doubted(target, why));
        }
        match self.keys.table().spans_epochs(key) {
            true => Err(WriteError::doubted(target, "the server lost its history since the run began")),
            false => Ok(()),
        }
    }

    /// Returns what the caches that would show a target show before it is asked for.
    fn before(&self, target: &Target) -> Vec<(SourceId, ShownBefore)> {
        let delivered = |source| self.keys.table().delivered(source);
        let shown = self.caches_of(target).filter_map(|cache| {
            let before = match (cache.look_up)(&target.key) {
                CachedTarget::Absent => ShownBefore::Absent { delivered: delivered(cache.source) },
                CachedTarget::Present(meta) => {
                    ShownBefore::Present { uid: meta.uid, version: meta.resource_version.parse().ok() }
                }
                CachedTarget::Unknown | CachedTarget::Unselected => return None,
            };
            Some((cache.source, before))
        });
        shown.collect()
    }

    /// Holds an answer against what the caches showed before it was asked for.
    fn compare(&self, target: &Target, before: Vec<(SourceId, ShownBefore)>, answered: &Answered) {
        for (source, before) in before {
            let Some(what) = contradiction(&before, answered) else { continue };
            if matches!(what, Contradicted::Version { .. }) {
                self.report_history_loss(source, &target.key);
            }
            let now = Instant::now();
            self.memory().contradictions.note(source, &target.key, what, now);
            self.set_alarm(now);
        }
    }

    /// Asks for an owner whose child belongs to another UID of it: it may be the owner's cache that is behind.
    pub(super) fn refetch_owner<'a>(
        &'a self,
        owner: &'a Owner,
        refused: Option<&WriteError>,
    ) -> BoxFuture<'a, ()> {
        let belongs_to_another = matches!(refused, Some(WriteError::EarlierOwner { .. }));
        Box::pin(async move {
            if belongs_to_another && let Err(error) = self.fetch(&owner.named()).await {
                tracing::debug!(object = %owner.named(), %error, "can't ask for an owner");
            }
        })
    }

    /// Notes that the object of a UID is gone, whatever else has its name.
    pub(super) fn note_gone(&self, target: &Target, uid: &str) {
        let mut before = self.before(target);
        before
            .retain(|(_, before)| matches!(before, ShownBefore::Present { uid: shown, .. } if shown == uid));
        self.compare(target, before, &Answered::Absent);
    }

    /// Notes that the server has an older state of a target than a write of the key was computed from.
    ///
    /// What the key wrote is lost, and its versions may be given to others.
    pub(super) fn found_older_state(&self, key: &ObjectKey, target: &Target) {
        self.forget_answer(key, target);
        self.keys.table().forget_own(key);
        self.sources_of(target).into_iter().for_each(|source| self.report_history_loss(source, &target.key));
    }

    fn report_history_loss(&self, source: SourceId, object: &ObjectKey) {
        if let Some(cache) = self.cache_of(source) {
            (cache.report_history_loss)(object);
        }
    }

    /// Has a cache list that shows still what an answer contradicted.
    fn list_to_compare(&self, OpenContradiction { source, object, .. }: &OpenContradiction) {
        let Some(cache) = self.cache_of(*source) else { return };
        if (cache.compare)(object) == Comparison::TooSoon {
            return;
        }
        self.memory().contradictions.resolved_by_list(*source);
        self.counters.contradicted.inc();
        let kind = &cache.kind;
        tracing::warn!(%object, "the server contradicts the cache of {kind}: listing {kind} again");
    }

    // --- the follow-up task

    /// Attends to waiting keys, for as long as the controller runs.
    pub(crate) fn follow_up(&self) -> BoxFuture<'_, Infallible> {
        Box::pin(async move {
            // Log lines of runs are in their spans, which name the controller.
            let span = tracing::info_span!("follow_up", controller = %self.author.controller);
            self.attend().instrument(span).await
        })
    }

    async fn attend(&self) -> Infallible {
        let mut asking = FuturesUnordered::new();
        loop {
            let (alarm, questions) = {
                let mut memory = self.memory();
                (memory.alarm, std::mem::take(&mut memory.questions))
            };
            asking.extend(questions.into_iter().map(|question| self.ask(question)));
            tokio::select! {
                () = until(alarm) => self.tick(),
                () = self.follow_up_due.notified() => {}
                Some(()) = asking.next(), if !asking.is_empty() => {}
            }
        }
    }

    /// Sees to it that the follow-up task looks in time: nothing is due sooner than a tick after it began.
    fn set_alarm(&self, now: Instant) {
        let mut memory = self.memory();
        if memory.alarm.is_none() {
            memory.alarm = self.next_tick(&memory, now);
            if memory.alarm.is_some() {
                self.follow_up_due.notify_one();
            }
        }
    }

    /// Returns when the follow-up task must look next; `None` while nothing waits.
    fn next_tick(&self, memory: &WriteMemory, now: Instant) -> Option<Instant> {
        let (pending, contradicted) =
            (self.keys.table().next_tick(now), memory.contradictions.next_tick(now));
        pending.into_iter().chain(contradicted).min()
    }

    fn lost(&self, lost: LostWrite) {
        if self.is_cached(&lost.target) {
            self.wait_for(&lost.key, &lost.target, &Expectation::ReplyLost);
            self.follow_up_with(FollowUpQuestion::After(lost));
        }
    }

    /// Has the server asked whether caches show the object that it has: what does not end may be computed from one that is gone.
    pub(crate) fn doubt_cache_of(&self, target: Target) {
        self.follow_up_with(FollowUpQuestion::IsCurrent(target));
    }

    fn follow_up_with(&self, question: FollowUpQuestion) {
        self.memory().questions.push(question);
        self.follow_up_due.notify_one();
    }

    async fn ask(&self, question: FollowUpQuestion) {
        match question {
            FollowUpQuestion::After(lost) => Box::pin(self.ask_after(lost)).await,
            FollowUpQuestion::IsCurrent(target) => {
                // However many storms begin at once, the server is asked one question at a time.
                let _turn = self.comparing.lock().await;
                Box::pin(self.ask_whether_current(&target)).await;
            }
        }
    }

    /// Asks for an object, whose answer is held against the caches; a server that does not answer is asked again for a minute.
    async fn ask_whether_current(&self, target: &Target) {
        for _ in 0..ASKED_WHETHER_CURRENT {
            match self.fetch(target).await {
                Ok(_) | Err(WriteError::Forbidden { .. }) => return,
                Err(error) => {
                    tracing::debug!(object = %target, %error, "can't ask whether it is cached as it is");
                    pause_after(&error).await;
                }
            }
        }
    }

    fn tick(&self) {
        let (mut memory, now) = (self.memory(), Instant::now());
        let mut table = self.keys.table();
        let overdue = table.tick(&self.caches, now);
        let contradicted = memory.contradictions.tick(now, &self.caches, |source| table.delivered(source));
        drop(table);
        memory.alarm = self.next_tick(&memory, now);
        drop(memory);
        contradicted.iter().for_each(|open| self.list_to_compare(open));
        overdue.iter().for_each(|overdue| self.report(overdue));
    }

    fn report(&self, OverdueWrite { key, object, expectation, waited }: &OverdueWrite) {
        if matches!(expectation, Expectation::NewerThan(_)) {
            tracing::debug!(%key, %object, "runs again although its cache shows no change yet");
            return;
        }
        self.counters.overdue.inc();
        tracing::warn!(%key, %object, ?waited, "the cache did not show this key's own write in time: reconciling anyway");
    }

    /// Asks the server what became of a write, until it says or nobody waits any more.
    async fn ask_after(&self, LostWrite { key, target }: LostWrite) {
        while self.keys.table().awaits_reply(&key, &target.key) {
            match self.what_became_of(&target).await {
                Ok(expectation) => return self.reply_found(&key, &target, &expectation),
                Err(error) => {
                    tracing::debug!(object = %target, %error, "can't ask after a write");
                    pause_after(&error).await;
                }
            }
        }
    }

    /// Takes the server's state of an object for which a reply was lost; a key that no longer waits ignores it.
    fn reply_found(&self, key: &ObjectKey, target: &Target, expectation: &Expectation) {
        let (mut table, now) = (self.keys.table(), Instant::now());
        for source in self.sources_of(target) {
            if table.awaits_reply(key, &target.key) {
                table.expect(key, (source, &target.key), expectation.clone(), &self.caches, now);
            }
        }
    }

    /// Returns what the caches must show once they know as much as the server does now.
    async fn what_became_of(&self, target: &Target) -> Result<Expectation, WriteError> {
        let found = match target.key.name() {
            "" => Some(self.read(target, Path::Collection, "limit=1").await?),
            _ => self.fetch(target).await?,
        };
        let Some(found) = found else { return Ok(Expectation::Absent) };
        Ok(version_of(&found).map_or(Expectation::ReplyLost, Expectation::Reached))
    }
}

/// Waits before a question is asked again, for as long as the server wants quiet at least.
async fn pause_after(error: &WriteError) {
    let asked = error.retry_after().map_or(Duration::ZERO, |asked| asked.left());
    sleep(asked.max(ASK_AGAIN)).await;
}

async fn until(alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => sleep_until(alarm).await,
        None => std::future::pending().await,
    }
}

pub(super) fn version_of(object: &Value) -> Option<Version> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "checks_tests.rs"]
mod checks_tests;

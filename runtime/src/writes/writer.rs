//! What all writes of one controller share: the client, the caches to compare with, and what is remembered of writes.
//!
//! A write is refused if it may be computed from a state that its server lost. Its answer is held against the caches. A
//! task follows up: it gives up waits that are overdue, asks after writes whose reply was lost, and whether caches are
//! right.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    convert::Infallible,
    mem,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tracing::Instrument;

use super::{
    WriteError,
    applied::AppliedMemory,
    caches::{CacheView, CachedMeta, CachedTarget, Selects, Shown},
    child::{UniqueObject, decode},
    contradictions::{Contradicted, Contradictions, OpenContradiction, contradiction},
    overload::Sender,
    request::{ApiResponse, ApiVerb, MediaType, ObjectRequest, Target},
    rights::{Rights, Use},
};
use crate::{
    clock::until,
    informer::{Progress, ProgressVia},
    keys::{
        CachedState, Expectation, KeyTable, Keys, LastAnswer, OverdueWrite, RunActivity, SourceId,
        StatusSeen, object_id,
    },
    object::{Kind, Object, ObjectKey, Scope, Version},
    reflector::DoubtCause,
};

/// How long a write waits for caches that are in doubt before it is refused and its key runs again later.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon a question is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often a question is asked at most: longer than any key waits, and a storm that outlasts an outage begins again.
const ASKED_AT_MOST: u32 = 300;

/// What the follow-up task asks the server of an object: its present state, which is held against the caches.
#[derive(Debug)]
struct Question {
    target: Target,
    /// The key whose write may or may not have happened, since its reply was lost.
    lost_by: Option<ObjectKey>,
}

/// What is left to be followed up. What is known of keys is in their table.
#[derive(Debug, Default)]
struct OpenQuestions {
    contradictions: Contradictions,
    questions: Vec<Question>,
}

/// Who writes: what logs call it, and what the server does.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) controller: Arc<str>,
    pub(crate) field_manager: Arc<str>,
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
    pub(super) caches: Vec<CacheView>,
    keys: Arc<Keys>,
    /// Whether a key that wrote waits until its caches show it.
    waits_for_own: bool,
    pub(super) applied: AppliedMemory,
    /// What was logged because it is not declared.
    undeclared: Mutex<HashSet<(Kind, Use)>>,
    /// Locked before the table of keys, if both are.
    open: Mutex<OpenQuestions>,
    /// The follow-up task may have something new to do.
    follow_up_due: Notify,
    /// Held while it asks whether a cache is right.
    comparing: tokio::sync::Mutex<()>,
    counters: Counters,
}

impl_debug!(Writer, this => author: this.author);

/// A write whose reply is awaited. It counts as lost if this is dropped, also by a caller that gave up waiting.
struct InFlightWrite<'a> {
    writer: &'a Writer,
    lost: Option<Question>,
}

impl Drop for InFlightWrite<'_> {
    fn drop(&mut self) {
        let Some(Question { target, lost_by: Some(key) }) = &self.lost else { return };
        if self.writer.is_cached(target) {
            self.writer.wait_for(key, target, &Expectation::ReplyLost);
            self.writer.ask_later(self.lost.take());
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
        waits_for_own: bool,
        counters: Counters,
    ) -> Arc<Self> {
        Arc::new(Self {
            sender,
            author,
            caches,
            keys,
            waits_for_own,
            applied: AppliedMemory::default(),
            undeclared: Mutex::default(),
            open: Mutex::default(),
            follow_up_due: Notify::new(),
            comparing: tokio::sync::Mutex::default(),
            counters,
        })
    }

    pub(crate) fn client(&self) -> &kube::Client {
        self.sender.client()
    }

    // --- caches

    /// Returns every cache that shows a target, or will: a kind may be watched in several forms.
    fn caches_of(&self, target: &Target) -> impl Iterator<Item = &CacheView> {
        self.caches.iter().filter(|cache| cache.covers(target))
    }

    pub(super) fn is_cached(&self, target: &Target) -> bool {
        self.caches_of(target).next().is_some()
    }

    /// Returns whether a cache shows a target, or will show it with these labels.
    pub(super) fn will_show(&self, target: &Target, labels: &BTreeMap<String, String>) -> bool {
        self.caches_of(target).any(|cache| cache.will_show(target, labels))
    }

    fn cache_of(&self, source: SourceId) -> Option<&CacheView> {
        self.caches.iter().find(|cache| cache.source == source)
    }

    /// Returns the sources of the caches that show a target, each once.
    fn sources_of(&self, target: &Target) -> BTreeSet<SourceId> {
        self.caches_of(target).map(|cache| cache.source).collect()
    }

    /// Returns the source whose cache shows a target, whatever it selects, before one that may not.
    fn source_that_shows(&self, target: &Target) -> Option<SourceId> {
        let preferred =
            self.caches_of(target).min_by_key(|cache| !matches!(cache.selects, Selects::Everything));
        preferred.map(|cache| cache.source)
    }

    /// Returns a target as the caches show it that hold whole objects.
    pub(super) fn shown(&self, target: &Target) -> impl Iterator<Item = Shown> {
        self.caches_of(target).filter_map(|cache| cache.show.as_ref()?(&target.key))
    }

    /// Forgets what was applied to an object that is gone from a cache.
    pub(crate) fn gone(&self, source: SourceId, object: &ObjectKey) {
        if let Some(cache) = self.cache_of(source) {
            self.applied.forget(&cache.kind, object);
        }
    }

    /// Takes a cache's progress, and enqueues or releases the keys that waited for it.
    pub(crate) fn progressed(&self, source: SourceId, progress: Progress) {
        if progress.via == ProgressVia::NewEpoch
            && let Some(cache) = self.cache_of(source)
        {
            self.applied.forget_kind(&cache.kind);
        }
        self.keys.table().progressed(source, progress, &self.caches, Instant::now());
    }

    /// Begins another term. If the server lost its history meanwhile, all is forgotten that was written before.
    ///
    /// What was applied is forgotten in any case, unless nobody else has led since: another program may have applied more to
    /// the same objects under the same name, and only an apply takes that away.
    pub(crate) fn begin_term(&self, goes_on: bool) {
        let is_lost = self.keys.begin_term();
        if is_lost {
            *self.open.lock() = OpenQuestions::default();
        }
        if is_lost || !goes_on {
            self.forget_applied();
        }
    }

    /// Forgets what was applied: others may have applied since.
    pub(crate) fn forget_applied(&self) {
        self.applied.forget_all();
    }

    // --- what is remembered of an object

    /// Returns the key's last answer about a target, unless a cache has caught up with it.
    pub(super) fn last_answer(&self, key: &ObjectKey, target: &Target) -> Option<LastAnswer> {
        self.keys.table().answer(key, &object_id(&target.kind, &target.key)).cloned()
    }

    pub(super) fn forget_answer(&self, key: &ObjectKey, target: &Target) {
        self.keys.table().forget_answer(key, &object_id(&target.kind, &target.key));
    }

    /// Returns what is known of a target without asking the server.
    pub(super) fn known(&self, key: &ObjectKey, target: &Target) -> CachedTarget {
        let cached =
            self.caches_of(target).map(|cache| (cache.look_up)(&target.key)).reduce(CachedTarget::or);
        match (cached.unwrap_or(CachedTarget::Unknown), self.last_answer(key, target)) {
            (CachedTarget::Absent, Some(answer)) if answer.seen => CachedTarget::Absent,
            (cached, Some(answer)) => cached.or(CachedTarget::Present(answer.into())),
            (cached, None) => cached,
        }
    }

    /// Learns from an answer: its version is waited for, and is the key's own if that is proved.
    ///
    /// A creation proves it, and so does a write that carried another version.
    pub(super) fn learn(
        &self,
        key: &ObjectKey,
        target: &Target,
        answer: &ApiResponse,
        carried: Option<&str>,
        status: Option<StatusSeen>,
    ) {
        let meta = &answer.object["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        let (uid, resource_version) = (text("uid"), text("resourceVersion"));
        let owners = serde_json::from_value(meta["ownerReferences"].clone()).unwrap_or_default();
        let own = match carried {
            _ if answer.code == StatusCode::CREATED => true,
            // An empty version proves nothing: the server took the write whatever was there.
            Some(carried) => !carried.is_empty() && carried != resource_version,
            None => false,
        };
        let source = self.source_that_shows(target);
        let version = resource_version.parse::<Version>().ok();
        let mut table = self.keys.table();
        // After its run, only what a cache will show is needed: nothing else ends the memory of it.
        if table.is_running(key) || (source.is_some() && version.is_some()) {
            let answer = LastAnswer { uid, resource_version, owners, status, source, seen: false };
            table.keep_answer(key, object_id(&target.kind, &target.key), answer);
        }
        let Some(version) = version else { return };
        let labels = serde_json::from_value(meta["labels"].clone()).unwrap_or_default();
        self.expect(&mut table, key, target, &Expectation::Reached(version), &labels);
        if own {
            self.sources_of(target).into_iter().for_each(|source| table.wrote(key, source, version));
        }
    }

    /// Lets a key wait until every cache that shows the target shows this of it.
    pub(super) fn wait_for(&self, key: &ObjectKey, target: &Target, expectation: &Expectation) {
        self.expect(&mut self.keys.table(), key, target, expectation, &BTreeMap::default());
    }

    fn expect(
        &self,
        table: &mut KeyTable,
        key: &ObjectKey,
        target: &Target,
        expectation: &Expectation,
        labels: &BTreeMap<String, String>,
    ) {
        if !self.waits_for_own {
            return;
        }
        for cache in self.caches_of(target).filter(|cache| cache.will_show(target, labels)) {
            let shown = (cache.source, &target.key);
            table.expect(key, shown, expectation.clone(), &self.caches, Instant::now());
        }
        self.follow_up_due.notify_one();
    }

    // --- requests

    /// Sends a write of a key, with the field manager; if its reply is lost, the key waits for what became of it.
    ///
    /// A write that may be computed from a state which its server lost is refused. The caches that the key reads are waited
    /// for, for a moment: most are back soon, and show no other history.
    pub(super) fn write<'a>(
        &'a self,
        key: &'a ObjectKey,
        mut request: ObjectRequest<'a>,
    ) -> BoxFuture<'a, Result<ApiResponse, WriteError>> {
        Box::pin(async move {
            let target = request.target;
            self.log_undeclared(&request);
            if self.keys.gate.doubt(Some(key)).is_some() {
                // Whether it is open then is asked next.
                let _ = timeout(PATIENCE, self.keys.gate.opened(Some(key))).await;
            }
            if let Some(doubt) = self.keys.gate.doubt(Some(key)) {
                let why = match doubt.cause {
                    DoubtCause::HistoryLost => {
                        "the server lost its history, and caches are compared with what is left"
                    }
                    DoubtCause::WatchCut => {
                        "the server is unreachable, and may come back with another history"
                    }
                };
                return Err(WriteError::doubted(target, why));
            }
            if self.keys.table().spans_epochs(key) {
                return Err(WriteError::doubted(target, "the server lost its history since the run began"));
            }
            if request.verb != ApiVerb::Delete {
                request.query = format!("fieldManager={}{}", self.author.field_manager, request.query);
            }
            let mut asked = target.clone();
            if request.is_of_collection() {
                // The name is the server's choice, or was not taken: the collection is asked for.
                asked.key = ObjectKey::new(target.key.namespace().unwrap_or_default(), "");
            }
            let lost = Some(Question { target: asked, lost_by: Some(key.clone()) });
            let mut in_flight = InFlightWrite { writer: self, lost };
            // For a status, or a collection, 404 says less.
            let is_of_object = request.subresource.is_none() && !request.is_of_collection();
            let before = self.before(target);
            let answer = self.sender.send(request).await;
            if !answer.as_ref().is_err_and(WriteError::leaves_in_doubt) {
                in_flight.lost = None;
            }
            match &answer {
                Ok(_) => self.keys.table().note(key, RunActivity::Wrote),
                Err(error) if error.is_not_found() && is_of_object => {
                    self.compare(target, before, &CachedState::Absent);
                }
                Err(_) => {}
            }
            answer
        })
    }

    /// Logs once what is done and not declared.
    fn log_undeclared(&self, request: &ObjectRequest<'_>) {
        let Some(lacking) = self.author.declared.lacks(request) else { return };
        let kind = &request.target.kind;
        if self.undeclared.lock().insert((kind.clone(), lacking)) {
            let kind = &kind.kind;
            tracing::debug!(
                "what the controller does with {kind} is not declared, and missing in the manager's rules: add \
                 `.uses::<{kind}>(Use::{lacking:?})`"
            );
        }
    }

    /// Asks the server for a target; `None` where there is none.
    pub(crate) fn fetch<'a>(
        &'a self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<Value>, WriteError>> {
        Box::pin(async move {
            match self.get(target, ApiVerb::Get).await {
                Err(error) if error.is_not_found() => Ok(None),
                found => found.map(Some),
            }
        })
    }

    /// Asks the server for the metadata of a target; `None` where there is none.
    pub(super) async fn fetch_meta(&self, target: &Target) -> Result<Option<CachedMeta>, WriteError> {
        let found = self.fetch(target).await?;
        let meta = |object: Value| serde_json::from_value(object["metadata"].clone()).unwrap_or_default();
        Ok(found.map(|object| CachedMeta::of(meta(object))))
    }

    /// Asks the server for an object.
    pub(crate) async fn get_as<C: Object>(&self, target: &Target) -> Result<C, WriteError> {
        if target.kind.scope == Scope::Namespaced && target.key.namespace().is_none() {
            return Err(WriteError::Unnamed { object: Box::new(target.clone()), missing: "the namespace" });
        }
        decode("get", target, self.get(target, ApiVerb::Get).await?)
    }

    /// Asks the server for a target, and holds its answer against the caches; or for the version of a collection.
    fn get<'a>(&'a self, target: &'a Target, verb: ApiVerb) -> BoxFuture<'a, Result<Value, WriteError>> {
        let mut request = ObjectRequest::new("get", verb, target, MediaType::Json, Value::Null);
        if verb == ApiVerb::List {
            request.query = "limit=1".to_owned();
        }
        self.log_undeclared(&request);
        Box::pin(async move {
            let before = self.before(target);
            let found = self.sender.send(request).await.map(|answer| answer.object);
            let answered = match &found {
                Ok(found) => CachedState::Shown {
                    uid: found["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
                    version: version_of(found),
                    finalizers: Vec::new(),
                },
                Err(error) if error.is_not_found() => CachedState::Absent,
                Err(_) => CachedState::Unknown,
            };
            if verb == ApiVerb::Get {
                self.compare(target, before, &answered);
            }
            found
        })
    }

    // --- whether caches can be relied on

    /// Returns what the caches that would show a target show before it is asked for, and how far each was brought.
    fn before(&self, target: &Target) -> Vec<(SourceId, CachedState, Option<Version>)> {
        let shown = self.caches_of(target).filter_map(|cache| match (cache.look_up)(&target.key) {
            CachedTarget::Unselected => None,
            shown => Some((cache.source, shown.into(), self.keys.table().delivered(cache.source))),
        });
        shown.collect()
    }

    /// Holds an answer against what the caches showed before it was asked for.
    fn compare(
        &self,
        target: &Target,
        before: Vec<(SourceId, CachedState, Option<Version>)>,
        answered: &CachedState,
    ) {
        for (source, before, delivered) in before {
            let Some(what) = contradiction(&before, delivered, answered) else { continue };
            if matches!(what, Contradicted::Version { .. }) {
                self.report_history_loss(source, &target.key);
            }
            self.open.lock().contradictions.note(source, &target.key, what, Instant::now());
            self.follow_up_due.notify_one();
        }
    }

    /// Asks for an owner whose child belongs to another UID of it: it may be the owner's cache that is behind.
    pub(super) async fn refetch_owner(&self, owner: &UniqueObject) {
        if let Err(error) = self.fetch(&owner.named()).await {
            tracing::debug!(object = %owner.named(), %error, "can't ask for an owner");
        }
    }

    /// Notes that the object of a UID is gone, whatever else has its name.
    pub(super) fn note_gone(&self, target: &Target, uid: &str) {
        let mut before = self.before(target);
        before
            .retain(|(_, before, _)| matches!(before, CachedState::Shown { uid: shown, .. } if shown == uid));
        self.compare(target, before, &CachedState::Absent);
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
        if !(cache.compare)(object) {
            return;
        }
        self.open.lock().contradictions.resolved_by_list(*source);
        self.counters.contradicted.inc();
        let kind = &cache.kind;
        tracing::warn!(%object, "the server contradicts the cache of {kind}: listing {kind} again");
    }

    // --- the follow-up task

    /// Attends to waiting keys, for as long as the controller runs.
    pub(crate) fn follow_up(&self) -> BoxFuture<'_, Infallible> {
        // Log lines of runs are in their spans, which name the controller.
        let span = tracing::info_span!("follow_up", controller = %self.author.controller);
        let attend = async move {
            let (mut asking, mut alarm) = (FuturesUnordered::new(), None);
            loop {
                let questions = mem::take(&mut self.open.lock().questions);
                asking.extend(questions.into_iter().map(|question| self.ask(question)));
                // Nothing is due sooner than a tick after it began.
                alarm = alarm.or_else(|| self.next_tick());
                tokio::select! {
                    () = until(alarm) => {
                        self.tick();
                        alarm = None;
                    }
                    () = self.follow_up_due.notified() => {}
                    Some(()) = asking.next(), if !asking.is_empty() => {}
                }
            }
        };
        Box::pin(attend.instrument(span))
    }

    /// Returns when to look next; `None` while nothing waits.
    fn next_tick(&self) -> Option<Instant> {
        let (open, now) = (self.open.lock(), Instant::now());
        let (pending, contradicted) = (self.keys.table().next_tick(now), open.contradictions.next_tick(now));
        pending.into_iter().chain(contradicted).min()
    }

    /// Has the server asked whether caches show the object that it has: what does not end may be computed from one that is gone.
    pub(crate) fn doubt_cache_of(&self, target: Target) {
        self.ask_later(Some(Question { target, lost_by: None }));
    }

    fn ask_later(&self, question: Option<Question>) {
        self.open.lock().questions.extend(question);
        self.follow_up_due.notify_one();
    }

    /// Asks the server until it answers, unless the key that waits for the answer gives up.
    async fn ask(&self, Question { target, lost_by }: Question) {
        // However many storms begin at once, the server is asked one question at a time.
        let _turn = match &lost_by {
            Some(_) => None,
            None => Some(self.comparing.lock().await),
        };
        for _ in 0..ASKED_AT_MOST {
            if lost_by.as_ref().is_some_and(|key| !self.keys.table().awaits_reply(key, &target.key)) {
                return;
            }
            let error = match (self.present_state(&target).await, &lost_by) {
                (Ok(state), Some(key)) => return self.reply_found(key, &target, &state),
                (Ok(_) | Err(WriteError::Forbidden { .. }), None) => return,
                (Err(error), _) => error,
            };
            tracing::debug!(object = %target, %error, "can't ask for what is in doubt");
            // At least as long as the server wants quiet.
            let asked = error.retry_after().map_or(Duration::ZERO, |asked| asked.left());
            sleep(asked.max(ASK_AGAIN)).await;
        }
    }

    /// Returns what the caches must show once they know as much as the server does now.
    async fn present_state(&self, target: &Target) -> Result<Expectation, WriteError> {
        let found = match target.key.name() {
            "" => Some(self.get(target, ApiVerb::List).await?),
            _ => self.fetch(target).await?,
        };
        let Some(found) = found else { return Ok(Expectation::Absent) };
        Ok(version_of(&found).map_or(Expectation::ReplyLost, Expectation::Reached))
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

    fn tick(&self) {
        let (mut open, mut table, now) = (self.open.lock(), self.keys.table(), Instant::now());
        let overdue = table.tick(&self.caches, now);
        let contradicted = open.contradictions.tick(now, &self.caches, |source| table.delivered(source));
        drop((table, open));
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

//! What all writes of one controller share: the client, the caches to compare with, the memory.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use super::{
    applied::{Applied, AppliedMemory, Digest, Digests},
    caches::{CacheView, Cached, CachedMeta, Shown},
    contradictions::Contradictions,
    expectation::Expectation,
    gate::Gate,
    overload::Sender,
    owner::Ownership,
    pending_writes::AT_MOST,
    question::Question,
    record::{LastAnswer, RunActivity, RunDone, RunEnd, Seen, StatusSeen, Verdict},
    records::{Settled, WriteRecords},
    request::{Answer, Request, Target},
    rights::{Rights, Use},
    source::SourceId,
};
use crate::{
    informer::{Progress, ProgressVia},
    object::{Kind, ObjectKey, Version},
};

/// What is known of a target before it is written.
#[derive(Debug)]
pub(crate) enum Known {
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

/// What becomes of keys whose writes were seen, or were not.
pub(crate) trait KeyControl: Send + Sync + 'static {
    /// The key must run: a list passed a write of it that no event showed.
    fn wake(&self, key: ObjectKey);
    /// The key waits for its own writes, for so long at most.
    fn hold(&self, key: &ObjectKey, at_most: Duration);
    /// It waits for them no more.
    fn release(&self, key: &ObjectKey);
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

#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) records: WriteRecords<ObjectKey>,
    pub(super) applied: AppliedMemory,
    pub(super) contradictions: Contradictions,
    /// When the follow-up task looks next; `None` while no key waits and no cache contradicted.
    pub(super) alarm: Option<Instant>,
    /// Kinds that are applied although no cache shows them, and that were logged.
    warned_kinds: HashSet<Kind>,
    /// Undeclared uses that were logged.
    undeclared: HashSet<(Kind, Use)>,
    /// What the follow-up task is to ask.
    pub(super) questions: Vec<Question>,
    /// How often the server had lost its history when the last term began.
    losses: u64,
}

/// Who writes: what logs call it, and what the server does.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) controller: Arc<str>,
    pub(crate) field_manager: Arc<str>,
    /// What it is said to do.
    pub(crate) declared: Rights,
}

/// Shared by all runs of one controller.
pub(crate) struct Writer {
    pub(super) sender: Sender,
    pub(super) author: Author,
    pub(super) caches: Vec<CacheView>,
    pub(super) gate: Arc<Gate>,
    pub(super) keys: Box<dyn KeyControl>,
    wait: WaitForOwn,
    digests: Digests,
    memory: Mutex<Memory>,
    /// The follow-up task has something new to do.
    pub(super) follow_up_due: Notify,
    /// Held while it asks whether a cache is right.
    pub(super) comparing: tokio::sync::Mutex<()>,
    pub(super) counters: Counters,
}

/// What a controller's writes count.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    /// Waits that ended at their deadline.
    pub(crate) overdue: Counter,
    /// Caches that listed anew because an answer contradicted them.
    pub(crate) contradicted: Counter,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("author", &self.author).finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn new(
        sender: Sender,
        author: Author,
        caches: Vec<CacheView>,
        gate: Arc<Gate>,
        keys: impl KeyControl,
        wait: WaitForOwn,
        counters: Counters,
    ) -> Arc<Self> {
        Arc::new(Self {
            sender,
            author,
            caches,
            gate,
            keys: Box::new(keys),
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

    /// Query pairs of every write: who writes.
    pub(crate) fn query(&self) -> String {
        format!("fieldManager={}", self.author.field_manager)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any cache shows a target, or will.
    pub(super) fn is_cached(&self, target: &Target) -> bool {
        self.caches_of(target).next().is_some()
    }

    /// Finds every cache that shows a target: a kind may be watched in several forms.
    pub(super) fn caches_of(&self, target: &Target) -> impl Iterator<Item = &CacheView> {
        self.caches.iter().filter(|cache| cache.covers(target))
    }

    /// Finds the sources of the caches that show a target, each once.
    pub(super) fn sources_of(&self, target: &Target) -> Vec<SourceId> {
        let mut sources: Vec<_> = self.caches_of(target).map(|cache| cache.source).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Finds the source whose cache shows a target, whatever it selects, before one that may not.
    fn source_that_shows(&self, target: &Target) -> Option<SourceId> {
        let preferred = self.caches_of(target).min_by_key(|cache| !cache.selects.is_everything());
        preferred.map(|cache| cache.source)
    }

    // --- what the controller reports

    /// Goes on in another term, with an empty queue: who waited for own writes still does.
    ///
    /// Versions of before the server lost its history mean nothing: if it did meanwhile, all is forgotten.
    pub(crate) fn begin_term(&self) {
        let (mut memory, losses) = (self.memory(), self.gate.losses());
        if memory.losses != losses {
            *memory = Memory { losses, ..Memory::default() };
        }
        memory.records.waiting().for_each(|key| self.keys.hold(key, AT_MOST));
    }

    pub(crate) fn begin(&self, key: &ObjectKey) {
        self.memory().records.begin(key);
    }

    pub(crate) fn end(&self, key: &ObjectKey) -> (RunEnd, RunDone) {
        self.memory().records.end(key)
    }

    /// Takes note of a change that enqueues no key, for a run that may have made it.
    pub(crate) fn passed_over(&self, key: &ObjectKey) {
        self.memory().records.note(key, RunActivity::Changed);
    }

    pub(crate) fn event(&self, source: SourceId, version: Option<Version>, key: &ObjectKey) -> Verdict {
        self.memory().records.event(source, version, key)
    }

    pub(crate) fn foreign_change(&self, key: &ObjectKey) -> Verdict {
        self.memory().records.foreign_change(key)
    }

    /// Learns that a cache shows another state of an object.
    pub(crate) fn changed(&self, source: SourceId, object: &ObjectKey) {
        self.memory().records.changed(source, object);
    }

    /// Learns that an object is gone from a cache: what was applied to it is over.
    pub(crate) fn gone(&self, source: SourceId, object: &ObjectKey) {
        if let Some(cache) = self.caches.iter().find(|cache| cache.source == source) {
            self.memory().applied.forget(&cache.kind, object);
        }
    }

    /// Takes note of a cache's progress, and enqueues or releases the keys that waited for it.
    pub(crate) fn progressed(&self, source: SourceId, progress: Progress) {
        let mut memory = self.memory();
        if progress.via == ProgressVia::NewEpoch
            && let Some(cache) = self.caches.iter().find(|cache| cache.source == source)
        {
            memory.applied.forget_kind(&cache.kind);
        }
        let Settled { released, missed } = memory.records.progressed(source, progress, &self.caches);
        // Under the lock, as holding is: a key is held exactly while it waits for its own writes.
        released.iter().for_each(|key| self.keys.release(key));
        drop(memory);
        missed.into_iter().for_each(|key| self.keys.wake(key));
    }

    /// Lets a key wait until every cache that shows the target shows this of it.
    pub(crate) fn wait_for(&self, key: &ObjectKey, target: &Target, expectation: &Expectation) {
        // What was created without a name is not in any cache, and may be selected by all.
        let shown =
            |cache: &CacheView| target.key.name().is_empty() || cache.will_show(target, &BTreeMap::default());
        self.wait(key, target, expectation, shown);
    }

    fn wait(
        &self,
        key: &ObjectKey,
        target: &Target,
        expectation: &Expectation,
        shown: impl Fn(&CacheView) -> bool,
    ) {
        if self.wait == WaitForOwn::Never {
            return;
        }
        let mut sources: Vec<_> =
            self.caches_of(target).filter(|cache| shown(cache)).map(|cache| cache.source).collect();
        sources.dedup();
        let (mut memory, now) = (self.memory(), Instant::now());
        for source in sources {
            let transition =
                memory.records.expect(key, (source, &target.key), expectation.clone(), now, &self.caches);
            self.apply_transition(key, transition);
        }
        self.set_alarm(&mut memory, now);
    }

    /// Returns the key's last answer about a target, unless a cache has caught up with it.
    pub(crate) fn last_answer(&self, key: &ObjectKey, target: &Target) -> Option<LastAnswer> {
        self.memory().records.answer(key, &target.kind, &target.key).cloned()
    }

    pub(crate) fn forget_answer(&self, key: &ObjectKey, target: &Target) {
        self.memory().records.forget_answer(key, &target.kind, &target.key);
    }

    pub(super) fn digest(&self, value: &Value) -> Digest {
        self.digests.of(value)
    }

    pub(super) fn applied(&self, target: &Target) -> Option<Applied> {
        self.memory().applied.get(&target.kind, &target.key).cloned()
    }

    /// Remembers what was applied, of objects that a cache shows: it tells when they are gone.
    pub(super) fn keep_applied(&self, target: &Target, applied: Applied) {
        if self.is_cached(target) {
            self.memory().applied.keep(&target.kind, &target.key, applied);
        }
    }

    /// Says once of each kind that is applied, and that no cache shows, what will not happen.
    ///
    /// A controller has caches; a context that was made by hand has none, and nothing to be told.
    pub(super) fn warn_unwatched(&self, target: &Target, ownership: Ownership) {
        if self.caches.is_empty()
            || self.is_cached(target)
            || !self.memory().warned_kinds.insert(target.kind.clone())
        {
            return;
        }
        let kind = &target.kind.kind;
        if ownership != Ownership::Controls {
            tracing::info!(
                object = %target,
                "the controller applies a {kind} that it does not watch: edits and deletions by others stay unnoticed, \
                 and every reconcile sends the {kind} again; add `.watches::<{kind}>(..)` if it is to be kept right",
            );
            return;
        }
        tracing::warn!(
            object = %target,
            "the controller applies a {kind} that it does not watch: edits and deletions by others stay unnoticed, and \
             every reconcile sends the {kind} again; add `.owns::<{kind}>()`",
        );
    }

    /// Says once what is done and was not declared: a role made of what is declared does not allow it.
    pub(super) fn tell_of_undeclared(&self, request: &Request<'_>) {
        let Some(use_) = self.author.declared.lacks(request) else { return };
        let kind = &request.target.kind;
        if self.memory().undeclared.insert((kind.clone(), use_)) {
            let kind = &kind.kind;
            tracing::debug!(
                "what the controller does with {kind} is not declared, and missing in the manager's rules: add \
                 `.uses::<{kind}>(Use::{use_:?})`"
            );
        }
    }

    pub(super) fn forget_applied(&self, target: &Target) {
        self.memory().applied.forget(&target.kind, &target.key);
    }

    /// Shows a target as the caches have it that hold whole objects.
    pub(super) fn shown(&self, target: &Target) -> impl Iterator<Item = Shown> {
        self.caches_of(target).filter_map(|cache| cache.show.as_ref()?(&target.key))
    }

    /// Says what the caches know of a target; `None` where none covers it.
    fn cached(&self, target: &Target) -> Option<Cached> {
        self.caches_of(target).map(|cache| (cache.look_up)(&target.key)).reduce(Cached::or)
    }

    /// Returns what is known of a target without asking the server; `None`: nothing.
    pub(crate) fn known(&self, key: &ObjectKey, target: &Target) -> Option<Known> {
        let answer = self.last_answer(key, target);
        let seen = answer.as_ref().map_or(Seen::NotYet, |answer| answer.seen);
        let answer = answer.map(|LastAnswer { uid, resource_version, owners, .. }| CachedMeta {
            uid,
            resource_version,
            owners,
            finalizers: Vec::new(),
        });
        let Some(cached) = self.cached(target) else { return answer.map(Known::Present) };
        match (cached, answer) {
            (Cached::Present(cached), Some(answer)) => Some(Known::Present(cached.or_newer(answer))),
            (Cached::Present(cached), None) => Some(Known::Present(cached)),
            (Cached::Absent, Some(_)) if seen == Seen::Yes => Some(Known::Absent),
            (_, Some(answer)) => Some(Known::Present(answer)),
            (Cached::Absent, None) => Some(Known::Absent),
            (Cached::Unknown | Cached::Unselected, None) => None,
        }
    }

    /// Learns from an answer: its version is the key's own where that is proved, and is waited for.
    pub(crate) fn learn(
        &self,
        key: &ObjectKey,
        target: &Target,
        answer: &Answer,
        proof: &Proof,
        status: Option<StatusSeen>,
    ) {
        let meta = &answer.object["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        let (uid, resource_version) = (text("uid"), text("resourceVersion"));
        let own = match proof {
            _ if answer.code == StatusCode::CREATED => true,
            // An empty version is none: the server took the write whatever was there.
            Proof::Carried(carried) => !carried.is_empty() && *carried != resource_version,
            Proof::None => false,
        };
        let owners = serde_json::from_value(meta["ownerReferences"].clone()).unwrap_or_default();
        let sources = self.sources_of(target);
        let source = self.source_that_shows(target);
        let version = resource_version.parse::<Version>().ok();
        let mut memory = self.memory();
        // After its run, only what a cache will show is needed: nothing else ends the memory of it.
        if memory.records.is_running(key) || (source.is_some() && version.is_some()) {
            let answer = LastAnswer { uid, resource_version, owners, status, source, seen: Seen::NotYet };
            memory.records.keep_answer(key, &target.kind, &target.key, answer);
        }
        let mut wakes = false;
        if let Some(version) = version.filter(|_| own) {
            for source in sources {
                wakes |= memory.records.wrote(key, source, version) == Verdict::Enqueue;
            }
        }
        drop(memory);
        if let Some(version) = version {
            let labels = serde_json::from_value(meta["labels"].clone()).unwrap_or_default();
            self.wait(key, target, &Expectation::Reached(version), |cache| cache.will_show(target, &labels));
        }
        if wakes {
            self.keys.wake(key.clone());
        }
    }
}

pub(super) fn version_of(object: &Value) -> Option<Version> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;

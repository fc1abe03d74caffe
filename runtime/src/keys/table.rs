//! The table of keys: a state machine that schedules keys in a work queue. Times are passed in.
//!
//! An event is a key's own if its version is one that a write of that key made. The event may arrive before the
//! write's reply. So the events of a key in flight are deferred with their versions, and what is still deferred when
//! the run ends was somebody else's. What a list brought is never own, and a list that passes a version which a key
//! wrote and has not seen enqueues that key: what it wrote may have come and gone in the gap.
//!
//! A key that wrote waits until the cache of each kind it wrote shows as much, or until a deadline that runs only
//! while the kind's watch is open.
//!
//! Versions belong to a source (one informer: a kind and a scope) and are never compared across sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use foldhash::HashMap;
use prometheus_client::metrics::counter::Counter;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    Reason,
    budget::{RunCost, StormLimit},
    expectation::{Caches, Expectation},
    feeds::{FeedId, FeedObjects},
    gate::Gate,
    reads::ReadTable,
    record::{HoldReason, KeyDetails, KeyRecord, RunActivity, RunDone, RunRecord},
    slots::AdmittedSlots,
    sources::{SourceId, Sources},
    tombstones::{StoredState, TOMBSTONES_PER_KEY, Tombstone},
    unsynced::{UnsyncedKeys, UnsyncedNamespace},
    why::{LastError, Why},
    writes::{AT_MOST, LastAnswer, ObjectId, OverdueWrite, OwnVersion, PendingWrite, WriteRecord},
};
use crate::{
    clock::Moment,
    informer::{CacheChange, Progress, ProgressVia},
    object::{ObjectKey, Version},
    shards::{Slot, Turn},
    workqueue::{KeyState, WorkQueue},
};

/// How many events are deferred for a key in flight; one more counts as changed.
const DEFERRED_PER_RUN: usize = 16;
/// How many unseen own versions a key has; the oldest then count as somebody else's.
const OWN_PER_KEY: usize = 64;
/// A table of fewer keys keeps its memory.
const SMALL: usize = 1_024;
/// How soon a watch that opens or closes is noticed.
pub(super) const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// What a change means for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeVerdict {
    /// Somebody else's change: the key must run.
    Enqueue,
    /// The key's own write.
    Own,
    /// The key is in flight: the event is judged when its run ends.
    Deferred,
}

/// What a controller knows of its keys.
#[derive(Debug)]
pub(crate) struct KeyTable {
    /// Decides which key runs when. It is called while the table is locked, so that the two agree.
    queue: WorkQueue<ObjectKey>,
    keys: HashMap<ObjectKey, KeyRecord>,
    pub(super) sources: Sources,
    /// Sources that feed the controller more than once: each event of theirs reaches a key once.
    shared: Vec<SourceId>,
    pub(crate) feeds: FeedObjects,
    /// What the keys' runs read.
    pub(crate) reads: ReadTable,
    unsynced: UnsyncedKeys,
    /// The namespaces whose keys wait for caches of their own.
    namespaces: Vec<Arc<str>>,
    storm_limit: StormLimit,
    /// How many deletions were added.
    deletions: u64,
    /// Counts deletions that were dropped.
    dropped: Counter,
    /// How often the server had lost its history when the last term began.
    losses: u64,
    /// The slots whose keys run here, if replicas share the work.
    pub(crate) slots: AdmittedSlots,
}

impl KeyTable {
    /// Makes a table whose keys wait until the caches of their namespace have [synced](Self::open), or those of all others.
    pub(super) fn new(
        queue: WorkQueue<ObjectKey>,
        namespaces: Vec<Arc<str>>,
        shared: Vec<SourceId>,
        storm_limit: StormLimit,
        dropped: Counter,
    ) -> Self {
        Self {
            queue,
            keys: HashMap::default(),
            sources: Sources::default(),
            shared,
            feeds: FeedObjects::default(),
            reads: ReadTable::default(),
            unsynced: UnsyncedKeys::all(&namespaces),
            namespaces,
            storm_limit,
            deletions: 0,
            dropped,
            losses: 0,
            slots: AdmittedSlots::default(),
        }
    }

    /// Drops the keys of slots that this replica does not work on any more. Runs go on; nothing else of them starts.
    ///
    /// Returns the slots that drain, and whether no key of theirs runs, or waits for what its last run wrote.
    pub(crate) fn dismiss(&mut self) -> Vec<(Slot, Turn, bool)> {
        let (draining, is_smaller) = self.slots.dismiss();
        if is_smaller {
            let left = self.keys.iter_mut().filter(|(key, _)| !self.slots.admits(key));
            left.for_each(|(_, record)| record.leave());
            self.keys.retain(|_, record| !record.is_empty());
            self.reads.retain(|key| self.slots.admits(key));
        }
        let is_busy = |record: &KeyRecord| record.run.is_some() || record.awaits_writes();
        let busy = self.keys.iter().filter(|(_, record)| !draining.is_empty() && is_busy(record));
        self.slots.without(draining.clone(), busy.map(|(key, _)| key))
    }

    // --- what asks for runs

    /// Queues a key for a reason.
    ///
    /// Before the caches of its namespace have synced it is not queued. That holds up no other namespace.
    pub(crate) fn add(&mut self, key: ObjectKey, reason: Reason) {
        if !self.slots.admits(&key) {
            return;
        }
        if let Some(unsynced) = self.unsynced.of(&key) {
            if unsynced.is_excess {
                return;
            }
            let record = self.keys.entry(key.clone()).or_default();
            if let Some(asked) = &mut record.asked {
                return asked.merge(reason);
            }
            let is_listed = reason == Reason::InitialList;
            record.asked = Some(reason);
            return unsynced.add(key, is_listed).iter().for_each(|key| self.forget_asked(key));
        }
        let priority = reason.priority();
        match &mut self.keys.entry(key.clone()).or_default().asked {
            Some(asked) => asked.merge(reason),
            asked => *asked = Some(reason),
        }
        self.queue.add_at(key, priority);
    }

    /// Queues a key that an external source named. It holds up that source by its permit until the run starts, if one is
    /// to come.
    pub(crate) fn add_external(&mut self, key: ObjectKey, permit: OwnedSemaphorePermit) {
        self.take(key.clone(), None, Reason::Source);
        let is_asked = self.unsynced.of(&key).is_none() && self.asked(&key).is_some();
        if is_asked {
            self.change(&key, |details| drop(details.permit.replace(permit)));
        }
    }

    fn forget_asked(&mut self, key: &ObjectKey) {
        if let Some(record) = self.keys.get_mut(key) {
            record.asked = None;
        }
        self.prune(key);
    }

    /// Forgets a key whose object is gone before its caches have synced, or that runs elsewhere. Returns whether it did.
    pub(crate) fn forget_unsynced(&mut self, key: &ObjectKey) -> bool {
        let is_unsynced = self.unsynced.of(key).is_some();
        if is_unsynced {
            self.forget_asked(key);
        }
        is_unsynced || !self.slots.admits(key)
    }

    /// Lets in the keys of a namespace, or of all that have no caches of their own. `cached` lists what is there.
    pub(crate) fn open(&mut self, namespace: Option<&Arc<str>>, cached: impl FnOnce() -> Vec<ObjectKey>) {
        let synced = self.unsynced.remove(namespace.map(|namespace| &**namespace));
        let Some(UnsyncedNamespace { keys, is_excess, .. }) = synced else { return };
        if is_excess {
            // What is applied after this is let in by itself.
            return cached().into_iter().for_each(|key| self.add(key, Reason::InitialList));
        }
        for key in keys {
            let asked = self.keys.get(&key).and_then(|record| record.asked.as_ref());
            if let Some(priority) = asked.map(Reason::priority) {
                self.queue.add_at(key, priority);
            }
        }
    }

    /// Notes why a key will run that the queue has a time for.
    pub(crate) fn expect_run(&mut self, key: &ObjectKey, reason: Reason) {
        self.keys.entry(key.clone()).or_default().asked.get_or_insert(reason);
    }

    /// Queues an idle key without a change.
    pub(crate) fn touch(&mut self, key: ObjectKey) {
        // Until its caches have synced, every key waits for its first run anyway.
        if self.unsynced.of(&key).is_some() || !self.slots.admits(&key) {
            return;
        }
        if self.queue.state_of(&key) == KeyState::Idle {
            self.expect_run(&key, Reason::Resync);
        }
        self.queue.touch(key);
    }

    /// Returns why the run that is to come was asked for, if that is known yet.
    pub(crate) fn asked(&self, key: &ObjectKey) -> Option<Reason> {
        self.keys.get(key)?.asked.clone()
    }

    // --- what holds keys back

    /// Holds a key back for a reason. It runs once no reason is left, or all are over.
    pub(crate) fn hold(&mut self, key: &ObjectKey, reason: HoldReason, until: Instant, now: Instant) {
        self.change(key, |details| details.holds.insert(reason, until));
        self.apply_holds(key, now);
    }

    /// Ends a reason that holds a key back.
    pub(crate) fn release(&mut self, key: &ObjectKey, reason: HoldReason, now: Instant) {
        if self.change(key, |details| details.holds.remove(&reason)).is_some() {
            self.apply_holds(key, now);
        }
    }

    fn apply_holds(&self, key: &ObjectKey, now: Instant) {
        let longest = self.details(key).and_then(|details| details.holds.values().max());
        match longest {
            Some(until) if *until > now => self.queue.hold(key, *until - now),
            _ => self.queue.release(key),
        }
    }

    /// Lets keys go on whose caches are not stale any more. It asks for one key of each namespace: its keys read the same.
    pub(crate) fn release_stale(&mut self, may_run: impl Fn(&ObjectKey) -> bool, now: Instant) {
        let mut may_run_in = HashMap::default();
        let mut may_run = |key: &ObjectKey| {
            *may_run_in.entry(key.shared_namespace().cloned()).or_insert_with(|| may_run(key))
        };
        let stale = self.keys.iter().filter(|(_, record)| {
            #[cfg(test)]
            crate::counted::count(1);
            record
                .details
                .as_deref()
                .is_some_and(|details| details.holds.contains_key(&HoldReason::StaleCache))
        });
        let over: Vec<_> = stale.map(|(key, _)| key).filter(|key| may_run(key)).cloned().collect();
        over.iter().for_each(|key| self.release(key, HoldReason::StaleCache, now));
    }

    /// Says what keeps a key from running, as the table and its queue have it; `None` if nothing asks for a run.
    pub(super) fn why(&self, key: &ObjectKey, gate: &Gate, now: Instant) -> Option<Why> {
        let stale = || {
            let at_most_until = gate.doubt(Some(key))?.until.into();
            let kinds = gate.doubts().iter().map(|(kind, _)| kind.to_string()).collect();
            Some(Why::AwaitsCaches { kinds, at_most_until })
        };
        let holds = self.details(key).map(|details| &details.holds);
        let held = holds.and_then(|holds| holds.iter().find(|(_, until)| **until > now));
        Some(match self.queue.state_of(key) {
            KeyState::Idle => return None,
            KeyState::Queued { .. } => stale().unwrap_or(Why::Queued),
            KeyState::Delayed { until } => Why::WaitsUntil(until.into()),
            KeyState::BackingOff { until, failures } => Why::BackingOff { until: until.into(), failures },
            KeyState::AwaitsRetryToken { failures } => Why::AwaitsRetryToken { failures },
            KeyState::AwaitsChange { failures } => Why::AwaitsChangeAfterFailure { failures },
            KeyState::InFlight { since, attempt } => {
                Why::InFlight { since: since.map(Moment::from), attempt }
            }
            KeyState::Held { .. } => {
                let failures = self.last_error(key).map_or(1, |last| last.attempt);
                let why = held.and_then(|(reason, until)| reason.why((*until).into(), failures));
                // If the hold is over, the queue lets it go when it looks next.
                stale().or(why).or_else(|| self.asked(key).map(|_| Why::Queued))?
            }
        })
    }

    // --- runs

    /// Starts a run of a key: from here on its events are deferred. Returns why it was asked for, and the oldest
    /// deletion; `None` if the key runs elsewhere.
    pub(crate) fn begin(&mut self, key: &ObjectKey, attempt: u32) -> Option<(Reason, Option<Tombstone>)> {
        self.slots.admits(key).then_some(())?;
        let record = self.keys.entry(key.clone()).or_default();
        record.run = Some(Box::default());
        let asked = record.asked.take();
        let deletion = record.known().and_then(|details| {
            (details.holds, details.permit) = (BTreeMap::new(), None);
            details.tombstones.first().cloned()
        });
        Some((asked.unwrap_or(if attempt <= 1 { Reason::Due } else { Reason::Retry }), deletion))
    }

    /// Ends the run, judges what is still deferred, and forgets what only the run needed. Of a key that runs elsewhere
    /// from now on, all is forgotten.
    pub(crate) fn end(&mut self, key: &ObjectKey) -> RunDone {
        let left = self.keys.get_mut(key).filter(|_| !self.slots.admits(key));
        left.into_iter().for_each(KeyRecord::leave);
        let Some(record) = self.keys.get_mut(key) else { return RunDone::default() };
        let RunRecord { deferred, mut done, .. } = record.run.take().map(|run| *run).unwrap_or_default();
        if let Some(details) = record.known() {
            details.writes.forget_shown_answers();
        }
        self.prune(key);
        done.changed |= !deferred.is_empty();
        done
    }

    /// Notes what the run of a key did, or what happened meanwhile; the most counts.
    pub(crate) fn note(&mut self, key: &ObjectKey, activity: RunActivity) {
        if let Some(run) = self.run_mut(key) {
            run.note(activity);
        }
    }

    /// Returns whether a run of the key is under way.
    pub(crate) fn is_running(&self, key: &ObjectKey) -> bool {
        self.keys.get(key).is_some_and(|record| record.run.is_some())
    }

    /// Returns whether versions started again while the key runs: what it began with may be gone.
    pub(crate) fn spans_epochs(&self, key: &ObjectKey) -> bool {
        let run = self.keys.get(key).and_then(|record| record.run.as_ref());
        run.is_some_and(|run| !run.new_epochs.is_empty())
    }

    fn run_mut(&mut self, key: &ObjectKey) -> Option<&mut RunRecord> {
        self.keys.get_mut(key)?.run.as_deref_mut()
    }

    /// Charges a run to its key's budget. Returns whether a storm begins.
    pub(crate) fn charge(&mut self, key: &ObjectKey, cost: RunCost, now: Instant) -> bool {
        let limit = self.storm_limit;
        self.change(key, |details| limit.charge(&mut details.spent, cost, now))
    }

    /// Returns how long the key's next run has to wait for its budget.
    pub(crate) fn budget_wait(&self, key: &ObjectKey, now: Instant) -> Duration {
        self.storm_limit.wait(self.details(key).and_then(|details| details.spent), now)
    }

    /// Keeps how the last run failed.
    pub(crate) fn failed(&mut self, key: &ObjectKey, error: LastError) {
        self.change(key, |details| details.last_error = Some(error));
    }

    /// Forgets how earlier runs failed. Returns which attempt the last of them was.
    pub(crate) fn succeeded(&mut self, key: &ObjectKey) -> Option<u32> {
        self.details(key)?.last_error.as_ref()?;
        self.change(key, |details| details.last_error.take()).map(|last| last.attempt)
    }

    pub(crate) fn last_error(&self, key: &ObjectKey) -> Option<LastError> {
        self.details(key)?.last_error.clone()
    }

    /// Keeps the last readable state that a run began with. A compact cache keeps no earlier state of what it can't read.
    pub(crate) fn keep_read(&mut self, key: &ObjectKey, state: Option<StoredState>) {
        if state.is_some() || self.keys.contains_key(key) {
            self.keys.entry(key.clone()).or_default().last_read = state;
            self.prune(key);
        }
    }

    pub(crate) fn last_read(&self, key: &ObjectKey) -> Option<StoredState> {
        self.keys.get(key)?.last_read.clone()
    }

    /// Adds a deletion that the reconciler has yet to handle.
    pub(crate) fn add_deletion(&mut self, key: &ObjectKey, last: StoredState) {
        self.deletions += 1;
        let serial = self.deletions;
        if self.change(key, |details| details.tombstones.add(last, serial)) {
            self.dropped.inc();
            tracing::warn!(%key, "more than {TOMBSTONES_PER_KEY} deletions wait for one key: the oldest is dropped");
        }
    }

    /// Returns the oldest deletion of a key.
    pub(crate) fn deletion(&self, key: &ObjectKey) -> Option<Tombstone> {
        self.details(key)?.tombstones.first().cloned()
    }

    /// Ends a deletion that was handled, or was none.
    pub(crate) fn close_deletion(&mut self, key: &ObjectKey, tombstone: &Tombstone) {
        self.change(key, |details| details.tombstones.close(tombstone));
    }

    /// Counts a failure of the user's code at a deletion. Returns whether it is given up.
    pub(crate) fn fail_deletion(&mut self, key: &ObjectKey, tombstone: &Tombstone, now: Instant) -> bool {
        self.change(key, |details| details.tombstones.fail(tombstone, now))
    }

    // --- changes

    /// Takes in a change of an object, whatever it enqueues; to be called once for each, in order.
    ///
    /// Returns whether it is the first readable state after an unreadable one.
    pub(crate) fn observe(&mut self, feed: FeedId, source: Option<SourceId>, change: &CacheChange) -> bool {
        if let (Some(source), Some(object)) = (source, change.key()) {
            self.sources.changed(source, object);
        }
        self.feeds.observe(feed, change)
    }

    /// Judges a change that concerns a key, and asks for a run if it is somebody else's.
    ///
    /// Only a watch event of a source of this cluster can be the key's own write. Its version is passed.
    pub(crate) fn take(
        &mut self,
        key: ObjectKey,
        written: Option<(SourceId, Version)>,
        reason: Reason,
    ) -> ChangeVerdict {
        if let Some((source, version)) = written
            && self.shared.contains(&source)
            && !self.sources.is_first(source, version, &key)
        {
            // A second event of a key's own write would count as a foreign change.
            return ChangeVerdict::Own;
        }
        if let Some(record) = self.keys.get_mut(&key) {
            let own = record.known().into_iter().flat_map(|details| &mut details.writes.own);
            let own = own.into_iter().find(|own| Some((own.source, own.version)) == written);
            let is_own = own.map(|own| own.seen = true).is_some();
            if let Some(run) = &mut record.run {
                run.note(RunActivity::Changed);
                match written {
                    _ if is_own => return ChangeVerdict::Own,
                    Some(event) if run.deferred.len() < DEFERRED_PER_RUN => run.deferred.push(event),
                    _ => run.done.changed = true,
                }
                return ChangeVerdict::Deferred;
            }
            if is_own {
                return ChangeVerdict::Own;
            }
        }
        self.add(key, reason);
        ChangeVerdict::Enqueue
    }

    /// Takes the progress of a source, and enqueues or releases the keys that waited for it.
    pub(crate) fn progressed(
        &mut self,
        source: SourceId,
        progress: Progress,
        caches: &impl Caches,
        now: Instant,
    ) {
        if progress.via == ProgressVia::NewEpoch {
            return self.begin_epoch(source, progress.version, now);
        }
        let concerned = self.sources.deliver(source, progress);
        let delivered = self.sources.delivered(source);
        for key in concerned {
            let Some(record) = self.keys.get_mut(&key) else { continue };
            let is_running = record.run.is_some();
            let Some(KeyDetails { writes, .. }) = record.known() else { continue };
            let mut all_seen = true;
            if let Some(delivered) = delivered {
                all_seen = writes.forget_own(source, |version| version <= delivered);
                writes.deliver_answers(source, delivered);
                if !is_running {
                    writes.forget_shown_answers();
                }
            }
            self.end_waits(&key, now, |wait| {
                let shown = || caches.cached(source, &wait.object);
                wait.source == source && wait.expectation.is_met(delivered, shown)
            });
            // Watch events show every change; a list may pass some.
            if !all_seen && progress.via == ProgressVia::Replace {
                self.miss(&key);
            }
            self.prune(&key);
        }
    }

    /// Forgets what is known of a source whose versions start again.
    fn begin_epoch(&mut self, source: SourceId, version: Option<Version>, now: Instant) {
        self.sources.begin_epoch(source, version);
        let mut keys = Vec::new();
        for (key, record) in &mut self.keys {
            if let Some(run) = &mut record.run {
                run.done.changed = true;
                run.new_epochs.push(source);
            }
            if record.known().is_some_and(|details| !details.writes.is_empty()) {
                keys.push(key.clone());
            }
        }
        keys.sort_unstable();
        for key in keys {
            let all_seen = self.change(&key, |KeyDetails { writes, .. }| {
                writes.answers.retain(|_, answer| answer.source != Some(source));
                writes.forget_own(source, |_| true)
            });
            self.end_waits(&key, now, |wait| wait.source == source);
            if !all_seen {
                self.miss(&key);
            }
        }
    }

    /// Has a key run whose write may have come and gone unseen.
    fn miss(&mut self, key: &ObjectKey) {
        self.take(key.clone(), None, Reason::MissedOwnWrite);
    }

    // --- writes

    /// Returns how far a source has been delivered.
    pub(crate) fn delivered(&self, source: SourceId) -> Option<Version> {
        self.sources.delivered(source)
    }

    /// Takes a version that a write of the key made; the key runs if it must.
    ///
    /// It must when a list has passed that version already and no event of it is deferred: whatever the write made
    /// may be gone again.
    pub(crate) fn wrote(&mut self, key: &ObjectKey, source: SourceId, version: Version) {
        let mut seen = false;
        if let Some(run) = self.run_mut(key) {
            let before = run.deferred.len();
            run.deferred.retain(|deferred| *deferred != (source, version));
            seen = run.deferred.len() < before;
            if !seen && run.new_epochs.contains(&source) {
                return self.miss(key);
            }
        }
        if !seen && self.sources.has_replaced(source, version) {
            return self.miss(key);
        }
        if self.delivered(source) < Some(version) {
            self.sources.await_version(source, version, key);
            self.change(key, |KeyDetails { writes: WriteRecord { own, .. }, .. }| {
                if own.len() == OWN_PER_KEY {
                    own.pop_front();
                }
                own.push_back(OwnVersion { source, version, seen });
            });
        }
    }

    /// Forgets what a key wrote, and has it run again: the server lost it, and may give its versions to others.
    pub(crate) fn forget_own(&mut self, key: &ObjectKey) {
        self.change(key, |details| details.writes.own.clear());
        self.miss(key);
    }

    /// Returns what a key was answered last about an object, unless a cache has caught up with it.
    pub(crate) fn answer(&self, key: &ObjectKey, object: &ObjectId) -> Option<&LastAnswer> {
        self.details(key)?.writes.answers.get(object)
    }

    /// Returns whether the server answered a write of a key with a version, as far as its run still knows.
    pub(crate) fn was_answered(&self, key: &ObjectKey, source: SourceId, version: Version) -> bool {
        let mut answers = self.details(key).into_iter().flat_map(|details| details.writes.answers.values());
        answers.any(|answer| answer.awaits() == Some((source, version)))
    }

    /// Keeps an answer, in place of an earlier one about the same object.
    pub(crate) fn keep_answer(&mut self, key: &ObjectKey, object: ObjectId, answer: LastAnswer) {
        if let Some((source, version)) = answer.awaits() {
            self.sources.await_version(source, version, key);
        }
        self.change(key, |details| details.writes.answers.insert(object, answer));
    }

    pub(crate) fn forget_answer(&mut self, key: &ObjectKey, object: &ObjectId) {
        self.change(key, |details| details.writes.answers.remove(object));
    }

    /// Lets a key wait until a source shows something of an object, in place of what it waited for of that object.
    pub(crate) fn expect(
        &mut self,
        key: &ObjectKey,
        (source, object): (SourceId, &ObjectKey),
        expectation: Expectation,
        caches: &impl Caches,
        now: Instant,
    ) {
        let waited = self.has_pending(key);
        let met = expectation.is_met(self.delivered(source), || caches.cached(source, object));
        self.drop_waits(key, |wait| wait.source == source && wait.object == *object);
        if !met {
            self.sources.await_object(source, object, key);
            self.sources.note_watches(|source| caches.is_open(source), now);
            let wait = PendingWrite { source, object: object.clone(), expectation, since: now };
            if let Some((source, version)) = wait.awaits() {
                self.sources.await_version(source, version, key);
            }
            self.change(key, |details| details.writes.waits.push(wait));
        }
        match (waited, self.has_pending(key)) {
            (false, true) => self.hold(key, HoldReason::OwnWrites, now + AT_MOST, now),
            (true, false) => self.release(key, HoldReason::OwnWrites, now),
            _ => {}
        }
    }

    /// Returns whether a key still waits for what the server says of an object: the reply to its write was lost.
    pub(crate) fn awaits_reply(&self, key: &ObjectKey, object: &ObjectKey) -> bool {
        let lost = |wait: &PendingWrite| wait.expectation == Expectation::ReplyLost && wait.object == *object;
        self.details(key).is_some_and(|details| details.writes.waits.iter().any(lost))
    }

    /// Returns whether a key waits for its own writes.
    pub(super) fn has_pending(&self, key: &ObjectKey) -> bool {
        self.details(key).is_some_and(|details| !details.writes.waits.is_empty())
    }

    /// Gives up what is overdue, and returns it.
    pub(crate) fn tick(&mut self, caches: &impl Caches, now: Instant) -> Vec<OverdueWrite> {
        self.sources.note_watches(|source| caches.is_open(source), now);
        let late = self.waits().filter(|(_, wait)| self.due(wait) <= now);
        let overdue = |(key, wait): (&ObjectKey, &PendingWrite)| {
            let (object, expectation) = (wait.object.clone(), wait.expectation.clone());
            let overdue = OverdueWrite { key: key.clone(), object, expectation, waited: now - wait.since };
            (wait.source, overdue)
        };
        let late: Vec<_> = late.map(overdue).collect();
        for (source, OverdueWrite { key, object, .. }) in &late {
            self.end_waits(key, now, |wait| wait.source == *source && wait.object == *object);
        }
        late.into_iter().map(|(_, overdue)| overdue).collect()
    }

    /// Returns when to [`tick`](Self::tick) next; `None` while no key waits.
    pub(crate) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let due = self.waits().map(|(_, wait)| self.due(wait)).min()?;
        Some(due.min(now + NOTICED_WITHIN))
    }

    fn due(&self, wait: &PendingWrite) -> Instant {
        wait.due(self.sources.open_since(wait.source))
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = (&ObjectKey, &PendingWrite)> {
        let keys: BTreeSet<&ObjectKey> = self.sources.waiting().collect();
        keys.into_iter().flat_map(|key| {
            let waits = self.details(key).into_iter().flat_map(|details| &details.writes.waits);
            waits.map(move |wait| (key, wait))
        })
    }

    /// Ends some of what a key waits for, and releases it if that was all.
    fn end_waits(&mut self, key: &ObjectKey, now: Instant, gone: impl Fn(&PendingWrite) -> bool) {
        let waited = self.has_pending(key);
        self.drop_waits(key, gone);
        if waited && !self.has_pending(key) {
            self.release(key, HoldReason::OwnWrites, now);
        }
    }

    fn drop_waits(&mut self, key: &ObjectKey, gone: impl Fn(&PendingWrite) -> bool) {
        let dropped: Vec<_> =
            self.change(key, |details| details.writes.waits.extract_if(.., |wait| gone(wait)).collect());
        for PendingWrite { source, object, .. } in dropped {
            self.sources.end_object(source, object, key);
        }
    }

    // --- terms, and what is over

    /// Begins another term with an empty queue. Keys that waited for their own writes still do, and what was spent stays
    /// spent. Returns whether the server lost its history meanwhile: then all versions of before are forgotten.
    pub(crate) fn begin_term(&mut self, losses: u64, now: Instant) -> bool {
        self.queue.reopen();
        self.unsynced = UnsyncedKeys::all(&self.namespaces);
        self.feeds.clear();
        self.reads.clear();
        let is_lost = std::mem::replace(&mut self.losses, losses) != losses;
        if is_lost {
            self.sources = Sources::default();
        }
        for record in self.keys.values_mut() {
            record.end_term();
            if let Some(details) = record.known().filter(|_| is_lost) {
                details.writes = WriteRecord::default();
            }
        }
        let waiting: BTreeSet<_> = self.sources.waiting().cloned().collect();
        waiting.iter().for_each(|key| self.hold(key, HoldReason::OwnWrites, now + AT_MOST, now));
        self.keys.retain(|_, record| !record.is_empty());
        is_lost
    }

    /// Refuses keys from now on, and drops those that wait.
    pub(crate) fn discard(&mut self) {
        self.queue.discard();
        self.unsynced.clear();
        self.keys.retain(|_, record| {
            record.asked = None;
            if let Some(details) = record.known() {
                details.permit = None;
            }
            !record.is_empty()
        });
    }

    /// Forgets what is over, and what belongs to objects that are gone.
    pub(crate) fn sweep(&mut self, now: Instant, is_gone: impl Fn(&ObjectKey) -> bool) {
        self.unsynced.forget(|key| {
            let is_gone = is_gone(key);
            if let Some(record) = self.keys.get_mut(key).filter(|_| is_gone) {
                record.asked = None;
            }
            is_gone
        });
        self.keys.retain(|key, record| {
            record.sweep(now, || is_gone(key));
            !record.is_empty()
        });
        self.give_memory_back();
        // A predicate may have kept their deletions from running them.
        let runs = |key: &ObjectKey| self.keys.get(key).is_some_and(|record| record.run.is_some());
        self.reads.sweep(|key| runs(key) || !is_gone(key));
        let details = |key: &ObjectKey| self.keys.get(key)?.details.as_deref();
        self.sources.sweep(|key, source, version| {
            details(key).is_some_and(|details| details.writes.awaits(source, version))
        });
        for key in self.queue.awaiting_change() {
            let is_over =
                || is_gone(&key) && details(&key).is_none_or(|details| details.tombstones.is_empty());
            if !self.slots.admits(&key) || is_over() {
                self.queue.forget(&key);
            }
        }
    }

    fn details(&self, key: &ObjectKey) -> Option<&KeyDetails> {
        self.keys.get(key)?.details.as_deref()
    }

    /// Changes the details of a key, and forgets a record that holds nothing any more.
    fn change<T>(&mut self, key: &ObjectKey, change: impl FnOnce(&mut KeyDetails) -> T) -> T {
        let record = self.keys.entry(key.clone()).or_default();
        let answer = change(record.details.get_or_insert_default());
        self.prune(key);
        answer
    }

    /// Forgets a record that holds nothing.
    fn prune(&mut self, key: &ObjectKey) {
        if self.keys.get(key).is_some_and(KeyRecord::is_empty) {
            self.keys.remove(key);
            self.give_memory_back();
        }
    }

    /// After a start, every object may have had a record; soon after it few have one.
    fn give_memory_back(&mut self) {
        if self.keys.capacity() > SMALL && self.keys.len() * 8 < self.keys.capacity() {
            self.keys.shrink_to(self.keys.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl KeyTable {
        /// Counts the keys for which there is memory.
        pub(crate) fn room(&self) -> usize {
            self.keys.capacity()
        }

        /// Counts the keys and objects that something is known of.
        pub(crate) fn remembered(&self) -> usize {
            self.keys.len() + self.feeds.len() + self.sources.waits()
        }
    }
}

//! A controller's work queue: why keys were enqueued, and which wait for their caches.

use std::{
    collections::hash_map::Entry,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use foldhash::{HashMap, HashSet};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::Reason;
use crate::{
    key_list::{KeyList, ListedKeys},
    object::ObjectKey,
    workqueue::{Item, KeyState, Priority, WorkQueue},
    writes::KeyControl,
};

/// Once empty, a map that grew past this gives its memory back.
const KEPT_WHEN_EMPTY: usize = 1024;

/// Most keys that are kept by name before their caches have synced; past that, all that is cached runs then.
const MOST_UNSYNCED: usize = 100_000;

/// Takes in every key of one controller.
pub(crate) struct ControllerQueue {
    pub(crate) inner: WorkQueue<ObjectKey>,
    /// Those whose keys wait for caches of their own.
    namespaces: Vec<Arc<str>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What asked for runs that have not started.
    pending: HashMap<ObjectKey, PendingRun>,
    unsynced: Vec<Unsynced>,
    /// Keys that the queue holds back, for whatever reason.
    held: HashMap<ObjectKey, Holds>,
    /// Those of them whose caches are in doubt, by namespace: the keys of one share their caches, and go on together.
    doubted: HashMap<Option<Arc<str>>, HashSet<ObjectKey>>,
}

/// Why the queue holds a key back: for both, the longer one counts.
#[derive(Clone, Copy, Debug, Default)]
struct Holds {
    /// It waits for its own writes.
    awaits_own_writes: bool,
    /// It ran and wrote too often.
    paced_until: Option<Instant>,
    /// A cache that it reads is in doubt.
    in_doubt: bool,
}

/// What asked for a run that has not started.
pub(crate) struct PendingRun {
    reason: Reason,
    /// Holds up the source that named the key until its run starts.
    _permit: Option<OwnedSemaphorePermit>,
}

impl From<Reason> for PendingRun {
    fn from(reason: Reason) -> Self {
        Self { reason, _permit: None }
    }
}

impl From<OwnedSemaphorePermit> for PendingRun {
    /// Asked for by a source that is held up until the run starts.
    fn from(permit: OwnedSemaphorePermit) -> Self {
        Self { reason: Reason::Source, _permit: Some(permit) }
    }
}

/// Keys whose caches have not synced: first those of shared lists, then those that were named, in order.
struct Unsynced {
    /// Whose keys; `None`: those of all other namespaces.
    namespace: Option<Arc<str>>,
    listed: ListedKeys<ObjectKey>,
    waiting: HashMap<ObjectKey, WaitingKey>,
    /// How many were named so far.
    named: u64,
    excess: Excess,
}

/// A key that was named before its caches had synced: which one it was, and why.
struct WaitingKey {
    at: u64,
    reason: Reason,
}

/// Whether more keys were named than are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    No,
    /// All that is cached runs instead.
    Yes,
}

impl Unsynced {
    fn of(namespace: Option<Arc<str>>) -> Self {
        Self {
            namespace,
            listed: ListedKeys::new(),
            waiting: HashMap::default(),
            named: 0,
            excess: Excess::No,
        }
    }

    /// Keeps a key until its caches have synced.
    fn keep(&mut self, key: ObjectKey, reason: Reason) {
        if self.excess == Excess::Yes || reason.priority() == Priority::Low && self.listed.contains(&key) {
            return;
        }
        if let Some(named) = self.waiting.get_mut(&key) {
            return named.reason.merge(reason);
        }
        if self.waiting.len() == MOST_UNSYNCED {
            (self.waiting, self.excess) = (HashMap::default(), Excess::Yes);
            return;
        }
        self.named += 1;
        self.waiting.insert(key, WaitingKey { at: self.named, reason });
    }
}

impl ControllerQueue {
    /// Takes keys for a queue; they wait until the caches of their namespace have [synced](Self::open), or those of all others.
    pub(crate) fn new(queue: WorkQueue<ObjectKey>, namespaces: impl IntoIterator<Item = Arc<str>>) -> Self {
        let namespaces: Vec<_> = namespaces.into_iter().collect();
        Self { inner: queue, state: Mutex::new(State::unsynced(&namespaces)), namespaces }
    }

    /// Takes keys again after all were [discarded](Self::discard) and the last run has ended; all keys wait for their caches again.
    pub(crate) fn reopen(&self) {
        *self.state() = State::unsynced(&self.namespaces);
        self.inner.reopen();
    }

    /// Enqueues all keys that a first list holds.
    pub(crate) fn add_list(&self, list: &Arc<KeyList<ObjectKey>>) {
        let mut state = self.state();
        if state.unsynced.is_empty() {
            drop(state);
            return list.keys().for_each(|key| self.add(key.clone(), Reason::InitialList));
        }
        let Some(first) = list.keys().next() else { return };
        let of_one = list.keys().all(|key| key.namespace() == first.namespace());
        let only_one = state.unsynced.len() == 1 && state.unsynced[0].namespace.is_none();
        match state.unsynced_for(first).filter(|_| of_one || only_one) {
            Some(unsynced) => unsynced.listed.push(list.clone()),
            None => {
                drop(state);
                list.keys().for_each(|key| self.add(key.clone(), Reason::InitialList));
            }
        }
    }

    /// Queues a key, for a reason; a source's permit is given back when the run starts, or is not needed.
    ///
    /// Before the caches of its namespace have synced it is not: that holds up no other namespace.
    pub(crate) fn add(&self, key: ObjectKey, asked: impl Into<PendingRun>) {
        let asked = asked.into();
        let mut state = self.state();
        if let Some(unsynced) = state.unsynced_for(&key) {
            return unsynced.keep(key, asked.reason);
        }
        self.enqueue(&mut state, key, asked);
    }

    fn enqueue(&self, state: &mut State, key: ObjectKey, asked: PendingRun) {
        let priority = asked.reason.priority();
        match state.pending.get_mut(&key) {
            Some(pending) => pending.reason.merge(asked.reason),
            None => drop(state.pending.insert(key.clone(), asked)),
        }
        self.inner.add_at(key, priority);
    }

    /// Forgets a key whose object is gone before its caches have synced; `false` where they have.
    pub(crate) fn forget_unsynced(&self, key: &ObjectKey) -> bool {
        let mut state = self.state();
        let Some(unsynced) = state.unsynced_for(key) else { return false };
        unsynced.waiting.remove(key);
        true
    }

    /// Takes note of why a key will run that the queue has a time for.
    pub(crate) fn expect(&self, key: &ObjectKey, reason: Reason) {
        self.state().pending.entry(key.clone()).or_insert(reason.into());
    }

    /// Queues an idle key of which nothing changed.
    pub(crate) fn touch(&self, key: ObjectKey) {
        let mut state = self.state();
        // Until its caches have synced, every key waits for its first run anyway.
        if state.unsynced_for(&key).is_some() {
            return;
        }
        if self.inner.state_of(&key) == KeyState::Idle {
            state.pending.entry(key.clone()).or_insert(Reason::Resync.into());
        }
        self.inner.touch(key);
    }

    /// Says why the run that starts now was asked for.
    pub(crate) fn begin(&self, item: &Item<ObjectKey>) -> Reason {
        let pending = self.state().begin(item.key());
        pending.map(|pending| pending.reason).unwrap_or(match item.attempt() {
            0 | 1 => Reason::Due,
            _ => Reason::Retry,
        })
    }

    /// Says why the run that is to come was asked for, where that is known yet.
    pub(crate) fn reason(&self, key: &ObjectKey) -> Option<Reason> {
        let mut state = self.state();
        let waiting = |unsynced: &mut Unsynced| unsynced.waiting.get(key).map(|named| named.reason.clone());
        match state.unsynced_for(key) {
            Some(unsynced) => waiting(unsynced),
            None => state.pending.get(key).map(|pending| pending.reason.clone()),
        }
    }

    /// Lets in the keys of a namespace, or of all that have no caches of their own; `cached` lists what is there.
    pub(crate) fn open(&self, namespace: Option<&Arc<str>>, cached: impl FnOnce() -> Vec<ObjectKey>) {
        let mut state = self.state();
        let Some(at) = state.unsynced.iter().position(|unsynced| unsynced.namespace.as_ref() == namespace)
        else {
            return;
        };
        let Unsynced { listed, waiting, excess, .. } = state.unsynced.remove(at);
        // Under the lock: what is applied after this is let in by itself.
        let listed: Vec<_> = match excess {
            Excess::No => listed.keys().cloned().collect(),
            Excess::Yes => cached(),
        };
        listed.into_iter().for_each(|key| self.enqueue(&mut state, key, Reason::InitialList.into()));
        drop(state);
        let mut waiting: Vec<_> = waiting.into_iter().collect();
        waiting.sort_unstable_by_key(|(_, named)| named.at);
        waiting.into_iter().for_each(|(key, named)| self.add(key, named.reason));
    }

    /// Holds back a key that writes too often.
    pub(crate) fn pace(&self, key: &ObjectKey, wait: Duration) {
        let mut state = self.state();
        let held = state.held.entry(key.clone()).or_default();
        held.paced_until = Some(Instant::now() + wait);
        if !held.awaits_own_writes {
            self.inner.hold(key, wait);
        }
    }

    /// Gives back a key that must not run yet, because a cache that it reads is in doubt.
    pub(crate) fn hold_in_doubt(&self, item: Item<ObjectKey>, until: Instant) {
        let (mut state, key) = (self.state(), item.key().clone());
        state.doubted.entry(key.shared_namespace().cloned()).or_default().insert(key.clone());
        state.held.entry(key).or_default().in_doubt = true;
        self.inner.hold(item.key(), until.saturating_duration_since(Instant::now()));
        item.put_back();
    }

    /// Lets keys go on whose caches are in no doubt any more; asks for one key of each namespace.
    pub(crate) fn release_doubted(&self, may_run: impl Fn(&ObjectKey) -> bool) {
        let mut state = self.state();
        let (over, doubted) = std::mem::take(&mut state.doubted)
            .into_iter()
            .partition(|(_, keys)| keys.iter().next().is_none_or(&may_run));
        state.doubted = doubted;
        let over: HashMap<_, HashSet<_>> = over;
        over.into_values().flatten().for_each(|key| self.end_doubt(&mut state, &key));
    }

    /// Lets a key go on whose caches are in no doubt any more.
    pub(crate) fn release_doubted_key(&self, key: &ObjectKey) {
        let mut state = self.state();
        state.leave_doubted(key);
        self.end_doubt(&mut state, key);
    }

    /// Lets a key go on, unless it is held back for more than a doubt.
    fn end_doubt(&self, state: &mut State, key: &ObjectKey) {
        let Some(held) = state.held.get_mut(key) else { return };
        held.in_doubt = false;
        if held.awaits_own_writes || held.paced_until.is_some_and(|until| until > Instant::now()) {
            return;
        }
        state.held.remove(key);
        self.inner.release(key);
    }

    /// Whether a key that is held back waits for its own writes.
    pub(crate) fn awaits_own_writes(&self, key: &ObjectKey) -> bool {
        self.state().held.get(key).is_some_and(|held| held.awaits_own_writes)
    }

    /// Forgets the keys that are held back no more, and those that wait for caches and whose objects are gone.
    pub(crate) fn sweep(&self, now: Instant, is_gone: impl Fn(&ObjectKey) -> bool) {
        let mut state = self.state();
        for unsynced in &mut state.unsynced {
            unsynced.waiting.retain(|key, _| !is_gone(key));
            shrink(&mut unsynced.waiting);
        }
        state.held.retain(|_, held| {
            held.awaits_own_writes || held.in_doubt || held.paced_until.is_some_and(|until| until > now)
        });
        shrink(&mut state.held);
        shrink(&mut state.pending);
    }

    /// Counts what is remembered of keys.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        let state = self.state();
        let before_sync: usize = state
            .unsynced
            .iter()
            .map(|unsynced| unsynced.waiting.len() + unsynced.listed.keys().count())
            .sum();
        let doubted: usize = state.doubted.values().map(HashSet::len).sum();
        state.pending.len() + state.held.len() + doubted + before_sync
    }

    /// Refuses keys from now on and drops those that wait.
    pub(crate) fn discard(&self) {
        self.inner.discard();
        let mut state = self.state();
        state.pending.clear();
        state.unsynced.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyControl for Arc<ControllerQueue> {
    fn wake(&self, key: ObjectKey) {
        self.add(key, Reason::MissedOwnWrite);
    }

    fn hold(&self, key: &ObjectKey, at_most: Duration) {
        let mut state = self.state();
        state.held.entry(key.clone()).or_default().awaits_own_writes = true;
        self.inner.hold(key, at_most);
    }

    fn release(&self, key: &ObjectKey) {
        let mut state = self.state();
        let now = Instant::now();
        let paced_until = state.held.get(key).and_then(|held| held.paced_until).filter(|until| *until > now);
        state.leave_doubted(key);
        match paced_until {
            Some(until) => {
                state
                    .held
                    .insert(key.clone(), Holds { awaits_own_writes: false, paced_until, in_doubt: false });
                self.inner.hold(key, until - now);
            }
            None => {
                state.held.remove(key);
                self.inner.release(key);
            }
        }
    }
}

impl State {
    fn unsynced(namespaces: &[Arc<str>]) -> Self {
        let unsynced = namespaces.iter().cloned().map(Some).chain([None]).map(Unsynced::of).collect();
        Self { unsynced, ..Self::default() }
    }

    /// Forgets what asked for a run that starts, and what held it back.
    fn begin(&mut self, key: &ObjectKey) -> Option<PendingRun> {
        if !self.held.is_empty() && self.held.remove(key).is_some_and(|held| held.in_doubt) {
            self.leave_doubted(key);
        }
        if self.pending.is_empty() {
            return None;
        }
        let pending = self.pending.remove(key);
        if self.pending.is_empty() && self.pending.capacity() > KEPT_WHEN_EMPTY {
            self.pending = HashMap::default();
        }
        pending
    }

    fn leave_doubted(&mut self, key: &ObjectKey) {
        if self.doubted.is_empty() {
            return;
        }
        if let Entry::Occupied(mut doubted) = self.doubted.entry(key.shared_namespace().cloned()) {
            doubted.get_mut().remove(key);
            if doubted.get().is_empty() {
                doubted.remove();
            }
        }
    }

    /// Finds where a key waits for its caches: those of its namespace, or those of all others, which sync before.
    fn unsynced_for(&mut self, key: &ObjectKey) -> Option<&mut Unsynced> {
        let namespace = key.namespace();
        let own = self
            .unsynced
            .iter()
            .position(|unsynced| unsynced.namespace.is_some() && unsynced.namespace.as_deref() == namespace);
        let at = own.or_else(|| self.unsynced.iter().position(|unsynced| unsynced.namespace.is_none()))?;
        self.unsynced.get_mut(at)
    }
}

/// Gives memory back that a map needed once.
fn shrink<V>(map: &mut HashMap<ObjectKey, V>) {
    if map.len() * 4 < map.capacity() {
        map.shrink_to_fit();
    }
}

impl fmt::Debug for ControllerQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerQueue").field("queue", &self.inner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workqueue::ItemExponentialFailure;

    fn key(namespace: &str, at: usize) -> ObjectKey {
        ObjectKey::new(namespace, format!("o-{at}"))
    }

    fn queue(namespaces: &[&str]) -> ControllerQueue {
        let queue = WorkQueue::new(ItemExponentialFailure::default());
        ControllerQueue::new(queue, namespaces.iter().map(|namespace| Arc::from(*namespace)))
    }

    async fn next(queue: &ControllerQueue) -> (String, Reason) {
        let item = queue.inner.get().await.unwrap();
        let reason = queue.begin(&item);
        let name = item.key().to_string();
        item.forget();
        (name, reason)
    }

    // C33 C38
    #[tokio::test(start_paused = true)]
    async fn keys_wait_for_their_own_caches_in_order_and_those_that_are_gone_are_forgotten() {
        let queue = queue(&["a", "b"]);
        for (namespace, at) in [("b", 1), ("a", 1), ("", 1), ("a", 2), ("a", 3)] {
            queue.add(key(namespace, at), Reason::Changed);
        }
        queue.add_list(&Arc::new(KeyList::new([key("a", 9)])));
        queue.add(key("a", 9), Reason::InitialList);
        assert!(queue.forget_unsynced(&key("a", 2)));
        assert_eq!((queue.inner.len(), queue.reason(&key("a", 1))), (0, Some(Reason::Changed)));
        queue.open(None, Vec::new);
        assert_eq!(next(&queue).await.0, "o-1");
        assert!(queue.inner.is_empty());
        queue.open(Some(&"a".into()), Vec::new);
        assert!(!queue.forget_unsynced(&key("a", 1)), "its caches have synced");
        let mut ran = Vec::new();
        for _ in 0..3 {
            ran.push(next(&queue).await);
        }
        let changed = |name: &str| (name.to_owned(), Reason::Changed);
        assert_eq!(ran, [changed("a/o-1"), changed("a/o-3"), ("a/o-9".to_owned(), Reason::InitialList)]);
        queue.sweep(Instant::now(), |_| true);
        queue.open(Some(&"b".into()), Vec::new);
        assert!(queue.inner.is_empty(), "it was swept");
    }

    // C38
    #[tokio::test(start_paused = true)]
    async fn so_many_keys_wait_by_name_and_past_that_all_that_is_cached_runs() {
        let queue = queue(&[]);
        (0..=MOST_UNSYNCED + 1).for_each(|at| queue.add(key("a", at), Reason::Source));
        assert_eq!(queue.remembered(), 0);
        queue.open(None, || vec![key("a", 7), key("a", 8)]);
        assert_eq!((next(&queue).await.0, next(&queue).await.0), ("a/o-7".to_owned(), "a/o-8".to_owned()));
        assert!(queue.inner.is_empty());
    }
}

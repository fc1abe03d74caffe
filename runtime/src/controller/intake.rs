//! The door to a controller's queue: why keys were queued, and which must wait for their namespace's caches.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use foldhash::HashMap;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::Reason;
use crate::{
    object::ObjectKey,
    roll::Roll,
    workqueue::{Item, KeyState, Priority, WorkQueue},
    writes::Keys,
};

/// Once empty, a map that grew past this gives its memory back.
const KEPT_WHEN_EMPTY: usize = 1024;

/// Takes in every key of one controller.
pub(crate) struct Intake {
    pub(crate) queue: WorkQueue<ObjectKey>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What asked for runs that have not started.
    pending: HashMap<ObjectKey, Pending>,
    shut: Vec<Shut>,
    /// Keys that the queue holds back, for whatever reason.
    held: HashMap<ObjectKey, Held>,
}

/// Why the queue holds a key back: for both, the longer one counts.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// It waits for its own writes.
    parked: bool,
    /// It ran and wrote too often.
    paced_until: Option<Instant>,
    /// A cache that it reads is in doubt.
    in_doubt: bool,
}

struct Pending {
    reason: Reason,
    /// Holds up the source that named the key until its run starts.
    _permit: Option<OwnedSemaphorePermit>,
}

/// A namespace whose caches have not synced, and its keys in order: first those of rolls.
struct Shut {
    namespace: Arc<str>,
    rolls: Vec<Arc<Roll<ObjectKey>>>,
    waiting: Vec<ObjectKey>,
}

impl Intake {
    /// Takes keys for a queue; those of the namespaces wait until these are [opened](Self::open).
    pub(crate) fn new(queue: WorkQueue<ObjectKey>, shut: impl IntoIterator<Item = Arc<str>>) -> Self {
        let shut = shut
            .into_iter()
            .map(|namespace| Shut { namespace, rolls: Vec::new(), waiting: Vec::new() })
            .collect();
        Self { queue, state: Mutex::new(State { shut, ..State::default() }) }
    }

    /// Queues a key of which something changed.
    pub(crate) fn add(&self, key: ObjectKey, reason: Reason) {
        self.take(key, Pending { reason, _permit: None });
    }

    /// Queues all keys that a first list holds.
    pub(crate) fn add_roll(&self, roll: &Arc<Roll<ObjectKey>>) {
        let mut state = self.state();
        if state.shut.is_empty() {
            return self.queue.add_roll(roll);
        }
        let namespace = roll.keys().first().and_then(ObjectKey::namespace);
        let of_one = roll.keys().iter().all(|key| key.namespace() == namespace);
        match state.shut.iter_mut().find(|shut| of_one && Some(&*shut.namespace) == namespace) {
            Some(shut) => shut.rolls.push(roll.clone()),
            None => {
                drop(state);
                roll.keys().iter().for_each(|key| self.add(key.clone(), Reason::InitialList));
            }
        }
    }

    /// Queues a key that a source named; the permit is given back when its run starts, or is not needed.
    pub(crate) fn add_from_source(&self, key: ObjectKey, permit: OwnedSemaphorePermit) {
        self.take(key, Pending { reason: Reason::Source, _permit: Some(permit) });
    }

    fn take(&self, key: ObjectKey, asked: Pending) {
        let mut state = self.state();
        let priority = asked.reason.priority();
        // What a roll lists already needs no other reason of that kind.
        if priority == Priority::Low && self.queue.is_only_listed(&key) {
            return;
        }
        let news = match state.pending.get_mut(&key) {
            Some(pending) => {
                pending.reason.merge(asked.reason);
                false
            }
            None => {
                state.pending.insert(key.clone(), asked);
                true
            }
        };
        match state.shut_for(&key) {
            Some(shut) if news => shut.waiting.push(key),
            Some(_) => {}
            None => self.queue.add_at(key, priority),
        }
    }

    /// Takes note of why a key will run that the queue has a time for.
    pub(crate) fn expect(&self, key: &ObjectKey, reason: Reason) {
        self.state().pending.entry(key.clone()).or_insert(Pending { reason, _permit: None });
    }

    /// Queues an idle key of which nothing changed.
    pub(crate) fn touch(&self, key: ObjectKey) {
        let mut state = self.state();
        // Behind a shut door every key waits for its first run anyway.
        if state.shut_for(&key).is_some() {
            return;
        }
        if self.queue.state_of(&key) == KeyState::Idle {
            state.pending.entry(key.clone()).or_insert(Pending { reason: Reason::Resync, _permit: None });
        }
        self.queue.touch(key);
    }

    /// Says why the run that starts now was asked for.
    pub(crate) fn begin(&self, item: &Item<ObjectKey>) -> Reason {
        let pending = self.state().begin(item.key());
        pending.map(|pending| pending.reason).unwrap_or(match item.attempt() {
            _ if item.was_only_listed() => Reason::InitialList,
            0 | 1 => Reason::Due,
            _ => Reason::Retry,
        })
    }

    /// Says why the run that is to come was asked for, where that is known yet.
    pub(crate) fn reason(&self, key: &ObjectKey) -> Option<Reason> {
        let pending = self.state().pending.get(key).map(|pending| pending.reason.clone());
        pending.or_else(|| self.queue.is_only_listed(key).then_some(Reason::InitialList))
    }

    /// Lets in the keys of a namespace, whose caches have synced.
    pub(crate) fn open(&self, namespace: &str) {
        let mut state = self.state();
        let Some(at) = state.shut.iter().position(|shut| &*shut.namespace == namespace) else { return };
        let opened = state.shut.remove(at);
        opened.rolls.iter().for_each(|roll| self.queue.add_roll(roll));
        for key in opened.waiting {
            let priority = state.pending.get(&key).map_or(Priority::Normal, |of| of.reason.priority());
            self.queue.add_at(key, priority);
        }
    }

    /// Holds back a key that writes too often.
    pub(crate) fn pace(&self, key: &ObjectKey, wait: Duration) {
        let mut state = self.state();
        let held = state.held.entry(key.clone()).or_default();
        held.paced_until = Some(Instant::now() + wait);
        if !held.parked {
            self.queue.hold(key, wait);
        }
    }

    /// Gives back a key that must not run yet, because a cache that it reads is in doubt.
    pub(crate) fn hold_in_doubt(&self, item: Item<ObjectKey>, until: Instant) {
        let mut state = self.state();
        state.held.entry(item.key().clone()).or_default().in_doubt = true;
        self.queue.hold(item.key(), until.saturating_duration_since(Instant::now()));
        item.put_back();
    }

    /// Lets keys go on whose caches are in no doubt any more.
    pub(crate) fn let_go(&self, may_run: impl Fn(&ObjectKey) -> bool) {
        let mut state = self.state();
        for (key, held) in &mut state.held {
            if held.in_doubt && may_run(key) {
                held.in_doubt = false;
                self.queue.release(key);
            }
        }
        state.held.retain(|_, held| held.parked || held.in_doubt || held.paced_until.is_some());
    }

    /// Whether a key that is held back waits for its own writes.
    pub(crate) fn is_parked(&self, key: &ObjectKey) -> bool {
        self.state().held.get(key).is_some_and(|held| held.parked)
    }

    /// Forgets the keys that are held back no more.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut state = self.state();
        state.held.retain(|_, held| {
            held.parked || held.in_doubt || held.paced_until.is_some_and(|until| until > now)
        });
        shrink(&mut state.held);
        shrink(&mut state.pending);
    }

    /// Refuses keys from now on and drops those that wait.
    pub(crate) fn discard(&self) {
        self.queue.discard();
        self.state().pending.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys for Arc<Intake> {
    fn wake(&self, key: ObjectKey) {
        self.add(key, Reason::MissedOwnWrite);
    }

    fn hold(&self, key: &ObjectKey, at_most: Duration) {
        let mut state = self.state();
        state.held.entry(key.clone()).or_default().parked = true;
        self.queue.hold(key, at_most);
    }

    fn release(&self, key: &ObjectKey) {
        let mut state = self.state();
        let now = Instant::now();
        let paced_until = state.held.get(key).and_then(|held| held.paced_until).filter(|until| *until > now);
        match paced_until {
            Some(until) => {
                state.held.insert(key.clone(), Held { parked: false, paced_until, in_doubt: false });
                self.queue.hold(key, until - now);
            }
            None => {
                state.held.remove(key);
                self.queue.release(key);
            }
        }
    }
}

impl State {
    /// Forgets what asked for a run that starts, and what held it back.
    fn begin(&mut self, key: &ObjectKey) -> Option<Pending> {
        if !self.held.is_empty() {
            self.held.remove(key);
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

    fn shut_for(&mut self, key: &ObjectKey) -> Option<&mut Shut> {
        let namespace = key.namespace();
        self.shut.iter_mut().find(|shut| Some(&*shut.namespace) == namespace)
    }
}

/// Gives memory back that a map needed once.
fn shrink<V>(map: &mut HashMap<ObjectKey, V>) {
    if map.len() * 4 < map.capacity() {
        map.shrink_to_fit();
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("queue", &self.queue).finish_non_exhaustive()
    }
}

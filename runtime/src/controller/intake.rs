//! The door to a controller's queue: why keys were queued, and which must wait for their namespace's caches.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::Reason;
use crate::{
    object::ObjectKey,
    workqueue::{KeyState, Priority, WorkQueue},
    writes::Keys,
};

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
}

struct Pending {
    reason: Reason,
    /// Holds up the source that named the key until its run starts.
    _permit: Option<OwnedSemaphorePermit>,
}

/// A namespace whose caches have not synced, and its keys in order.
struct Shut {
    namespace: Arc<str>,
    waiting: Vec<ObjectKey>,
}

impl Intake {
    /// Takes keys for a queue; those of the namespaces wait until these are [opened](Self::open).
    pub(crate) fn new(queue: WorkQueue<ObjectKey>, shut: impl IntoIterator<Item = Arc<str>>) -> Self {
        let shut = shut.into_iter().map(|namespace| Shut { namespace, waiting: Vec::new() }).collect();
        Self { queue, state: Mutex::new(State { shut, ..State::default() }) }
    }

    /// Queues a key of which something changed.
    pub(crate) fn add(&self, key: ObjectKey, reason: Reason) {
        self.take(key, Pending { reason, _permit: None });
    }

    /// Queues a key that a source named; the permit is given back when its run starts, or is not needed.
    pub(crate) fn add_from_source(&self, key: ObjectKey, permit: OwnedSemaphorePermit) {
        self.take(key, Pending { reason: Reason::Source, _permit: Some(permit) });
    }

    fn take(&self, key: ObjectKey, asked: Pending) {
        let mut state = self.state();
        let priority = asked.reason.priority();
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
    pub(crate) fn begin(&self, key: &ObjectKey, attempt: u32) -> Reason {
        let pending = {
            let mut state = self.state();
            state.held.remove(key);
            state.pending.remove(key)
        };
        pending.map(|pending| pending.reason).unwrap_or(match attempt {
            0 | 1 => Reason::Due,
            _ => Reason::Retry,
        })
    }

    /// Says why the run that is to come was asked for, where that is known yet.
    pub(crate) fn reason(&self, key: &ObjectKey) -> Option<Reason> {
        self.state().pending.get(key).map(|pending| pending.reason.clone())
    }

    /// Lets in the keys of a namespace, whose caches have synced.
    pub(crate) fn open(&self, namespace: &str) {
        let mut state = self.state();
        let Some(at) = state.shut.iter().position(|shut| &*shut.namespace == namespace) else { return };
        let opened = state.shut.remove(at);
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

    /// Whether a key that is held back waits for its own writes.
    pub(crate) fn is_parked(&self, key: &ObjectKey) -> bool {
        self.state().held.get(key).is_some_and(|held| held.parked)
    }

    /// Forgets the keys that are held back no more.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut state = self.state();
        state.held.retain(|_, held| held.parked || held.paced_until.is_some_and(|until| until > now));
        if state.held.len() * 4 < state.held.capacity() {
            state.held.shrink_to_fit();
        }
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
                state.held.insert(key.clone(), Held { parked: false, paced_until });
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
    fn shut_for(&mut self, key: &ObjectKey) -> Option<&mut Shut> {
        let namespace = key.namespace();
        self.shut.iter_mut().find(|shut| Some(&*shut.namespace) == namespace)
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("queue", &self.queue).finish_non_exhaustive()
    }
}

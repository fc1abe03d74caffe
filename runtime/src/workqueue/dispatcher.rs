//! The schedule and the workers that wait for it: which worker to wake after a change, and which one keeps the timer. Pure.

use std::collections::BTreeMap;
use std::task::Waker;

use super::clock::{At, TimeSource};
use super::entries::QueueKey;
use super::schedule::{Grant, Offer, Schedule};
use super::sync::wake;

/// What a worker does next.
#[derive(Debug)]
pub(super) enum WorkerStep<K> {
    Run(Grant<K>),
    /// Sleeps until this time, or until woken.
    Keep(At),
    /// Sleeps until woken.
    Park,
    Ended,
}

/// The workers to wake once the lock is released.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Wakes {
    one: Option<Waker>,
    all: BTreeMap<WaiterId, Waker>,
    /// Only dropped, but also outside the lock: the last waker of a task frees what the task holds.
    gone: Option<Waker>,
}

impl Wakes {
    #[inline]
    pub(super) fn wake(self) {
        drop(self.gone);
        if let Some(waker) = self.one {
            wake(waker);
        }
        self.all.into_values().for_each(wake);
    }
}

/// All that the lock guards.
pub(super) struct Dispatcher<K> {
    pub(super) schedule: Schedule<K>,
    waiters: Waiters,
    /// How many shutdowns were asked for. A drain gives up when it sees another one.
    pub(super) shutdowns: u64,
}

impl<K: QueueKey> Dispatcher<K> {
    pub(super) const fn new(schedule: Schedule<K>) -> Self {
        Self { schedule, waiters: Waiters::new(), shutdowns: 0 }
    }

    /// Takes a key for a worker, or adds the worker to those that wait.
    #[inline]
    pub(super) fn take(
        &mut self,
        waiter: &mut Option<WaiterId>,
        waker: &Waker,
        clock: &impl TimeSource,
    ) -> WorkerStep<K> {
        if let Some(id) = waiter.take() {
            self.waiters.leave(id);
        }
        match self.schedule.take(clock) {
            Offer::Run(grant) => WorkerStep::Run(grant),
            Offer::Ended => WorkerStep::Ended,
            Offer::Wait => match self.schedule.due() {
                until if until < self.waiters.kept_until() => {
                    *waiter = Some(self.waiters.keep(until, waker.clone()));
                    WorkerStep::Keep(until)
                }
                _ => {
                    *waiter = Some(self.waiters.park(waker.clone()));
                    WorkerStep::Park
                }
            },
        }
    }

    /// Removes a worker that stopped waiting. If it had been woken, [`Self::wakes`] wakes another one.
    pub(super) fn cancel(&mut self, waiter: WaiterId) {
        self.waiters.leave(waiter);
    }

    /// Returns which workers to wake after a change.
    #[inline]
    pub(super) fn wakes(&mut self) -> Wakes {
        let mut wakes = Wakes { gone: self.waiters.gone.take(), ..Wakes::default() };
        if self.waiters.is_empty() {
            return wakes;
        }
        if self.schedule.has_ended() {
            wakes.all = self.waiters.wake_all();
        } else {
            wakes.one = self.waiters.wake_for(self.schedule.due(), self.schedule.ready());
        }
        wakes
    }
}

/// The number of a worker that waits.
pub(super) type WaiterId = u64;

/// The workers that wait. One at most keeps a timer; the others sleep until woken.
struct Waiters {
    parked: BTreeMap<WaiterId, Waker>,
    keeper: Option<TimeKeeper>,
    /// How many were woken and have not come yet.
    woken: usize,
    /// The waker of a worker that left.
    gone: Option<Waker>,
    last_id: WaiterId,
}

/// The worker that also sleeps until a time: when the next key falls due.
struct TimeKeeper {
    id: WaiterId,
    until: At,
    waker: Waker,
}

impl Waiters {
    const fn new() -> Self {
        Self { parked: BTreeMap::new(), keeper: None, woken: 0, gone: None, last_id: 0 }
    }

    /// Returns whether no worker waits.
    fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.keeper.is_none()
    }

    /// Returns when the timer fires; never if no worker keeps one.
    fn kept_until(&self) -> At {
        self.keeper.as_ref().map_or(At::NEVER, |keeper| keeper.until)
    }

    /// Adds a worker that sleeps until woken.
    fn park(&mut self, waker: Waker) -> WaiterId {
        self.last_id += 1;
        self.parked.insert(self.last_id, waker);
        self.last_id
    }

    /// Adds a worker that keeps the timer, in place of one that kept a later one.
    fn keep(&mut self, until: At, waker: Waker) -> WaiterId {
        self.last_id += 1;
        let former = self.keeper.replace(TimeKeeper { id: self.last_id, until, waker });
        self.parked.extend(former.map(|former| (former.id, former.waker)));
        self.last_id
    }

    /// Removes a worker that came, or that gave up.
    fn leave(&mut self, id: WaiterId) {
        self.gone = match self.parked.remove(&id) {
            Some(waker) => Some(waker),
            None => self.keeper.take_if(|keeper| keeper.id == id).map(|keeper| keeper.waker),
        };
        self.woken -= usize::from(self.gone.is_none());
    }

    /// Picks the worker to wake, if any, when `ready` keys can be had from `due` on.
    ///
    /// As many workers are on their way as keys are ready. If no key can be had yet, one worker keeps the timer.
    fn wake_for(&mut self, due: At, ready: usize) -> Option<Waker> {
        match due {
            At::NEVER => None,
            At::START if self.woken < ready => self.wake_one(),
            At::START => None,
            // A worker that is on its way will look at the time.
            _ if self.woken > 0 || self.kept_until() <= due => None,
            _ if self.keeper.is_some() => self.wake_keeper(),
            _ => self.wake_one(),
        }
    }

    /// Wakes all, as there will be no more keys.
    fn wake_all(&mut self) -> BTreeMap<WaiterId, Waker> {
        let mut all = std::mem::take(&mut self.parked);
        all.extend(self.keeper.take().map(|keeper| (keeper.id, keeper.waker)));
        self.woken += all.len();
        all
    }

    /// Wakes the one that came last (its memory is warm). The timekeeper is woken only if it is alone.
    fn wake_one(&mut self) -> Option<Waker> {
        match self.parked.pop_last() {
            Some((_, waker)) => {
                self.woken += 1;
                Some(waker)
            }
            None => self.wake_keeper(),
        }
    }

    fn wake_keeper(&mut self) -> Option<Waker> {
        let keeper = self.keeper.take()?;
        self.woken += 1;
        Some(keeper.waker)
    }
}

//! State and waiters together: after each change, whom to wake. Pure, under one lock.

use std::task::Waker;

use super::clock::{At, Clock};
use super::entry::QueueKey;
use super::slab::{Id, Slab};
use super::state::{Grant, Next, State};
use super::sync::wake;
use super::waiters::Waiters;

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

/// Whether a drain is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainStep {
    Drained,
    Aborted,
    Wait,
}

/// Those to wake once the lock is released.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Wakes {
    one: Option<Waker>,
    all: Vec<Waker>,
    /// Only dropped, but outside the lock as well: with the last waker of a task goes what the task holds.
    gone: Option<Waker>,
}

impl Wakes {
    #[inline]
    pub(super) fn wake(self) {
        let Self { one, all, gone } = self;
        drop(gone);
        if let Some(waker) = one {
            wake(waker);
        }
        for waker in all {
            wake(waker);
        }
    }
}

/// All that the lock guards.
pub(super) struct Dispatcher<K> {
    pub(super) state: State<K>,
    waiters: Waiters,
    drainers: Slab<Waker>,
    /// Shutdowns asked for: a drain that sees another one gives up.
    shutdowns: u64,
}

impl<K: QueueKey> Dispatcher<K> {
    pub(super) const fn new(state: State<K>) -> Self {
        Self { state, waiters: Waiters::new(), drainers: Slab::new(), shutdowns: 0 }
    }

    /// Changes the state, and tells whom to wake for it.
    #[inline]
    pub(super) fn change(&mut self, change: impl FnOnce(&mut State<K>)) -> Wakes {
        change(&mut self.state);
        self.wakes()
    }

    /// Takes a key for a worker, or enters it among those that wait.
    #[inline]
    pub(super) fn take(
        &mut self,
        ticket: &mut Option<Id>,
        waker: &Waker,
        clock: &impl Clock,
    ) -> (WorkerStep<K>, Wakes) {
        let gone = ticket.take().map(|id| self.waiters.leave(id));
        let turn = match self.state.take(clock) {
            Next::Run(grant) => WorkerStep::Run(grant),
            Next::Ended => WorkerStep::Ended,
            Next::Wait => match self.state.due() {
                until if until < self.waiters.kept_until() => {
                    *ticket = Some(self.waiters.keep(until, waker.clone()));
                    WorkerStep::Keep(until)
                }
                _ => {
                    *ticket = Some(self.waiters.park(waker.clone()));
                    WorkerStep::Park
                }
            },
        };
        (turn, Wakes { gone, ..self.wakes() })
    }

    /// Strikes off a worker that stopped waiting; what it was woken for goes to another.
    pub(super) fn cancel(&mut self, ticket: Id) -> Wakes {
        let gone = Some(self.waiters.leave(ticket));
        Wakes { gone, ..self.wakes() }
    }

    /// Shuts down one way or another. A drain under way is aborted.
    pub(super) fn shut_down(&mut self, shut_down: impl FnOnce(&mut State<K>)) -> Wakes {
        self.shutdowns += 1;
        let mut wakes = self.change(shut_down);
        self.wake_drainers(&mut wakes);
        wakes
    }

    /// Begins a drain; answers the number of the shutdown it belongs to.
    pub(super) fn begin_drain(&mut self, clock: &impl Clock) -> (u64, Wakes) {
        let wakes = self.change(|state| state.shut_down(clock));
        (self.shutdowns, wakes)
    }

    pub(super) fn poll_drain(
        &mut self,
        begun: u64,
        ticket: &mut Option<Id>,
        waker: &Waker,
    ) -> (DrainStep, Wakes) {
        let wakes = self.cancel_drain(ticket);
        let turn = if self.state.drained() {
            DrainStep::Drained
        } else if self.shutdowns != begun {
            DrainStep::Aborted
        } else {
            *ticket = Some(self.drainers.insert(waker.clone()));
            DrainStep::Wait
        };
        (turn, wakes)
    }

    pub(super) fn cancel_drain(&mut self, ticket: &mut Option<Id>) -> Wakes {
        Wakes { gone: ticket.take().map(|id| self.drainers.remove(id)), ..Wakes::default() }
    }

    #[inline]
    fn wakes(&mut self) -> Wakes {
        if self.waiters.is_empty() && self.drainers.len() == 0 {
            return Wakes::default();
        }
        self.pick_wakes()
    }

    fn pick_wakes(&mut self) -> Wakes {
        let mut wakes = Wakes::default();
        if self.state.ended() {
            wakes.all = self.waiters.wake_all();
        } else {
            wakes.one = self.waiters.wake_for(self.state.due(), self.state.ready());
        }
        if self.state.drained() {
            self.wake_drainers(&mut wakes);
        }
        wakes
    }

    fn wake_drainers(&self, wakes: &mut Wakes) {
        wakes.all.extend(self.drainers.ids().map(|id| self.drainers[id].clone()));
    }
}

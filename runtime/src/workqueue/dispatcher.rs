//! State and waiting workers together: after each change, which worker to wake, and which one keeps the timer. Pure, under one lock.

use std::task::Waker;

use super::clock::{At, Clock};
use super::entries::QueueKey;
use super::inbox::Takes;
use super::slab::{Id, Linked, Links, List, Slab};
use super::state::{Next, State, Turn};
use super::sync::wake;

/// What a worker does next.
#[derive(Debug)]
pub(super) enum WorkerStep {
    Run(Turn),
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
    pub(super) fn and(mut self, Self { one, all, gone }: Self) -> Self {
        self.all.extend(one.into_iter().chain(all));
        self.gone = self.gone.or(gone);
        self
    }

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

/// From so many ready keys on, one more can wait until the lock is taken for something else.
const LONG_LINE: usize = 4096;

/// All that the lock guards.
pub(super) struct Dispatcher<K> {
    pub(super) state: State<K>,
    waiters: Waiters,
    drainers: Slab<Waker>,
    /// What the inbox was told to take.
    pub(super) told: Takes,
    /// Shutdowns asked for: a drain that sees another one gives up.
    shutdowns: u64,
}

impl<K: QueueKey> Dispatcher<K> {
    pub(super) const fn new(state: State<K>) -> Self {
        Self { state, waiters: Waiters::new(), drainers: Slab::new(), told: Takes::Nothing, shutdowns: 0 }
    }

    /// Returns what may be left in the inbox: keys, behind a long line, while nobody has to be woken for them.
    #[inline]
    pub(super) fn takes(&self) -> Takes {
        let is_long = cfg!(test) || self.state.ready() >= LONG_LINE;
        if !is_long || !self.waiters.is_empty() || self.state.is_shut_down() {
            return Takes::Nothing;
        }
        if self.state.asks_for_time() { Takes::KeysAndTimes } else { Takes::Keys }
    }

    /// Whether nobody waits, and the inbox knows what it may take: an operation that ends so wakes nobody.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.waiters.is_empty() && self.drainers.len() == 0 && self.takes() == self.told
    }

    /// Changes the state, and returns which wakers to call for it.
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
    ) -> (WorkerStep, Wakes) {
        let gone = ticket.take().map(|id| self.waiters.leave(id));
        let turn = match self.state.take(clock) {
            Next::Run(turn) => WorkerStep::Run(turn),
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

    /// Removes a worker that stopped waiting; what it was woken for goes to another.
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

    /// Returns which wakers to call after a change.
    #[inline]
    pub(super) fn wakes(&mut self) -> Wakes {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Parked,
    /// Also has a timer, for the next thing that falls due by itself.
    Keeping,
    /// Was woken and has not come yet.
    Woken,
}

#[derive(Debug)]
struct Waiter {
    waker: Waker,
    stage: Stage,
    links: Links,
}

impl Linked for Waiter {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The workers that wait. One at most keeps a timer; the others sleep until woken.
pub(super) struct Waiters {
    slab: Slab<Waiter>,
    parked: List,
    keeper: Option<(Id, At)>,
    woken: usize,
}

impl Waiters {
    pub(super) const fn new() -> Self {
        Self { slab: Slab::new(), parked: List::new(), keeper: None, woken: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// Returns when the timer fires; never if nobody keeps one.
    pub(super) fn kept_until(&self) -> At {
        self.keeper.map_or(At::NEVER, |(_, until)| until)
    }

    /// Enters a worker that sleeps until woken.
    pub(super) fn park(&mut self, waker: Waker) -> Id {
        let id = self.slab.insert(Waiter { waker, stage: Stage::Parked, links: Links::ALONE });
        self.parked.push_back(&mut self.slab, id);
        id
    }

    /// Enters a worker that keeps the timer, in place of whoever kept a later one.
    pub(super) fn keep(&mut self, until: At, waker: Waker) -> Id {
        if let Some((former, _)) = self.keeper.take() {
            self.slab[former].stage = Stage::Parked;
            self.parked.push_back(&mut self.slab, former);
        }
        let id = self.slab.insert(Waiter { waker, stage: Stage::Keeping, links: Links::ALONE });
        self.keeper = Some((id, until));
        id
    }

    /// Removes a worker: it came, or went away. Its waker is for the caller to drop, outside the lock.
    pub(super) fn leave(&mut self, id: Id) -> Waker {
        match self.slab[id].stage {
            Stage::Parked => self.parked.remove(&mut self.slab, id),
            Stage::Keeping => self.keeper = None,
            Stage::Woken => self.woken -= 1,
        }
        self.slab.remove(id).waker
    }

    /// Picks whom to wake, if anybody, when `ready` keys can be had from `due` on.
    ///
    /// As many workers are under way as keys are ready; if none can be had yet, one worker keeps the time.
    pub(super) fn wake_for(&mut self, due: At, ready: usize) -> Option<Waker> {
        match due {
            At::NEVER => None,
            At::START => {
                if self.woken < ready {
                    self.wake_one()
                } else {
                    None
                }
            }
            // whoever is under way will look at the time
            _ if self.woken > 0 || self.kept_until() <= due => None,
            _ if self.keeper.is_some() => self.wake_keeper(),
            _ => self.wake_one(),
        }
    }

    /// Wakes all, as there is nothing to wait for any more.
    pub(super) fn wake_all(&mut self) -> Vec<Waker> {
        std::iter::from_fn(|| self.wake_one()).collect()
    }

    /// Wakes the one that came last (its memory is warm); the keeper only if there is nobody else.
    fn wake_one(&mut self) -> Option<Waker> {
        match self.parked.pop_back(&mut self.slab) {
            Some(id) => Some(self.wake(id)),
            None => self.wake_keeper(),
        }
    }

    fn wake_keeper(&mut self) -> Option<Waker> {
        self.keeper.take().map(|(id, _)| self.wake(id))
    }

    fn wake(&mut self, id: Id) -> Waker {
        self.woken += 1;
        self.slab[id].stage = Stage::Woken;
        self.slab[id].waker.clone()
    }
}

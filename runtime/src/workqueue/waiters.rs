//! Workers that wait: who is woken, and who keeps the timer.

use std::task::Waker;

use super::clock::At;
use super::list::{Linked, Links, List};
use super::slab::{Id, Slab};

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

    /// Tells when the timer fires; never if nobody keeps one.
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

    /// Strikes a worker off: it came, or went away. Its waker is for the caller to drop, outside the lock.
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

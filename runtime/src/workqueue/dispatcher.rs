//! The schedule and the workers that wait for it: which worker to wake after a change, and which one keeps the timer. Pure.

use std::collections::BTreeMap;
use std::task::Waker;

use super::clock::{At, TimeSource};
use super::entries::QueueKey;
use super::schedule::{Offer, Schedule};

/// The number of a worker that waits.
pub(super) type WaiterId = u64;

/// All that the lock guards.
pub(super) struct Dispatcher<K> {
    pub(super) schedule: Schedule<K>,
    /// The workers that sleep, in the order in which they came.
    parked: BTreeMap<WaiterId, Waker>,
    /// The one of them that also sleeps until a time: when the next key falls due.
    keeper: Option<(WaiterId, At)>,
    /// How many were woken and have not come yet.
    woken: usize,
    last_id: WaiterId,
    /// How many shutdowns were asked for. A drain gives up when it sees another one.
    pub(super) shutdowns: u64,
}

impl<K: QueueKey> Dispatcher<K> {
    pub(super) const fn new(schedule: Schedule<K>) -> Self {
        Self { schedule, parked: BTreeMap::new(), keeper: None, woken: 0, last_id: 0, shutdowns: 0 }
    }

    /// Takes a key for a worker, or adds the worker to those that sleep until woken.
    ///
    /// The time of [`Offer::Wait`] is for this worker: never unless it keeps the timer.
    #[inline]
    pub(super) fn take(
        &mut self,
        waiter: &mut Option<WaiterId>,
        waker: &Waker,
        clock: &impl TimeSource,
    ) -> Offer<K> {
        let offer = self.schedule.take(clock, 1 + self.parked.len() + self.woken);
        let Offer::Wait(until) = offer else { return offer };
        self.last_id += 1;
        *waiter = Some(self.last_id);
        self.parked.insert(self.last_id, waker.clone());
        if until >= self.kept_until() {
            return Offer::Wait(At::NEVER);
        }
        self.keeper = Some((self.last_id, until));
        Offer::Wait(until)
    }

    /// Removes a worker that came, or that gave up. If it was woken, [`Self::wakes`] may wake another one.
    ///
    /// The waker is to be dropped outside the lock: the last one of a task frees what the task holds.
    #[inline]
    pub(super) fn leave(&mut self, waiter: Option<WaiterId>) -> Option<Waker> {
        let id = waiter?;
        self.keeper.take_if(|(keeper, _)| *keeper == id);
        let parked = self.parked.remove(&id);
        self.woken -= usize::from(parked.is_none());
        parked
    }

    /// Returns when the timer fires; never if no worker keeps one.
    fn kept_until(&self) -> At {
        self.keeper.map_or(At::NEVER, |(_, until)| until)
    }

    /// Returns the worker to wake after a change, if any: the one that came last, as its memory is warm.
    ///
    /// As many workers are on their way as keys are ready. If no key can be had yet, one worker keeps the timer. Once
    /// there will be no more keys, each worker that comes wakes the next one.
    #[inline]
    pub(super) fn wakes(&mut self) -> Option<Waker> {
        if self.parked.is_empty() {
            return None;
        }
        let wanted = match self.schedule.due() {
            _ if self.schedule.has_ended() => usize::MAX,
            At::NEVER => 0,
            At::START => self.schedule.ready(),
            // A worker that is on its way will look at the time.
            due => usize::from(due < self.kept_until()),
        };
        if self.woken >= wanted {
            return None;
        }
        let (id, waker) = self.parked.pop_last()?;
        self.keeper.take_if(|(keeper, _)| *keeper == id);
        self.woken += 1;
        Some(waker)
    }
}

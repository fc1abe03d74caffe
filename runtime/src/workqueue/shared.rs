//! The lock, the clock, and what is done with both.

use super::clock::{Clock, Epoch, Moment};
use super::entry::QueueKey;
use super::handout::{Handout, Wakes};
use super::state::State;
use super::sync::{Mutex, lock};
use crate::metrics::{QueueReport, QueueSource};

/// What all handles of one queue share.
pub(super) struct Shared<K> {
    pub(super) epoch: Epoch,
    handout: Mutex<Handout<K>>,
}

impl<K: QueueKey> Shared<K> {
    pub(super) fn new(state: State<K>) -> Self {
        Self { epoch: Epoch::starting_now(), handout: Mutex::new(Handout::new(state)) }
    }

    /// Changes the state, and wakes whom that concerns.
    #[inline]
    pub(super) fn change(&self, change: impl FnOnce(&mut State<K>, &Moment)) {
        self.with(|handout, moment| ((), handout.change(|state| change(state, moment))));
    }

    /// Does something under the lock, at one moment, and wakes once it is released.
    #[inline]
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Handout<K>, &Moment) -> (T, Wakes)) -> T {
        let (answer, wakes) = f(&mut lock(&self.handout), &Moment::of(self.epoch));
        wakes.wake();
        answer
    }

    pub(super) fn read<T>(&self, f: impl FnOnce(&State<K>) -> T) -> T {
        f(&lock(&self.handout).state)
    }
}

impl<K: QueueKey> QueueSource for Shared<K> {
    fn report(&self) -> QueueReport {
        self.with(|handout, clock| {
            let now = clock.now();
            let wakes = handout.change(|state| state.promote(&now));
            (handout.state.report(now), wakes)
        })
    }
}

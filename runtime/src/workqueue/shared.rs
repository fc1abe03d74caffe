//! The lock, the clock, and what is done with both.

use super::clock::{Clock, ClockOrigin, LazyNow};
use super::dispatcher::{Dispatcher, Wakes};
use super::entry::QueueKey;
use super::state::State;
use super::sync::{Mutex, lock};
use crate::metrics::{QueueReport, QueueSource};

/// What all handles of one queue share.
pub(super) struct Shared<K> {
    pub(super) origin: ClockOrigin,
    dispatcher: Mutex<Dispatcher<K>>,
}

impl<K: QueueKey> Shared<K> {
    pub(super) fn new(state: State<K>) -> Self {
        Self { origin: ClockOrigin::starting_now(), dispatcher: Mutex::new(Dispatcher::new(state)) }
    }

    /// Changes the state, and wakes whom that concerns.
    #[inline]
    pub(super) fn change(&self, change: impl FnOnce(&mut State<K>, &LazyNow)) {
        self.with(|dispatcher, moment| ((), dispatcher.change(|state| change(state, moment))));
    }

    /// Does something under the lock, at one moment, and wakes once it is released.
    #[inline]
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Dispatcher<K>, &LazyNow) -> (T, Wakes)) -> T {
        let (answer, wakes) = f(&mut lock(&self.dispatcher), &LazyNow::of(self.origin));
        wakes.wake();
        answer
    }

    pub(super) fn read<T>(&self, f: impl FnOnce(&State<K>) -> T) -> T {
        f(&lock(&self.dispatcher).state)
    }
}

impl<K: QueueKey> QueueSource for Shared<K> {
    fn report(&self) -> QueueReport {
        self.with(|dispatcher, clock| {
            let now = clock.now();
            let wakes = dispatcher.change(|state| state.promote(&now));
            (dispatcher.state.report(now), wakes)
        })
    }
}

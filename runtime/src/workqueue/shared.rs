//! The lock around the dispatcher, and what waits for it. Any of these waits may be dropped at any time.

use tokio::sync::Notify;

use super::clock::{ClockOrigin, TimeSource};
use super::dispatcher::Dispatcher;
use super::entries::QueueKey;
use super::inspect;
use super::rate_limit::Tokens;
use super::schedule::Schedule;
use super::sync::{Mutex, lock, wake};
use crate::metrics::{QueueReport, QueueSource};

/// What all handles of one queue share.
pub(super) struct SharedQueue<K> {
    pub(super) origin: ClockOrigin,
    dispatcher: Mutex<Dispatcher<K>>,
    /// Something happened that may end a drain.
    pub(super) drain_changed: Notify,
    /// Whose turn it is among the runs that wait for a token: first come, first served.
    pub(super) claims: tokio::sync::Mutex<()>,
    /// Something happened to the rate that may let the first of them go on.
    pub(super) rate_changed: Notify,
}

impl<K: QueueKey> SharedQueue<K> {
    pub(super) fn new(schedule: Schedule<K>) -> Self {
        Self {
            origin: ClockOrigin::starting_now(),
            dispatcher: Mutex::new(Dispatcher::new(schedule)),
            drain_changed: Notify::new(),
            claims: tokio::sync::Mutex::default(),
            rate_changed: Notify::new(),
        }
    }

    /// Reads the schedule.
    pub(super) fn read<T>(&self, f: impl FnOnce(&Schedule<K>) -> T) -> T {
        f(&lock(&self.dispatcher).schedule)
    }

    /// Shuts down one way or another. A drain under way is aborted.
    pub(super) fn shut_down(&self, shut_down: impl FnOnce(&mut Schedule<K>, &ClockOrigin)) {
        self.change(|queue, clock| {
            queue.shutdowns += 1;
            shut_down(&mut queue.schedule, clock);
        });
        self.drain_changed.notify_waiters();
    }

    /// Changes the queue under its lock, and wakes a worker that can go on once that is released.
    #[inline]
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Dispatcher<K>, &ClockOrigin) -> T) -> T {
        let mut dispatcher = lock(&self.dispatcher);
        let answer = change(&mut dispatcher, &self.origin);
        let woken = dispatcher.wakes();
        let is_drained = dispatcher.schedule.is_drained();
        drop(dispatcher);
        if let Some(waker) = woken {
            wake(waker);
        }
        if is_drained {
            self.drain_changed.notify_waiters();
        }
        answer
    }

    /// Changes what is set aside, paid and claimed of the rate, and wakes the first run that waits for a token.
    pub(super) fn change_rate(&self, change: impl FnOnce(&mut Tokens, &ClockOrigin)) {
        self.change(|queue, clock| {
            if let Some(rate) = &mut queue.schedule.rate {
                change(rate, clock);
            }
        });
        self.rate_changed.notify_one();
    }
}

impl<K: QueueKey> QueueSource for SharedQueue<K> {
    fn report(&self) -> QueueReport {
        self.change(|queue, clock| {
            let now = clock.now();
            queue.schedule.promote(&now);
            inspect::report(&queue.schedule, now)
        })
    }
}

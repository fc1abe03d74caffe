//! The lock around the dispatcher, and what waits for it. Any of these waits may be dropped at any time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::{Sleep, sleep_until};

use super::clock::{At, ClockOrigin, TimeSource};
use super::dispatcher::{Dispatcher, WaiterId};
use super::entries::QueueKey;
use super::inspect;
use super::rate_limit::Tokens;
use super::schedule::{Grant, Offer, Schedule};
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

    /// Changes the schedule, and wakes the workers that can go on.
    #[inline]
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Schedule<K>, &ClockOrigin) -> T) -> T {
        self.with(|dispatcher, clock| change(&mut dispatcher.schedule, clock))
    }

    /// Shuts down one way or another. A drain under way is aborted.
    pub(super) fn shut_down(&self, shut_down: impl FnOnce(&mut Schedule<K>, &ClockOrigin)) {
        self.with(|dispatcher, clock| {
            dispatcher.shutdowns += 1;
            shut_down(&mut dispatcher.schedule, clock);
        });
        self.drain_changed.notify_waiters();
    }

    /// Does something under the lock, and wakes a worker once it is released.
    #[inline]
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Dispatcher<K>, &ClockOrigin) -> T) -> T {
        let mut dispatcher = lock(&self.dispatcher);
        let answer = f(&mut dispatcher, &self.origin);
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

    /// Waits for the next key; `None` once there will be no more.
    pub(super) async fn get(&self) -> Option<Grant<K>> {
        // A queue that is never empty must leave other tasks their turn.
        consume_budget().await;
        let mut worker = WaitingWorker { shared: self, waiter: None };
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            loop {
                let waiter = &mut worker.waiter;
                let (offer, _former) = self.with(|dispatcher, clock| {
                    let former = dispatcher.leave(waiter.take());
                    (dispatcher.take(waiter, cx.waker(), clock), former)
                });
                match offer {
                    Offer::Run(grant) => return Poll::Ready(Some(grant)),
                    Offer::Ended => return Poll::Ready(None),
                    Offer::Wait(At::NEVER) => return Poll::Pending,
                    Offer::Wait(until) => {
                        let sleep = timer.insert(Box::pin(sleep_until(self.origin.instant(until))));
                        if sleep.as_mut().poll(cx).is_pending() {
                            return Poll::Pending;
                        }
                    }
                }
            }
        })
        .await
    }

    /// Changes what is set aside, paid and claimed of the rate, and wakes the first run that waits for a token.
    pub(super) fn change_rate(&self, change: impl FnOnce(&mut Tokens, &ClockOrigin)) {
        self.change(|schedule, clock| {
            if let Some(rate) = schedule.rate_mut() {
                change(rate, clock);
            }
        });
        self.rate_changed.notify_one();
    }
}

impl<K: QueueKey> QueueSource for SharedQueue<K> {
    fn report(&self) -> QueueReport {
        self.change(|schedule, clock| {
            let now = clock.now();
            schedule.promote(&now);
            inspect::report(schedule, now)
        })
    }
}

/// A worker that waits for its next key. If it is dropped after it was woken, another worker is woken.
struct WaitingWorker<'a, K: QueueKey> {
    shared: &'a SharedQueue<K>,
    waiter: Option<WaiterId>,
}

impl<K: QueueKey> Drop for WaitingWorker<'_, K> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            drop(self.shared.with(|dispatcher, _| dispatcher.leave(Some(waiter))));
        }
    }
}

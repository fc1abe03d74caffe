//! The lock around the dispatcher, and what waits for it. Any of these waits may be dropped at any time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::{Sleep, sleep_until};

use super::clock::{At, ClockOrigin, TimeSource};
use super::dispatcher::{Dispatcher, WaiterId, WorkerStep};
use super::entries::QueueKey;
use super::inspect;
use super::rate_limit::Tokens;
use super::schedule::{Grant, Schedule};
use super::sync::{Mutex, lock};
use crate::metrics::{QueueReport, QueueSource};

/// What all handles of one queue share.
pub(super) struct SharedQueue<K> {
    pub(super) origin: ClockOrigin,
    dispatcher: Mutex<Dispatcher<K>>,
    /// Something happened that may end a drain.
    drain_changed: Notify,
    /// Whose turn it is among the runs that wait for a token: first come, first served.
    claims: tokio::sync::Mutex<()>,
    /// Something happened to the rate that may let the first of them go on.
    rate_changed: Notify,
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

    /// Does something under the lock, and wakes workers once it is released.
    #[inline]
    fn with<T>(&self, f: impl FnOnce(&mut Dispatcher<K>, &ClockOrigin) -> T) -> T {
        let mut dispatcher = lock(&self.dispatcher);
        let answer = f(&mut dispatcher, &self.origin);
        let wakes = dispatcher.wakes();
        let is_drained = dispatcher.schedule.is_drained();
        drop(dispatcher);
        wakes.wake();
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
                match self.with(|dispatcher, clock| dispatcher.take(waiter, cx.waker(), clock)) {
                    WorkerStep::Run(grant) => return Poll::Ready(Some(grant)),
                    WorkerStep::Ended => return Poll::Ready(None),
                    WorkerStep::Park => {
                        timer = None;
                        return Poll::Pending;
                    }
                    WorkerStep::Keep(until) => {
                        let deadline = self.origin.instant(until);
                        let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                        if sleep.deadline() != deadline {
                            sleep.as_mut().reset(deadline);
                        }
                        if sleep.as_mut().poll(cx).is_pending() {
                            return Poll::Pending;
                        }
                        timer = None;
                    }
                }
            }
        })
        .await
    }

    /// Shuts down, and waits until all that was accepted is done.
    pub(super) async fn drain(&self) -> Drained {
        let begun = self.with(|dispatcher, clock| {
            dispatcher.schedule.shut_down(clock);
            dispatcher.shutdowns
        });
        loop {
            // Made before the look, so that no change after it is missed.
            let changed = self.drain_changed.notified();
            let (is_drained, shutdowns) =
                self.with(|dispatcher, _| (dispatcher.schedule.is_drained(), dispatcher.shutdowns));
            if is_drained {
                return Drained::Clean;
            }
            if shutdowns != begun {
                return Drained::Aborted;
            }
            changed.await;
        }
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

    /// Waits for a token, before all keys that wait in line; `None` once the queue hands out nothing any more.
    pub(super) async fn claim(&self) -> Option<Waited> {
        let claim = Claim::begin(self);
        let (_turn, mut waited) = match self.claims.try_lock() {
            Ok(turn) => (turn, Waited::No),
            Err(_) => (self.claims.lock().await, Waited::Yes),
        };
        loop {
            match self.change(|schedule, clock| schedule.grant_claim(clock.now()))? {
                Ok(()) => {
                    claim.met();
                    return Some(waited);
                }
                Err(At::NEVER) => self.rate_changed.notified().await,
                Err(opens) => tokio::select! {
                    () = sleep_until(self.origin.instant(opens)) => {}
                    () = self.rate_changed.notified() => {}
                },
            }
            waited = Waited::Yes;
        }
    }

    /// Wakes the first run that waits for a token, as the queue was shut down.
    pub(super) fn end_claims(&self) {
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
        if let Some(waiter) = self.waiter.take() {
            self.shared.with(|dispatcher, _| dispatcher.cancel(waiter));
        }
    }
}

/// A run that waits for a token. If it is dropped, it claims the token no longer.
struct Claim<'a, K: QueueKey>(Option<&'a SharedQueue<K>>);

impl<'a, K: QueueKey> Claim<'a, K> {
    fn begin(shared: &'a SharedQueue<K>) -> Self {
        shared.change_rate(|rate, _| rate.claim());
        Self(Some(shared))
    }

    fn met(mut self) {
        self.0 = None;
    }
}

impl<K: QueueKey> Drop for Claim<'_, K> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.change_rate(|rate, _| rate.waive());
        }
    }
}

/// Whether something took a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    No,
    Yes,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// No key is queued and none is in flight.
    Clean,
    /// A second shutdown came first.
    Aborted,
}

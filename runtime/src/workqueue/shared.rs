//! The lock around the dispatcher, and the futures that wait on it; these may be dropped at any time.

use std::pin::Pin;
use std::sync::MutexGuard;
use std::task::{Context, Poll, ready};

use tokio::sync::Notify;

use super::clock::{At, Clock, ClockOrigin, LazyNow};
use super::dispatcher::{Dispatcher, DrainStep, Wakes, WorkerStep};
use super::entries::QueueKey;
use super::inbox::{Inbox, Left};
use super::rate_limit::Bucket;
use super::slab::Id;
use super::state::{Grant, Next, State};
use super::sync::{Mutex, Sleep, lock, poll_proceed, sleep_until};
use super::types::Priority;
use crate::metrics::{QueueReport, QueueSource};

/// What all handles of one queue share.
pub(super) struct Shared<K> {
    pub(super) origin: ClockOrigin,
    dispatcher: Mutex<Dispatcher<K>>,
    inbox: Inbox<K>,
    /// Whose turn it is of the runs that wait for a token: first come, first served.
    claims: tokio::sync::Mutex<()>,
    /// Something happened to the rate that may let the first of them go on.
    rate_changed: Notify,
}

impl<K: QueueKey> Shared<K> {
    pub(super) fn new(state: State<K>) -> Self {
        let dispatcher = Mutex::new(Dispatcher::new(state));
        Self {
            origin: ClockOrigin::starting_now(),
            dispatcher,
            inbox: Inbox::new(),
            claims: tokio::sync::Mutex::default(),
            rate_changed: Notify::new(),
        }
    }

    /// Changes what is set aside, paid and claimed of the rate, and lets go on who waits for it.
    pub(super) fn change_rate(&self, change: impl FnOnce(&mut Bucket, &LazyNow)) {
        self.change(|state, clock| {
            if let Some(rate) = state.rate_mut() {
                change(rate, clock);
            }
        });
        self.rate_changed.notify_one();
    }

    /// Waits for a token, before all keys that wait in line; `None` once the queue hands out nothing any more.
    ///
    /// Returns whether it took a wait.
    pub(super) async fn claim(&self) -> Option<Waited> {
        let claim = Claim::begin(self);
        let (_turn, mut waited) = match self.claims.try_lock() {
            Ok(turn) => (turn, Waited::No),
            Err(_) => (self.claims.lock().await, Waited::Yes),
        };
        loop {
            let now = self.origin.now();
            let granted = self.with(|dispatcher, _| {
                let granted = dispatcher.state.grant_claim(now);
                (granted, dispatcher.wakes())
            });
            match granted? {
                Ok(()) => {
                    claim.met();
                    return Some(waited);
                }
                Err(At::NEVER) => self.rate_changed.notified().await,
                Err(opens) => {
                    let opened = sleep_until(self.origin.instant(opens));
                    tokio::select! {
                        () = opened => {}
                        () = self.rate_changed.notified() => {}
                    }
                }
            }
            waited = Waited::Yes;
        }
    }

    /// Lets go on who waits for a token, as the queue was shut down.
    pub(super) fn end_claims(&self) {
        self.rate_changed.notify_one();
    }

    /// Adds a key, or leaves it to whoever takes the lock next.
    #[inline]
    pub(super) fn add(&self, key: K, priority: Priority) {
        if let Err(key) = self.inbox.leave(key, priority, self.origin) {
            self.change(|state, clock| state.add(key, priority, clock));
        }
    }

    /// Changes the state, and wakes the workers that can go on.
    #[inline]
    pub(super) fn change(&self, change: impl FnOnce(&mut State<K>, &LazyNow)) {
        self.change_at(&LazyNow::of(self.origin), change);
    }

    /// Does so at a moment.
    #[inline]
    pub(super) fn change_at(&self, now: &LazyNow, change: impl FnOnce(&mut State<K>, &LazyNow)) {
        let wakes = {
            let mut dispatcher = self.lock();
            change(&mut dispatcher.state, now);
            if dispatcher.is_quiet() {
                return;
            }
            let late = self.tell_inbox(&mut dispatcher);
            dispatcher.wakes().and(late)
        };
        wakes.wake();
    }

    /// Does something under the lock, at one moment, and wakes once it is released.
    #[inline]
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Dispatcher<K>, &LazyNow) -> (T, Wakes)) -> T {
        self.locked(|dispatcher| f(dispatcher, &LazyNow::of(self.origin)))
    }

    pub(super) fn read<T>(&self, f: impl FnOnce(&State<K>) -> T) -> T {
        self.locked(|dispatcher| (f(&dispatcher.state), Wakes::default()))
    }

    /// Takes the lock and adds what was left; afterwards tells the inbox what it may take, and wakes.
    fn locked<T>(&self, f: impl FnOnce(&mut Dispatcher<K>) -> (T, Wakes)) -> T {
        let (answer, wakes) = {
            let mut dispatcher = self.lock();
            let (answer, wakes) = f(&mut dispatcher);
            let late = self.tell_inbox(&mut dispatcher);
            (answer, wakes.and(late))
        };
        wakes.wake();
        answer
    }

    /// Hands out a key at once, if one is ready and nobody else is concerned: the short way of most calls.
    #[inline]
    fn take_quietly(&self) -> Option<Grant<K>> {
        let mut dispatcher = self.lock();
        if !dispatcher.is_quiet() || dispatcher.state.ready() == 0 {
            return None;
        }
        let clock = LazyNow::of(self.origin);
        let Next::Run(turn) = dispatcher.state.take(&clock) else { return None };
        if !dispatcher.is_quiet() {
            let wakes = self.tell_inbox(&mut dispatcher);
            let grant = dispatcher.state.grant(turn);
            drop(dispatcher);
            wakes.wake();
            return Some(grant);
        }
        Some(dispatcher.state.grant(turn))
    }

    /// Takes the lock, and adds what was left.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Dispatcher<K>> {
        let mut dispatcher = lock(&self.dispatcher);
        if self.inbox.is_filled() {
            self.add_left(&mut dispatcher.state, self.inbox.take());
        }
        dispatcher
    }

    /// Tells the inbox what it may take. What was left meanwhile may be what a worker now waits for.
    fn tell_inbox(&self, dispatcher: &mut Dispatcher<K>) -> Wakes {
        let mut late = false;
        while dispatcher.takes() != dispatcher.told {
            dispatcher.told = dispatcher.takes();
            let left = self.inbox.accept(dispatcher.told);
            late |= !left.is_empty();
            self.add_left(&mut dispatcher.state, left);
        }
        if late { dispatcher.wakes() } else { Wakes::default() }
    }

    /// Adds keys that were left, each at its time.
    fn add_left(&self, state: &mut State<K>, left: Vec<Left<K>>) {
        for left in left {
            let clock = LazyNow::known(self.origin, left.at());
            state.add(left.key, left.priority, &clock);
        }
    }
}

/// Whether something took a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    No,
    Yes,
}

/// One who waits for a token; dropped, it waits no more.
struct Claim<'a, K: QueueKey>(Option<&'a Shared<K>>);

impl<'a, K: QueueKey> Claim<'a, K> {
    fn begin(shared: &'a Shared<K>) -> Self {
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

impl<K: QueueKey> QueueSource for Shared<K> {
    fn report(&self) -> QueueReport {
        self.with(|dispatcher, clock| {
            let now = clock.now();
            let wakes = dispatcher.change(|state| state.promote(&now));
            (dispatcher.state.report(now), wakes)
        })
    }
}

/// A worker's wait for its next key. Dropped, it passes on what it was woken for.
pub(super) struct Get<'a, K: QueueKey> {
    shared: &'a Shared<K>,
    ticket: Option<Id>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<'a, K: QueueKey> Get<'a, K> {
    pub(super) const fn new(shared: &'a Shared<K>) -> Self {
        Self { shared, ticket: None, sleep: None }
    }

    fn poll_sleep(&mut self, until: At, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.shared.origin.instant(until);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx)
    }
}

impl<K: QueueKey> Future for Get<'_, K> {
    type Output = Option<Grant<K>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // a queue that is never empty must leave other tasks their turn
        let turns = ready!(poll_proceed(cx));
        if self.ticket.is_none()
            && let Some(grant) = self.shared.take_quietly()
        {
            turns.made_progress();
            return Poll::Ready(Some(grant));
        }
        loop {
            let this = &mut *self;
            let mut granted = None;
            let step = this.shared.with(|dispatcher, clock| {
                let (step, wakes) = dispatcher.take(&mut this.ticket, cx.waker(), clock);
                if let WorkerStep::Run(turn) = step {
                    granted = Some(dispatcher.state.grant(turn));
                }
                (step, wakes)
            });
            match step {
                WorkerStep::Run(_) => {
                    turns.made_progress();
                    return Poll::Ready(granted);
                }
                WorkerStep::Ended => return Poll::Ready(None),
                WorkerStep::Keep(until) if this.poll_sleep(until, cx).is_ready() => this.sleep = None,
                WorkerStep::Keep(_) => return Poll::Pending,
                WorkerStep::Park => {
                    this.sleep = None;
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<K: QueueKey> Drop for Get<'_, K> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.with(|dispatcher, _| ((), dispatcher.cancel(ticket)));
        }
    }
}

/// A wait until all that was accepted is done.
pub(super) struct Drain<'a, K: QueueKey> {
    shared: &'a Shared<K>,
    begun: u64,
    ticket: Option<Id>,
}

impl<'a, K: QueueKey> Drain<'a, K> {
    /// Shuts the queue down.
    pub(super) fn begin(shared: &'a Shared<K>) -> Self {
        let begun = shared.with(|dispatcher, clock| dispatcher.begin_drain(clock));
        Self { shared, begun, ticket: None }
    }
}

impl<K: QueueKey> Future for Drain<'_, K> {
    type Output = Drained;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Drained> {
        let Self { shared, begun, ticket } = &mut *self;
        match shared.with(|dispatcher, _| dispatcher.poll_drain(*begun, ticket, cx.waker())) {
            DrainStep::Drained => Poll::Ready(Drained::Clean),
            DrainStep::Aborted => Poll::Ready(Drained::Aborted),
            DrainStep::Wait => Poll::Pending,
        }
    }
}

impl<K: QueueKey> Drop for Drain<'_, K> {
    fn drop(&mut self) {
        let Self { shared, ticket, .. } = self;
        shared.with(|dispatcher, _| ((), dispatcher.cancel_drain(ticket)));
    }
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing is queued and nothing in flight.
    Clean,
    /// A second shutdown came first.
    Aborted,
}

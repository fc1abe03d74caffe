//! The queue itself: a handle over the shared state, and the guard of a key in flight.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::task::coop::consume_budget;
use tokio::time::{Instant, Sleep, sleep_until};

use super::clock::{At, TimeSource};
use super::dispatcher::WaiterId;
use super::entries::QueueKey;
use super::inspect::{self, KeyState, QueueSnapshot};
use super::rate_limit::InvalidRate;
use super::rate_limiter::RateLimiter;
use super::schedule::{Grant, Offer, Schedule};
use super::shared::SharedQueue;
use super::sync::Arc;
use super::types::{Depth, Drained, Outcome, Priority, WorkQueueConfig};
use crate::metrics::{Metrics, QueueSource};

/// A rate-limited queue of keys that merges requests for a key and never hands it out twice at once.
///
/// This is a handle: clones share one queue. The [module](super) describes what it guarantees and what it does not.
///
/// ```
/// use watchkeeper::workqueue::{ItemExponentialFailure, WorkQueue};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let queue = WorkQueue::new(ItemExponentialFailure::default());
/// queue.add("a");
/// queue.add("a"); // it waits already
/// assert_eq!(queue.len(), 1);
/// let item = queue.get().await.expect("the queue is open");
/// item.retry(); // after 5 ms
/// # }
/// ```
///
/// The book has more: [informers and the queue alone](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/alone.md).
pub struct WorkQueue<K: QueueKey> {
    shared: Arc<SharedQueue<K>>,
}

impl<K: QueueKey> WorkQueue<K> {
    /// Makes a queue with this back-off and without rates.
    pub fn new(backoff: impl RateLimiter) -> Self {
        Self::of(Schedule::unlimited(Arc::new(backoff)))
    }

    /// Makes a queue with these settings.
    ///
    /// # Errors
    /// A rate that [`RateLimit::validate`](super::RateLimit::validate) refuses.
    pub fn with_config(config: WorkQueueConfig) -> Result<Self, InvalidRate> {
        Schedule::new(config).map(Self::of)
    }

    /// Makes a queue that shares its grants out between tenants: so one with many keys does not delay the others.
    ///
    /// `tenant` names the tenant of a key, and is called once for a key that the queue does not know; if it panics, the
    /// tenant is `""`. It is called while the queue is locked, so it must not call the queue.
    ///
    /// The next key is one of the tenant with the fewest keys in flight; among those, of the tenant that was served longest
    /// ago. Priorities order the keys of one tenant. Grants and all that follows from them (workers, the rate) are shared;
    /// retries wait for tokens of the retry rate together. A grant costs the logarithm of the number of tenants, a key four
    /// bytes more.
    ///
    /// ```
    /// use watchkeeper::workqueue::{WorkQueue, WorkQueueConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = WorkQueue::with_tenants(WorkQueueConfig::default(), |key: &String| key[..1].into())?;
    /// ["a1", "a2", "a3", "b1"].map(|key| queue.add(key.to_owned()));
    /// assert_eq!(queue.get().await.unwrap().key(), "a1");
    /// assert_eq!(queue.get().await.unwrap().key(), "b1");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A rate that [`RateLimit::validate`](super::RateLimit::validate) refuses.
    pub fn with_tenants(
        config: WorkQueueConfig,
        tenant: impl Fn(&K) -> std::sync::Arc<str> + Send + Sync + 'static,
    ) -> Result<Self, InvalidRate> {
        Ok(Self::of(Schedule::new(config)?.with_tenants(std::sync::Arc::new(tenant))))
    }

    fn of(schedule: Schedule<K>) -> Self {
        Self { shared: Arc::new(SharedQueue::new(schedule)) }
    }

    /// Queues a key after a real change.
    ///
    /// This cancels its delay. If the key backs off or failed terminally, it is brought forward to the floor. If it is
    /// in flight, it runs again afterwards. After a shutdown this has no effect.
    pub fn add(&self, key: K) {
        self.add_at(key, Priority::Normal);
    }

    /// Queues a key after a real change, at a priority.
    pub fn add_at(&self, key: K, priority: Priority) {
        self.shared.change(|queue, clock| queue.schedule.add(key, priority, clock));
    }

    /// Queues an idle key although nothing changed, at low priority.
    ///
    /// This shortens no delay and no back-off, and has no effect on a key that waits for a change. If the key is in
    /// flight, it runs again if that run succeeds without a timer. After a shutdown this has no effect.
    pub fn touch(&self, key: K) {
        self.touch_at(key, Priority::Low);
    }

    /// Queues an idle key although nothing changed, at a priority.
    pub fn touch_at(&self, key: K, priority: Priority) {
        self.shared.change(|queue, clock| queue.schedule.touch(key, priority, clock));
    }

    /// Queues a key after a delay, or sooner if it already waits for less.
    ///
    /// This does not shorten a back-off. If the key is in flight, the shorter of this delay and that of the outcome
    /// counts. A delay too long for a timer (centuries) waits for a change. After a shutdown this has no effect.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_after_at(key, delay, Priority::Normal);
    }

    /// Queues a key after a delay, at a priority. If the key already waits, its priority is raised at once.
    pub fn add_after_at(&self, key: K, delay: Duration, priority: Priority) {
        self.shared.change(|queue, clock| queue.schedule.add_after(key, delay, priority, clock));
    }

    /// Counts a failure of the key and queues it once its back-off is over.
    ///
    /// A key that is ready stays ready. After a shutdown this has no effect. Workers use [`Item::retry`] instead.
    pub fn add_rate_limited(&self, key: K) {
        self.shared.change(|queue, clock| queue.schedule.add_rate_limited(key, Priority::Normal, clock));
    }

    /// Keeps a key from workers until it is [`release`](Self::release)d, or for `at_most`.
    ///
    /// Whatever is asked for it meanwhile counts from then on: changes, touches, timers and failures. A run in flight
    /// goes on; the hold begins when it ends. If the key is held again, the new time counts. A held key uses no worker
    /// and no token. Afterwards it joins the back of its line. After a shutdown a key that waits and is held is dropped.
    pub fn hold(&self, key: &K, at_most: Duration) {
        self.shared.change(|queue, clock| queue.schedule.hold(key, at_most, clock));
    }

    /// Ends the hold of a key. This has no effect on a key that is not held.
    pub fn release(&self, key: &K) {
        self.shared.change(|queue, clock| queue.schedule.release(key, clock));
    }

    /// Clears the failures of a key. What is scheduled stays so.
    pub fn forget(&self, key: &K) {
        self.shared.change(|queue, _| queue.schedule.forget(key));
    }

    /// Returns how many times in a row the key has failed.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.read(|schedule| schedule.entry(key).map_or(0, |entry| entry.setback().failures))
    }

    /// Waits for a key that is ready and for a token, and hands the key out; `None` once all is done after a shutdown.
    ///
    /// Cancel-safe: a dropped call loses no key, no token and no wake-up of another worker. With a rate or delays it
    /// needs a tokio runtime with time.
    pub async fn get(&self) -> Option<Item<K>> {
        let (item, token) = self.get_unpaid().await?;
        token.pay();
        Some(item)
    }

    /// Waits for a key that is ready and for a token, which is set aside until the run starts.
    ///
    /// Without a rate there is nothing to pay.
    pub(crate) async fn get_unpaid(&self) -> Option<(Item<K>, Token<K>)> {
        // A queue that is never empty must leave other tasks their turn.
        consume_budget().await;
        let shared = Arc::clone(&self.shared);
        let mut worker = WaitingWorker { shared: &shared, waiter: None };
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        let granted = poll_fn(|cx| {
            loop {
                let waiter = &mut worker.waiter;
                let (offer, _former) = shared.change(|queue, clock| {
                    let former = queue.leave(waiter.take());
                    (queue.take(waiter, cx.waker(), clock), former)
                });
                match offer {
                    Offer::Run(grant) => return Poll::Ready(Some(grant)),
                    Offer::Ended => return Poll::Ready(None),
                    Offer::Wait(At::NEVER) => return Poll::Pending,
                    Offer::Wait(until) => {
                        let sleep = timer.insert(Box::pin(sleep_until(shared.origin.instant(until))));
                        if sleep.as_mut().poll(cx).is_pending() {
                            return Poll::Pending;
                        }
                    }
                }
            }
        });
        let grant = granted.await?;
        drop(worker);
        let token = Token { unpaid: grant.is_unpaid.then(|| Arc::clone(&shared)), is_claimed: false };
        Some((Item { shared, grant, is_over: false, ended: None }, token))
    }

    /// Waits for a token for one more start, before all keys in line. Callers are served in turn.
    ///
    /// Returns whether that took a wait; `None` once the queue hands out nothing any more. Cancel-safe.
    pub(crate) async fn claim(&self) -> Option<(Token<K>, bool)> {
        let shared = &self.shared;
        if shared.read(|schedule| schedule.rate.is_none()) {
            return Some((Token { unpaid: None, is_claimed: false }, false));
        }
        shared.change_rate(|rate, _| rate.claim());
        let mut token = Token { unpaid: Some(Arc::clone(shared)), is_claimed: true };
        let (_turn, mut waited) = match shared.claims.try_lock() {
            Ok(turn) => (turn, false),
            Err(_) => (shared.claims.lock().await, true),
        };
        while let Err(opens) = shared.change(|queue, clock| queue.schedule.grant_claim(clock.now()))? {
            tokio::select! {
                () = sleep_until(shared.origin.instant(opens)) => {}
                () = shared.rate_changed.notified() => {}
            }
            waited = true;
        }
        token.is_claimed = false;
        Some((token, waited))
    }

    /// Refuses further keys and drops delays and retries. Workers drain the keys that are ready. Aborts a drain.
    pub fn shut_down(&self) {
        self.shared.shut_down(Schedule::shut_down);
    }

    /// Shuts down, and waits until no key is queued or in flight, or for a second shutdown.
    ///
    /// Keys that are ready need a worker that takes them, so workers go on until [`get`](Self::get) returns `None`. A
    /// worker may leave: a key that it puts back or drops does not delay the drain.
    pub async fn drain(&self) -> Drained {
        let begun = self.shared.change(|queue, clock| {
            queue.schedule.shut_down(clock);
            queue.shutdowns
        });
        loop {
            // Made before the look, so that no change after it is missed.
            let changed = self.shared.drain_changed.notified();
            let (is_drained, shutdowns) =
                self.shared.change(|queue, _| (queue.schedule.is_drained(), queue.shutdowns));
            if is_drained {
                return Drained::Clean;
            }
            if shutdowns != begun {
                return Drained::Aborted;
            }
            changed.await;
        }
    }

    /// Shuts down and drops all keys that are not in flight, as a stopping controller does. Aborts a drain.
    pub fn discard(&self) {
        self.shared.shut_down(|schedule, _| schedule.discard());
        self.shared.rate_changed.notify_one();
    }

    /// Keeps to a part of the rates from now on: other queues have the rest.
    pub(crate) fn share_rates(&self, part: u32, of: u32) {
        self.shared.change(|queue, clock| queue.schedule.share_rates(part, of, clock));
        // A run that waits for a token may get it sooner now.
        self.shared.rate_changed.notify_one();
    }

    /// Takes keys again after [`discard`](Self::discard), once no key is in flight. The rates go on as they are.
    pub(crate) fn reopen(&self) {
        self.shared.change(|queue, _| queue.schedule.reopen());
    }

    /// Returns whether the queue refuses keys.
    pub fn is_shut_down(&self) -> bool {
        self.shared.read(Schedule::is_shut_down)
    }

    /// Reports the queue under a name as long as it lives, in place of another queue with that name.
    ///
    /// The metrics and the label `name` are client-go's; `priority` on the depth is controller-runtime's. From here on
    /// the queue also [keeps times](Self::keep_times).
    pub fn report_to(&self, metrics: &Metrics, name: impl Into<String>) {
        self.keep_times();
        let shared: Arc<dyn QueueSource> = self.shared.clone();
        metrics.shared.queue.report(name.into(), Arc::downgrade(&shared));
    }

    /// From now on keeps since when keys are ready or in flight, for metrics and for [`KeyState`].
    ///
    /// This reads the clock when a key becomes ready, is handed out, and is done. Keys that are ready or in flight
    /// already have no time.
    pub fn keep_times(&self) {
        self.shared.change(|queue, _| _ = queue.schedule.stats.times.get_or_insert_default());
    }

    /// Returns how many keys are ready.
    pub fn len(&self) -> usize {
        self.depth().ready
    }

    /// Returns whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many keys are where.
    pub fn depth(&self) -> Depth {
        self.look(Schedule::depth)
    }

    /// Returns where keys are, up to `each` in each place, for a debug page. The more it shows, the longer it holds the lock.
    pub fn snapshot(&self, each: usize) -> QueueSnapshot<K> {
        let origin = self.shared.origin;
        self.look(|schedule| inspect::snapshot(schedule, origin, each))
    }

    /// Reads the schedule as it is now, with the keys lined up that have fallen due.
    fn look<T>(&self, look: impl FnOnce(&Schedule<K>) -> T) -> T {
        self.shared.change(|queue, clock| {
            queue.schedule.promote(clock);
            look(&queue.schedule)
        })
    }

    /// Returns the moment before which no key can be handed out without a change. Now or earlier means at once.
    pub fn earliest(&self) -> Option<Instant> {
        self.shared.origin.known_instant(self.shared.read(Schedule::due))
    }

    /// Returns where a key is.
    pub fn state_of(&self, key: &K) -> KeyState {
        let origin = self.shared.origin;
        self.shared
            .read(|schedule| schedule.entry(key).map_or(KeyState::Idle, |entry| KeyState::of(entry, origin)))
    }

    /// Returns the keys that failed terminally and wait for a change.
    pub(crate) fn awaiting_change(&self) -> Vec<K> {
        self.shared.read(|schedule| schedule.awaiting_change().map(|entry| entry.key.clone()).collect())
    }
}

impl_clone!([K: QueueKey] WorkQueue<K>, shared);

impl_debug!([K: QueueKey] WorkQueue<K>, this => depth: this.depth());

/// A worker that waits for its next key. If it is dropped after it was woken, another worker is woken.
struct WaitingWorker<'a, K: QueueKey> {
    shared: &'a SharedQueue<K>,
    waiter: Option<WaiterId>,
}

impl<K: QueueKey> Drop for WaitingWorker<'_, K> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            drop(self.shared.change(|queue, _| queue.leave(Some(waiter))));
        }
    }
}

/// A token of the rate for one start, set aside or claimed. If it is dropped unpaid, it is given back.
#[must_use = "a dropped token is given back"]
pub(crate) struct Token<K: QueueKey> {
    /// `None` if it was paid, or if there is nothing to pay.
    unpaid: Option<Arc<SharedQueue<K>>>,
    /// Whether the run still waits for it.
    is_claimed: bool,
}

impl<K: QueueKey> Token<K> {
    /// Spends the token: the run starts now.
    pub(crate) fn pay(mut self) {
        if let Some(shared) = self.unpaid.take() {
            shared.change_rate(|rate, clock| rate.pay(clock.now()));
        }
    }
}

impl<K: QueueKey> Drop for Token<K> {
    fn drop(&mut self) {
        if let Some(shared) = self.unpaid.take() {
            shared.change_rate(|rate, _| if self.is_claimed { rate.waive() } else { rate.give_back() });
        }
    }
}

/// A key in flight: no other worker gets it until this ends.
///
/// It ends with one of the methods that consume it. If it is dropped, also by a panic or a cancellation, it ends as done.
/// If it is leaked ([`std::mem::forget`]), it never ends: its key stays in flight, further requests for it wait forever,
/// and a [`drain`](super::WorkQueue::drain) ends only with a second shutdown. Other keys are not affected.
#[must_use = "a dropped item is done"]
pub struct Item<K: QueueKey> {
    shared: Arc<SharedQueue<K>>,
    grant: Grant<K>,
    /// Whether the run has ended, so that dropping this has nothing left to do.
    is_over: bool,
    /// When the run ended, if the caller knows it already; this saves reading the clock.
    ended: Option<At>,
}

impl<K: QueueKey> Item<K> {
    /// Returns the key.
    pub const fn key(&self) -> &K {
        &self.grant.key
    }

    /// Returns the number of this run since the last success; the first is 1.
    pub const fn attempt(&self) -> u32 {
        self.grant.attempt
    }

    /// Returns the priority at which it was handed out.
    pub const fn priority(&self) -> Priority {
        self.grant.priority
    }

    /// Sets the priority of the run that the outcome asks for. The default is the priority of this run.
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.grant.priority = priority;
        self
    }

    /// Returns when it was handed out, if the queue keeps times.
    pub(crate) fn handed_out(&self) -> Option<Instant> {
        self.shared.origin.known_instant(self.grant.at)
    }

    /// Sets when the run ended. The default is when the item is finished.
    pub(crate) fn ended_at(mut self, ended: Instant) -> Self {
        self.ended = Some(self.shared.origin.at(ended));
        self
    }

    /// Ends the run with this outcome.
    pub fn finish(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    #[inline]
    fn end(&mut self, outcome: Outcome) {
        self.is_over = true;
        let Grant { id, priority, .. } = self.grant;
        let ended = self.ended;
        self.shared.change(|queue, clock| match ended {
            Some(ended) => queue.schedule.finish(id, outcome, priority, &ended),
            None => queue.schedule.finish(id, outcome, priority, clock),
        });
    }

    /// Ends the run without a verdict: failures stay as counted.
    pub fn done(self) {
        self.finish(Outcome::Done);
    }

    /// Ends the run as a success: failures are cleared.
    pub fn forget(self) {
        self.finish(Outcome::Forget);
    }

    /// Ends the run as a success. The key runs again after `delay`; only a real change makes it run before.
    pub fn requeue_after(self, delay: Duration) {
        self.finish(Outcome::RequeueAfter(delay));
    }

    /// Ends the run as a failure. The key runs again after its back-off, which grows with each failure.
    pub fn retry(self) {
        self.retry_at_least(Duration::ZERO);
    }

    /// Ends the run as a failure. The key runs again after its back-off and after `delay`, whichever is longer.
    pub fn retry_at_least(self, delay: Duration) {
        self.finish(Outcome::Retry { at_least: delay });
    }

    /// Runs the key again after the first step of its back-off, and counts no failure.
    ///
    /// Each such outcome in a row takes one more step, up to the floor (1 s unless set).
    pub fn retry_uncounted(self) {
        self.finish(Outcome::RetryUncounted);
    }

    /// Ends the run as a failure that only a real change can fix.
    pub fn terminal(self) {
        self.finish(Outcome::Terminal);
    }

    /// Gives the key back without a verdict. It is queued again at once and not counted; after a shutdown it is dropped.
    pub fn put_back(self) {
        self.finish(Outcome::PutBack);
    }
}

impl<K: QueueKey> Drop for Item<K> {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Outcome::Done);
        }
    }
}

impl_debug!([K: QueueKey + fmt::Debug] Item<K>, this => key: this.key(), attempt: this.attempt());

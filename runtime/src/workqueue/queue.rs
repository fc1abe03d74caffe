//! The queue itself: a handle over the shared state, and the guard of a key in flight.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::clock::{At, Clock, LazyNow};
use super::entries::QueueKey;
use super::inspect::{Depth, KeyState, Snapshot, Standing};
use super::rate_limiter::RateLimiter;
use super::shared::{Drain, Drained, Get, Shared, Waited};
use super::state::{Grant, State, Stood};
use super::sync::Arc;
use super::types::{ConfigError, Outcome, Priority, WorkQueueConfig};
use crate::key_list::KeyList;
use crate::metrics::{Metrics, QueueSource};

/// A rate-limited queue of keys that merges requests for a key and never hands it out twice at once.
///
/// A handle: clones share one queue. The [module](super) tells what is kept and what is not promised.
pub struct WorkQueue<K: QueueKey> {
    shared: Arc<Shared<K>>,
}

impl<K: QueueKey> WorkQueue<K> {
    /// Makes a queue that backs off as the limiter says, without any rate.
    pub fn new(backoff: impl RateLimiter) -> Self {
        Self::of(State::unlimited(Arc::new(backoff)))
    }

    /// Makes a queue as configured.
    ///
    /// # Errors
    /// A rate that [`RateLimit::validate`](super::RateLimit::validate) refuses.
    pub fn with_config(config: WorkQueueConfig) -> Result<Self, ConfigError> {
        State::new(config).map(Self::of)
    }

    fn of(state: State<K>) -> Self {
        Self { shared: Arc::new(Shared::new(state)) }
    }

    /// Queues a key of which something really changed.
    ///
    /// Cancels its delay; brings it forward to the floor if it backs off or has ended terminally. In flight, it runs
    /// again afterwards. Ignored once the queue is shut down.
    pub fn add(&self, key: K) {
        self.add_at(key, Priority::Normal);
    }

    /// Queues a key of which something really changed, at a priority.
    pub fn add_at(&self, key: K, priority: Priority) {
        self.shared.add(key, priority);
    }

    /// Queues all keys of a list, as if each was added at low priority, and shares the list with other queues.
    ///
    /// A key costs this queue a bit until its turn comes or it is added by itself.
    pub(crate) fn add_list(&self, list: &Arc<KeyList<K>>) {
        self.shared.change(|state, clock| state.add_list(list, clock));
    }

    /// Queues an idle key of which nothing changed, at low priority.
    ///
    /// Shortens no delay and no back-off, and leaves alone what waits for a change. In flight, the key runs again if
    /// that run succeeds without a timer. Ignored once the queue is shut down.
    pub fn touch(&self, key: K) {
        self.touch_at(key, Priority::Low);
    }

    /// Queues an idle key of which nothing changed, at a priority.
    pub fn touch_at(&self, key: K, priority: Priority) {
        self.shared.change(|state, clock| state.touch(key, priority, clock));
    }

    /// Queues a key after a delay, or sooner if it waits for less already.
    ///
    /// A back-off is not shortened. In flight, the delay counts besides the outcome's own, the lesser of both. A delay
    /// too long for a timer (centuries) waits for a change. Ignored once the queue is shut down.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_after_at(key, delay, Priority::Normal);
    }

    /// Queues a key after a delay, at a priority; as it waits already, that is raised at once.
    pub fn add_after_at(&self, key: K, delay: Duration, priority: Priority) {
        self.shared.change(|state, clock| state.add_after(key, delay, priority, clock));
    }

    /// Counts a failure of the key and queues it once its back-off is over.
    ///
    /// A key that is ready stays so. Ignored once the queue is shut down. Workers say [`Item::retry`] instead.
    pub fn add_rate_limited(&self, key: K) {
        self.shared.change(|state, clock| state.add_rate_limited(key, Priority::Normal, clock));
    }

    /// Keeps a key from workers until it is [`release`](Self::release)d, or for `at_most`.
    ///
    /// Whatever is asked for it meanwhile counts from then on: changes, touches, timers and failures. A run in flight goes
    /// on; the hold begins when it ends. Held again, the new time counts. A held key takes no worker and no token; let
    /// go, it joins the back of its line. After a shutdown, what waits and is held is dropped.
    pub fn hold(&self, key: &K, at_most: Duration) {
        self.shared.change(|state, clock| state.hold(key, at_most, clock));
    }

    /// Lets a held key go on; without effect on one that is not held.
    pub fn release(&self, key: &K) {
        self.shared.change(|state, clock| state.release(key, clock));
    }

    /// Clears the key's failures; what is scheduled stays so.
    pub fn forget(&self, key: &K) {
        self.shared.change(|state, _| state.forget(key));
    }

    /// Counts the key's failures in a row.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.read(|state| state.entry(key).map_or(0, |entry| entry.setback().failures))
    }

    /// Waits for a key that is ready and for a token, and hands it out; `None` once all is done after a shutdown.
    ///
    /// Cancel-safe: a dropped call loses no key, no token and nobody's wake-up. With a rate or delays it needs a tokio
    /// runtime with time.
    pub async fn get(&self) -> Option<Item<K>> {
        let (item, token) = self.get_unpaid().await?;
        token.pay();
        Some(item)
    }

    /// Leaves it to those who [get keys unpaid](Self::get_unpaid) to pay the rate, by each start.
    pub(crate) fn pay_at_start(&self) {
        self.shared.change(|state, _| state.pay_at_start());
    }

    /// Waits for a key that is ready and for a token, which is set aside until the run starts.
    ///
    /// Without [`pay_at_start`](Self::pay_at_start), and without a rate, there is nothing to pay.
    pub(crate) async fn get_unpaid(&self) -> Option<(Item<K>, Token<K>)> {
        let grant = Get::new(&self.shared).await?;
        let token = Token { unpaid: grant.is_unpaid.then(|| Arc::clone(&self.shared)) };
        Some((Item::new(Arc::clone(&self.shared), grant), token))
    }

    /// Waits for a token for one more start, before all keys that wait in line; those who wait so are served in turn.
    ///
    /// Returns whether that took a wait; `None` once the queue hands out nothing any more. Cancel-safe.
    pub(crate) async fn claim(&self) -> Option<(Token<K>, Waited)> {
        if !self.shared.read(State::pays_at_start) {
            return Some((Token { unpaid: None }, Waited::No));
        }
        let waited = self.shared.claim().await?;
        Some((Token { unpaid: Some(Arc::clone(&self.shared)) }, waited))
    }

    /// Refuses further keys and drops delays and retries; workers drain what is ready. Aborts a drain.
    pub fn shut_down(&self) {
        self.shared.with(|dispatcher, clock| ((), dispatcher.shut_down(|state| state.shut_down(clock))));
    }

    /// Shuts down, and waits until nothing is queued and nothing in flight, or for a second shutdown.
    ///
    /// What is ready needs a worker that takes it: workers go on until [`get`](Self::get) says `None`. One that leaves
    /// with its key, put back or dropped, holds up nothing.
    pub async fn drain(&self) -> Drained {
        Drain::begin(&self.shared).await
    }

    /// Shuts down and drops all but what is in flight: what a stopping controller does. Aborts a drain.
    pub fn discard(&self) {
        self.shared.with(|dispatcher, _| ((), dispatcher.shut_down(State::discard)));
        self.shared.end_claims();
    }

    /// Takes keys again after [`discard`](Self::discard), once nothing is in flight; what was spent of rates stays spent.
    pub(crate) fn reopen(&self) {
        self.shared.change(|state, _| state.reopen());
    }

    /// Whether the queue refuses keys.
    pub fn is_shut_down(&self) -> bool {
        self.shared.read(State::is_shut_down)
    }

    /// Reports the queue under a name as long as it lives, in place of another of that name.
    ///
    /// The metrics and the label `name` are client-go's, `priority` on the depth is controller-runtime's. From here on
    /// the queue also [keeps times](Self::keep_times); the rest is counted in any case, and read when somebody scrapes.
    pub fn report_to(&self, metrics: &Metrics, name: impl Into<String>) {
        self.keep_times();
        let shared: Arc<dyn QueueSource> = self.shared.clone();
        metrics.queue().report(name.into(), Arc::downgrade(&shared));
    }

    /// Keeps from now on since when keys are ready or in flight, for metrics and for [`KeyState`].
    ///
    /// Costs a look at the clock when a key is lined up, handed out, and done. What stands there already has no time.
    pub fn keep_times(&self) {
        self.shared.change(|state, _| state.keep_times());
    }

    /// Counts the keys that are ready.
    pub fn len(&self) -> usize {
        self.depth().ready
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts the keys by where they stand.
    pub fn depth(&self) -> Depth {
        self.shared.with(|dispatcher, clock| {
            let wakes = dispatcher.change(|state| state.promote(clock));
            let depth = Depth::of(&dispatcher.state);
            (depth, wakes)
        })
    }

    /// Returns where at most so many keys stand, for a debug page. Takes as long as it shows keys, under the queue's lock.
    pub fn snapshot(&self, at_most: usize) -> Snapshot<K> {
        let origin = self.shared.origin;
        self.shared.with(|dispatcher, clock| {
            let wakes = dispatcher.change(|state| state.promote(clock));
            let state = &dispatcher.state;
            let keys = state.standing_somewhere(origin).take(at_most).collect();
            (Snapshot { depth: Depth::of(state), keys }, wakes)
        })
    }

    /// Returns where keys stand, at most so many in each place, and how many there are.
    pub(crate) fn standing(&self, each: usize) -> Standing<K> {
        let origin = self.shared.origin;
        self.shared.with(|dispatcher, clock| {
            let wakes = dispatcher.change(|state| state.promote(clock));
            (dispatcher.state.by_place(origin, each), wakes)
        })
    }

    /// Returns before when no key can be handed out, without a change; now or earlier is at once.
    pub fn earliest(&self) -> Option<Instant> {
        let due = self.shared.read(State::due);
        (due != At::NEVER).then(|| self.shared.origin.instant(due))
    }

    /// Returns where a key stands.
    pub fn state_of(&self, key: &K) -> KeyState {
        let origin = self.shared.origin;
        self.shared.read(|state| match (state.entry(key), state.listed_since(key)) {
            (Some(entry), _) => KeyState::of(entry, origin),
            (None, Some(since)) => KeyState::listed(since, origin),
            (None, None) => KeyState::Idle,
        })
    }

    /// Shows keys in flight, at most so many, and since when, if the queue keeps times.
    pub(crate) fn in_flight(&self, at_most: usize) -> Vec<(K, Option<Instant>)> {
        let origin = self.shared.origin;
        self.shared.read(|state| state.in_flight_since(origin).take(at_most).collect())
    }

    /// Shows the keys that ended terminally and wait for a change.
    pub(crate) fn awaiting_change(&self) -> Vec<K> {
        self.shared.read(State::awaiting_change)
    }

    /// Whether a key waits for its turn on a shared list, and was not added by itself.
    pub(crate) fn is_only_listed(&self, key: &K) -> bool {
        self.shared.read(|state| state.listed_since(key).is_some())
    }
}

impl<K: QueueKey> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: QueueKey> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("depth", &self.depth()).finish_non_exhaustive()
    }
}

/// A token of the rate that is set aside for one start; dropped unpaid, it goes back.
#[must_use = "a dropped token goes back"]
pub(crate) struct Token<K: QueueKey> {
    /// `None`: it was paid, or there is nothing to pay.
    unpaid: Option<Arc<Shared<K>>>,
}

impl<K: QueueKey> Token<K> {
    /// Spends it: the run starts now.
    pub(crate) fn pay(mut self) {
        if let Some(shared) = self.unpaid.take() {
            shared.change_rate(|rate, clock| rate.pay(clock.now()));
        }
    }
}

impl<K: QueueKey> Drop for Token<K> {
    fn drop(&mut self) {
        if let Some(shared) = self.unpaid.take() {
            shared.change_rate(|rate, _| rate.give_back());
        }
    }
}

/// A key in flight: nobody else gets it until this ends.
///
/// It ends with one of the methods that take it, or, when dropped (by a panic or a cancellation, too), as done. One that
/// is forgotten ([`std::mem::forget`]) never ends: its key stays in flight for good, what is asked for it waits for good,
/// and a [`drain`](super::WorkQueue::drain) ends only with a second shutdown. Other keys do not suffer.
#[must_use = "a dropped item is done"]
pub struct Item<K: QueueKey> {
    shared: Arc<Shared<K>>,
    grant: Grant<K>,
    /// Whether the run has ended: nothing is left to do for the last who drops it.
    is_over: bool,
    /// When the run ended, where that is known already: a look at the clock less. Never if it is not.
    ended: At,
}

impl<K: QueueKey> Item<K> {
    pub(super) const fn new(shared: Arc<Shared<K>>, grant: Grant<K>) -> Self {
        Self { shared, grant, is_over: false, ended: At::NEVER }
    }

    /// Returns the key.
    pub const fn key(&self) -> &K {
        &self.grant.key
    }

    /// Counts the runs since the last success; the first is 1.
    pub const fn attempt(&self) -> u32 {
        self.grant.attempt
    }

    /// Whether the key only stood on a shared list, and was not added by itself.
    pub(crate) fn was_only_listed(&self) -> bool {
        self.grant.stood == Stood::OnList
    }

    /// Returns the priority at which it was handed out.
    pub const fn priority(&self) -> Priority {
        self.grant.priority
    }

    /// Sets the priority of the run that this one's outcome asks for; without this it keeps its own.
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.grant.priority = priority;
        self
    }

    /// Returns when it was handed out, if the queue keeps times.
    pub(crate) fn handed_out(&self) -> Option<Instant> {
        (self.grant.at != At::NEVER).then(|| self.shared.origin.instant(self.grant.at))
    }

    /// Tells when the run ended, which else is when the item is finished.
    pub(crate) fn ended_at(mut self, ended: Instant) -> Self {
        self.ended = self.shared.origin.at(ended);
        self
    }

    /// Ends the run as said.
    pub fn finish(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    #[inline]
    fn end(&mut self, outcome: Outcome) {
        self.is_over = true;
        let Grant { id, priority, .. } = self.grant;
        let now = LazyNow::known(self.shared.origin, (self.ended != At::NEVER).then_some(self.ended));
        self.shared.change_at(&now, |state, clock| state.finish(id, outcome, priority, clock));
    }

    /// Ends the run, saying nothing: failures stay as counted.
    pub fn done(self) {
        self.finish(Outcome::Done);
    }

    /// Ends the run as a success: failures are cleared.
    pub fn forget(self) {
        self.finish(Outcome::Forget);
    }

    /// Ends the run as a success; again after `delay`, not before unless something really changes.
    pub fn requeue_after(self, delay: Duration) {
        self.finish(Outcome::RequeueAfter(delay));
    }

    /// Ends the run as a failure: again when the back-off, which grows, is over.
    pub fn retry(self) {
        self.retry_at_least(Duration::ZERO);
    }

    /// Ends the run as a failure: again after the back-off, and after `delay`.
    pub fn retry_at_least(self, delay: Duration) {
        self.finish(Outcome::Retry { at_least: delay });
    }

    /// Runs the key again after the first step of its back-off, and counts no failure.
    ///
    /// Each in a row takes one step more, up to the floor (1 s unless set).
    pub fn retry_uncounted(self) {
        self.finish(Outcome::RetryUncounted);
    }

    /// Ends the run as a failure that only a real change can repair.
    pub fn terminal(self) {
        self.finish(Outcome::Terminal);
    }

    /// Gives the key back without a verdict: queued again at once, nothing counted; dropped after a shutdown.
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

impl<K: QueueKey + fmt::Debug> fmt::Debug for Item<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", self.key())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

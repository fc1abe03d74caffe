//! The work queue: each key queued once, in flight once, and served in turn.
//!
//! [`WorkQueue`] is generic over its key and knows nothing of Kubernetes.
//! Whoever sees a change [`add`](WorkQueue::add)s a key; workers [`get`](WorkQueue::get) an [`Item`],
//! a guard that ends with an [`Outcome`].
//!
//! ```
//! # use watchkeeper::workqueue::{ItemExponentialFailure, WorkQueue};
//! # async fn work(_: &str) -> Result<(), ()> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let queue = WorkQueue::new(ItemExponentialFailure::default());
//! queue.add("shop/a");
//! queue.shut_down();
//! while let Some(item) = queue.get().await {
//!     match work(item.key()).await {
//!         Ok(()) => item.forget(),
//!         Err(()) => item.retry(),
//!     }
//! }
//! # }
//! ```
//!
//! # What it keeps
//!
//! - A key is queued at most once and in flight at most once. Added while in flight, it runs again afterwards.
//! - First come, first served within a [`Priority`]: a key that is added again goes to the back. One grant in eight goes
//!   to whoever has waited longest, whatever its priority.
//! - A key is ready at the later of its delay and its back-off, never early. Delays merge by minimum.
//! - [`add`](WorkQueue::add) says that something really changed: it cancels a delay, and brings a key that backs off,
//!   or has ended terminally, forward to the floor ([`WorkQueueConfig::floor`]), never below.
//! - [`touch`](WorkQueue::touch) says that nothing changed: it makes an idle key run and shortens nothing.
//! - Over any window `w`, at most `burst + rate × w` keys are handed out, whatever put them there: the
//!   [`rate`](WorkQueueConfig::rate) is paid inside `get`, at the moment of the grant.
//! - Retries of failures also pay the [`retry_rate`](WorkQueueConfig::retry_rate), longest due first, and hold up nobody
//!   while they wait for it.
//! - An idle key without failures holds no memory.
//!
//! # What it does not promise
//!
//! - Delays, retries and what is put back do not outlive [`shut_down`](WorkQueue::shut_down); what is ready does.
//! - Between keys that fall due at the same instant, only the order in which they were scheduled counts.
//!
//! # Inside
//!
//! `state` decides which key runs when, and `dispatcher` which worker is woken. Both are pure: time is passed in. `shared`
//! holds the lock around them and the futures that wait; behind a long line `inbox` takes keys without it; `queue` is what
//! callers see. Nobody waits while holding the lock.

mod sync;
mod clock;
mod slab;
mod delay;
mod rate_limit;
mod rate_limiter;
mod types;
mod entries;
mod stats;
mod state;
mod inbox;
mod dispatcher;
mod inspect;
mod shared;
mod queue;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use entries::QueueKey;
pub(crate) use inspect::Standing;
#[doc(hidden)]
pub use inspect::{Depth, KeyState, Snapshot};
pub(crate) use queue::Token;
pub use queue::{Item, WorkQueue};
pub use rate_limit::{InvalidRate, RateLimit};
pub use rate_limiter::{ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, TokenBucket, WithMaxWait};
#[doc(hidden)]
pub use shared::Drained;
pub(crate) use shared::Waited;
#[doc(hidden)]
pub use types::Outcome;
pub use types::{ConfigError, Priority, WorkQueueConfig};

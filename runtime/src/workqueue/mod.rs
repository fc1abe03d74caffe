//! The work queue: each key is queued once, in flight once, and served in turn.
//!
//! [`WorkQueue`] is generic over its key and does not know Kubernetes.
//! Producers [`add`](WorkQueue::add) keys. Workers [`get`](WorkQueue::get) an [`Item`], a guard that ends with an
//! [`Outcome`].
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
//! # What it guarantees
//!
//! - A key is queued at most once and in flight at most once. A key that is added while it is in flight runs again
//!   afterwards.
//! - Within a [`Priority`] the order is first come, first served. A key that is added again after its run goes to the
//!   back. One grant in eight goes to the key that has waited longest in its line, whatever its priority.
//! - A key is ready at the later of its delay and its back-off, never early. If several delays are asked for, the
//!   shortest one counts.
//! - [`add`](WorkQueue::add) reports a real change: it cancels a delay, and brings a key that backs off, or that failed
//!   terminally, forward to the floor ([`WorkQueueConfig::floor`]), never below it.
//! - [`touch`](WorkQueue::touch) reports that nothing changed: it makes an idle key run and shortens no wait.
//! - Over any window `w`, at most `burst + rate × w` keys are handed out, for whatever reason they were queued. The
//!   [`rate`](WorkQueueConfig::rate) is paid inside `get`, at the moment of the grant.
//! - Retries of failures also pay the [`retry_rate`](WorkQueueConfig::retry_rate), the longest due first. Other keys do
//!   not wait for them.
//! - An idle key without failures uses no memory.
//!
//! # What it does not guarantee
//!
//! - [`shut_down`](WorkQueue::shut_down) drops delays, retries and keys that are put back. It keeps keys that are ready.
//! - Keys that fall due at the same instant are served in the order in which they were scheduled, whatever their keys.
//!
//! # Inside
//!
//! `schedule` decides which key runs when, and `dispatcher` which worker is woken. Both are pure: time is passed in.
//! `shared` holds the lock around them and the futures that wait. `queue` is what callers see. No code waits while it
//! holds the lock.

mod sync;
mod clock;
mod rate_limit;
mod rate_limiter;
mod types;
mod entries;
mod lines;
mod stats;
mod tenants;
mod schedule;
mod inspect;
mod dispatcher;
mod shared;
mod queue;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use entries::QueueKey;
#[doc(hidden)]
pub use inspect::{KeyState, QueueSnapshot};
pub(crate) use queue::Token;
pub use queue::{Item, WorkQueue};
pub use rate_limit::{InvalidRate, RateLimit};
pub use rate_limiter::{ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, TokenBucket, WithMaxWait};
#[doc(hidden)]
pub use types::{Depth, Drained, Outcome};
pub use types::{Priority, WorkQueueConfig};

//! Keeps a store equal to what a source holds, by list and watch.
//!
//! [`Reflector`] is a short shell: it does what `state` decides, hands what comes to a [`ReflectorStore`], and
//! reports every failure. It knows the source and the store by their traits alone.

mod sink;
mod consistency;
mod server;
mod config;
mod fault;
mod explain;
mod failure_log;
mod watch_error;
mod pacing;
mod state;
mod gathered;
mod reporter;
mod run;
#[cfg(test)]
mod tests;

pub use config::{FirstList, ReflectorConfig};
#[doc(hidden)]
pub use explain::explain;
#[doc(hidden)]
pub use failure_log::{FailureLog, LogLevel};
#[doc(hidden)]
pub use server::Server;
#[doc(hidden)]
pub use sink::{Difference, Epoch, FetchReport, StoreChange};
pub use sink::{List, ReflectorStore};
#[doc(hidden)]
pub use watch_error::FetchPart;
pub use watch_error::WatchError;
pub(crate) use watch_error::{WatchErrorHandler, tell};

pub(crate) use explain::unreachable;
pub(crate) use failure_log::Reminder;
pub(crate) use fault::Fault;
pub(crate) use server::{CacheStatus, Doubt, DoubtCause};
pub(crate) use watch_error::rounded;

pub(crate) use sink::AnyStore;
use sink::TypedStore;

use std::{borrow::Cow, marker::PhantomData, sync::Arc};

use futures::future::BoxFuture;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::after,
    list_watch::{AnySource, ListerWatcher, TypedSource},
    object::Object,
    users_code::contained,
};

/// Keeps a store equal to what a source holds: one list, then watches, and a list again where nothing else helps.
///
/// Guarantees:
///
/// - The store gets everything in order, from one task. The version advances only past what the store has taken.
/// - Nothing goes back in time, but for a server that lost its history: its list comes as [`Epoch::New`].
/// - Every failure is reported, handed to the error handler (by default logged, in one line), and followed by a
///   jittered delay; nothing is ever given up. A panic in a source, a hook or a back-off schedule is such a failure.
/// - A failure is over once its own half succeeds: a watch's by a watch that delivers or lives, never by a list.
///
/// Not promised: that every version of an object is seen. What lies between two lists is lost.
///
/// The book has more: [the way of a change](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/change.md).
pub struct Reflector<K, L, S> {
    source: L,
    store: Arc<S>,
    config: ReflectorConfig,
    object: PhantomData<fn() -> K>,
}

impl<K: Object, L: ListerWatcher<K>, S: ReflectorStore<K>> Reflector<K, L, S> {
    /// Says what to fetch from, where to put it, and how.
    pub fn new(source: L, store: Arc<S>, config: ReflectorConfig) -> Self {
        Self { source, store, config, object: PhantomData }
    }

    /// Fetches until it is cancelled.
    ///
    /// Cancellation ends everything at once: a list under way, an open watch, any wait.
    pub async fn run(self, cancel: CancellationToken) {
        let source = Arc::new(TypedSource::new(self.source));
        fetch(source, Arc::new(TypedStore::new(self.store)), self.config, cancel).await;
    }
}

/// Fetches objects whose type is forgotten, until it is cancelled.
pub(crate) fn fetch(
    source: Arc<dyn AnySource>,
    store: Arc<AnyStore>,
    config: ReflectorConfig,
    cancel: CancellationToken,
) -> BoxFuture<'static, ()> {
    let resync = resync(config.name.clone(), config.resync, store.clone());
    let fetch = run::ReflectorLoop::new(source, store, &config).run();
    Box::pin(async move {
        // Cancellation comes first, so that nothing is opened after it.
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            never = resync => match never {},
            never = fetch => match never {},
        }
    })
}

/// The resolution of timers: a shorter period would leave no time for other work.
const FINEST: std::time::Duration = std::time::Duration::from_millis(1);

/// Shows every known object again at each period; lists do not disturb it.
async fn resync(
    name: Cow<'static, str>,
    period: Option<std::time::Duration>,
    store: Arc<AnyStore>,
) -> std::convert::Infallible {
    let Some(period) = period.filter(|period| !period.is_zero()) else { return std::future::pending().await };
    let period = period.max(FINEST);
    let mut ticks = interval_at(after(Instant::now(), period), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if contained(|| store.resync()).is_none() {
            tracing::error!(kind = %name, "a resync of {name} panicked; the next one runs as scheduled");
        }
    }
}

impl_debug!([K, L, S] Reflector<K, L, S>, this => config: this.config);

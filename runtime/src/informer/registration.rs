//! What the code that registered a handler or an observer holds.

use std::{fmt, future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::{sync::Notify, task};
use tokio_util::sync::CancellationToken;

/// A flag that is set once, for good, and awaited by any number.
#[derive(Clone, Debug, Default)]
pub(super) struct Latch(CancellationToken);

impl Latch {
    pub(super) fn set(&self) {
        self.0.cancel();
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(super) async fn wait(&self) {
        self.0.cancelled().await;
    }
}

/// What a registration needs of its handler, whatever the object's type.
pub(super) trait HandlerSlot: Send + Sync {
    fn remove(&self);
    fn is_calling(&self) -> bool;
    fn idle(&self) -> &Notify;
    fn task(&self) -> Option<task::Id>;
    fn synced(&self) -> &Latch;
    fn removed(&self) -> &Latch;
    fn panics(&self) -> u64;
    fn backlog(&self) -> HandlerBacklog;
}

/// What a registration keeps alive, and notifies when something was removed.
pub(super) trait KeepAlive: Send + Sync {
    fn sweep(&self);
}

/// The handler was removed, or its informer stopped, before the handler had seen the initial content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the handler was removed, or its informer stopped, before it was synced")]
pub struct HandlerRemoved;

/// The backlog of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerBacklog {
    /// How many notifications wait, a resync's included.
    ///
    /// An object of the initial content that changes before its call counts as two until then.
    pub depth: usize,
    /// How long the oldest has waited, by tokio's clock.
    pub oldest: Option<Duration>,
}

/// Keeps a handler registered; dropping it removes the handler.
///
/// Once it is dropped no call starts. It keeps the informer alive.
#[must_use = "dropping a registration removes its handler"]
pub struct Registration {
    slot: Arc<dyn HandlerSlot>,
    keep: Arc<dyn KeepAlive>,
}

impl Registration {
    pub(super) fn new(slot: Arc<dyn HandlerSlot>, keep: Arc<dyn KeepAlive>) -> Self {
        Self { slot, keep }
    }

    /// Returns whether the handler was called for all that was cached when it was added.
    ///
    /// A call that panicked counts.
    pub fn has_synced(&self) -> bool {
        self.slot.synced().is_set()
    }

    /// Waits until the handler was called for all that was cached when it was added.
    ///
    /// # Errors
    /// The informer stopped before.
    pub async fn synced(&self) -> Result<(), HandlerRemoved> {
        first_of(self.slot.synced(), self.slot.removed()).await
    }

    /// Removes the handler, and waits for the call that may be under way.
    ///
    /// It is removed at once, whether the future is awaited or not. Inside the handler it does not wait.
    pub fn remove(self) -> impl Future<Output = ()> + Send + 'static {
        let slot = self.slot.clone();
        drop(self);
        async move {
            loop {
                let mut idle = pin!(slot.idle().notified());
                idle.as_mut().enable();
                let inside = task::try_id().is_some_and(|id| slot.task() == Some(id));
                if inside || !slot.is_calling() {
                    return;
                }
                idle.await;
            }
        }
    }

    /// Counts the calls that panicked.
    pub fn panics(&self) -> u64 {
        self.slot.panics()
    }

    /// Returns how many calls the handler has yet to get.
    pub fn backlog(&self) -> HandlerBacklog {
        self.slot.backlog()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.slot.remove();
        self.keep.sweep();
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("synced", &self.has_synced()).finish()
    }
}

/// The latches of an observer.
#[derive(Debug, Default)]
pub(super) struct ObserverLatches {
    pub(super) synced: Latch,
    pub(super) removed: Latch,
}

/// Keeps an observer registered; dropping it removes the observer.
///
/// A call that is under way on another thread may still end after the drop. It keeps the informer alive.
#[must_use = "dropping a registration removes its observer"]
pub struct ObserverRegistration {
    watcher: Arc<ObserverLatches>,
    keep: Arc<dyn KeepAlive>,
}

impl ObserverRegistration {
    pub(super) fn new(watcher: Arc<ObserverLatches>, keep: Arc<dyn KeepAlive>) -> Self {
        Self { watcher, keep }
    }

    /// Returns whether the observer has seen all that was there when it came.
    pub fn has_synced(&self) -> bool {
        self.watcher.synced.is_set()
    }

    /// Waits until the observer has seen all that was there when it came.
    ///
    /// # Errors
    /// The informer stopped before.
    pub async fn synced(&self) -> Result<(), HandlerRemoved> {
        first_of(&self.watcher.synced, &self.watcher.removed).await
    }
}

impl Drop for ObserverRegistration {
    fn drop(&mut self) {
        self.watcher.removed.set();
        self.keep.sweep();
    }
}

impl fmt::Debug for ObserverRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverRegistration").field("synced", &self.has_synced()).finish()
    }
}

async fn first_of(synced: &Latch, removed: &Latch) -> Result<(), HandlerRemoved> {
    tokio::select! {
        biased;
        () = synced.wait() => Ok(()),
        () = removed.wait() => Err(HandlerRemoved),
    }
}

//! What the code that registered a handler or an observer holds.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, SetOnce},
    task,
};

/// A flag that is set once, for good, and awaited by any number.
#[derive(Clone, Debug, Default)]
pub(super) struct Latch(Arc<SetOnce<()>>);

impl Latch {
    pub(super) fn set(&self) {
        self.0.set(()).ok();
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.initialized()
    }

    pub(super) async fn wait(&self) {
        self.0.wait().await;
    }
}

/// What handlers and observers have in common, whatever the object's type.
#[derive(Debug, Default)]
pub(super) struct HandlerStatus {
    pub(super) synced: Latch,
    pub(super) removed: Latch,
    pub(super) panics: AtomicU64,
    /// A call has ended, and no other follows.
    pub(super) idle: Notify,
    pub(super) task: OnceLock<task::Id>,
}

impl HandlerStatus {
    /// Waits until the initial content was shown.
    async fn synced(&self) -> Result<(), HandlerRemoved> {
        tokio::select! {
            biased;
            () = self.synced.wait() => Ok(()),
            () = self.removed.wait() => Err(HandlerRemoved),
        }
    }
}

/// What a registration needs of its handler, whatever the object's type.
pub(super) trait HandlerSlot: Send + Sync {
    fn status(&self) -> &HandlerStatus;

    fn remove(&self) {
        self.status().removed.set();
    }

    fn is_calling(&self) -> bool {
        false
    }

    fn backlog(&self) -> HandlerBacklog {
        HandlerBacklog::default()
    }
}

/// An observer has no calls that wait.
impl HandlerSlot for HandlerStatus {
    fn status(&self) -> &HandlerStatus {
        self
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerBacklog {
    /// How many notifications wait, a resync's included.
    ///
    /// An object of the initial content that changes before its call counts as two until then.
    pub depth: usize,
    /// How long the oldest has waited, by tokio's clock.
    pub oldest: Option<Duration>,
}

/// Keeps a handler or an observer registered; dropping it removes that.
///
/// Once it is dropped no call of a handler starts; the call of an observer that is under way may still end after it. It
/// keeps the informer alive.
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
        self.slot.status().synced.is_set()
    }

    /// Waits until the handler was called for all that was cached when it was added.
    ///
    /// # Errors
    /// The informer stopped before.
    pub async fn synced(&self) -> Result<(), HandlerRemoved> {
        self.slot.status().synced().await
    }

    /// Removes the handler, and waits for the call that may be under way.
    ///
    /// It is removed at once, whether the future is awaited or not. Inside the handler it does not wait.
    pub fn remove(self) -> impl Future<Output = ()> + Send + 'static {
        let slot = self.slot.clone();
        drop(self);
        async move {
            loop {
                let mut idle = pin!(slot.status().idle.notified());
                idle.as_mut().enable();
                let inside = task::try_id().is_some_and(|id| slot.status().task.get() == Some(&id));
                if inside || !slot.is_calling() {
                    return;
                }
                idle.await;
            }
        }
    }

    /// Counts the calls that panicked.
    pub fn panics(&self) -> u64 {
        self.slot.status().panics.load(Ordering::Relaxed)
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

impl_debug!(Registration, this => synced: this.has_synced());

//! One handler's task: its backlog, the calls, and how it ends.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{sync::Notify, task, time::Instant};

use super::{
    backlog::{Backlog, Notification},
    change::{AddOrigin, CacheChange},
    handler::EventHandler,
    registration::{HandlerBacklog, HandlerSlot, HandlerStatus},
    resync::ResyncSnapshot,
};
use crate::{
    metrics::CacheMeter,
    object::Object,
    users_code::{contained, may_block, others_go_on},
};

/// A handler as the processor feeds it.
///
/// A trait object: where a program has no handlers of a kind, nothing of this is compiled for it.
pub(super) trait Hears<K>: HandlerSlot {
    /// Puts what changed into the backlog; never waits for the handler, and wakes nobody.
    fn notify(&self, changes: &[CacheChange<K>], resync_due: bool, now: Instant);
    /// Shows a resync, behind whatever changes.
    fn resync(&self, snapshot: &Arc<ResyncSnapshot<K>>, now: Instant);
    /// Wakes the task if something waits: once all backlogs are filled, so that tasks do not empty the first ones while
    /// the thread still fills the others.
    fn wake(&self);
    /// Says that the initial content is in the backlog.
    fn mark_initial(&self);
    fn resync_every(&self) -> Option<Duration>;
    /// Calls the handler until it is removed, which the end of the informer does too.
    fn serve(self: Arc<Self>, handler: Box<dyn EventHandler<K>>) -> BoxFuture<'static, ()>;
}

/// What processor, task and registration of one handler share.
pub(super) struct Listener<K> {
    state: Mutex<ListenerState<K>>,
    /// Something waits, or the handler was removed.
    ready: Notify,
    status: HandlerStatus,
    meter: CacheMeter,
    resync_every: Option<Duration>,
}

struct ListenerState<K> {
    backlog: Backlog<K>,
    calling: bool,
    /// No call starts any more.
    removed: bool,
}

impl<K: Object> Listener<K> {
    pub(super) fn new(resync_every: Option<Duration>, meter: CacheMeter) -> Self {
        let state = ListenerState { backlog: Backlog::new(), calling: false, removed: false };
        let (ready, status) = Default::default();
        Self { state: Mutex::new(state), ready, status, meter, resync_every }
    }

    async fn call_until_removed(self: Arc<Self>, handler: Box<dyn EventHandler<K>>) {
        self.status.task.set(task::id()).ok();
        let ends = Ends(&self);
        loop {
            match self.next() {
                Some(NextCall::End) => break,
                Some(next) => may_block(|| self.call_in_turn(&*handler, next)),
                None => self.ready.notified().await,
            }
            task::coop::consume_budget().await;
        }
        drop(ends);
        may_block(|| drop(handler));
    }

    /// Calls the handler; if that holds up no other task, until nothing waits.
    fn call_in_turn(&self, handler: &dyn EventHandler<K>, first: NextCall<K>) {
        let mut next = Some(first);
        while let Some(now) = next {
            match now {
                NextCall::Call(notification) => self.call(handler, notification),
                NextCall::Seek => {}
                NextCall::End => return,
            }
            next = if others_go_on() { self.next() } else { None };
        }
    }

    fn fill(&self, push: impl FnOnce(&mut Backlog<K>)) {
        let mut state = self.state.lock();
        if !state.removed {
            push(&mut state.backlog);
        }
    }

    /// Ends the call that was under way, and begins the next.
    fn next(&self) -> Option<NextCall<K>> {
        let mut state = self.state.lock();
        let called = std::mem::take(&mut state.calling);
        if state.removed {
            self.status.idle.notify_waiters();
            return Some(NextCall::End);
        }
        if called && state.backlog.initial_is_out() {
            self.status.synced.set();
        }
        match state.backlog.pop() {
            Some(notification) => {
                state.calling = true;
                Some(NextCall::Call(notification))
            }
            None => (state.backlog.len() > 0).then_some(NextCall::Seek),
        }
    }

    /// Calls the handler, and lets go of what it was called with, which it may hold last.
    fn call(&self, handler: &dyn EventHandler<K>, notification: Notification<K>) {
        let called = contained(|| tell(handler, &notification));
        let dropped = contained(|| drop(notification));
        if called.and(dropped).is_none() {
            self.status.panics.fetch_add(1, Ordering::Relaxed);
            self.meter.panicked();
            tracing::error!(
                handler_of = std::any::type_name::<K>(),
                "a handler panicked; the next call comes"
            );
        }
    }

    /// Lets no further call start; returns what waited, to be dropped without the lock.
    fn close(&self) -> Backlog<K> {
        let mut state = self.state.lock();
        state.removed = true;
        self.status.removed.set();
        std::mem::replace(&mut state.backlog, Backlog::new())
    }
}

impl<K: Object> Hears<K> for Listener<K> {
    fn notify(&self, changes: &[CacheChange<K>], resync_due: bool, now: Instant) {
        self.fill(|backlog| {
            changes.iter().filter_map(|change| notification(change, resync_due)).for_each(|notification| {
                #[cfg(test)]
                crate::counted::count(1);
                backlog.push(notification, now);
            });
        });
    }

    fn resync(&self, snapshot: &Arc<ResyncSnapshot<K>>, now: Instant) {
        self.fill(|backlog| backlog.push_resync(snapshot.clone(), now));
    }

    fn wake(&self) {
        self.ready.notify_one();
    }

    fn mark_initial(&self) {
        let mut state = self.state.lock();
        state.backlog.mark_initial();
        if !state.calling && !state.removed && state.backlog.initial_is_out() {
            self.status.synced.set();
        }
    }

    fn resync_every(&self) -> Option<Duration> {
        self.resync_every
    }

    fn serve(self: Arc<Self>, handler: Box<dyn EventHandler<K>>) -> BoxFuture<'static, ()> {
        Box::pin(self.call_until_removed(handler))
    }
}

/// Returns the call that a change means for a handler, if any.
fn notification<K: Object>(change: &CacheChange<K>, resync_due: bool) -> Option<Notification<K>> {
    match change {
        CacheChange::Added { object, origin, .. } => Some(Notification::Add(object.clone(), *origin)),
        CacheChange::Updated { old, new, .. } => {
            Some(Notification::Update { old: old.clone(), new: new.clone() })
        }
        CacheChange::Deleted { gone, .. } => Some(Notification::Delete(gone.clone())),
        CacheChange::Unchanged { object } => resync_due.then(|| Notification::again(object.clone())),
        CacheChange::Unreadable { .. } => None,
    }
}

/// Ends a handler with its task, however that ends: nobody waits for a task that is gone.
struct Ends<'a, K: Object>(&'a Listener<K>);

impl<K: Object> Drop for Ends<'_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let handler_of = std::any::type_name::<K>();
            tracing::error!(handler_of, "the task of a handler panicked: the handler is removed");
        }
        drop(self.0.close());
        self.0.state.lock().calling = false;
        self.0.status.idle.notify_waiters();
    }
}

/// Calls the handler with objects, which a compact cache decodes only now.
///
/// A state that does not decode is shown to no handler. The next one comes as an add: the state before is not known.
fn tell<K: Object>(handler: &dyn EventHandler<K>, notification: &Notification<K>) {
    match notification {
        Notification::Add(object, origin) => {
            object.object().into_iter().for_each(|object| handler.on_add(object, *origin));
        }
        Notification::Update { old, new } => match (old.object(), new.object()) {
            (Ok(old), Ok(new)) => handler.on_update(old, new),
            (Err(_), Ok(new)) => handler.on_add(new, AddOrigin::Watch),
            (_, Err(_)) => {}
        },
        Notification::Delete(gone) => handler.on_delete(gone.deleted()),
    }
}

enum NextCall<K> {
    Call(Notification<K>),
    /// A resync waits, but many of its objects need not be shown any more.
    Seek,
    End,
}

impl<K: Object> HandlerSlot for Listener<K> {
    fn status(&self) -> &HandlerStatus {
        &self.status
    }

    fn remove(&self) {
        drop(self.close());
        self.ready.notify_one();
    }

    fn is_calling(&self) -> bool {
        self.state.lock().calling
    }

    fn backlog(&self) -> HandlerBacklog {
        let state = self.state.lock();
        HandlerBacklog {
            depth: state.backlog.len(),
            oldest: state.backlog.oldest().map(|since| since.elapsed()),
        }
    }
}

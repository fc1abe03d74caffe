//! One handler's task: its backlog, the calls, and how it ends.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::{sync::Notify, task, time::Instant};

use super::{
    backlog::{Backlog, Notification},
    change::{AddOrigin, CacheChange},
    handler::EventHandler,
    registration::{HandlerBacklog, HandlerSlot, HandlerStatus},
    resync::ResyncSnapshot,
};
use crate::{
    object::Object,
    users_code::{contained, may_block, others_go_on},
};

/// A handler whose type of object is forgotten.
pub(super) trait AnyHandler: Send {
    /// Calls the handler with objects, which a compact cache decodes only now.
    ///
    /// A state that does not decode is shown to no handler. The next one comes as an add: the state before is not known.
    fn call(&self, notification: &Notification);
}

/// A handler of the user's.
pub(super) struct TypedHandler<K>(pub(super) Box<dyn EventHandler<K>>);

impl<K: Object> AnyHandler for TypedHandler<K> {
    fn call(&self, notification: &Notification) {
        match notification {
            Notification::Add(object, origin) => {
                object.object_as().into_iter().for_each(|object| self.0.on_add(object, *origin));
            }
            Notification::Update { old, new } => match (old.object_as(), new.object_as()) {
                (Ok(old), Ok(new)) => self.0.on_update(old, new),
                (Err(_), Ok(new)) => self.0.on_add(new, AddOrigin::Watch),
                (_, Err(_)) => {}
            },
            Notification::Delete(gone) => self.0.on_delete(gone.deleted()),
        }
    }
}

/// What processor, task and registration of one handler share.
pub(super) struct Listener {
    state: Mutex<ListenerState>,
    /// Something waits, or the handler was removed.
    pub(super) ready: Notify,
    status: HandlerStatus,
    panics: Counter,
    pub(super) resync_every: Option<Duration>,
    /// The type of its objects, for messages.
    handler_of: &'static str,
}

struct ListenerState {
    backlog: Backlog,
    calling: bool,
    /// No call starts any more.
    removed: bool,
}

impl Listener {
    pub(super) fn new(resync_every: Option<Duration>, panics: Counter, handler_of: &'static str) -> Self {
        let state = ListenerState { backlog: Backlog::default(), calling: false, removed: false };
        let (ready, status) = Default::default();
        Self { state: Mutex::new(state), ready, status, panics, resync_every, handler_of }
    }

    /// Calls the handler until it is removed, which the end of the informer does too.
    pub(super) async fn call_until_removed(self: Arc<Self>, handler: Box<dyn AnyHandler>) {
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
    fn call_in_turn(&self, handler: &dyn AnyHandler, first: NextCall) {
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

    fn fill(&self, push: impl FnOnce(&mut Backlog)) {
        let mut state = self.state.lock();
        if !state.removed {
            push(&mut state.backlog);
        }
    }

    /// Ends the call that was under way, and begins the next.
    fn next(&self) -> Option<NextCall> {
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
            None => {
                // What was left of the initial content may have been nothing to call for.
                if state.backlog.initial_is_out() {
                    self.status.synced.set();
                }
                (state.backlog.len() > 0).then_some(NextCall::Seek)
            }
        }
    }

    /// Calls the handler, and lets go of what it was called with, which it may hold last.
    fn call(&self, handler: &dyn AnyHandler, notification: Notification) {
        let called = contained(|| handler.call(&notification));
        let dropped = contained(|| drop(notification));
        if called.and(dropped).is_none() {
            self.status.panics.fetch_add(1, Ordering::Relaxed);
            self.panics.inc();
            tracing::error!(handler_of = self.handler_of, "a handler panicked; the next call comes");
        }
    }

    /// Lets no further call start; returns what waited, to be dropped without the lock.
    fn close(&self) -> Backlog {
        let mut state = self.state.lock();
        state.removed = true;
        self.status.removed.set();
        std::mem::take(&mut state.backlog)
    }

    /// Puts what changed into the backlog; never waits for the handler, and wakes nobody.
    pub(super) fn notify(&self, changes: &[CacheChange], resync_due: bool, now: Instant) {
        self.fill(|backlog| {
            changes.iter().filter_map(|change| notification(change, resync_due)).for_each(|notification| {
                #[cfg(test)]
                crate::counted::count(1);
                backlog.push(notification, now);
            });
        });
    }

    /// Shows a resync, behind whatever changes.
    pub(super) fn resync(&self, snapshot: &Arc<ResyncSnapshot>, now: Instant) {
        self.fill(|backlog| backlog.push_resync(snapshot.clone(), now));
    }

    /// Says that the initial content is in the backlog.
    pub(super) fn mark_initial(&self) {
        let mut state = self.state.lock();
        state.backlog.mark_initial();
        if !state.calling && !state.removed && state.backlog.initial_is_out() {
            self.status.synced.set();
        }
    }
}

/// Returns the call that a change means for a handler, if any.
fn notification(change: &CacheChange, resync_due: bool) -> Option<Notification> {
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
struct Ends<'a>(&'a Listener);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let handler_of = self.0.handler_of;
            tracing::error!(handler_of, "the task of a handler panicked: the handler is removed");
        }
        drop(self.0.close());
        self.0.state.lock().calling = false;
        self.0.status.idle.notify_waiters();
    }
}

enum NextCall {
    Call(Notification),
    /// A resync waits, but many of its objects need not be shown any more.
    Seek,
    End,
}

impl HandlerSlot for Listener {
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{
        informer::change::{AddOrigin, Gone},
        list_watch::RawObject,
        object::ObjectKey,
        store::{CachedObject, Indexer},
    };

    fn cached() -> CachedObject {
        let indexer = Indexer::<ConfigMap>::new();
        indexer.upsert_raw(RawObject::new(r#"{"metadata":{"name":"a","uid":"a"}}"#).unwrap());
        indexer.lister().cast().cached(&ObjectKey::cluster("a")).unwrap()
    }

    // I11
    #[test]
    fn what_was_nothing_to_call_for_does_not_hold_up_the_end_of_the_initial_content() {
        let listener = Listener::new(None, Counter::default(), "maps");
        let push = |notification| listener.fill(|backlog| backlog.push(notification, Instant::now()));
        let comes = || push(Notification::Add(cached(), AddOrigin::Watch));
        let goes = || push(Notification::Delete(Box::new(Gone::Final(cached()))));
        // It leaves a selection, comes back, and leaves again: one call, in the second of two places.
        comes();
        goes();
        comes();
        goes();
        listener.mark_initial();
        assert!(matches!(listener.next(), Some(NextCall::Call(Notification::Delete(_)))));
        assert!(!listener.status.synced.is_set());
        assert!(listener.next().is_none());
        assert!(listener.status.synced.is_set());
    }
}

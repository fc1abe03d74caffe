//! One handler's task: its backlog, the calls, and how it ends.

use std::{
    future::poll_fn,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, task, time::Instant};

use super::{
    backlog::Backlog,
    change::{AddOrigin, Change},
    handler::EventHandler,
    notification::Notification,
    registration::{HandlerBacklog, HandlerSlot, Latch},
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
    /// Puts what changed into the backlog; never waits for the handler.
    fn notify(&self, changes: &[Change<K>], resync: Resync, now: Instant) -> Idler;
    /// Shows a resync, behind whatever changes.
    fn resync(&self, snapshot: &Arc<ResyncSnapshot<K>>, now: Instant) -> Idler;
    /// Says that the initial content is in the backlog.
    fn mark_initial(&self);
    fn resync_every(&self) -> Option<Duration>;
    /// Calls the handler until it is removed, which the end of the informer does too.
    fn serve(self: Arc<Self>, handler: Box<dyn EventHandler<K>>) -> BoxFuture<'static, ()>;
}

/// The task of a handler that has something to do again, if it waited: to be woken once all backlogs are filled, so that
/// tasks do not empty the first ones while the thread still fills the others.
#[must_use]
pub(super) struct Idler(Option<Waker>);

impl Idler {
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// Whether a handler waits for a resync.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Resync {
    NotDue,
    Due,
}

/// What processor, task and registration of one handler share.
pub(super) struct Listener<K> {
    state: Mutex<ListenerState<K>>,
    /// A call has ended.
    idle: Notify,
    synced: Latch,
    removed: Latch,
    panics: AtomicU64,
    meter: CacheMeter,
    task: OnceLock<task::Id>,
    resync_every: Option<Duration>,
}

struct ListenerState<K> {
    backlog: Backlog<K>,
    call: Call,
    /// Notified once something waits, or the handler was removed.
    idler: Option<Waker>,
}

/// What the task is doing; no call starts once it is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    None,
    UnderWay,
    Never,
    Last,
}

impl<K: Object> Listener<K> {
    pub(super) fn new(resync_every: Option<Duration>, meter: CacheMeter) -> Self {
        Self {
            state: Mutex::new(ListenerState { backlog: Backlog::new(), call: Call::None, idler: None }),
            idle: Notify::new(),
            synced: Latch::default(),
            removed: Latch::default(),
            panics: AtomicU64::new(0),
            meter,
            task: OnceLock::new(),
            resync_every,
        }
    }

    async fn call_until_removed(self: Arc<Self>, handler: Box<dyn EventHandler<K>>) {
        self.task.set(task::id()).ok();
        let ends = Ends(&self);
        loop {
            let next = poll_fn(|cx| self.next(Some(cx.waker())).map_or(Poll::Pending, Poll::Ready)).await;
            if let NextCall::End = next {
                break;
            }
            may_block(|| self.call_in_turn(&*handler, next));
            task::coop::consume_budget().await;
        }
        drop(ends);
        may_block(|| drop(handler));
    }

    /// Calls the handler; where that holds up no other task, until nothing waits.
    fn call_in_turn(&self, handler: &dyn EventHandler<K>, first: NextCall<K>) {
        let mut next = Some(first);
        while let Some(now) = next {
            match now {
                NextCall::Call(notification) => self.call(handler, notification),
                NextCall::Seek => {}
                NextCall::End => return,
            }
            next = if others_go_on() { self.next(None) } else { None };
        }
    }

    fn fill(&self, push: impl FnOnce(&mut Backlog<K>)) -> Idler {
        let mut state = self.lock();
        if state.is_removed() {
            return Idler(None);
        }
        push(&mut state.backlog);
        Idler(if state.backlog.len() > 0 { state.idler.take() } else { None })
    }

    /// Ends the call that was under way, and begins the next; where there is none, somebody may be woken for it.
    fn next(&self, idler: Option<&Waker>) -> Option<NextCall<K>> {
        let mut state = self.lock();
        if state.is_removed() {
            state.call = Call::Never;
            drop(state);
            self.idle.notify_waiters();
            return Some(NextCall::End);
        }
        if state.call == Call::UnderWay {
            state.call = Call::None;
            if state.backlog.initial_gets_out() {
                self.synced.set();
            }
        }
        match state.backlog.pop() {
            Some(notification) => {
                state.call = Call::UnderWay;
                Some(NextCall::Call(notification))
            }
            None if state.backlog.len() > 0 => Some(NextCall::Seek),
            None => {
                state.idler = idler.cloned();
                None
            }
        }
    }

    /// Calls the handler, and lets go of what it was called with, which it may hold last.
    fn call(&self, handler: &dyn EventHandler<K>, notification: Notification<K>) {
        let called = contained(|| tell(handler, &notification));
        let dropped = contained(|| drop(notification));
        if called.and(dropped).is_none() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            self.meter.panicked();
            tracing::error!(
                handler_of = std::any::type_name::<K>(),
                "a handler panicked; the next call comes"
            );
        }
    }

    /// Sees to it that nobody waits for a task that is gone.
    fn end(&self) {
        let dropped = {
            let mut state = self.lock();
            state.call = Call::Never;
            std::mem::replace(&mut state.backlog, Backlog::new())
        };
        self.removed.set();
        self.idle.notify_waiters();
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, ListenerState<K>> {
        self.state.lock()
    }
}

impl<K: Object> Hears<K> for Listener<K> {
    fn notify(&self, changes: &[Change<K>], resync: Resync, now: Instant) -> Idler {
        self.fill(|backlog| {
            changes.iter().filter_map(|change| notification(change, resync)).for_each(|notification| {
                #[cfg(test)]
                crate::counted::count(1);
                backlog.push(notification, now);
            });
        })
    }

    fn resync(&self, snapshot: &Arc<ResyncSnapshot<K>>, now: Instant) -> Idler {
        self.fill(|backlog| backlog.push_resync(snapshot.clone(), now))
    }

    fn mark_initial(&self) {
        let mut state = self.lock();
        state.backlog.mark_initial();
        if state.call == Call::None && state.backlog.initial_gets_out() {
            self.synced.set();
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
fn notification<K: Object>(change: &Change<K>, resync: Resync) -> Option<Notification<K>> {
    match change {
        Change::Added { object, origin, .. } => Some(Notification::Add(object.clone(), *origin)),
        Change::Updated { old, new, .. } => Some(Notification::Update { old: old.clone(), new: new.clone() }),
        Change::Deleted { gone, .. } => Some(Notification::Delete(gone.clone())),
        Change::Unchanged { object } => (resync == Resync::Due).then(|| Notification::again(object.clone())),
        Change::Unreadable { .. } => None,
    }
}

/// Ends a handler with its task, however that ends.
struct Ends<'a, K: Object>(&'a Listener<K>);

impl<K: Object> Drop for Ends<'_, K> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let handler_of = std::any::type_name::<K>();
            tracing::error!(handler_of, "the task of a handler panicked: the handler is removed");
        }
        self.0.end();
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
        Notification::Delete(gone) | Notification::DeleteUnseen(gone) => handler.on_delete(gone.deleted()),
    }
}

enum NextCall<K> {
    Call(Notification<K>),
    /// A resync waits, but many of its objects need not be shown any more.
    Seek,
    End,
}

impl<K> ListenerState<K> {
    fn is_removed(&self) -> bool {
        matches!(self.call, Call::Never | Call::Last)
    }
}

impl<K: Object> HandlerSlot for Listener<K> {
    fn remove(&self) {
        let (dropped, idler) = {
            let mut state = self.lock();
            state.call = match state.call {
                Call::None | Call::Never => Call::Never,
                Call::UnderWay | Call::Last => Call::Last,
            };
            (std::mem::replace(&mut state.backlog, Backlog::new()), state.idler.take())
        };
        drop(dropped);
        self.removed.set();
        idler.into_iter().for_each(Waker::wake);
    }

    fn is_calling(&self) -> bool {
        matches!(self.lock().call, Call::UnderWay | Call::Last)
    }

    fn idle(&self) -> &Notify {
        &self.idle
    }

    fn task(&self) -> Option<task::Id> {
        self.task.get().copied()
    }

    fn synced(&self) -> &Latch {
        &self.synced
    }

    fn removed(&self) -> &Latch {
        &self.removed
    }

    fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    fn backlog(&self) -> HandlerBacklog {
        let state = self.lock();
        HandlerBacklog {
            depth: state.backlog.len(),
            oldest: state.backlog.oldest().map(|since| since.elapsed()),
        }
    }
}

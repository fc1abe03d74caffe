//! One handler's task: its backlog, the calls, and how it ends.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, task, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    backlog::{Backlog, Notification},
    change::AddOrigin,
    handler::EventHandler,
    latch::Latch,
    registration::{HandlerBacklog, Slot},
};
use crate::object::{Object, ObjectKey};

/// What processor, task and registration of one handler share.
pub(super) struct Listener<K> {
    state: Mutex<State<K>>,
    /// Something waits, or the handler was removed.
    wake: Notify,
    /// A call has ended.
    idle: Notify,
    synced: Latch,
    removed: Latch,
    panics: AtomicU64,
    task: OnceLock<task::Id>,
    pub(super) resync_every: Option<Duration>,
}

struct State<K> {
    backlog: Backlog<K>,
    call: Call,
}

/// Says what the task is doing; no call starts once it is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    None,
    UnderWay,
    Never,
    Last,
}

impl<K: Object> Listener<K> {
    pub(super) fn new(resync_every: Option<Duration>) -> Self {
        Self {
            state: Mutex::new(State { backlog: Backlog::new(), call: Call::None }),
            wake: Notify::new(),
            idle: Notify::new(),
            synced: Latch::default(),
            removed: Latch::default(),
            panics: AtomicU64::new(0),
            task: OnceLock::new(),
            resync_every,
        }
    }

    /// Puts notifications into the backlog; never waits for the handler.
    pub(super) fn notify<'a>(&self, notifications: impl Iterator<Item = (&'a ObjectKey, Notification<K>)>) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.is_removed() {
            return;
        }
        for (key, notification) in notifications {
            state.backlog.push(key, notification, now);
        }
        let waiting = state.backlog.len() > 0;
        drop(state);
        if waiting {
            self.wake.notify_one();
        }
    }

    /// Says that the initial content is in the backlog.
    pub(super) fn mark_initial(&self) {
        let mut state = self.lock();
        state.backlog.mark_initial();
        if state.call == Call::None && state.backlog.initial_is_out() {
            self.synced.set();
        }
    }

    /// Calls the handler until it is removed or the informer stops.
    pub(super) async fn serve(self: Arc<Self>, handler: Box<dyn EventHandler<K>>, stop: CancellationToken) {
        self.task.set(task::id()).ok();
        while !stop.is_cancelled() {
            match self.begin() {
                Next::Call(notification) => {
                    self.call(&*handler, notification);
                    task::coop::consume_budget().await;
                }
                Next::Wait => tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    () = self.wake.notified() => {}
                },
                Next::End => break,
            }
        }
        self.remove();
    }

    fn begin(&self) -> Next<K> {
        let mut state = self.lock();
        if state.is_removed() {
            return Next::End;
        }
        match state.backlog.pop() {
            Some(notification) => {
                state.call = Call::UnderWay;
                Next::Call(notification)
            }
            None => Next::Wait,
        }
    }

    fn call(&self, handler: &dyn EventHandler<K>, notification: Notification<K>) {
        let called = catch_unwind(AssertUnwindSafe(|| tell(handler, &notification)));
        if called.is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                handler_of = std::any::type_name::<K>(),
                "a handler panicked; the next call comes"
            );
        }
        let mut state = self.lock();
        state.call = if state.call == Call::Last { Call::Never } else { Call::None };
        if state.backlog.initial_is_out() && !state.is_removed() {
            self.synced.set();
        }
        drop(state);
        self.idle.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls the handler with objects, which a compact cache decodes only now.
///
/// A state that does not decode is told to nobody. The one after it comes as an add: what was before is not known.
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

enum Next<K> {
    Call(Notification<K>),
    Wait,
    End,
}

impl<K> State<K> {
    fn is_removed(&self) -> bool {
        matches!(self.call, Call::Never | Call::Last)
    }
}

impl<K: Object> Slot for Listener<K> {
    fn remove(&self) {
        let dropped = {
            let mut state = self.lock();
            state.call = match state.call {
                Call::None | Call::Never => Call::Never,
                Call::UnderWay | Call::Last => Call::Last,
            };
            std::mem::replace(&mut state.backlog, Backlog::new())
        };
        drop(dropped);
        self.removed.set();
        self.wake.notify_one();
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

//! What the reflectors of one server share: it lost its history, or can be reached again.

mod state;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::watch, time::Instant};

use state::ServerState;
pub(crate) use state::{CacheStatus, Doubt, DoubtCause};

/// One server, as the reflectors that read from it know it together; clones are one.
///
/// - A server that was restored to an older state is known by its version, which is lower than before. Writes raise
///   it again, so that perhaps only the reflector that asks first notices. It notifies the others, and each asks at
///   once, and judges by the versions that it knows itself: an API with a counter of its own does not concern the others.
/// - Who gets through after an outage ends the back-off of the others whose connection failed. One that has failed for
///   long although others got through fails for reasons of its own, and waits on.
#[derive(Clone, Debug, Default)]
pub struct Server {
    shared: Arc<SharedServer>,
}

#[derive(Debug, Default)]
struct SharedServer {
    state: Mutex<ServerState>,
    /// Counts the changes that others may wait for.
    changes: watch::Sender<u64>,
    /// The same count, written under its lock, and read without it at every run.
    change_count: AtomicU64,
}

impl Server {
    /// Reports lost history that was found by an answer to something else than a list or watch.
    pub(crate) fn report_history_loss(&self) {
        let known = self.state().losses();
        self.change(|state| state.lose(Instant::now(), known));
    }

    /// Counts the reported losses of its history.
    pub(crate) fn losses(&self) -> u64 {
        self.state().losses()
    }

    /// Returns whether a cache can be relied on.
    pub(crate) fn doubt(&self, of: &CacheStatus) -> Option<Doubt> {
        self.state().doubt(of, Instant::now())
    }

    /// Follows what may make caches unreliable, or reliable again; the value differs from state to state.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Numbers the present state: while the number stays the same, no cache becomes unreliable.
    pub(crate) fn change_count(&self) -> u64 {
        self.shared.change_count.load(Ordering::Acquire)
    }

    /// Notes that the status of a cache changed.
    pub(crate) fn note_change(&self) {
        self.shared.changes.send_modify(|changes| {
            *changes += 1;
            self.shared.change_count.store(*changes, Ordering::Release);
        });
    }

    /// Adds a reflector, which gets all events from now on.
    pub(super) fn join(&self) -> ServerMember {
        let changes = self.changes();
        let (losses, recoveries) = {
            let state = self.state();
            (state.losses(), state.recoveries())
        };
        ServerMember {
            server: self.clone(),
            changes,
            seen: LastSeen { losses, recoveries },
            watch_open: false,
            missed: false,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut ServerState) -> T) -> T {
        let changed = change(&mut self.state());
        self.note_change();
        changed
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.shared.state.lock()
    }
}

/// One reflector among those of its server.
#[derive(Debug)]
pub(super) struct ServerMember {
    server: Server,
    changes: watch::Receiver<u64>,
    seen: LastSeen,
    watch_open: bool,
    /// Its last attempt failed with the connection.
    missed: bool,
}

/// The last event that a reflector has taken.
#[derive(Clone, Copy, Debug)]
struct LastSeen {
    losses: u64,
    recoveries: u64,
}

/// An event that a reflector gets from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerEvent {
    /// The server lost its history.
    HistoryLost,
    /// The server was reached again.
    Recovered,
}

impl ServerMember {
    /// Counts the losses that were reported so far.
    pub(super) fn losses(&self) -> u64 {
        self.server.state().losses()
    }

    /// Reports lost history, found by a request that was sent when this number of losses was known.
    pub(super) fn found_loss(&mut self, known: u64) {
        self.server.change(|state| state.lose(Instant::now(), known));
        self.seen.losses = self.losses();
    }

    pub(super) fn watch_opened(&mut self) {
        self.succeeded();
        if !std::mem::replace(&mut self.watch_open, true) {
            self.server.change(ServerState::watch_opened);
        }
    }

    pub(super) fn watch_ended(&mut self) {
        if std::mem::take(&mut self.watch_open) {
            self.server.change(ServerState::watch_ended);
        }
    }

    /// Notes a failure of the connection.
    pub(super) fn missed(&mut self) {
        self.missed = true;
        self.server.change(ServerState::missed);
    }

    /// Notes a request that succeeded.
    pub(super) fn succeeded(&mut self) {
        self.got_through();
        self.server.state().succeeded(Instant::now());
    }

    /// Returns whether any reflector's requests to the server succeed.
    pub(super) fn server_answers(&self) -> bool {
        self.server.state().answers(Instant::now())
    }

    /// Notes an answer; the first after an outage is reported to the other reflectors.
    pub(super) fn got_through(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        if missed || self.server.state().has_missed() {
            self.server.change(|state| state.recover(Instant::now()));
            self.seen.recoveries = self.server.state().recoveries();
        }
    }

    /// Takes the event that the server lost its history, if there is one; others are left.
    pub(super) fn take_loss(&mut self) -> bool {
        let losses = self.losses();
        std::mem::replace(&mut self.seen.losses, losses) != losses
    }

    /// Takes what is new; a loss comes first.
    fn take_event(&mut self) -> Option<ServerEvent> {
        if self.take_loss() {
            return Some(ServerEvent::HistoryLost);
        }
        let recoveries = self.server.state().recoveries();
        if self.seen.recoveries != recoveries {
            self.seen.recoveries = recoveries;
            return Some(ServerEvent::Recovered);
        }
        None
    }

    /// Waits for an event, and takes it.
    pub(super) async fn next_event(&mut self) -> ServerEvent {
        loop {
            if let Some(news) = self.take_event() {
                return news;
            }
            self.changes.changed().await.expect("the sender is held here");
        }
    }
}

impl Drop for ServerMember {
    fn drop(&mut self) {
        self.watch_ended();
    }
}

//! What the reflectors of one server share: that it lost its history, and that it can be reached again.

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
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<ServerState>,
    /// Counts what happened that somebody may wait for.
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

    /// Judges a cache by how it stands.
    pub(crate) fn doubt(&self, of: &CacheStatus) -> Option<Doubt> {
        self.state().doubt(of, Instant::now())
    }

    /// Follows what may put caches in doubt, or end that; the value tells one state from another.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Numbers the present state: while the number stays, no cache comes to be in doubt.
    pub(crate) fn change_count(&self) -> u64 {
        self.shared.change_count.load(Ordering::Acquire)
    }

    /// Says that a cache stands differently.
    pub(crate) fn note_change(&self) {
        self.shared.changes.send_modify(|changes| {
            *changes += 1;
            self.shared.change_count.store(*changes, Ordering::Release);
        });
    }

    /// Adds a reflector, which gets all events from now on.
    pub(super) fn join(&self) -> Member {
        let changes = self.changes();
        let (losses, recoveries) = {
            let state = self.state();
            (state.losses(), state.recoveries())
        };
        Member {
            server: self.clone(),
            changes,
            seen: LastSeen { losses, recoveries },
            watch: Watch::Shut,
            reach: Reach::Fine,
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
pub(super) struct Member {
    server: Server,
    changes: watch::Receiver<u64>,
    seen: LastSeen,
    watch: Watch,
    reach: Reach,
}

/// The last event that a reflector has taken.
#[derive(Clone, Copy, Debug)]
struct LastSeen {
    losses: u64,
    recoveries: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Open,
    Shut,
}

/// Whether a reflector gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Fine,
    /// Its last attempt failed with the connection.
    Missed,
}

/// An event that a reflector gets from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerEvent {
    /// The server lost its history.
    HistoryLost,
    /// The server was reached again.
    Recovered,
}

impl Member {
    /// Counts the losses that were reported so far.
    pub(super) fn losses(&self) -> u64 {
        self.server.state().losses()
    }

    /// Reports lost history, found by a request that was sent when so many losses were known.
    pub(super) fn found_loss(&mut self, known: u64) {
        self.server.change(|state| state.lose(Instant::now(), known));
        self.seen.losses = self.losses();
    }

    pub(super) fn watch_opened(&mut self) {
        self.succeeded();
        if self.watch == Watch::Shut {
            self.watch = Watch::Open;
            self.server.change(ServerState::watch_opened);
        }
    }

    pub(super) fn watch_ended(&mut self) {
        if self.watch == Watch::Open {
            self.watch = Watch::Shut;
            self.server.change(ServerState::watch_ended);
        }
    }

    /// Takes note of a failure of the connection.
    pub(super) fn missed(&mut self) {
        self.reach = Reach::Missed;
        self.server.change(ServerState::missed);
    }

    /// Takes note of a request that succeeded.
    pub(super) fn succeeded(&mut self) {
        self.got_through();
        self.server.state().succeeded(Instant::now());
    }

    /// Returns whether any reflector's requests to the server succeed.
    pub(super) fn server_answers(&self) -> bool {
        self.server.state().answers(Instant::now())
    }

    /// Takes note of an answer; the first after an outage is reported to the others.
    pub(super) fn got_through(&mut self) {
        let missed = std::mem::replace(&mut self.reach, Reach::Fine) == Reach::Missed;
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

impl Drop for Member {
    fn drop(&mut self) {
        self.watch_ended();
    }
}

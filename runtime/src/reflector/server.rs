//! What the reflectors of one server share: it lost its history, or can be reached again.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::watch, time::Instant};

/// How long a cache that lost its watch is unreliable while the server can be reached.
const REOPENS_WITHIN: Duration = Duration::from_secs(5);

/// The same while no reflector reaches the server: writes fail anyway.
const IN_OUTAGE: Duration = Duration::from_secs(300);

/// How long a cache is unreliable after lost history, if its informer reaches the server and lists again.
const LISTS_WITHIN: Duration = Duration::from_secs(300);

/// The same, if its informer does not reach the server.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// A server answers if a request succeeded within this time.
const ANSWERS: Duration = Duration::from_secs(30);

/// How many losses are remembered with their times; older ones have no effect.
const REMEMBERED: usize = 16;

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
        self.change(|state| state.lose(Instant::now(), state.losses));
    }

    /// Returns whether both are one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns whether others hold it as well.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Counts the reported losses of its history.
    pub(crate) fn losses(&self) -> u64 {
        self.state().losses
    }

    /// Returns whether a cache can be relied on.
    pub(crate) fn doubt(&self, of: &CacheStatus) -> Option<Doubt> {
        self.state().doubt(of, Instant::now())
    }

    /// Ends once the server has lost its history again.
    pub(crate) fn lost_after(&self, known: u64) -> impl Future<Output = ()> + Send + use<> {
        let (server, mut changes) = (self.clone(), self.changes());
        async move {
            while server.losses() == known {
                changes.changed().await.expect("the sender is held here");
            }
        }
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
        let ServerState { losses, recoveries, .. } = *self.state();
        ServerMember { server: self.clone(), changes, losses, recoveries, watch_open: false, missed: false }
    }

    fn change(&self, change: impl FnOnce(&mut ServerState)) {
        change(&mut self.state());
        self.note_change();
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
    /// How many losses of its history, and how many recoveries, this reflector has taken.
    losses: u64,
    recoveries: u64,
    watch_open: bool,
    /// Its last attempt failed with the connection.
    missed: bool,
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
        self.server.losses()
    }

    /// Reports lost history, found by a request that was sent when this number of losses was known.
    pub(super) fn found_loss(&mut self, known: u64) {
        self.server.change(|state| state.lose(Instant::now(), known));
        self.losses = self.losses();
    }

    pub(super) fn watch_opened(&mut self) {
        self.succeeded();
        if !std::mem::replace(&mut self.watch_open, true) {
            self.server.change(|state| state.open += 1);
        }
    }

    /// Notes that the watch ended; what was recovered from while it was open is of no interest.
    pub(super) fn watch_ended(&mut self) {
        if std::mem::take(&mut self.watch_open) {
            self.server.change(|state| state.open = state.open.saturating_sub(1));
            self.recoveries = self.server.state().recoveries;
        }
    }

    /// Notes a failure of the connection.
    pub(super) fn missed(&mut self) {
        self.missed = true;
        self.server.change(|state| state.missed |= state.open == 0);
    }

    /// Notes a request that succeeded.
    pub(super) fn succeeded(&mut self) {
        self.got_through();
        self.server.state().succeeded = Some(Instant::now());
    }

    /// Returns whether any reflector's requests to the server succeed.
    pub(super) fn server_answers(&self) -> bool {
        self.server.state().answers(Instant::now())
    }

    /// Notes an answer; the first after an outage is reported to the other reflectors.
    pub(super) fn got_through(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        if missed || self.server.state().missed {
            self.server.change(|state| state.recover(Instant::now()));
            self.recoveries = self.server.state().recoveries;
        }
    }

    /// Takes the event that the server lost its history, if there is one; others are left.
    pub(super) fn take_loss(&mut self) -> bool {
        let losses = self.losses();
        std::mem::replace(&mut self.losses, losses) != losses
    }

    /// Resolves when there is such an event.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.server.lost_after(self.losses)
    }

    /// Waits for an event, and takes it; a loss comes first.
    pub(super) async fn next_event(&mut self) -> ServerEvent {
        loop {
            if self.take_loss() {
                return ServerEvent::HistoryLost;
            }
            let recoveries = self.server.state().recoveries;
            if std::mem::replace(&mut self.recoveries, recoveries) != recoveries {
                return ServerEvent::Recovered;
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

/// What the reflectors of one server have found out together.
#[derive(Debug, Default)]
struct ServerState {
    losses: u64,
    /// When the last losses were reported.
    reported: VecDeque<Instant>,
    recoveries: u64,
    /// How many watches are open.
    open: usize,
    /// No watch is open, and the last attempt of any reflector failed with the connection.
    missed: bool,
    /// When a request succeeded last.
    succeeded: Option<Instant>,
    /// When the server was last reached after a time without.
    reached: Option<Instant>,
}

/// The status of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStatus {
    /// The cache shows at least what the server held after this number of losses of its history.
    pub(crate) losses: u64,
    /// Since when its watch is lost to the connection.
    pub(crate) cut: Option<Instant>,
}

/// Why a cache can't be relied on for now, and until when at most that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) cause: DoubtCause,
    pub(crate) until: Instant,
}

/// Why a cache can't be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoubtCause {
    /// The server lost its history, and the cache has not been compared with what is left.
    HistoryLost,
    /// Its watch was lost to the connection, and is not open again.
    WatchCut,
}

impl ServerState {
    /// Notes a loss that was found when this number was known; a loss that was reported meanwhile is the same one.
    fn lose(&mut self, now: Instant, known: u64) {
        if known == self.losses {
            self.losses += 1;
            self.reported.push_back(now);
            if self.reported.len() > REMEMBERED {
                self.reported.pop_front();
            }
        }
    }

    /// Returns whether requests to the server succeed, or have done so a moment ago.
    fn answers(&self, now: Instant) -> bool {
        self.open > 0 || self.succeeded.is_some_and(|at| now - at < ANSWERS)
    }

    /// Returns whether no reflector has reached the server for a while: occasional failures do not count.
    fn is_out(&self, now: Instant) -> bool {
        self.missed && self.succeeded.is_none_or(|at| now - at >= REOPENS_WITHIN)
    }

    /// Notes an answer after a time without.
    fn recover(&mut self, now: Instant) {
        // A kind that gets through now and then must not keep its cache unreliable for ever.
        if self.is_out(now) {
            self.reached = Some(now);
        }
        self.missed = false;
        self.recoveries += 1;
    }

    /// Returns why a cache can't be relied on, if so.
    fn doubt(&self, of: &CacheStatus, now: Instant) -> Option<Doubt> {
        let lost = self.reported_after(of.losses).map(|reported| Doubt {
            cause: DoubtCause::HistoryLost,
            until: reported + if of.cut.is_some() { ANSWERS_WITHIN } else { LISTS_WITHIN },
        });
        let cut = of.cut.map(|cut| Doubt {
            cause: DoubtCause::WatchCut,
            until: match self.is_out(now) {
                true => cut + IN_OUTAGE,
                false => self.reached.map_or(cut, |reached| cut.max(reached)) + REOPENS_WITHIN,
            },
        });
        lost.into_iter().chain(cut).find(|doubt| now < doubt.until)
    }

    /// Returns when the first loss was reported that a cache has not answered, if that is remembered.
    fn reported_after(&self, answered: u64) -> Option<Instant> {
        let forgotten = self.losses - self.reported.len() as u64;
        self.reported.get(usize::try_from(answered.checked_sub(forgotten)?).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn cause(state: &ServerState, of: CacheStatus, now: Instant) -> Option<DoubtCause> {
        state.doubt(&of, now).map(|doubt| doubt.cause)
    }

    // C35
    #[test]
    fn a_loss_puts_every_cache_in_doubt_until_it_answers_or_for_a_while() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        let (open, cut) = (CacheStatus::default(), CacheStatus { losses: 0, cut: Some(now - seconds(900)) });
        assert_eq!(state.doubt(&open, now), None);
        state.lose(now, 0);
        let lost = Some(DoubtCause::HistoryLost);
        assert_eq!(cause(&state, open, now), lost);
        assert_eq!(cause(&state, open, now + seconds(299)), lost);
        assert_eq!(cause(&state, open, now + seconds(300)), None);
        assert_eq!(cause(&state, cut, now + seconds(59)), lost, "its informer can't answer");
        assert_eq!(cause(&state, cut, now + seconds(60)), None);
        assert_eq!(cause(&state, CacheStatus { losses: 1, cut: None }, now), None, "it has answered");
    }

    // C35
    #[test]
    fn losses_that_follow_each_other_hold_nobody_for_longer_than_one() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        let down = CacheStatus { losses: 0, cut: Some(now - seconds(900)) };
        for loss in 0..100 {
            state.lose(now + seconds(loss * 30), loss);
        }
        assert_eq!(state.losses, 100);
        assert_eq!(state.doubt(&down, now + seconds(99 * 30)), None);
    }

    // R43
    #[test]
    fn two_reflectors_that_find_one_loss_count_one() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        state.lose(now, 0);
        state.lose(now, 0);
        assert_eq!(state.losses, 1);
        state.lose(now, 1);
        assert_eq!(state.losses, 2);
    }

    // C35
    #[test]
    fn a_recovery_without_an_outage_does_not_prolong_a_doubt() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        let of = CacheStatus { losses: 0, cut: Some(now) };
        let until = |state: &ServerState| state.doubt(&of, now).map(|doubt| doubt.until - now);
        state.missed |= state.open == 0;
        state.recover(now + seconds(40));
        assert_eq!(until(&state), Some(seconds(45)));
        // A kind that comes and goes while another is open.
        state.open += 1;
        for second in 41..100 {
            state.missed |= state.open == 0;
            state.recover(now + seconds(second));
        }
        assert_eq!(until(&state), Some(seconds(45)));
    }

    // R54
    #[test]
    fn a_server_answers_while_a_watch_is_open_and_for_a_moment_after_a_success() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        assert!(!state.answers(now));
        state.open += 1;
        assert!(state.answers(now + seconds(900)));
        state.open -= 1;
        assert!(!state.answers(now + seconds(900)));
        state.succeeded = Some(now + seconds(900));
        assert!(state.answers(now + seconds(929)) && !state.answers(now + seconds(930)));
    }

    // C35
    #[test]
    fn a_cut_puts_a_cache_in_doubt_for_a_moment_after_the_server_can_be_reached() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        let of = CacheStatus { losses: 0, cut: Some(now) };
        let until = |state: &ServerState| state.doubt(&of, now).map(|doubt| doubt.until - now);
        state.open += 1;
        state.missed |= state.open == 0;
        assert_eq!(until(&state), Some(seconds(5)), "others are open: it is this kind's trouble");
        state.open -= 1;
        state.missed |= state.open == 0;
        assert_eq!(until(&state), Some(seconds(300)), "nobody gets through");
        state.recover(now + seconds(40));
        assert_eq!(until(&state), Some(seconds(45)));
        assert_eq!(state.doubt(&of, now + seconds(45)), None);
    }
}

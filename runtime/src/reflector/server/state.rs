//! What the reflectors of a server know about it: lost history, outages, and which caches are unreliable.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

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

/// What the reflectors of one server have found out together.
#[derive(Debug, Default)]
pub(super) struct ServerState {
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
    /// Counts the losses of history that were told.
    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// Counts how often the server was reached again.
    pub(super) fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// Notes a loss that was found when this number was known; a loss that was reported meanwhile is the same one.
    pub(super) fn lose(&mut self, now: Instant, known: u64) {
        if known == self.losses {
            self.losses += 1;
            self.reported.push_back(now);
            if self.reported.len() > REMEMBERED {
                self.reported.pop_front();
            }
        }
    }

    pub(super) fn watch_opened(&mut self) {
        self.open += 1;
    }

    pub(super) fn watch_ended(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Notes an attempt that failed with the connection.
    pub(super) fn missed(&mut self) {
        if self.open == 0 {
            self.missed = true;
        }
    }

    /// Notes a request that succeeded.
    pub(super) fn succeeded(&mut self, now: Instant) {
        self.succeeded = Some(now);
    }

    /// Returns whether requests to the server succeed, or have done so a moment ago.
    pub(super) fn answers(&self, now: Instant) -> bool {
        self.open > 0 || self.succeeded.is_some_and(|at| now - at < ANSWERS)
    }

    /// Returns whether the last attempt failed with the connection, and no watch is open.
    pub(super) fn has_missed(&self) -> bool {
        self.missed
    }

    /// Returns whether no reflector has reached the server for a while: occasional failures do not count.
    fn is_out(&self, now: Instant) -> bool {
        self.missed && self.succeeded.is_none_or(|at| now - at >= REOPENS_WITHIN)
    }

    /// Notes an answer after a time without.
    pub(super) fn recover(&mut self, now: Instant) {
        // A kind that gets through now and then must not keep its cache unreliable for ever.
        if self.is_out(now) {
            self.reached = Some(now);
        }
        self.missed = false;
        self.recoveries += 1;
    }

    /// Returns why a cache can't be relied on, if so.
    pub(super) fn doubt(&self, of: &CacheStatus, now: Instant) -> Option<Doubt> {
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
        assert_eq!(state.losses(), 100);
        assert_eq!(state.doubt(&down, now + seconds(99 * 30)), None);
    }

    // R43
    #[test]
    fn two_reflectors_that_find_one_loss_count_one() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        state.lose(now, 0);
        state.lose(now, 0);
        assert_eq!(state.losses(), 1);
        state.lose(now, 1);
        assert_eq!(state.losses(), 2);
    }

    // C35
    #[test]
    fn a_recovery_without_an_outage_does_not_prolong_a_doubt() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        let of = CacheStatus { losses: 0, cut: Some(now) };
        let until = |state: &ServerState| state.doubt(&of, now).map(|doubt| doubt.until - now);
        state.missed();
        state.recover(now + seconds(40));
        assert_eq!(until(&state), Some(seconds(45)));
        // A kind that comes and goes while another is open.
        state.watch_opened();
        for second in 41..100 {
            state.missed();
            state.recover(now + seconds(second));
        }
        assert_eq!(until(&state), Some(seconds(45)));
    }

    // R54
    #[test]
    fn a_server_answers_while_a_watch_is_open_and_for_a_moment_after_a_success() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        assert!(!state.answers(now));
        state.watch_opened();
        assert!(state.answers(now + seconds(900)));
        state.watch_ended();
        assert!(!state.answers(now + seconds(900)));
        state.succeeded(now + seconds(900));
        assert!(state.answers(now + seconds(929)) && !state.answers(now + seconds(930)));
    }

    // C35
    #[test]
    fn a_cut_puts_a_cache_in_doubt_for_a_moment_after_the_server_can_be_reached() {
        let (mut state, now) = (ServerState::default(), Instant::now());
        let of = CacheStatus { losses: 0, cut: Some(now) };
        let until = |state: &ServerState| state.doubt(&of, now).map(|doubt| doubt.until - now);
        state.watch_opened();
        state.missed();
        assert_eq!(until(&state), Some(seconds(5)), "others are open: it is this kind's trouble");
        state.watch_ended();
        state.missed();
        assert_eq!(until(&state), Some(seconds(300)), "nobody gets through");
        state.recover(now + seconds(40));
        assert_eq!(until(&state), Some(seconds(45)));
        assert_eq!(state.doubt(&of, now + seconds(45)), None);
    }
}

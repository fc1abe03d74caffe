//! The two delays of a reflector: one before a watch is opened again, one before everything is listed again.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{Backoff, BackoffSchedule};

/// How long lists must not have been needed for the relisting delay to start anew.
const HEALTHY: Duration = Duration::from_secs(120);

/// Says how soon to list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// Without delay if it is the first time since all was well: a list of another sort is likely to succeed.
    AtOnceTheFirstTime,
    /// After the delay.
    BackOff,
}

/// Counts failures of two kinds, and forgets each at its own time.
#[derive(Debug)]
pub(super) struct Pacing {
    reopening: Backoff,
    relisting: Backoff,
    /// When the last list succeeded, if nothing has asked for another since.
    listed: Option<Instant>,
    at_once: AtOnce,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum AtOnce {
    Left,
    Spent,
}

impl Pacing {
    pub(super) fn new(schedule: &BackoffSchedule, seed: u64) -> Self {
        Self {
            reopening: Backoff::new(schedule.clone(), seed),
            relisting: Backoff::new(schedule.clone(), seed.wrapping_add(1)),
            listed: None,
            at_once: AtOnce::Left,
        }
    }

    /// Returns how long to wait before the watch is opened again.
    pub(super) fn reopen(&mut self) -> Duration {
        self.reopening.next_delay()
    }

    /// Starts the reopening delay anew: a stream has delivered, or lived.
    pub(super) fn stream_was_good(&mut self) {
        self.reopening.reset();
    }

    /// Notes that a list was taken.
    pub(super) fn listed(&mut self, now: Instant) {
        self.listed = Some(now);
    }

    /// Returns how long to wait before listing again.
    pub(super) fn relist(&mut self, now: Instant, haste: Haste) -> Duration {
        if self.listed.take().is_some_and(|listed| now - listed >= HEALTHY) {
            self.relisting.reset();
            self.at_once = AtOnce::Left;
        }
        if haste == Haste::AtOnceTheFirstTime && self.at_once == AtOnce::Left {
            self.at_once = AtOnce::Spent;
            return Duration::ZERO;
        }
        self.relisting.next_delay()
    }
}

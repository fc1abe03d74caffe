//! The delays of a reflector: before a watch is opened again, before everything is listed again, after a panic.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{Backoff, BackoffSchedule};

/// How long lists must not have been needed for the relisting delay to start anew.
const HEALTHY: Duration = Duration::from_secs(120);

/// The cap of the delays before a kind that is not served is asked for again; jitter up to doubles it.
const SOON: Duration = Duration::from_millis(2_400);

/// How soon to list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
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
    /// Before a start after a panic, which may be that of the user's own schedule.
    restarting: Backoff,
    /// Before a kind that is not served is asked for again: a definition may be installed at any time.
    absent: Backoff,
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
            restarting: Backoff::new(own(schedule), seed.wrapping_add(3)),
            absent: Backoff::new(soon(schedule), seed.wrapping_add(4)),
            listed: None,
            at_once: AtOnce::Left,
        }
    }

    /// Returns how long to wait before the watch is opened again.
    pub(super) fn reopen(&mut self) -> Duration {
        self.reopening.next_delay()
    }

    /// Starts the reopening delay anew, and returns its first step, which counts for nothing.
    pub(super) fn reopen_anew(&mut self) -> Duration {
        self.reopening.reset();
        let step = self.reopening.next_delay();
        self.reopening.reset();
        step
    }

    /// Starts the reopening delay anew: a stream has delivered, or lived.
    pub(super) fn stream_was_good(&mut self) {
        self.reopening.reset();
    }

    /// Notes that a list was taken.
    pub(super) fn listed(&mut self, now: Instant) {
        self.listed = Some(now);
    }

    /// Returns how long to wait before starting again after a panic.
    pub(super) fn restart(&mut self, now: Instant) -> Duration {
        self.forget_if_healthy(now);
        self.restarting.next_delay()
    }

    /// Returns how long to wait before a kind that is not served is asked for again.
    pub(super) fn ask_again(&mut self, now: Instant) -> Duration {
        self.forget_if_healthy(now);
        self.absent.next_delay()
    }

    fn forget_if_healthy(&mut self, now: Instant) {
        if self.listed.take().is_some_and(|listed| now - listed >= HEALTHY) {
            self.relisting.reset();
            self.restarting.reset();
            self.absent.reset();
            self.at_once = AtOnce::Left;
        }
    }

    /// Returns how long to wait before listing again.
    pub(super) fn relist(&mut self, now: Instant, urgency: Urgency) -> Duration {
        self.forget_if_healthy(now);
        if urgency == Urgency::AtOnceTheFirstTime && self.at_once == AtOnce::Left {
            self.at_once = AtOnce::Spent;
            return Duration::ZERO;
        }
        self.relisting.next_delay()
    }
}

/// The schedule itself, unless it is a function that may panic.
fn own(schedule: &BackoffSchedule) -> BackoffSchedule {
    match schedule {
        BackoffSchedule::Exponential { .. } => schedule.clone(),
        BackoffSchedule::Custom(_) => BackoffSchedule::default(),
    }
}

/// The schedule with a cap that keeps each delay below five seconds; a custom one is taken as it is.
fn soon(schedule: &BackoffSchedule) -> BackoffSchedule {
    match schedule {
        BackoffSchedule::Exponential { initial, factor, cap } => {
            BackoffSchedule::Exponential { initial: *initial, factor: *factor, cap: (*cap).min(SOON) }
        }
        BackoffSchedule::Custom(_) => schedule.clone(),
    }
}

//! The delays of a reflector: before a watch is opened again, before everything is listed again, after a panic.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{Backoff, BackoffSchedule};

/// If no list was needed for this time, the relisting delay starts again.
const HEALTHY: Duration = Duration::from_secs(120);

/// The cap of the delays before a kind that is not served is asked for again; jitter up to doubles it.
const SOON: Duration = Duration::from_millis(2_400);

/// The same after failures that may be chance, while the server answers: the first step of the default schedule.
const VERY_SOON: Duration = Duration::from_millis(800);

/// The cap of the time between two lists where the server asks for each; jitter up to doubles it.
///
/// Until the list comes, everybody sees an old state: half a minute is the longest that lists may stay away.
const LISTS_APART: Duration = Duration::from_secs(15);

/// Failures in a row may be chance for this long while the server answers; after that they are the kind's own.
const BY_CHANCE: Duration = Duration::from_secs(60);

/// Counts failures of each sort, and forgets each at its own time.
#[derive(Debug)]
pub(super) struct Pacing {
    pub(super) reopening: Retries,
    /// Before a request of a list is sent again that failed as any request may fail.
    pub(super) rereading: Retries,
    relisting: Backoff,
    /// Before a start after a panic. The schedule is not the user's, which may be what panicked.
    restarting: Backoff,
    /// Before a kind that is not served is asked for again: a definition may be installed at any time.
    absent: Backoff,
    /// When the last list succeeded, if nothing has asked for another since.
    pub(super) listed: Option<Instant>,
    /// A list without delay is still allowed.
    at_once_left: bool,
    /// Requests to the server succeed, of this reflector or of others.
    pub(super) server_answers: bool,
}

/// A back-off that stays short while the server answers, until the failures can't be chance any more.
#[derive(Debug)]
pub(super) struct Retries {
    pub(super) backoff: Backoff,
    /// Since when all has failed although the server answered.
    pub(super) since: Option<Instant>,
}

impl Retries {
    fn new(schedule: &BackoffSchedule, seed: u64) -> Self {
        Self { backoff: Backoff::new(schedule.clone(), seed), since: None }
    }

    fn next(&mut self, now: Instant, server_answers: bool) -> Duration {
        if !server_answers {
            // The delays grow from here: failures while others got through tell nothing about an outage.
            if self.since.take().is_some() {
                self.backoff.reset();
            }
        } else {
            self.since.get_or_insert(now);
            if !self.is_its_own(now) {
                return self.backoff.next_delay_within(VERY_SOON);
            }
        }
        self.backoff.next_delay()
    }

    /// Returns whether it fails for reasons of its own: that others get through tells nothing about it.
    fn is_its_own(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now - since >= BY_CHANCE)
    }

    /// Resets the back-off and returns its first delay; `None` if the kind fails for reasons of its own.
    pub(super) fn hurry(&mut self, now: Instant) -> Option<Duration> {
        if self.is_its_own(now) {
            return None;
        }
        self.backoff.reset();
        let step = self.backoff.next_delay();
        self.backoff.reset();
        Some(step)
    }

    pub(super) fn reset(&mut self) {
        self.backoff.reset();
        self.since = None;
    }
}

impl Pacing {
    pub(super) fn new(schedule: &BackoffSchedule, seed: u64) -> Self {
        let backoff = |offset| Backoff::new(schedule.clone(), seed.wrapping_add(offset));
        Self {
            reopening: Retries::new(schedule, seed),
            rereading: Retries::new(schedule, seed.wrapping_add(5)),
            relisting: backoff(1),
            restarting: Backoff::new(BackoffSchedule::default(), seed.wrapping_add(3)),
            absent: backoff(4),
            listed: None,
            at_once_left: true,
            server_answers: false,
        }
    }

    /// Returns how long to wait before the watch is opened again.
    pub(super) fn reopen(&mut self, now: Instant) -> Duration {
        self.reopening.next(now, self.server_answers)
    }

    /// Returns how long to wait before a request of a list is sent again.
    pub(super) fn reread(&mut self, now: Instant) -> Duration {
        self.rereading.next(now, self.server_answers)
    }

    /// Returns how long to wait before starting again after a panic.
    pub(super) fn restart(&mut self, now: Instant) -> Duration {
        self.forget_if_healthy(now);
        self.restarting.next_delay()
    }

    /// Returns how long to wait before a kind that is not served is asked for again.
    pub(super) fn ask_again(&mut self, now: Instant) -> Duration {
        self.forget_if_healthy(now);
        self.absent.next_delay_within(SOON)
    }

    /// Resets the other delays if none was needed for long; returns how long ago the last list was taken.
    fn forget_if_healthy(&mut self, now: Instant) -> Duration {
        let listed = self.listed.take().map_or(Duration::ZERO, |listed| now - listed);
        if listed >= HEALTHY {
            self.relisting.reset();
            self.restarting.reset();
            self.absent.reset();
            self.at_once_left = true;
        }
        listed
    }

    /// Returns how long to wait before listing again; the delay counts from the list before, if one was taken.
    ///
    /// It limits how often a kind is listed, and the time of a watch in between counts.
    pub(super) fn relist(&mut self, now: Instant) -> Duration {
        let listed = self.forget_if_healthy(now);
        self.relisting.next_delay().saturating_sub(listed)
    }

    /// The same where the server asks for a list of another sort, which may succeed: the delays stay shorter.
    ///
    /// The first since all was well has no delay.
    pub(super) fn relist_soon(&mut self, now: Instant) -> Duration {
        let listed = self.forget_if_healthy(now);
        match std::mem::take(&mut self.at_once_left) {
            true => Duration::ZERO,
            false => self.relisting.next_delay_within(LISTS_APART).saturating_sub(listed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_grow_from_the_first_step_when_the_server_falls_silent() {
        let mut pacing = Pacing::new(&BackoffSchedule::default(), 7);
        pacing.server_answers = true;
        for _ in 0..6 {
            let delay = pacing.reopen(Instant::now());
            assert!(delay < 2 * VERY_SOON, "{delay:?} while the server answers");
            tokio::time::advance(delay).await;
        }
        pacing.server_answers = false;
        for step in [VERY_SOON, 2 * VERY_SOON, 4 * VERY_SOON] {
            let delay = pacing.reopen(Instant::now());
            assert!((step..2 * step).contains(&delay), "{delay:?} is not in [{step:?}, {:?})", 2 * step);
        }
    }

    // R28 R29
    #[tokio::test(start_paused = true)]
    async fn lists_that_the_server_asks_for_are_at_most_half_a_minute_apart() {
        let mut pacing = Pacing::new(&BackoffSchedule::default(), 7);
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let delay = pacing.relist_soon(Instant::now());
            longest = longest.max(delay);
            tokio::time::advance(delay).await;
            pacing.listed = Some(Instant::now());
        }
        assert!((LISTS_APART..2 * LISTS_APART).contains(&longest), "{longest:?}");
        assert!(pacing.relist(Instant::now()) >= 2 * LISTS_APART, "other failures wait longer");
    }
}

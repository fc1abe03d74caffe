//! Watches: how they end, and what follows.

use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

use super::{Freshness, Goal, LONG_OUTAGE, Others, ProbeNeed, SPREAD, State};
use crate::{
    list_watch::{Bookmarks, ListOptions, ListWatchError},
    reflector::{
        fault::{Fault, asked_to_wait},
        pacing::Urgency,
        sink::Epoch,
    },
};

/// After how many refusals in a row, at the latest, a list shows what has changed: some twelve minutes.
const REFUSALS_PER_LIST: u32 = 16;

/// A watch that ends before this, with nothing to show, was hardly one.
const SHORT: Duration = Duration::from_secs(1);

/// How many of those in a row make the version suspect.
const SHORT_IN_A_ROW: u32 = 3;

/// A stream that lived so long was a good one, even if it delivered nothing.
pub(in crate::reflector) const LIVED: Duration = Duration::from_secs(10);

/// How long internal errors may go on before everything is listed again.
const INTERNAL_ERRORS: Duration = Duration::from_secs(60);

/// How a watch went, once it has ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::reflector) struct Ending {
    /// When it was opened.
    pub(in crate::reflector) opened: Instant,
    /// What it brought.
    pub(in crate::reflector) brought: Brought,
}

/// What a watch brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reflector) enum Brought {
    /// Nothing at all.
    Nothing,
    /// Events or bookmarks, all at the version that was known.
    Signs,
    /// A new version.
    Progress,
}

/// What to do with a watch that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum Opened {
    /// Read it.
    Follow,
    /// Close it: after a long outage everything is listed again.
    Relist,
}

impl State {
    pub(super) fn watch_options(&mut self) -> ListOptions {
        ListOptions {
            resource_version: self.version.clone(),
            timeout: Some(self.drawn_timeout()),
            bookmarks: Bookmarks::On,
            ..ListOptions::default()
        }
    }

    /// Notes that a watch was opened.
    pub(in crate::reflector) fn watch_opened(&mut self, now: Instant) -> Opened {
        if self.was_out_of_reach(now) {
            self.relist_spread();
            return Opened::Relist;
        }
        self.unopened_since = None;
        self.note_success();
        Opened::Follow
    }

    /// Notes that a stream delivers; says whether the version is new.
    pub(in crate::reflector) fn delivered(&mut self, version: Option<&str>) -> Brought {
        self.was_good();
        self.silence.broken();
        let Some(version) = version.filter(|version| !version.is_empty()) else { return Brought::Signs };
        if self.version.as_deref() == Some(version) || self.is_before_last(version) == Some(true) {
            return Brought::Signs;
        }
        self.version = Some(version.to_owned());
        Brought::Progress
    }

    /// Goes on from a watch that could not be opened.
    pub(in crate::reflector) fn open_failed(&mut self, now: Instant, error: &ListWatchError) {
        match Fault::of(error) {
            // The server is in reach, and does not want to be watched.
            fault @ (Fault::Forbidden | Fault::NotFound | Fault::NotAllowed | Fault::Rejected) => {
                self.refused(now, fault, error);
            }
            _ => {
                self.unopened_since.get_or_insert(now);
                self.watch_failed(now, error);
            }
        }
    }

    /// Goes on from a refusal, which a list does not repair.
    ///
    /// The list that may be allowed all the same shows changes in the meantime: after 1, 2, 4, 8, 16, 32, 48, … refusals
    /// in a row.
    fn refused(&mut self, now: Instant, fault: Fault, error: &ListWatchError) {
        self.refusals = self.refusals.saturating_add(1);
        let wait = match fault {
            Fault::NotFound => self.pacing.ask_again(now),
            _ => self.pacing.relist(now, Urgency::BackOff),
        };
        let wait = wait.max(asked_to_wait(error));
        match self.refusals.is_power_of_two() || self.refusals.is_multiple_of(REFUSALS_PER_LIST) {
            true => self.relist_after(wait),
            false => (self.goal, self.probe, self.wait) = (Goal::Watch, ProbeNeed::Needed, wait),
        }
    }

    /// Goes on from a watch that broke off, or that the server ended with an error.
    pub(in crate::reflector) fn watch_broke(&mut self, now: Instant, ending: Ending, error: &ListWatchError) {
        self.note_life(now, ending);
        self.short_watches = 0;
        if Fault::of(error) == Fault::Idle && ending.brought == Brought::Nothing {
            self.silence.watch_died();
        }
        self.watch_failed(now, error);
    }

    /// Goes on from a watch that the server ended cleanly; returns whether it ended too soon.
    pub(in crate::reflector) fn watch_closed(&mut self, now: Instant, ending: Ending) -> bool {
        self.note_life(now, ending);
        if now - ending.opened >= SHORT || ending.brought == Brought::Progress {
            self.short_watches = 0;
            return false;
        }
        self.short_watches += 1;
        self.blocked = Some(Fault::CutShort);
        if self.short_watches < SHORT_IN_A_ROW {
            self.wait = self.pacing.reopen(now);
            return true;
        }
        self.short_watches = 0;
        let wait = self.pacing.relist(now, Urgency::BackOff);
        self.relist_after(wait);
        true
    }

    /// Returns whether the version of a consistent read shows that the server lost what was seen before.
    pub(in crate::reflector) fn is_past(&self, latest: &str) -> bool {
        self.is_before_last(latest) == Some(true)
    }

    /// Judges the version that a consistent read of the collection returned.
    pub(in crate::reflector) fn probed(&mut self, now: Instant, latest: Option<&str>) {
        self.probe = ProbeNeed::NotNeeded;
        self.note_success();
        if latest.is_some_and(|latest| self.is_past(latest)) {
            self.history_lost(now);
        } else if self.was_out_of_reach(now) {
            self.relist_spread();
        } else if latest.is_some_and(|latest| self.is_later(latest)) && self.silence.is_suspicious() {
            self.ask_for_the_present();
            self.relist_after(Duration::ZERO);
        }
    }

    /// Starts over: the server's versions start again.
    pub(in crate::reflector) fn history_lost(&mut self, now: Instant) {
        self.probe = ProbeNeed::NotNeeded;
        self.epoch = Epoch::New;
        self.freshness = Freshness::Present;
        self.end_chain();
        let wait = self.pacing.relist(now, Urgency::AtOnceTheFirstTime);
        self.relist_after(wait);
    }

    /// Goes on where the collection's version could not be asked for.
    ///
    /// A server that does not answer the question is watched without it; any other failure is that of an
    /// opening.
    pub(in crate::reflector) fn probe_failed(
        &mut self,
        now: Instant,
        error: &ListWatchError,
    ) -> ProbeFailure {
        match Fault::of(error) {
            fault if fault.leaves_unknown() => {
                self.probe = ProbeNeed::NotNeeded;
                ProbeFailure::WatchWithout
            }
            _ => {
                self.open_failed(now, error);
                ProbeFailure::NotOpened
            }
        }
    }

    /// Returns whether the list under way shows what silent watches may have missed.
    pub(in crate::reflector) fn looks_for_missed(&self) -> bool {
        self.silence.looks()
    }

    /// Takes what such a list showed: something that no watch had brought, or not.
    pub(in crate::reflector) fn looked(&mut self, missed: bool) {
        self.silence.looked(missed);
    }

    /// Returns whether watches are known to hold changes back: none that is open counts as a good one for that.
    pub(in crate::reflector) fn is_blind(&self) -> bool {
        self.silence.is_blind()
    }

    fn note_life(&mut self, now: Instant, ending: Ending) {
        let lived = now - ending.opened;
        if lived >= LIVED {
            self.was_good();
        } else if lived >= SHORT {
            self.pacing.stream_was_open();
        }
        if ending.brought == Brought::Nothing {
            self.probe = ProbeNeed::Needed;
        }
    }

    fn was_good(&mut self) {
        self.pacing.stream_was_good();
        self.internal_errors_since = None;
        self.refusals = 0;
    }

    fn watch_failed(&mut self, now: Instant, error: &ListWatchError) {
        self.note_failure(error);
        match Fault::of(error) {
            Fault::Idle | Fault::Suspended => self.wait = Duration::ZERO,
            Fault::Overloaded | Fault::Unauthorized | Fault::CutShort => self.reopen(now, error),
            Fault::Unreachable => self.reopen(now, error),
            Fault::Internal if !self.internal_errors_last(now) => self.reopen(now, error),
            Fault::Expired | Fault::TooLarge => {
                self.freshness = Freshness::Present;
                let wait = self.pacing.relist(now, Urgency::AtOnceTheFirstTime);
                self.relist_after(wait);
            }
            _ => {
                let wait = self.pacing.relist(now, Urgency::BackOff).max(asked_to_wait(error));
                self.relist_after(wait);
            }
        }
    }

    /// Opens the watch again after a wait, through which the server may have been restored to an older state.
    fn reopen(&mut self, now: Instant, error: &ListWatchError) {
        self.goal = Goal::Watch;
        self.probe = ProbeNeed::Needed;
        self.wait = self.pacing.reopen(now).max(self.asked_to_wait(error));
    }

    /// Returns how long the server asked to be left alone, unless others find that it is up meanwhile.
    ///
    /// A server that starts asks for patience until all of it is up.
    pub(super) fn asked_to_wait(&self, error: &ListWatchError) -> Duration {
        match self.others {
            Others::GetThrough if Fault::of(error).is_of_an_outage() => Duration::ZERO,
            _ => asked_to_wait(error),
        }
    }

    fn internal_errors_last(&mut self, now: Instant) -> bool {
        now - *self.internal_errors_since.get_or_insert(now) > INTERNAL_ERRORS
    }

    fn was_out_of_reach(&self, now: Instant) -> bool {
        self.unopened_since.is_some_and(|since| now - since >= LONG_OUTAGE)
    }

    fn relist_spread(&mut self) {
        self.unopened_since = None;
        let wait = SPREAD.mul_f64(self.rng.random_range(0.0..1.0));
        self.relist_after(wait);
    }
}

/// What becomes of a question that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum ProbeFailure {
    /// The watch is opened without an answer.
    WatchWithout,
    /// The server counts as out of reach.
    NotOpened,
}

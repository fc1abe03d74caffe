//! What follows from what other reflectors of the server, or the store, have found out.

use std::time::Duration;

use tokio::time::Instant;

use super::{Freshness, Goal, Others, ProbeNeed, State};
use crate::reflector::fault::Fault;

/// What follows from the event that the server lost its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum OnLoss {
    /// The next step asks what is left; nothing is waited for.
    Asks,
    /// The same, but the server wants to be left alone first.
    AsksLater,
    /// The server does not answer about this kind: nothing more will be known.
    CantAsk,
}

impl State {
    /// Takes the event that the server lost its history: this kind is judged by its own versions.
    pub(in crate::reflector) fn on_history_lost(&mut self, now: Instant) -> OnLoss {
        if self.blocked.is_some_and(Fault::is_refused_for_good) {
            return OnLoss::CantAsk;
        }
        match self.goal {
            Goal::Watch => self.probe = ProbeNeed::Needed,
            // A list under way may show what is lost; the next one is a consistent read, which judges itself.
            Goal::List => self.ask_for_the_present(),
        }
        if self.blocked == Some(Fault::Overloaded) {
            return OnLoss::AsksLater;
        }
        self.on_recovery(now);
        self.wait = Duration::ZERO;
        OnLoss::Asks
    }

    /// Takes the event that the server was reached again; returns how long after the last failure to try again.
    ///
    /// `None`: this kind waits for another reason, or has failed for long while others got through.
    pub(in crate::reflector) fn on_recovery(&mut self, now: Instant) -> Option<Duration> {
        let waits = self.blocked.is_some_and(Fault::is_of_an_outage);
        let step = match self.goal {
            _ if !waits => None,
            Goal::List => self.pacing.reread_in_a_hurry(now),
            Goal::Watch => self.pacing.reopen_in_a_hurry(now),
        }?;
        self.others = Others::GetThrough;
        Some(step)
    }

    /// Relists because answers contradict the store.
    pub(in crate::reflector) fn contradicted(&mut self) {
        if self.version.is_some() {
            self.goal = Goal::List;
            self.ask_for_the_present();
        }
    }

    pub(super) fn ask_for_the_present(&mut self) {
        self.end_chain();
        if self.version.is_some() {
            self.freshness = Freshness::Present;
        }
    }
}

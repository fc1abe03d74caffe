//! Begins a term of work each time that this replica is elected, and ends it in time.

use std::{future::pending, sync::Arc, time::Duration};

use futures::{FutureExt, future::select_all};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::tasks::WorkInFlight;
use crate::{
    clock::after,
    controller::{Stop, Term, TermHold, Terms, Waits},
    informer::TermStart,
    leader_election::Candidate,
    shards::{Member, Slots},
};

/// A replica's part in an election, for as long as its manager runs.
pub(super) struct Campaign {
    candidate: Candidate,
    /// This replica among those that share the work; `None`: one does it all.
    member: Option<Member>,
    terms: watch::Sender<Option<Term>>,
    stop: Stop,
    /// What each controller waits for before it can start.
    waits: Vec<Arc<Waits>>,
    /// Cancelled once there is work that does not wait for those.
    has_more: CancellationToken,
    /// What was asked of caches since somebody else may have worked.
    start: Arc<TermStart>,
    grace_period: Duration,
    in_flight: WorkInFlight,
}

impl Campaign {
    pub(super) fn new(
        (candidate, member): (Candidate, Option<Member>),
        waits: Vec<Arc<Waits>>,
        has_more: CancellationToken,
        stop: Stop,
        grace_period: Duration,
        in_flight: WorkInFlight,
    ) -> (Self, Terms) {
        let (terms, present) = watch::channel(None);
        let start = Arc::default();
        let campaign =
            Self { candidate, member, terms, stop, waits, has_more, start, grace_period, in_flight };
        (campaign, Terms::of(present))
    }

    /// Stands by, leads and stands by again until the manager stops; then gives the Lease up, once nothing runs.
    pub(super) async fn run(mut self) {
        let (stop, waits) = (self.stop.clone(), std::mem::take(&mut self.waits));
        tokio::select! {
            biased;
            () = stop.finish.cancelled() => return,
            () = self.has_more.cancelled() => {}
            () = any_could_start(&waits) => {}
        }
        // They hold informers, also those of controllers that are removed.
        drop(waits);
        while self.term().await {}
        match self.in_flight.leftovers.named() {
            None => self.release().await,
            Some(who) => self.candidate.leave(&who),
        }
    }

    async fn release(&mut self) {
        if let Some(member) = &self.member {
            member.slots().end();
        }
        self.candidate.release().await;
        if let Some(member) = &mut self.member {
            member.release().await;
        }
    }

    /// Returns whether another term may follow: not once the manager stops, and everything has ended.
    async fn term(&mut self) -> bool {
        let continues = tokio::select! {
            biased;
            () = self.stop.finish.cancelled() => return false,
            continues = self.candidate.win() => continues,
        };
        if !continues {
            self.start = Arc::default();
        }
        let (working, stop) = (TaskTracker::new(), self.stop.child());
        working.close();
        let slots = self.member.as_ref().map(|member| member.slots().clone());
        let in_flight = self.in_flight.clone();
        let held = TermHold::new(working.token(), self.candidate.watch_term(move || in_flight.named()));
        let term = Term::won(stop.clone(), self.start.clone(), slots.clone(), held);
        self.terms.send_replace(Some(term));
        // While the manager stops, the Lease is renewed for as long as something runs, or goes on that a run began.
        let stopped = async {
            self.stop.finish.cancelled().await;
            slots.iter().for_each(Slots::leave);
            let until = after(Instant::now(), self.grace_period);
            self.terms.send_replace(None);
            working.wait().await;
            let _ = timeout_at(until, self.in_flight.leftovers.ended()).await;
        };
        let is_shared_out = async {
            match &mut self.member {
                Some(member) => member.take_part().await,
                None => pending().await,
            }
        };
        let is_closed = tokio::select! {
            biased;
            _ = self.candidate.hold() => false,
            () = is_shared_out => true,
            () = stopped => return false,
        };
        if is_closed {
            self.candidate.close();
        }
        stop.finish.cancel();
        self.terms.send_replace(None);
        tokio::select! {
            biased;
            () = working.wait() => {}
            () = self.candidate.expire() => {
                stop.abort.cancel();
                working.wait().await;
            }
        }
        slots.iter().for_each(Slots::lost);
        if let Some(who) = self.in_flight.leftovers.named() {
            tracing::error!(
                "the term is over, but work of {who} still runs: another replica may start at the same time"
            );
        }
        true
    }
}

/// A term is not held any more, also if the runtime goes while somebody follows the terms.
impl Drop for Campaign {
    fn drop(&mut self) {
        self.terms.send_replace(None);
    }
}

/// Ends when some controller has what it needs, or there is none: who could start nothing does not campaign.
async fn any_could_start(waits: &[Arc<Waits>]) {
    if !waits.is_empty() {
        select_all(waits.iter().map(|waits| waits.any_could_run().boxed())).await;
    }
}

//! One replica among those that share the work: it lists what all say, and holds the Lease of the whole program.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    claims::{MemberLease, MemberLeases, SlotRecord},
    slots::Slots,
};
use crate::leader_election::{Candidate, LeaderElection, LeaseNote, NotedLease, NotedLeases};

/// After how many lease durations without a change a Lease is deleted that another replica left.
const FORGOTTEN_AFTER: u32 = 10;
/// How much more often Leases are listed while slots move.
const WHILE_MOVING: u32 = 8;
/// Leases are listed several times while one lasts, however seldom they are renewed: after a gap nobody may take a slot.
const IN_A_LEASE: u32 = 6;
/// How long to wait at least between two lists, however much the others say.
const AT_LEAST: Duration = Duration::from_millis(50);

/// One replica, in addition to the [`Candidate`] that holds its own Lease.
pub(crate) struct Member {
    leases: MemberList,
    /// Holds the Lease of the whole program for all replicas.
    guard: Candidate,
}

/// What the replicas say, as it is listed again and again.
pub(crate) struct MemberList {
    leases: NotedLeases,
    slots: Slots,
    note: Arc<LeaseNote>,
    lease: Duration,
    retry: Duration,
}

impl Member {
    /// Makes a member. `guard` is for the Lease of the whole program, which all replicas hold together.
    pub(crate) fn new(
        election: &LeaderElection,
        slots: Slots,
        note: Arc<LeaseNote>,
        leases: NotedLeases,
        guard: Candidate,
    ) -> Self {
        let (lease, retry) = (election.lease(), election.retry());
        Self { leases: MemberList { leases, slots, note, lease, retry }, guard }
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.leases.slots
    }

    /// Follows what all replicas say, and holds the Lease of the whole program, until that is lost.
    pub(crate) async fn take_part(&mut self) {
        let Self { leases, guard } = self;
        let guarded = async {
            guard.win().await;
            // The Lease may have been deleted while another replica led by it.
            let held = async {
                sleep(leases.lease).await;
                leases.slots.update(|claims| claims.guarded(true, Instant::now()));
                std::future::pending::<Infallible>().await
            };
            tokio::select! {
                biased;
                _ = guard.hold() => {}
                never = held => match never {},
            }
        };
        tokio::select! {
            biased;
            () = guarded => {}
            never = leases.follow() => match never {},
        }
    }

    /// Releases the Lease of the whole program, if no other replica shares the work.
    pub(crate) async fn release(&mut self) {
        // What the Lease was at the guard's last request: a replica that joined since has written it again.
        if self.leases.list().await.is_ok() && self.slots().read(|claims| claims.is_alone(Instant::now())) {
            self.guard.release().await;
        }
    }
}

impl MemberList {
    async fn follow(&self) -> Infallible {
        let (mut confirmed, mut has_failed) = (self.note.confirmed(), false);
        let mut said = None;
        loop {
            let (next, listed) = (Instant::now() + AT_LEAST, self.list().await);
            if listed.is_ok() == has_failed {
                has_failed = listed.is_err();
                let (shards, namespace) = (&*self.leases.group, &*self.leases.namespace);
                match listed {
                    Ok(()) => tracing::info!(shards, namespace, "the replicas' Leases can be listed again"),
                    Err(error) => {
                        tracing::warn!(
                            shards,
                            namespace,
                            error,
                            "the replicas' Leases can't be listed: no slot moves"
                        );
                    }
                }
            }
            let is_settled = self.slots.read(|claims| claims.is_settled(Instant::now()));
            let pause = self.retry.min(self.lease / IN_A_LEASE);
            let pause = if is_settled { pause } else { pause / WHILE_MOVING };
            let changes = said.get_or_insert_with(|| self.leases.watch());
            let has_ended = tokio::select! {
                biased;
                changed = confirmed.changed() => {
                    if changed.is_err() {
                        sleep(pause).await;
                    }
                    false
                }
                has_ended = self.somebody_speaks(changes) => {
                    if has_ended {
                        sleep(pause).await;
                    }
                    has_ended
                }
                () = sleep(pause) => false,
            };
            if has_ended {
                said = None;
            }
            let record =
                confirmed.borrow_and_update().as_deref().and_then(|said| serde_json::from_str(said).ok());
            if let Some(record) = record {
                self.slots.update(|claims| claims.confirmed(record, Instant::now()));
            }
            sleep_until(next).await;
        }
    }

    /// Ends once another replica says something new. Returns whether the watch is over instead.
    async fn somebody_speaks(&self, changes: &mut BoxStream<'static, (Arc<str>, Arc<str>)>) -> bool {
        while let Some((name, note)) = changes.next().await {
            let (said, _) = SlotRecord::read(serde_json::from_str(&note).ok(), &name, self.slots.of());
            if self.slots.read(|claims| claims.is_news(&name, &said)) {
                return false;
            }
        }
        true
    }

    /// Lists the Leases.
    ///
    /// # Errors
    /// Why the server did not answer, in one line.
    async fn list(&self) -> Result<(), String> {
        let (sent, within) = (Instant::now(), self.lease / 3);
        let listed = timeout(within, self.leases.list()).await;
        let listed = listed.map_err(|_| format!("no answer within {within:?}"))??;
        let leases: MemberLeases =
            listed.iter().map(|lease| (lease.name.clone(), self.said_in(lease))).collect();
        self.slots.update(|claims| claims.listed(sent, Instant::now(), leases));
        let stale = self
            .slots
            .read(|claims| claims.stale(self.lease.saturating_mul(FORGOTTEN_AFTER), Instant::now()));
        for lease in listed.iter().filter(|lease| stale.contains(&lease.name)) {
            if !matches!(timeout(within, self.leases.delete(lease)).await, Ok(Ok(()))) {
                tracing::debug!(lease = &*lease.name, "the Lease of a replica that is gone can't be deleted");
                break;
            }
        }
        Ok(())
    }

    fn said_in(&self, lease: &NotedLease) -> MemberLease {
        let said = serde_json::from_str(&lease.note).ok();
        let (record, is_broken) = SlotRecord::read(said, &lease.name, self.slots.of());
        MemberLease {
            record,
            is_broken,
            version: lease.version.clone(),
            renewed: lease.renewed,
            // Replicas have the same durations, but for an update. Rubbish must not claim slots for years.
            lasts: lease.duration.clamp(self.lease, self.lease.saturating_mul(FORGOTTEN_AFTER)),
            has_left: lease.is_released,
        }
    }
}

//! How an election stands, for whoever asks: health, metrics, debug pages, the user's own code.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::{
    clock::{Reading, Since, WallClock},
    metrics::ElectionMeter,
    object::ObjectKey,
};

/// How this replica stands in its election.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaderState {
    /// It does not campaign: nothing of it could start yet, or it does not run.
    Idle,
    /// It would lead, if the Lease were free.
    StandsBy {
        /// Who holds the Lease, as far as is known.
        holder: Option<String>,
    },
    /// It leads: workers run.
    Leads,
    /// Its term is over: the last runs end.
    Ends,
}

/// Shows how an election stands; clones follow the same one.
#[derive(Clone)]
pub struct Leadership {
    shared: Arc<Shared>,
    states: watch::Receiver<Standing>,
}

/// A state, and since when.
#[derive(Clone, Debug)]
struct Standing {
    state: LeaderState,
    since: Instant,
}

struct Shared {
    lease: ObjectKey,
    identity: Arc<str>,
    lasts: Duration,
    clock: WallClock,
    /// Since the last renewal of the term under way.
    renewed: Mutex<Option<Since>>,
}

/// Says that a replica has led for too long without a renewal: whatever should have ended its term hangs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leads by the Lease {lease} without a renewal for {unrenewed:?}, longer than that lasts")]
pub struct StaleLeader {
    /// The Lease.
    pub lease: ObjectKey,
    /// Since when.
    pub unrenewed: Duration,
}

impl Leadership {
    /// Returns the key of the Lease.
    pub fn lease(&self) -> &ObjectKey {
        &self.shared.lease
    }

    /// Returns the name under which this replica holds the Lease.
    pub fn identity(&self) -> &str {
        &self.shared.identity
    }

    /// Returns how this replica stands.
    pub fn state(&self) -> LeaderState {
        self.states.borrow().state.clone()
    }

    /// Returns since when it stands so.
    pub fn since(&self) -> Instant {
        self.states.borrow().since
    }

    /// Waits until this replica stands differently than when this was last asked; never ends once the manager is gone.
    pub async fn changed(&mut self) -> LeaderState {
        if self.states.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.states.borrow_and_update().state.clone()
    }

    /// Checks that a replica that leads has a Lease to lead by: for a liveness probe.
    ///
    /// # Errors
    /// It leads, and the Lease has not been renewed for longer than it lasts.
    pub fn check(&self) -> Result<(), StaleLeader> {
        self.check_at(self.shared.clock.read())
    }

    fn check_at(&self, now: Reading) -> Result<(), StaleLeader> {
        let unrenewed = self.shared.renewed().as_mut().map_or(Duration::ZERO, |since| since.measure(now));
        match unrenewed > self.shared.lasts {
            true => Err(StaleLeader { lease: self.shared.lease.clone(), unrenewed }),
            false => Ok(()),
        }
    }
}

impl Shared {
    fn renewed(&self) -> MutexGuard<'_, Option<Since>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("lease", &self.shared.lease)
            .field("identity", &self.shared.identity)
            .field("state", &self.state())
            .finish()
    }
}

/// Notifies those who follow an election.
pub(super) struct StatusSender {
    shared: Arc<Shared>,
    meter: ElectionMeter,
    states: watch::Sender<Standing>,
}

impl StatusSender {
    pub(super) fn new(
        lease: ObjectKey,
        identity: Arc<str>,
        lasts: Duration,
        clock: WallClock,
        meter: ElectionMeter,
    ) -> (Self, Leadership) {
        let shared = Arc::new(Shared { lease, identity, lasts, clock, renewed: Mutex::default() });
        let idle = Standing { state: LeaderState::Idle, since: Instant::now() };
        let (states, following) = watch::channel(idle);
        (Self { shared: shared.clone(), meter, states }, Leadership { shared, states: following })
    }

    pub(super) fn lease(&self) -> &ObjectKey {
        &self.shared.lease
    }

    pub(super) fn identity(&self) -> &str {
        &self.shared.identity
    }

    pub(super) fn set(&self, state: LeaderState) {
        if matches!(state, LeaderState::Idle | LeaderState::StandsBy { .. }) {
            *self.shared.renewed() = None;
        }
        self.states.send_if_modified(|standing| {
            let changed = standing.state != state;
            if changed {
                match state {
                    LeaderState::Leads => self.meter.leads(),
                    _ => self.meter.leads_no_more(),
                }
                *standing = Standing { state, since: Instant::now() };
            }
            changed
        });
    }

    /// A leader reads its Lease, since a renewal was refused or its fate is unknown.
    pub(super) fn reads_as_leader(&self) {
        self.meter.took_the_slow_path();
    }

    pub(super) fn renewed(&self, sent: Reading) {
        *self.shared.renewed() = Some(Since::start(sent));
    }
}

impl Drop for StatusSender {
    fn drop(&mut self) {
        self.meter.leads_no_more();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    // L8
    #[tokio::test(start_paused = true)]
    async fn a_leader_that_has_not_renewed_for_longer_than_its_lease_is_unhealthy() {
        let (lease, clock) = (ObjectKey::new("shop", "a"), WallClock::system());
        let (lasts, meter) = (Duration::from_secs(15), ElectionMeter::default());
        let (status, leadership) = StatusSender::new(lease, "me".into(), lasts, clock.clone(), meter);
        advance(Duration::from_secs(100)).await;
        assert_eq!(leadership.check(), Ok(()), "it never led");
        status.renewed(clock.read());
        status.set(LeaderState::Leads);
        advance(Duration::from_secs(14)).await;
        assert_eq!(leadership.check(), Ok(()));
        status.renewed(clock.read());
        advance(Duration::from_secs(14)).await;
        assert_eq!(leadership.check(), Ok(()));
        advance(Duration::from_secs(2)).await;
        let stale = leadership.check().unwrap_err().to_string();
        assert!(stale.contains("leads by the Lease shop/a without a renewal for 16"), "{stale}");
        status.set(LeaderState::Ends);
        assert!(leadership.check().is_err(), "what should have ended goes on");
        status.set(LeaderState::StandsBy { holder: None });
        assert_eq!(leadership.check(), Ok(()));
    }
}

//! The state of an election, for health checks, metrics, debug pages and the program.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::gate::TermGate;
use crate::{metrics::ElectionMeter, object::ObjectKey};

/// The state of this replica in its election.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaderState {
    /// It takes no part in the election: it has not started, or does not run.
    Idle,
    /// It would lead, if the Lease were free.
    StandsBy {
        /// The replica that holds the Lease, as far as is known.
        holder: Option<String>,
    },
    /// It leads: workers run.
    Leads,
    /// Its term is over, and the last runs end.
    Ends,
}

/// Shows the state of an election. Clones follow the same one.
///
/// The book has more: [several replicas](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/replicas.md).
#[derive(Clone)]
pub struct Leadership {
    shared: Arc<LeadershipShared>,
    states: watch::Receiver<TimedState>,
}

/// A state, and since when.
#[derive(Clone, Debug)]
struct TimedState {
    state: LeaderState,
    since: Instant,
}

struct LeadershipShared {
    lease: ObjectKey,
    identity: Arc<str>,
    lasts: Duration,
    gate: Arc<TermGate>,
}

/// A replica has led for too long without a renewal: the code that should have ended its term hangs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leads by the Lease {lease} without a renewal for {unrenewed:?}, longer than that lasts")]
pub struct StaleLeader {
    /// The Lease.
    pub lease: ObjectKey,
    /// For how long it was not renewed.
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

    /// Returns the state of this replica.
    pub fn state(&self) -> LeaderState {
        self.states.borrow().state.clone()
    }

    /// Returns since when it has this state.
    pub fn since(&self) -> Instant {
        self.states.borrow().since
    }

    /// Waits until the state differs from what the last call of this returned. Never returns once the manager is gone.
    pub async fn changed(&mut self) -> LeaderState {
        if self.states.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.states.borrow_and_update().state.clone()
    }

    /// Checks that a leader still has its Lease, for a liveness probe.
    ///
    /// # Errors
    /// The replica leads, and has not renewed the Lease for longer than the lease duration.
    pub fn check(&self) -> Result<(), StaleLeader> {
        let unrenewed = self.shared.gate.unrenewed();
        match self.state() {
            LeaderState::Leads | LeaderState::Ends if unrenewed > self.shared.lasts => {
                Err(StaleLeader { lease: self.shared.lease.clone(), unrenewed })
            }
            _ => Ok(()),
        }
    }
}

impl_debug!(Leadership, this =>
    lease: this.shared.lease, identity: this.shared.identity, state: this.state()
);

/// Publishes the state of an election.
pub(super) struct StatusSender {
    shared: Arc<LeadershipShared>,
    pub(super) meter: ElectionMeter,
    states: watch::Sender<TimedState>,
}

impl StatusSender {
    pub(super) fn new(
        lease: ObjectKey,
        identity: Arc<str>,
        lasts: Duration,
        gate: Arc<TermGate>,
        meter: ElectionMeter,
    ) -> (Self, Leadership) {
        let shared = Arc::new(LeadershipShared { lease, identity, lasts, gate });
        let idle = TimedState { state: LeaderState::Idle, since: Instant::now() };
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
        self.states.send_if_modified(|current| {
            let changed = current.state != state;
            if changed {
                self.meter.leads.set((state == LeaderState::Leads).into());
                *current = TimedState { state, since: Instant::now() };
            }
            changed
        });
    }
}

impl Drop for StatusSender {
    fn drop(&mut self) {
        self.meter.leads.set(0);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::clock::WallClock;

    // L8
    #[tokio::test(start_paused = true)]
    async fn a_leader_that_has_not_renewed_for_longer_than_its_lease_is_unhealthy() {
        let (lease, clock) = (ObjectKey::new("shop", "a"), WallClock::system());
        let (lasts, meter) = (Duration::from_secs(15), ElectionMeter::default());
        let gate = Arc::new(TermGate::new(clock.clone(), Duration::from_secs(12)));
        let (status, leadership) = StatusSender::new(lease, "me".into(), lasts, gate.clone(), meter);
        advance(Duration::from_secs(100)).await;
        assert_eq!(leadership.check(), Ok(()), "it never led");
        gate.renewed(clock.read());
        status.set(LeaderState::Leads);
        advance(Duration::from_secs(14)).await;
        assert_eq!(leadership.check(), Ok(()));
        gate.renewed(clock.read());
        advance(Duration::from_secs(14)).await;
        assert_eq!(leadership.check(), Ok(()));
        advance(Duration::from_secs(2)).await;
        let stale = leadership.check().unwrap_err().to_string();
        assert!(stale.contains("leads by the Lease shop/a without a renewal for 16"), "{stale}");
        status.set(LeaderState::Ends);
        gate.close();
        assert!(leadership.check().is_err(), "runs that should have ended go on");
        status.set(LeaderState::StandsBy { holder: None });
        assert_eq!(leadership.check(), Ok(()));
    }
}

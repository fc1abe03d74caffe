//! The settings of an election, and their validation.

use std::{sync::Arc, time::Duration};

use super::note::LeaseNote;
use crate::object::{is_dns_label, is_domain};

/// The longest identity, which is the longest name in Kubernetes.
const LONGEST_IDENTITY: usize = 253;

/// Elects one replica among those that name the same Lease.
///
/// A string converts to an election with this name of the Lease and the defaults otherwise.
///
/// ```
/// # use watchkeeper::{Manager, leader_election::LeaderElection, prelude::*};
/// # fn elected(manager: Manager) -> Manager {
/// manager.leader_election(
///     LeaderElection::new("websites")
///         .namespace("operators")
///         .identity("website-7f9c/node-3")
///         .lease_duration(Duration::from_secs(30))
///         .renew_deadline(Duration::from_secs(20))
///         .retry_period(Duration::from_secs(4)),
/// )
/// # }
/// ```
///
/// The book has more: [leadership](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/leadership.md).
#[derive(Clone, Debug)]
#[must_use = "an election is held once a manager has it"]
pub struct LeaderElection {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) timing: Timing,
    /// What a test calls instead of ending the process.
    pub(super) on_overrun: Option<fn(&str)>,
    /// What the replica says in its Lease, whose name no other process has.
    pub(super) note: Option<Arc<LeaseNote>>,
    /// Whether all replicas hold the Lease together.
    pub(super) is_shared: bool,
}

/// How long a term lasts, and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    pub(super) lease: Duration,
    pub(super) renew: Duration,
    pub(super) retry: Duration,
}

impl Timing {
    /// Returns after how long without a renewal no request may start, and runs are dropped.
    pub(super) fn expiry(&self) -> Duration {
        self.renew + self.lease.saturating_sub(self.renew) / 2
    }

    /// Returns after how long without a renewal the process ends if something still runs.
    pub(super) fn overrun(&self) -> Duration {
        self.renew + self.lease.saturating_sub(self.renew) * 3 / 4
    }

    /// Returns how long a request for the Lease may take while the server is fast.
    pub(super) fn request(&self) -> Duration {
        self.renew / 4
    }

    /// Returns how long such a request may take while the server is slow.
    pub(super) fn longest_request(&self) -> Duration {
        self.renew / 2
    }

    /// Returns how often a candidate that stands by reads the Lease, before jitter.
    pub(super) fn look(&self) -> Duration {
        self.retry / 2
    }
}

impl LeaderElection {
    /// Names the Lease. By default it is in the client's namespace, which in a cluster is the pod's.
    pub fn new(name: impl Into<String>) -> Self {
        let seconds = Duration::from_secs;
        Self {
            name: name.into(),
            namespace: None,
            identity: None,
            timing: Timing { lease: seconds(15), renew: seconds(10), retry: seconds(2) },
            on_overrun: None,
            note: None,
            is_shared: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the Lease's namespace.
    pub(crate) fn namespace_or(&self, default: &str) -> String {
        self.namespace.as_deref().unwrap_or(default).to_owned()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.timing.lease
    }

    pub(crate) fn retry(&self) -> Duration {
        self.timing.retry
    }

    /// Makes the settings of a Lease that one process alone has, and says something in.
    pub(crate) fn noting(self, name: &str, note: Arc<LeaseNote>) -> Self {
        Self { name: name.to_owned(), note: Some(note), ..self }
    }

    /// Makes the settings of a Lease that all replicas hold together, against those that hold it alone.
    ///
    /// They hold it for longer, so that the end of one of them does not interrupt the others.
    pub(crate) fn shared(self) -> Self {
        let Timing { lease, .. } = self.timing;
        let (lease, renew) = (lease.saturating_mul(4), lease.saturating_mul(3));
        let timing = Timing { lease, renew, retry: self.timing.lease / 3 };
        Self { identity: Some(format!("shards of {}", self.name)), timing, is_shared: true, ..self }
    }

    /// Sets the Lease's namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the name under which this replica holds the Lease. The default is the host's name and a random suffix.
    ///
    /// Each replica needs a different one. If two replicas have the same, neither takes the other's hold for its own: a
    /// process recognises its holds by when they began. For the same reason a replica that restarts waits until the hold of
    /// its predecessor is over.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Sets after how long another replica may take a Lease that is not renewed. Default: 15 s. Whole seconds only.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.timing.lease = duration;
        self
    }

    /// Sets after how long without a renewal a leader stops. Default: 10 s. It must be shorter than the lease duration.
    ///
    /// From then on no run starts. Half-way from there to the end of the lease, the runs that are left are dropped, and
    /// from then on no request leaves the process.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.timing.renew = deadline;
        self
    }

    /// Sets how often the leader renews the Lease. Default: 2 s. Replicas that stand by read it about twice as often.
    ///
    /// A renewal that fails is retried after a tenth of this, later after up to a quarter of it. It must be more than zero,
    /// and 1.2 times it must be less than the renew deadline.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.timing.retry = period;
        self
    }

    /// Has a test's function called, on a thread of the runtime's own, instead of ending the process.
    #[doc(hidden)]
    pub fn on_overrun(mut self, tell: fn(&str)) -> Self {
        self.on_overrun = Some(tell);
        self
    }

    /// Checks that the settings can work.
    pub(super) fn check(&self, namespace: &str) -> Result<(), ElectionError> {
        let Self { name, identity, timing: Timing { lease, renew, retry }, .. } = self;
        if !is_domain(name) {
            return Err(ElectionError::Name(name.clone()));
        }
        if !is_dns_label(namespace) {
            return Err(ElectionError::Namespace(namespace.to_owned()));
        }
        if identity.as_ref().is_some_and(|identity| {
            identity.trim().is_empty()
                || identity.len() > LONGEST_IDENTITY
                || identity.chars().any(char::is_control)
        }) {
            return Err(ElectionError::Identity(identity.clone().unwrap_or_default()));
        }
        if lease.subsec_nanos() != 0 || lease.is_zero() || lease.as_secs() > i32::MAX as u64 {
            return Err(ElectionError::LeaseDuration(*lease));
        }
        if renew >= lease {
            return Err(ElectionError::RenewDeadline { renew: *renew, lease: *lease });
        }
        if retry.is_zero() || *renew <= retry.saturating_mul(6) / 5 {
            return Err(ElectionError::RetryPeriod { retry: *retry, renew: *renew });
        }
        Ok(())
    }
}

impl From<&str> for LeaderElection {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for LeaderElection {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

/// Why the settings of an election are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// This cannot be the name of a Lease.
    #[error("leader election: {0:?} can't name a Lease: use a-z, 0-9, '-' and '.', at most 253 of them")]
    Name(String),
    /// This cannot be the name of a namespace.
    #[error(
        "leader election: {0:?} can't be a namespace: use 1 to 63 of a-z, 0-9, '-', not '-' at either end"
    )]
    Namespace(String),
    /// The identity is not valid.
    #[error(
        "leader election: the identity {0:?} is not valid: use 1 to 253 characters, other ones in each replica"
    )]
    Identity(String),
    /// The duration is not a whole number of seconds.
    #[error("leader election: a lease of {0:?} does not fit into a Lease: use whole seconds, at least one")]
    LeaseDuration(Duration),
    /// A leader would stop only after another one began.
    #[error(
        "leader election: a renew deadline of {renew:?} must be shorter than the lease of {lease:?}: a leader stops \
         before another one begins"
    )]
    RenewDeadline {
        /// The renew deadline.
        renew: Duration,
        /// The lease.
        lease: Duration,
    },
    /// One renewal that fails would be one too many.
    #[error(
        "leader election: a retry period of {retry:?} must be more than zero, and 1.2 times it less than the renew \
         deadline of {renew:?}: a leader tries more than once"
    )]
    RetryPeriod {
        /// The retry period.
        retry: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// This cannot be the name of shards.
    #[error(
        "shards: {0:?} can't name shards: use 1 to 63 of a-z, 0-9, '-' and '.', a letter or digit at either end"
    )]
    Shards(String),
    /// The number of slots is out of range.
    #[error("shards: keys can't be put into {0} slots: use 1 to 1024")]
    Slots(u16),
    /// The manager has already returned a client that is not gated.
    #[error(
        "leader election: the manager's client was taken before `leader_election(..)`, so that requests through it would \
         not end with the term; call `leader_election` first"
    )]
    ClientTaken,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn timed(lease: f64, renew: f64, retry: f64) -> LeaderElection {
        LeaderElection::new("a")
            .lease_duration(seconds(lease))
            .renew_deadline(seconds(renew))
            .retry_period(seconds(retry))
    }

    // L7
    #[test]
    fn invalid_settings_are_refused_with_the_rule() {
        let named = |name: &str| LeaderElection::new(name);
        let refused: [(LeaderElection, &str); 14] = [
            (named(""), "can't name a Lease"),
            (named("Web"), "can't name a Lease"),
            (named("web/a"), "can't name a Lease"),
            (named(&"a".repeat(254)), "can't name a Lease"),
            (named("a").namespace("no_such"), "can't be a namespace"),
            (named("a").namespace(""), "can't be a namespace"),
            (named("a").identity(" "), "is not valid"),
            (named("a").identity("x".repeat(254)), "is not valid"),
            (timed(15.5, 10.0, 2.0), "whole seconds"),
            (timed(0.0, 10.0, 2.0), "whole seconds"),
            (timed(10.0, 10.0, 2.0), "shorter than the lease of 10s"),
            (timed(10.0, 11.0, 2.0), "a leader stops before another one begins"),
            (timed(15.0, 2.4, 2.0), "1.2 times it less than the renew deadline of 2.4s"),
            (timed(15.0, 10.0, 0.0), "more than zero"),
        ];
        for (election, rule) in refused {
            let namespace = election.namespace.clone().unwrap_or_else(|| "shop".to_owned());
            let refusal = election.check(&namespace).expect_err(rule).to_string();
            assert!(refusal.contains(rule), "{refusal}");
        }
    }

    // L7
    #[test]
    fn valid_settings_are_accepted_and_their_deadlines_are_in_order() {
        for election in [LeaderElection::new("web.example-1"), timed(15.0, 2.41, 2.0), timed(1.0, 0.9, 0.1)] {
            assert_eq!(election.check("shop"), Ok(()));
            let timing = election.timing;
            let order = [timing.renew, timing.expiry(), timing.overrun(), timing.lease];
            assert!(order.is_sorted_by(|sooner, later| sooner < later), "{order:?}");
        }
    }
}
